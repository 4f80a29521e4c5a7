"""D4RL's HDF5 files, exactly as they are published: flat arrays, trajectories ended by `terminals` and `timeouts`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.action_spec import ActionSpec
from mental_accounts.data.download import download
from mental_accounts.data.hdf5 import check_keys, h5py_module, read_arrays
from mental_accounts.data.tensor_files import cache_folder
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import DataError

URL = "http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2"
"""Where D4RL publishes its MuJoCo data sets, version 2."""

REQUIRED = ("observations", "actions", "rewards", "terminals")


def read_d4rl(
    path: Path | str,
    *,
    time_limit: int | None = None,
    action_spec: ActionSpec | None = None,
    info: Mapping[str, Any] | None = None,
) -> Trajectories:
    """Read one file. A trailing trajectory that neither terminated nor timed out is kept, as truncated.

    Some old files have no `timeouts`: their trajectories end at `terminals`, and after `time_limit` steps if one is
    given.
    """
    path = Path(path)
    arrays = read_arrays(path, REQUIRED, optional=("timeouts",))
    if not len(arrays["rewards"]):
        raise DataError(f"{path}: rewards is empty, expected at least one step")
    terminals = _flags(arrays["terminals"], "terminals", path)
    timeouts = _flags(arrays["timeouts"], "timeouts", path) if "timeouts" in arrays else None
    if time_limit is not None and time_limit < 1:
        raise DataError(f"a time limit must be at least 1 step, got {time_limit}")
    if time_limit is not None and timeouts is not None:
        raise DataError(f"{path} has a key `timeouts` that says where trajectories end; leave the time limit out")
    lengths, terminated, truncated = split_trajectories(terminals, timeouts, time_limit)
    return Trajectories.from_steps(
        arrays["observations"],
        arrays["actions"],
        arrays["rewards"],
        lengths=lengths,
        terminated=terminated,
        truncated=truncated,
        action_spec=action_spec,
        info={"source": "d4rl", "file": path.name, **(info or {})},
        where=str(path),
    )


def fetch_d4rl(name: str) -> Path:
    """The file of a D4RL data set such as `hopper-medium-v2`, downloaded into the cache if it is not there yet."""
    path = cached_d4rl(name)
    if not path.exists():
        h5py_module()  # if h5py is missing, fail before the download
        download(f"{URL}/{path.name}", path, check=lambda temporary: check_keys(temporary, REQUIRED, shown=path))
    return path


def cached_d4rl(name: str) -> Path:
    """The path of a D4RL data set once it is downloaded, under D4RL's own name."""
    stem, _, version = name.rpartition("-")
    return cache_folder() / "d4rl" / f"{stem.replace('-', '_')}-{version}.hdf5"


def split_trajectories(
    terminals: NDArray[np.bool_], timeouts: NDArray[np.bool_] | None, time_limit: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """The length of each trajectory, and whether it terminated and was truncated; terminals, timeouts: (steps,)."""
    steps = np.arange(len(terminals))
    if timeouts is None:
        timeouts = np.zeros_like(terminals)
        if time_limit is not None:
            begun = np.maximum.accumulate(np.where(np.r_[True, terminals[:-1]], steps, 0))
            timeouts = ((steps - begun + 1) % time_limit == 0) & ~terminals
    last = np.flatnonzero(terminals | timeouts)
    terminated, truncated = terminals[last], timeouts[last]
    if len(last) == 0 or last[-1] != len(terminals) - 1:
        last = np.append(last, len(terminals) - 1)
        terminated, truncated = np.append(terminated, False), np.append(truncated, True)
    return np.diff(last, prepend=-1), terminated, truncated


def _flags(values: NDArray[Any], name: str, path: Path) -> NDArray[np.bool_]:
    flat = values.reshape(len(values), -1)
    if flat.shape[1] != 1 or flat.dtype.kind not in "biuf" or not np.isin(flat, (0, 1)).all():
        raise DataError(f"{path}: {name} must be one 0 or 1 per step, got {values.dtype} {values.shape}")
    return flat[:, 0].astype(bool)
