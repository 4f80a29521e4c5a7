"""Data of the tasks with a hidden context: rolled out on this machine by an adaptive behaviour policy."""

import contextlib
import hashlib
import importlib.metadata
import json
from typing import Any, Protocol

import gymnasium
import numpy as np

from mental_accounts.data.builtin import recipe_of
from mental_accounts.data.mechanic import Mechanic
from mental_accounts.data.progress import progress_bar
from mental_accounts.data.tensor_files import cache_folder
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.environments.learners import Learner, Played
from mental_accounts.errors import DataError
from mental_accounts.spaces import action_spec_of

DATA_VERSION = 4
"""Raise it with every change of the environments or of their behaviour policies: it invalidates cached files."""
EPISODE_SEEDS = 1_000_003
"""Episode i of data seed s is played with seed s · this + i."""


class Maker(Protocol):
    """A behaviour policy: a dataclass whose fields, with the seed, determine an episode."""

    def play(self, env: gymnasium.Env[Any, Any], seed: int) -> Played:
        """One episode."""
        ...


MAKERS: dict[str, Maker] = {
    "hidden-arm": Learner(),
    "drifting-bandit": Learner(),
    "broken-halfcheetah": Mechanic("halfcheetah"),
}
"""The behaviour policy of each task."""


def make_hidden(name: str, env_id: str, size: int, seed: int = 0) -> Trajectories:
    """Whole episodes of the task's behaviour policy, at least `size` steps: from the cache, or rolled out now."""
    if size < 1 or seed < 0:
        raise DataError(f"steps must be at least 1 and seed 0 or more, got {size} and {seed}")
    maker = MAKERS[name]
    facts = {
        "version": DATA_VERSION,
        "env_id": env_id,
        "size": size,
        "seed": seed,
        "maker": vars(maker) | {"behaviour": behaviour_digest(maker)},
        "versions": {package: _version(package) for package in ("gymnasium", "mujoco", "numpy")},
    }
    digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=8).hexdigest()
    path = cache_folder() / "hidden" / f"{name}-{digest}.safetensors"
    if path.exists():
        return Trajectories.load(path)
    env = gymnasium.make(env_id)
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
    foregone = [episode.foregone for episode in episodes if episode.foregone is not None]
    store = Trajectories.from_steps(
        *columns,
        lengths=[len(episode.rewards) for episode in episodes],
        terminated=[episode.terminated for episode in episodes],
        truncated=[not episode.terminated for episode in episodes],
        action_spec=action_spec_of(env.action_space),
        info={"name": name, "source": "hidden", **facts},
        foregone=np.concatenate(foregone) if foregone else None,
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
