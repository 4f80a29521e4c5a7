"""Files as other programs write them."""

import pickle
from pathlib import Path

import h5py
import numpy as np

from tests.data.slow_windows import Episode


def d4rl_arrays(parts: list[Episode]) -> dict[str, np.ndarray]:
    """D4RL's flat layout; a last part that neither terminated nor was truncated is a tail without an end."""
    ends = np.concatenate([np.arange(len(p.rewards)) == len(p.rewards) - 1 for p in parts])
    flags = {
        name: ends & np.repeat([getattr(p, flag) for p in parts], [len(p.rewards) for p in parts])
        for name, flag in {"terminals": "terminated", "timeouts": "truncated"}.items()
    }
    observations = np.concatenate([p.observations for p in parts])
    return {
        "observations": observations,
        "actions": np.concatenate([p.actions for p in parts]),
        "rewards": np.concatenate([p.rewards for p in parts]),
        "next_observations": np.roll(observations, -1, axis=0),
        **flags,
    }


def write_hdf5(path: Path, arrays: dict[str, np.ndarray], compression: str = "gzip") -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression=compression if array.dtype.kind in "bf" else None)
        file.create_dataset("metadata/algorithm", data="SAC")
        file.create_dataset("infos/qpos", data=np.zeros((3, 2)))
    return path


def pickled_paths(parts: list[Episode]) -> list[dict[str, np.ndarray]]:
    """The list of dicts that the Decision Transformer's conversion script dumps."""
    paths = []
    for part in parts:
        terminals = np.zeros(len(part.rewards), dtype=bool)
        terminals[-1] = part.terminated
        following = np.roll(part.observations, -1, axis=0)
        paths.append(
            {
                "observations": part.observations,
                "next_observations": following,
                "actions": part.actions,
                "rewards": part.rewards,
                "terminals": terminals,
            }
        )
    return paths


def write_pickle(path: Path, content: object, protocol: int = pickle.DEFAULT_PROTOCOL) -> Path:
    path.write_bytes(pickle.dumps(content, protocol))
    return path
