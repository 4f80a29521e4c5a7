"""The codes of the last steps: for rewards that come late, and belong to an earlier action of the same episode."""

import operator
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.channels import MOST_DELAY
from mental_accounts.errors import UsageError
from mental_accounts.integrations.numpy_codebooks import Codes
from mental_accounts.number_checks import check_count

Array = NDArray[Any]

LONGEST = 1_000_000
"""The largest constant `reward_delay`; `info["reward_delay"]` reaches as far as that does, or MOST_DELAY steps."""


class PastCodes:
    """What was done in the last steps of the episodes of n actors.

    For one actor, steps are lists of codes, appended to `kept` and found by `find_one`: quickly, since every step of
    every environment is. For n they are (n, codes per action), for `append` and `find`.
    """

    def __init__(self, actors: int, delay: int) -> None:
        self.delay = check_count("reward_delay", delay, 0)
        if delay > LONGEST:
            raise UsageError(f"reward_delay must be at most {LONGEST} steps, got {delay}")
        self._most = max(self.delay, MOST_DELAY)
        self.kept: deque[Any] = deque(maxlen=self._most + 1)  # with the step that is just over
        self._count = 0
        self._began = np.zeros(actors, np.int64)  # how many steps came before each actor's episode

    def append(self, codes: Codes) -> None:
        """The codes of n actors' step that is just over."""
        self.kept.append(codes)
        self._count += 1

    def begin(self, actors: Array | None = None) -> None:
        """Episodes begin, for all actors or for those where (n,) is True: what they did before is out of reach."""
        if actors is None:
            self.kept.clear()
            self._began[:] = self._count
        else:
            self._began[actors] = self._count

    def find_one(self, info: Mapping[str, Any]) -> tuple[list[int], int] | None:
        """Whose reward came, for one actor: the codes, and how many steps ago; None where it is nobody's."""
        steps = len(self.kept)
        delay = self._checked(info["reward_delay"], steps, "") if "reward_delay" in info else self.delay
        return (self.kept[-1 - delay], delay) if delay < steps else None

    def find(self, told: Iterable[tuple[Array, Array]]) -> tuple[Codes, Array, Array]:
        """For n actors: codes (n, codes per action), how many steps ago (n,), and whether it is anybody's (n,).

        `told` has delays (n,), each with where they count (n,). The codes are any where the reward is nobody's.
        """
        steps = np.minimum(self._count - self._began, len(self.kept))
        delays = np.full(len(steps), self.delay)
        for values, said in told:
            for actor in np.flatnonzero(said):
                delays[actor] = self._checked(values[actor], int(steps[actor]), f" of environment {actor}")
        known = delays < steps
        codes: Codes = np.array(self.kept[-1])
        for delay in np.unique(delays[known]):
            those = known & (delays == delay)
            codes[those] = self.kept[-1 - delay][those]
        return codes, delays, known

    def _checked(self, told: Any, steps: int, whose: str) -> int:
        name, told = f"info['reward_delay']{whose}", told.item() if isinstance(told, np.generic) else told
        try:
            delay = -1 if isinstance(told, bool) else operator.index(told)
        except TypeError:
            delay = -1
        if delay < 0:
            raise UsageError(f"{name} must be a whole number of steps, 0 or more, got {told!r}")
        if delay > self._most:
            raise UsageError(
                f"{name} is {delay}, but only the last {self._most} steps are kept; LedgerObservation(..., "
                f"reward_delay={delay}) keeps as many, and is the delay of steps that tell none"
            )
        if delay >= steps:
            raise UsageError(
                f"{name} is {delay}, but this is step {steps - 1} of its episode, counted from 0; a reward can only "
                "belong to an action of the same episode"
            )
        return delay
