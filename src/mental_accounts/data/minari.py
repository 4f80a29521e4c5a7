"""Farama's Minari: data sets that are installed, that can be downloaded, or that the user recorded."""

import contextlib
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.config import ActionSpec
from mental_accounts.data.progress import progress_bar
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import DataError


def read_minari(dataset_id: str, *, download: bool = True) -> Trajectories:
    """Read the data set `dataset_id`, such as `mujoco/hopper/medium-v0`; downloaded first where it is not installed.

    Observations are flattened as `gymnasium.wrappers.FlattenObservation` does. The last observation of an episode,
    after its last action, is left out. The environment's id stands in `info["env_id"]`.
    """
    where = f"minari/{dataset_id}"
    dataset = _open(dataset_id, download, where)
    with _named(where):
        observation_space, action_space = dataset.observation_space, dataset.action_space
    parts: dict[str, list[NDArray[Any]]] = {"observations": [], "actions": [], "rewards": []}
    lengths, terminated, truncated = [], [], []
    with _named(where), progress_bar(f"reading {where}", dataset.total_episodes) as advance:
        for episode in dataset.iterate_episodes():
            T, here = len(episode.rewards), f"{where}: episode {episode.id}"
            if T == 0:
                raise DataError(f"{here} has 0 steps, expected at least one")
            observations = _flat(observation_space, episode.observations, f"{here}: observations")
            actions = _actions(action_space, episode.actions, where)
            counts = {"observations": len(observations) - 1, "actions": len(actions), "rewards": T}
            if len(set(counts.values())) != 1:
                raise DataError(f"{here}: expected as many steps of each, and one more observation, got {counts}")
            parts["observations"].append(observations[:-1])
            parts["actions"].append(actions)
            parts["rewards"].append(np.asarray(episode.rewards))
            lengths.append(T)
            terminated.append(bool(episode.terminations[-1]))
            truncated.append(bool(episode.truncations[-1]) or not episode.terminations[-1])
            advance(1)
    if not lengths:
        raise DataError(f"{where}: the data set has no episode")
    with _named(where):
        env_id = dataset.env_spec.id if dataset.env_spec is not None else None
    return Trajectories.from_steps(
        *(np.concatenate(arrays) for arrays in parts.values()),
        lengths=lengths,
        terminated=terminated,
        truncated=truncated,
        action_spec=_action_spec(action_space),
        info={"source": "minari", "dataset": dataset_id, "env_id": env_id},
        where=where,
    )


def installed_minari() -> list[str]:
    """The ids of the data sets on this machine; none where Minari is not installed."""
    try:
        import minari  # type: ignore[import-untyped]
    except ImportError:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about folders that hold something else
        return list(minari.list_local_datasets())


def _open(dataset_id: str, download: bool, where: str) -> Any:
    try:
        import minari
        from minari.storage.datasets_root_dir import get_dataset_path  # type: ignore[import-untyped]
    except ImportError:
        raise ImportError("reading Minari's data sets needs Minari: pip install 'mental-accounts[minari]'") from None
    folder: Path = get_dataset_path(dataset_id)
    new = not folder.exists()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")  # newer versions of the data set are Minari's business
            return minari.load_dataset(dataset_id, download=download)
    except BaseException as error:
        if new:  # Minari writes where it reads: half a download would pass for a data set
            shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, Exception):
            raise
        # Minari's storages, clouds and parsers raise what they like.
        raise DataError(
            f"{where}: Minari could not open it ({type(error).__name__}: {error}); installed here: "
            f"{', '.join(installed_minari()) or 'none'}"
        ) from error


@contextlib.contextmanager
def _named(where: str) -> Iterator[None]:
    """A damaged data set fails in any way: one line, whatever Minari, h5py or NumPy raised."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{where}: the data set is damaged ({reason}); delete it and get it again") from error


def _flat(space: Any, values: Any, where: str) -> NDArray[Any]:
    """Box observations, or a dict or tuple of them, as (T + 1, obs)."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        array = np.asarray(values)
        return array.reshape(len(array), -1)
    if isinstance(space, spaces.Dict):
        return np.concatenate([_flat(part, values[name], f"{where}.{name}") for name, part in space.items()], axis=1)
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, values, strict=True)
        return np.concatenate([_flat(part, value, f"{where}[{i}]") for i, (part, value) in enumerate(parts)], axis=1)
    raise DataError(f"{where} must be of a Box space, or of a Dict or Tuple of them, got {space}")


def _actions(space: Any, values: Any, where: str) -> NDArray[Any]:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return np.asarray(values).reshape(-1).astype(np.int64)
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return np.asarray(values)
    raise DataError(f"{where}: actions must be of a flat Box or a Discrete space, got {space}")


def _action_spec(space: Any) -> ActionSpec | None:
    """The action space, where it is one that a policy can act in: unbounded boxes are not."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return ActionSpec("discrete", int(space.n), start=int(space.start))
    if not space.is_bounded():
        return None
    return ActionSpec("box", int(space.shape[0]), tuple(space.low.tolist()), tuple(space.high.tolist()))
