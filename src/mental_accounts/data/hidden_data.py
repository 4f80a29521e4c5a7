"""Data of the tasks with a hidden context: rolled out on this machine by adaptive behaviour policies."""

import contextlib
import hashlib
import importlib.metadata
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol

import gymnasium
import numpy as np

from mental_accounts.data.builtin import recipe_of
from mental_accounts.data.mechanic import Mechanic
from mental_accounts.data.progress import progress_bar
from mental_accounts.data.tensor_files import cache_folder
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.environments.playing import Env, Played
from mental_accounts.environments.variants import variant_spec
from mental_accounts.errors import DataError
from mental_accounts.files import slug
from mental_accounts.folder_lock import in_turn
from mental_accounts.spaces import action_spec_of

DATA_VERSION = 5
"""Raise it with every change of the environments or of their behaviour policies: it invalidates cached files."""
EPISODE_SEEDS = 1_000_003
"""Episode i of data seed s is played with seed s · this + i."""


MOST_TOLD = 32
"""The rewards of all actions are kept of environments with at most so many: with 300 they are most of a file."""


class Maker(Protocol):
    """A behaviour policy: a dataclass whose fields, with the seed, determine an episode."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def play(self, env: Env, seed: int) -> Played:
        """One episode."""
        ...


def make_hidden(name: str, env_id: str, maker: Maker, size: int, seed: int = 0) -> Trajectories:
    """Whole episodes of the task's behaviour policy, at least `size` steps: from the cache, or rolled out now.

    Where several take turns, `info["made_by"]` has how many episodes each of them played, and `info["makers"]` who
    played each of them, in the order of the file.
    """
    if size < 1 or seed < 0:
        raise DataError(f"steps must be at least 1 and seed 0 or more, got {size} and {seed}")
    facts = hidden_facts(env_id, maker, size, seed)
    path = hidden_path(name, facts)
    if path.exists():
        return Trajectories.load(path)
    with in_turn(path):
        return Trajectories.load(path) if path.exists() else _roll_out(name, env_id, maker, facts, path)


def hidden_facts(env_id: str, maker: Maker, size: int, seed: int) -> dict[str, Any]:
    """All that determines a data set."""
    return {
        "version": DATA_VERSION,
        "env_id": env_id,
        "size": size,
        "seed": seed,
        "maker": {"kind": type(maker).__name__, **asdict(maker), "behaviour": behaviour_digest(maker)},
        "versions": {package: _version(package) for package in ("gymnasium", "mujoco", "numpy")},
    }


def hidden_path(name: str, facts: dict[str, Any]) -> Path:
    """Where a data set lies once it is made."""
    digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=8).hexdigest()
    return cache_folder() / "hidden" / f"{slug(name)}-{digest}.safetensors"


def _roll_out(name: str, env_id: str, maker: Maker, facts: dict[str, Any], path: Path) -> Trajectories:
    """Play a data set, and keep it."""
    size, seed = facts["size"], facts["seed"]
    env: Env = gymnasium.make(variant_spec(env_id) or env_id)
    episodes: list[Played] = []
    steps = 0
    with progress_bar(f"playing {name}", size) as advance:
        while steps < size:
            episode = maker.play(env, seed * EPISODE_SEEDS + len(episodes))
            episodes.append(episode)
            advance(min(len(episode.rewards), size - steps))
            steps += len(episode.rewards)
    columns = [
        np.concatenate([getattr(episode, key) for episode in episodes])
        for key in ("observations", "actions", "rewards")
    ]
    foregone = [told for told in (episode.foregone for episode in episodes) if told is not None]
    is_told = bool(foregone) and foregone[0].shape[1] <= MOST_TOLD
    final, unknown = [episode.final_observation for episode in episodes], np.full(columns[0].shape[1:], np.nan)
    players = [episode.player for episode in episodes if episode.player is not None]
    turns = {"made_by": dict(Counter(players)), "makers": players} if players else {}
    store = Trajectories.from_steps(
        *columns,
        lengths=[len(episode.rewards) for episode in episodes],
        terminated=[episode.terminated for episode in episodes],
        truncated=[not episode.terminated for episode in episodes],
        action_spec=action_spec_of(env.action_space),
        info={"name": name, "source": "hidden", **facts, **turns},
        foregone=np.concatenate(foregone) if is_told else None,
        final_observations=[unknown if seen is None else seen for seen in final],
        where=name,
    )
    env.close()
    store.save(path)
    return store


def behaviour_digest(maker: Maker) -> str | None:
    """The digest of the shipped policy that the maker acts with, if any."""
    return recipe_of(maker.robot, "medium").digest if isinstance(maker, Mechanic) else None


def _version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None
