"""Data of the tasks with a hidden context: an EWA learner plays (environments/learners.py) on this machine, by seed."""

import hashlib
import json

import gymnasium
import numpy as np

from mental_accounts.data.checks import DataError
from mental_accounts.data.files import cache_folder
from mental_accounts.data.progress import progress_bar
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.environments.learners import Learner, Played
from mental_accounts.spaces import action_spec_of

DATA_VERSION = 1
"""To be raised with every change of the environments or of the learner: older files are then not taken for new ones."""
EPISODE_SEEDS = 1_000_003
"""Episode i of data seed s is played with seed s · this + i."""


def make_hidden(name: str, env_id: str, size: int, seed: int = 0, learner: Learner | None = None) -> Trajectories:
    """Whole episodes of a learner until there are `size` steps: from the cache, or played now."""
    if size < 1 or seed < 0:
        raise DataError(f"steps must be at least 1 and seed 0 or more, got {size} and {seed}")
    learner = learner or Learner()
    facts = {
        "version": DATA_VERSION,
        "env_id": env_id,
        "size": size,
        "seed": seed,
        "learner": vars(learner),
        "numpy": np.__version__,
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
            episode = learner.play(env, seed * EPISODE_SEEDS + len(episodes))
            episodes.append(episode)
            advance(min(len(episode.rewards), size - steps))
            steps += len(episode.rewards)
    columns = [
        np.concatenate([getattr(episode, key) for episode in episodes])
        for key in ("observations", "actions", "rewards")
    ]
    store = Trajectories.from_steps(
        *columns,
        lengths=[len(episode.rewards) for episode in episodes],
        terminated=[False] * len(episodes),
        truncated=[True] * len(episodes),
        action_spec=action_spec_of(env.action_space),
        info={"name": name, "source": "hidden", **facts},
        where=name,
    )
    env.close()
    store.save(path)
    return store
