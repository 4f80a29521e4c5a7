"""Columns of step data in memory that stays where it is: a CUDA graph captured once sees what is appended later.

The live steps lie in one run of rows. New steps are written behind it, old ones dropped from its front; when the end is
reached the run moves back to the beginning. One more row than the capacity is kept, and kept zero: what a window reads
where there is no step.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from mental_accounts.errors import DataError, NoRoomError
from mental_accounts.machine import available_memory

MOVED_ROWS = 2**16
"""Rows moved at a time when the live run goes back to the beginning: bounds the extra memory."""


class Column(NamedTuple):
    """What one row of a column holds."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def row_bytes(self) -> int:
        return int(torch.Size(self.shape).numel()) * self.dtype.itemsize


class StepStorage:
    """Preallocated columns, (capacity + 1, ...) each, on one device."""

    def __init__(self, columns: Mapping[str, Column], capacity: int, device: torch.device | str = "cpu") -> None:
        if capacity < 1:
            raise DataError(f"capacity must be at least 1 step, got {capacity}")
        self.capacity = capacity
        self.device = torch.empty(0, device=device).device  # with its number, where it has one
        check_memory(sum(column.row_bytes for column in columns.values()) * (capacity + 1), self.device)
        self.columns = {name: self._new(column) for name, column in columns.items()}
        self.first = 0
        self.count = 0
        self.live = torch.zeros(2, dtype=torch.int64, device=self.device)
        """[first, count] on the device, for samplers that must not look at the host."""
        self.pinned = False
        """Whether addresses are promised to stay: a full storage is then an error, instead of a larger one."""

    @classmethod
    def holding(cls, columns: Mapping[str, Tensor]) -> "StepStorage":
        """These columns themselves, (N + 1, ...) each, the last row zero; nothing is copied."""
        held = next(iter(columns.values()))
        storage = cls({}, len(held) - 1, held.device)
        storage.columns = dict(columns)
        storage._set_live(0, len(held) - 1)
        return storage

    def padded(self, name: str) -> Tensor:
        """The live rows of a column and the one that is zero, (count + 1, ...): what `holding` takes."""
        column = self.columns[name]
        if self.first == 0 and self.count == self.capacity:
            return column
        return torch.cat([self.rows(name), column[self.blank :]])

    @property
    def blank(self) -> int:
        """The row that is always zero."""
        return self.capacity

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def rows(self, name: str) -> Tensor:
        """The live rows of a column, a view."""
        return self.columns[name][self.first : self.first + self.count]

    def schema(self) -> dict[str, Column]:
        return {name: Column(tuple(column.shape[1:]), column.dtype) for name, column in self.columns.items()}

    def add(self, name: str, column: Column) -> None:
        """One more column, zero. One of the same kind that is there already is kept, and so is its address."""
        if self.schema().get(name) == column:
            return
        if self.pinned:
            raise DataError(
                f"column {name!r} cannot become {column.dtype} {column.shape} now: addresses are pinned for a captured "
                "graph; annotate with this codebook before pinning"
            )
        check_memory(column.row_bytes * (self.capacity + 1), self.device)
        self.columns[name] = self._new(column)

    def extend(self, rows: Mapping[str, Tensor], count: int) -> None:
        """Write `count` rows of every column behind the live ones; columns without rows get zeros."""
        self._make_room(count)
        behind = self.first + self.count
        for name, column in self.columns.items():
            target = column[behind : behind + count]
            if name in rows:
                target.copy_(rows[name])
            else:
                target.zero_()
        self._set_live(self.first, self.count + count)

    def drop(self, count: int) -> None:
        """Forget the first `count` live rows."""
        left = self.count - count
        self._set_live(self.first + count if left else 0, left)

    def reserve(self, capacity: int) -> None:
        """Room for so many live rows in all, by moving to new memory where there is less."""
        if capacity <= self.capacity:
            return
        if self.pinned:
            raise DataError(
                f"room for {capacity} steps was needed, but the store holds at most {self.capacity} and its addresses "
                "are pinned for a captured graph; give it a larger capacity from the start"
            )
        check_memory(sum(column.row_bytes for column in self.schema().values()) * (capacity + 1), self.device)
        self.capacity = capacity
        for name, column in self.schema().items():
            old = self.rows(name)
            self.columns[name] = self._new(column)
            self.columns[name][: self.count].copy_(old)
        self._set_live(0, self.count)

    def to(self, device: torch.device | str) -> "StepStorage":
        """A copy on another device, of the same capacity."""
        moved = StepStorage(self.schema(), self.capacity, device)
        moved.extend({name: self.rows(name) for name in self.columns}, self.count)
        return moved

    def _make_room(self, count: int) -> None:
        if self.first + self.count + count <= self.capacity:
            return
        if self.count + count > self.capacity:
            needed = self.count + count
            self.reserve(needed if self.pinned else max(needed, self.capacity * 3 // 2))
            return
        for column in self.columns.values():  # forwards and through a copy, since the two runs may overlap
            for begin in range(0, self.count, MOVED_ROWS):
                n = min(MOVED_ROWS, self.count - begin)
                source = column[self.first + begin : self.first + begin + n]
                column[begin : begin + n].copy_(source.clone())
        self._set_live(0, self.count)

    def _set_live(self, first: int, count: int) -> None:
        self.first, self.count = first, count
        self.live[0].fill_(first)  # kernels that carry their number: the host waits for nothing
        self.live[1].fill_(count)

    def _new(self, column: Column) -> Tensor:
        return torch.zeros(self.capacity + 1, *column.shape, dtype=column.dtype, device=self.device)


def check_memory(needed: int, device: torch.device | str) -> None:
    """Say before anything is moved that the device's free memory is too small."""
    device = torch.device(device)
    available = _free_memory(device)
    if available is not None and needed > available:
        raise NoRoomError(
            f"the data need {needed / 1e9:.2f} GB on {device}, but only {available / 1e9:.2f} GB are free there; "
            "take fewer steps, or keep the data on another device (device='cpu')"
        )


def _free_memory(device: torch.device) -> int | None:
    """Bytes that can still be taken, or None where that cannot be known."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free) + int(unused)
    return available_memory() if device.type == "cpu" else None
