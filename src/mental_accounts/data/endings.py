"""The observations that followed the last steps of trajectories which were cut off, in memory that stays where it is.

There is a row for each of them, not for each step: the last step of a trajectory has the number of its row, in the
column `ending` of the store. 0 stands for none, and row 0 is always zero. Rows that are free again are taken again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mental_accounts.data.final_steps import FinalSteps
from mental_accounts.data.storage import Column, check_memory
from mental_accounts.errors import DataError

ENDING = "ending"
"""The column of a store that has the rows of endings."""
ENDING_COLUMN = Column((), torch.int32)


class SeenAfter(NamedTuple):
    """What was seen after some steps."""

    rows: Tensor  # (E,) int64: which steps
    observations: Tensor  # (E, obs)


class Endings:
    """Rows (room + 1, ...) of observations and, where the store has them, of action masks, on one device."""

    def __init__(
        self, obs_dim: int, values: int | None = None, room: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        """With `values`, there are masks of so many flags."""
        check_memory((room + 1) * (4 * obs_dim + (values or 0)), device)
        self.observations = torch.zeros(room + 1, obs_dim, device=device)
        self.action_masks = None if values is None else torch.zeros(room + 1, values, dtype=torch.bool, device=device)
        self.pinned = False
        """Whether addresses are promised to stay: full endings are then an error, instead of larger ones."""
        self._free = list(range(room, 0, -1))

    @property
    def room(self) -> int:
        """How many endings fit."""
        return len(self.observations) - 1

    @property
    def nbytes(self) -> int:
        return self.observations.nbytes + (0 if self.action_masks is None else self.action_masks.nbytes)

    def reserve(self, room: int) -> None:
        """Room for so many in all, by moving to new memory where there is less."""
        before = self.room
        if room <= before:
            return
        if self.pinned:
            raise DataError(
                f"room for {room} final observations was needed, but the store holds at most {before} and its "
                "addresses are pinned for a captured graph; make room with keep_endings before"
            )
        values = None if self.action_masks is None else self.action_masks.shape[1]
        larger = Endings(self.observations.shape[1], values, room, self.observations.device)
        for mine, wider in zip(self._tensors(), larger._tensors(), strict=True):
            wider[: before + 1].copy_(mine)
        self.observations, self.action_masks = larger.observations, larger.action_masks
        self._free = [*range(room, before, -1), *self._free]

    def make_room(self, count: int) -> None:
        """Room for so many more."""
        if count > len(self._free):
            needed = self.room - len(self._free) + count
            self.reserve(needed if self.pinned else max(needed, self.room * 3 // 2))

    def enter(self, final: FinalSteps) -> list[int]:
        """Keep these, for which there is room; the row of each."""
        rows = [self._free.pop() for _ in range(len(final))]
        at = torch.tensor(rows, dtype=torch.int64).to(self.observations.device)
        self.observations.index_copy_(0, at, final.observations.to(at.device))
        if self.action_masks is not None and final.action_masks is not None:
            self.action_masks.index_copy_(0, at, final.action_masks.to(at.device))
        return rows

    def drop(self, rows: Sequence[int]) -> None:
        """Forget these rows; 0 is none."""
        self._free += [row for row in rows if row]

    def select(self, rows: Sequence[int], device: torch.device | str) -> "Endings":
        """Copies of these rows on a device, numbered from 1 in this order."""
        at = torch.tensor([0, *rows], dtype=torch.int64).to(self.observations.device)
        values = None if self.action_masks is None else self.action_masks.shape[1]
        chosen = Endings(self.observations.shape[1], values, len(rows), device)
        for mine, copy in zip(self._tensors(), chosen._tensors(), strict=True):
            copy.copy_(mine.index_select(0, at))
        chosen._free = []
        return chosen

    def allow_all(self, values: int) -> None:
        """Masks that allow all of so many values."""
        self.action_masks = torch.ones(self.room + 1, values, dtype=torch.bool, device=self.observations.device)
        self.action_masks[0] = False

    def _tensors(self) -> list[Tensor]:
        return [self.observations, *([] if self.action_masks is None else [self.action_masks])]
