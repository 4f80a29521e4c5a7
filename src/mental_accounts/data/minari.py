"""Farama's Minari: data sets that are installed, that can be downloaded, or that the user recorded.

Minari finds and downloads them. Their files may be a stranger's: what Minari would follow is checked before it opens
them, and their numbers are read by hdf5.py.
"""

import contextlib
import re
import shutil
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.action_spec import ActionSpec
from mental_accounts.data.data_checks import check_unfolding, damaged, reason_of
from mental_accounts.data.hdf5 import read_groups
from mental_accounts.data.progress import progress_bar
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import DataError, UsageError
from mental_accounts.extras import how_to_install
from mental_accounts.fields import check_fields, shown
from mental_accounts.files import parse_json, read_json
from mental_accounts.flattening import flat_part, parts_of
from mental_accounts.observation_spec import ObservationPart
from mental_accounts.spaces import action_spec_of

METADATA = {
    "data_format": "text",
    "total_episodes": "a whole number",
    "observation_space": "text",
    "action_space": "text",
}
"""What metadata.json must have. Without its spaces Minari would make the environment that it names: a program."""

PLAIN_TYPE = re.compile("bool|u?int(8|16|32|64)|float(16|32|64)")
"""Types of a space's bounds; others can ask for any amount of memory."""

EPISODE_BYTES = 256
"""The least that a file spends on an episode."""

BROKEN = "delete it and get it again"


def read_minari(dataset_id: str, *, download: bool = True) -> Trajectories:
    """Read the data set `dataset_id`, such as `mujoco/hopper/medium-v0`; downloaded first where it is not installed.

    Observations are flattened (flattening.py). The last observation of an episode, after its last action, is its final
    one. The environment's id stands in `info["env_id"]`.
    """
    where = f"minari/{dataset_id}"
    dataset, file = _open(dataset_id, download, where)
    action_space = dataset.action_space
    seen_parts = _parts(dataset.observation_space, where)
    parts: dict[str, list[NDArray[Any]]] = {"observations": [], "actions": [], "rewards": []}
    lengths, terminated, truncated, final = [], [], [], []
    count = len(dataset.episode_indices)
    if not count:
        raise DataError(f"{where}: the data set has no episode")
    keys = [*seen_parts, "actions", "rewards", "terminations", "truncations"]
    episodes = read_groups(file, [f"episode_{i}" for i in range(count)], keys, where)
    with progress_bar(f"reading {where}", count) as advance:
        for i, episode in enumerate(episodes):
            T, here = len(episode["rewards"]), f"{where}: episode {i}"
            if T == 0:
                raise DataError(f"{here} has 0 steps, expected at least one")
            lengths.append(T)
            _check_one_hot(seen_parts, sum(lengths), file, where)
            seen = [_flat(part, episode[name], f"{here}: {name}") for name, part in seen_parts.items()]
            actions = _actions(action_space, episode["actions"], where)
            counts = {name: len(array) - 1 for name, array in zip(seen_parts, seen, strict=True)}
            counts |= {"actions": len(actions), **{name: len(episode[name]) for name in keys[-3:]}}
            if len(set(counts.values())) != 1:
                raise DataError(f"{here}: expected as many steps of each, and one more observation, got {counts}")
            observations = np.concatenate(seen, axis=1)
            parts["observations"].append(observations[:-1])
            final.append(
                observations[-1] if np.isfinite(observations[-1]).all() else np.full_like(observations[-1], np.nan)
            )
            parts["actions"].append(actions)
            parts["rewards"].append(episode["rewards"])
            terminated.append(bool(episode["terminations"].flat[-1]))
            truncated.append(bool(episode["truncations"].flat[-1]) or not terminated[-1])
            advance(1)
    for name, arrays in parts.items():
        shapes = {array.shape[1:] for array in arrays}
        if len(shapes) != 1:
            raise DataError(f"{where}: {name} must have the same shape in all episodes, got {sorted(shapes)[:20]}")
    return Trajectories.from_steps(
        *(np.concatenate(arrays) for arrays in parts.values()),
        lengths=lengths,
        terminated=terminated,
        truncated=truncated,
        final_observations=np.stack(final),
        action_spec=_action_spec(action_space),
        info={"source": "minari", "dataset": dataset_id, "env_id": dataset.env_spec and dataset.env_spec.id},
        where=where,
    )


def installed_minari() -> list[str]:
    """The ids of the data sets on this machine; none where Minari is not installed."""
    try:
        import minari  # type: ignore[import-untyped]
    except ImportError:
        return []
    with warnings.catch_warnings(), damaged("Minari cannot list its data sets", "move what is none out of its folder"):
        warnings.simplefilter("ignore")  # it warns about folders that hold something else
        return list(minari.list_local_datasets())


def _open(dataset_id: str, download: bool, where: str) -> tuple[Any, Path]:
    """The data set, its metadata checked, and the file of its numbers, which nobody has looked at yet."""
    try:
        import minari
        from minari.storage.datasets_root_dir import get_dataset_path  # type: ignore[import-untyped]
    except ImportError:
        raise ImportError(f"reading Minari's data sets needs Minari: {how_to_install('minari')}") from None
    folder: Path = get_dataset_path(dataset_id)
    if not (folder / "data").is_dir():
        _download(dataset_id, folder, download, where)
    file = folder / "data" / "main_data.hdf5"
    _check_metadata(folder / "data" / "metadata.json", file, where)
    with warnings.catch_warnings(), damaged(f"{where}: Minari could not open it", BROKEN):
        warnings.simplefilter("ignore")
        return minari.load_dataset(dataset_id), file


def _download(dataset_id: str, folder: Path, allowed: bool, where: str) -> None:
    import minari

    new = not folder.exists()
    try:
        if not allowed:
            raise FileNotFoundError(f"it is not found locally at {folder}")
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")  # newer versions of the data set are Minari's business
            minari.download_dataset(dataset_id)
    except BaseException as error:
        if new:  # Minari writes where it reads: half a download would pass for a data set
            shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, Exception):
            raise
        # Minari's storages and clouds raise what they like.
        raise DataError(
            f"{where}: Minari could not open it ({reason_of(error)}); installed here: "
            f"{', '.join(installed_minari()) or 'none'}"
        ) from error


def _check_metadata(path: Path, file: Path, where: str) -> None:
    """Refuse what Minari would take memory for, or execute."""
    with damaged(f"{where}: the data set is damaged", BROKEN):
        facts = check_fields(read_json(path), METADATA, str(path))
        if facts["data_format"] != "hdf5":
            raise DataError(
                f"{where}: data_format must be hdf5, the only one that is read, got {shown(facts['data_format'])}"
            )
        episodes, size = facts["total_episodes"], file.stat().st_size
        if not 0 <= episodes <= size // EPISODE_BYTES:
            raise DataError(
                f"{path}: total_episodes is {shown(episodes)}, but {file.name} of {size:,} bytes can hold "
                f"{size // EPISODE_BYTES:,} at most; {BROKEN}"
            )
        for name in ("observation_space", "action_space"):
            _check_space(parse_json(facts[name], f"{path}, {name},"), f"{path}, {name},")


def _check_space(space: object, where: str) -> None:
    found = check_fields(space, {"type": "text"}, where)
    if not PLAIN_TYPE.fullmatch(str(found.get("dtype", "bool"))):
        raise DataError(f"{where} cannot be read: dtype must be one of plain numbers, got {shown(found['dtype'])}")
    parts = found.get("subspaces", [])
    for part in parts.values() if isinstance(parts, dict) else parts:
        _check_space(part, where)


def _parts(space: Any, where: str) -> dict[str, ObservationPart]:
    """The parts of an observation by the keys that their numbers lie under, in Gymnasium's order."""
    try:
        return dict(zip(_keys(space, "observations"), parts_of(space), strict=True))
    except UsageError as error:
        raise DataError(f"{where}: {error}") from None


def _keys(space: Any, name: str) -> list[str]:
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return [key for end, part in space.items() for key in _keys(part, f"{name}/{end}")]
    if isinstance(space, spaces.Tuple):
        return [key for i, part in enumerate(space.spaces) for key in _keys(part, f"{name}/_index_{i}")]
    return [name]


def _check_one_hot(parts: Mapping[str, ObservationPart], steps: int, file: Path, where: str) -> None:
    """Refuse whole numbers whose one-hot vectors would take far more than the file."""
    unfolded = {name: 4 * part.size * steps for name, part in parts.items() if part.values}
    if unfolded:
        check_unfolding(unfolded, steps, file.stat().st_size, where, "leave them out of its observations")


def _flat(part: ObservationPart, values: NDArray[Any], where: str) -> NDArray[Any]:
    """A part of an episode's observations as (T + 1, size)."""
    try:
        return flat_part(part, values, len(values) if values.ndim else 0)
    except ValueError as error:
        raise DataError(f"{where}: {error}; images that Minari has compressed are not read") from None


def _actions(space: Any, values: NDArray[Any], where: str) -> NDArray[Any]:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return values.reshape(-1).astype(np.int64)
    if isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)) and len(space.shape) == 1:
        return values
    raise DataError(
        f"{where}: actions must be of a flat Box, MultiDiscrete or MultiBinary, or Discrete, got {shown(space)}"
    )


def _action_spec(space: Any) -> ActionSpec | None:
    """The action space, where it is one that a policy can act in: unbounded boxes are not."""
    from gymnasium import spaces

    if not isinstance(space, spaces.Box):
        return action_spec_of(space)
    if not space.is_bounded():
        return None
    return ActionSpec("box", int(space.shape[0]), tuple(space.low.tolist()), tuple(space.high.tolist()))
