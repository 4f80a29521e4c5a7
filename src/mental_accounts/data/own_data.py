"""Data that no task names, from Python or a file: they are stored in the run folder."""

from pathlib import Path

from mental_accounts.data.imports import read_source
from mental_accounts.data.tasks import Task, complete, part_of
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import DataError

UNNAMED = " (own)"
"""Suffix of names that another process cannot resolve: of data, and of environments."""


def read_file(path: Path) -> Trajectories:
    """A file of trajectories: D4RL's HDF5 layout, a Decision Transformer `.pkl`, or what `Trajectories.save` wrote."""
    if not path.exists():
        raise DataError(f"{path}: no such file")
    return read_source(str(path))


def load_own(name: str, path: Path | None, size: int | None = None, seed: int = 0) -> tuple[Task, Trajectories]:
    """As `load_task`, for data stored in a run folder."""
    if path is None or not path.exists():
        raise DataError(f"the data {name} are missing: they are stored in the folder of the run they were given to")
    store = Trajectories.load(path)
    task = complete(Task(name, "imported", name, None), store)
    return task, store if size is None else part_of(store, size, seed)
