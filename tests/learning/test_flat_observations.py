"""Environments with Dict, Tuple and whole-number observations: trained, evaluated, exported, acted in as they are."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import mental_accounts as ma
from mental_accounts.export.programs import export_policy
from mental_accounts.learning.make_env import environment_source, make_environment
from mental_accounts.learning.parallel_envs import Environments

from .live_and_offline import assert_live_is_offline, policy_for
from .spaces_envs import Shown

FLAT = 2 + 2 + 2 + 3 + 2
SMALL: dict[str, Any] = {
    "model": {"hidden": 16, "layers": 1, "context_length": 4}, "batch_size": 8, "online_iterations": 2,
    "updates_per_iteration": 3, "eval_episodes": 2, "eval_every": 1, "random_episodes": 4, "device": "cpu",
    "precision": "float32",
}  # fmt: skip


def test_environments_give_what_gymnasium_flattens_in_every_process() -> None:
    source = environment_source(Shown)
    here, there = Environments(source, 3), Environments(source, 3, 2)
    raw = Shown()
    for envs in (here, there):
        envs.reset([5, 6, 7])
        first, _ = raw.reset(seed=5)
        parts = [spaces.flatten(raw.observation_space["parts"], first["parts"]), np.eye(2)[first["which"] - 1]]
        np.testing.assert_allclose(envs.board.observations[0], np.concatenate(parts))
        envs.step(np.array([0, 1, 2]), np.ones(3, bool), 0)
    assert there.workers
    np.testing.assert_array_equal(here.board.observations, there.board.observations)
    for envs in (here, there):
        envs.close()


@pytest.mark.parametrize("method", ["bc", "gru", "dt", "odt", "ewa-vq-odt", "ledger-odt"])
def test_live_is_offline(method: Any) -> None:
    env = make_environment("tests.learning.spaces_envs:Shown")
    store = assert_live_is_offline(policy_for(env, method=method), env)
    assert store.observations.shape == (8, FLAT)


@pytest.mark.parametrize("improve", ["none", "td3"])
def test_a_run_and_its_policy_take_raw_observations(improve: Any, tmp_path: Path) -> None:
    run = ma.train(env=Shown, run=tmp_path / "run", env_workers=1, improve=improve, **SMALL)
    policy = run.policy
    assert [part.name for part in policy.config.observation][-1] == "observation['which']"
    env = Shown()
    context = policy.context(1, 8.0)
    observation, _ = env.reset(seed=0)
    for _ in range(8):
        action = policy.act([observation], context)[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        context.record([reward], [terminated or truncated])
    vector = gymnasium.vector.SyncVectorEnv([Shown] * 2)
    assert policy.act(vector.reset(seed=1)[0], policy.context(2, 8.0)).shape == (2,)
    assert len(ma.evaluate(policy, env=Shown, target_return=8.0, episodes=2).returns) == 2


def test_the_program_says_what_its_vector_is_made_of(tmp_path: Path) -> None:
    policy = policy_for(make_environment("tests.learning.spaces_envs:Shown"), layers=1)
    about = export_policy(policy, tmp_path, "torch-export", num_envs=2)
    assert about["checked"]["largest_difference_of_actions"] == 0
    assert about["inputs"][0]["shape"] == [2, FLAT]
    assert about["observation"][-1] == {"path": ("which",), "shape": (), "values": (2,), "start": (1,)}


@pytest.mark.learning
def test_a_number_in_a_tuple_in_a_dict_is_learned(tmp_path: Path) -> None:
    """By chance one answer in three is right."""
    changes = {"random_episodes": 150, "online_iterations": 10, "updates_per_iteration": 40, "eval_every": 10}
    run = ma.train(Shown, preset="online", run=tmp_path / "run", hidden=32, layers=1, lr=3e-3, device="cpu", **changes)
    assert run.evaluate(episodes=20).return_mean > 6.5


class Letters(Shown):
    observation_space = spaces.Dict({"text": spaces.Text(3), "number": spaces.Box(-1, 1, (2,))})


class Picture(Shown):
    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)


class Liar(Shown):
    """Its space says one thing, its observations another."""

    def look(self) -> tuple[Any, dict[str, Any]]:
        observation, info = super().look()
        return {**observation, "which": 9}, info


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (Letters, r"observation\['text'\] must be of a Box, Discrete.*got Text"),
        (Picture, r"observation is an image of shape \(8, 8, 3\)"),
        (Liar, r"raised in reset.*observation\['which'\] must be whole numbers from \(1,\), \(2,\) of them, got"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*observation space:UserWarning")
def test_what_cannot_be_flattened_is_said_in_words(env: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, RuntimeError), match=words):
        ma.train(env=env, run=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()
