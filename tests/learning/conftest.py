from pathlib import Path

import gymnasium
import numpy as np
import pytest

from mental_accounts.config import TrainConfig
from mental_accounts.data.tasks import imported_path
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.policy_options import ModelConfig

from .tiny_env import ENV_ID


def aim_data(trajectories: int = 60, noise: float = 0.7, seed: int = 0) -> Trajectories:
    """What a poor marksman did: the right number with a lot of noise."""
    rng = np.random.default_rng(seed)
    env = gymnasium.make(ENV_ID)
    observations, actions, rewards, lengths = [], [], [], []
    for episode in range(trajectories):
        seen, _ = env.reset(seed=seed * 1000 + episode)
        over, length = False, 0
        while not over:
            action = np.clip(0.3 * seen + noise * rng.normal(size=1), -1, 1).astype(np.float32)
            observations.append(seen)
            actions.append(action)
            seen, reward, _, over, _ = env.step(action)
            rewards.append(reward)
            length += 1
        lengths.append(length)
    n = len(lengths)
    return Trajectories.from_steps(
        np.array(observations), np.array(actions), np.array(rewards, np.float32), lengths=lengths,
        terminated=[False] * n, truncated=[True] * n, info={"env_id": ENV_ID},
    )  # fmt: skip


@pytest.fixture
def aim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """A small run on data of the tiny task, which lie in a cache of their own."""
    return make_aim(tmp_path, monkeypatch)


def make_aim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """As the fixture, for fixtures that live longer."""
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    aim_data().save(imported_path("aim"))
    return TrainConfig(
        task="imported/aim", method="ewa-vq-odt", device="cpu", precision="float32",
        model=ModelConfig(hidden=16, layers=1, heads=1, context_length=4, dropout=0.1, max_timestep=20),
        lr=3e-3, warmup_updates=20, batch_size=32, pretrain_iterations=2, updates_per_pretrain_iteration=30,
        pretrain_eval_every=1, online_iterations=4, episodes_per_iteration=2, updates_per_iteration=20, eval_every=2,
        eval_episodes=4, replay_size=40,
    )  # fmt: skip
