"""Which trajectories a store has: where each begins, how long it is, what it returned, and how it ended."""

from collections.abc import Iterable, Sequence

import numpy as np

from mental_accounts.data.data_checks import Steps


class TrajectoryTable:
    """One entry for each trajectory, the oldest first; on the host."""

    def __init__(self) -> None:
        self.dropped = 0
        """Steps of trajectories that are gone: `begins` counts from the very first step."""
        self.begins: list[int] = []
        self.lengths: list[int] = []
        self.returns: list[float] = []
        self.terminated: list[bool] = []
        self.truncated: list[bool] = []
        self.endings: list[int] = []
        """The rows of what was seen after the last steps; 0 where that is not known."""

    def __len__(self) -> int:
        return len(self.lengths)

    def enter(self, steps: Steps, before: int, endings: Sequence[int]) -> None:
        """Enter the trajectories of these steps; `before` of all steps that are there came before them."""
        begins = steps.lengths.cumsum(0) - steps.lengths
        self.begins += (begins + (before + self.dropped)).tolist()
        self.lengths += steps.lengths.tolist()
        self.returns += np.add.reduceat(steps.rewards.double().numpy(), begins.numpy()).tolist()
        self.terminated += steps.terminated.tolist()
        self.truncated += steps.truncated.tolist()
        self.endings += endings

    def drop(self, n: int) -> int:
        """Forget the n oldest; how many steps they have."""
        steps = sum(self.lengths[:n])
        self.dropped += steps
        for column in (self.begins, self.lengths, self.returns, self.terminated, self.truncated, self.endings):
            del column[:n]
        return steps

    def select(self, chosen: Iterable[int]) -> "TrajectoryTable":
        """These trajectories, whose steps follow each other; endings that are known are numbered from 1."""
        found, order = TrajectoryTable(), list(chosen)
        found.lengths = [self.lengths[i] for i in order]
        found.begins = [0, *np.cumsum(found.lengths).tolist()][: len(found.lengths)]
        found.returns = [self.returns[i] for i in order]
        found.terminated = [self.terminated[i] for i in order]
        found.truncated = [self.truncated[i] for i in order]
        number = 0
        for i in order:
            number += self.endings[i] > 0
            found.endings.append(number if self.endings[i] else 0)
        return found
