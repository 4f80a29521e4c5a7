"""Ledger observations in other people's libraries, without PyTorch, copied, and made again from a spec."""

import ast
import copy
import gc
import importlib
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import mental_accounts as ma
from mental_accounts import integrations
from mental_accounts.integrations import LedgerObservation, LedgerVectorObservation, RunningRewards

BANDIT = "mental_accounts.environments:DriftingBandit-v0"


def made(across_episodes: bool = False, **arguments: Any) -> LedgerObservation:
    env = gymnasium.make(BANDIT, disable_env_checker=True)
    return LedgerObservation(env, across_episodes=across_episodes, **arguments)


def test_no_torch() -> None:
    code = f"""
import sys, gymnasium
from mental_accounts.integrations import LedgerObservation, LedgerVectorObservation, RunningRewards
for name in ({BANDIT!r}, "mental_accounts.environments:HiddenArm-v0"):
    env = LedgerObservation(gymnasium.make(name), channels=("balance", "count", "mean"))
    env.reset(seed=0)
    for _ in range(50):
        env.step(env.action_space.sample())
    envs = LedgerVectorObservation(gymnasium.make_vec(name, 2))
    envs.reset(seed=0)
    envs.step(envs.action_space.sample())
rule = {{"phi": 0.1, "rho": 0.1, "delta": 0.5}}
for more in ({{"reward_delay": 1}}, {{"rule": rule, "foregone": True}}):
    one, many = gymnasium.make({BANDIT!r}), gymnasium.make_vec({BANDIT!r}, 2)
    for env in (LedgerObservation(one, **more), LedgerVectorObservation(many, **more)):
        env.reset(seed=0)
        for _ in range(3):
            env.step(env.action_space.sample())
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("more", [{}, {"reward_delay": 4}, {"foregone": True}])
def test_copies_go_on_alike(copied: Callable[[Any], Any], more: dict[str, Any]) -> None:
    env = made(rule=ma.CanonicalEWA(0.1, 0.1, 0.5), channels=("balance", "count", "mean"), **more)
    env.reset(seed=0)
    for i in range(30):
        env.step(i % 10)
    other = copied(env)
    for i in range(30):
        assert np.array_equal(env.step(i % 7)[0], other.step(i % 7)[0])


@pytest.mark.parametrize(
    "arguments",
    [
        {"rewards": RunningRewards(clip=3.0), "channels": ("mean", "count")},
        {"rewards": ma.RewardTransform("standardised", 1.0, 2.0, 3.0), "rule": ma.CanonicalEWA(0.1, 0.2, 0.5)},
        {"codebook": ma.DiscreteCodebook(n=10), "phi": 0.2, "dict_key": "mine"},
        {"rewards": "raw", "reward_delay": 3},
        {"rewards": "raw", "rule": ma.CanonicalEWA(0.1, 0.2, 0.5), "foregone": True},
    ],
)
def test_specs_make_the_same_environment(arguments: dict[str, Any]) -> None:
    env = made(**arguments, across_episodes=True)
    spec = gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json())
    other = gymnasium.make(spec)
    assert other.across_episodes
    assert other.observation_space == env.observation_space
    for one in (env, other):
        one.reset(seed=0)
    for i in range(60):
        ours, theirs = (one.step(i % 10)[0] for one in (env, other))
        assert gymnasium.utils.env_checker.data_equivalence(ours, theirs, exact=True)


@pytest.mark.filterwarnings("ignore:.*(different from the unwrapped version|a symmetric and normalized).*")
@pytest.mark.parametrize("name", [BANDIT, "mental_accounts.environments:HiddenArm-v0", "Pendulum-v1", "FrozenLake-v1"])
@pytest.mark.parametrize("key", [None, "ledger"])
@pytest.mark.parametrize("more", [{}, {"reward_delay": 2}, {"rule": ma.CanonicalEWA(0.1, 0.2, 0.5), "foregone": True}])
def test_environment_checkers(name: str, key: str | None, more: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"channels": ("balance", "count", "mean"), "dict_key": key, **more}
    if "foregone" in more and name != BANDIT:
        pytest.skip("reports no foregone payoffs")
    check_env(LedgerObservation(gymnasium.make(name, disable_env_checker=True), **arguments), skip_render_check=True)
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(LedgerObservation(gymnasium.make(name, disable_env_checker=True), **arguments))


def test_both_wrappers_take_the_same_arguments() -> None:
    one, many = (
        list(inspect.signature(wrapper.__init__).parameters.values())[2:]  # without self and env
        for wrapper in (LedgerObservation, LedgerVectorObservation)
    )
    assert one == many
    assert {argument.name for argument in one} - {"phi", "delta"} == made()._saved_kwargs.keys()
    described = inspect.getdoc(LedgerObservation)
    assert [argument.name for argument in one if f"\n    {argument.name}: " not in described] == []


def test_stable_baselines(tmp_path: Path) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    envs = make_vec_env(partial(made, channels=("mean", "count")), n_envs=2, seed=0)
    model = sb3.PPO("MlpPolicy", envs, n_steps=32, batch_size=32, n_epochs=1, device="cpu", seed=0).learn(256)
    merged = RunningRewards.merged(envs.env_method("get_reward_state"))
    assert merged.count == 256
    tests = make_vec_env(partial(made, channels=("mean", "count"), rewards=merged), n_envs=1, seed=1)
    evaluate_policy(model, tests, n_eval_episodes=1)
    assert merged.count == 256
    model.save(tmp_path / "model")
    sb3.PPO.load(tmp_path / "model", env=envs)
    named = make_vec_env(partial(made, dict_key="ledger"), n_envs=1)
    sb3.DQN("MultiInputPolicy", named, learning_starts=16, buffer_size=100, device="cpu").learn(64)


def test_processes_of_stable_baselines() -> None:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    envs = vec_env.SubprocVecEnv([partial(made, phi=0.1)] * 2, start_method="spawn")
    try:
        envs.seed(0)
        envs.reset()
        for _ in range(3):
            observations, *_ = envs.step(np.array([1, 2]))
        assert observations.shape == (2, 12)
        assert [state["count"] for state in envs.env_method("get_reward_state")] == [3, 3]
        envs.env_method("set_reward_state", {"count": 50, "mean": 0.0, "squares": 50.0}, frozen=True)
        assert np.abs(envs.step(np.array([1, 2]))[0][:, 2:]).max() > 0
    finally:
        envs.close()


def test_torchrl() -> None:
    libs = pytest.importorskip("torchrl.envs.libs.gym")
    env = libs.GymWrapper(made(channels=("mean", "count")))
    rolled = env.rollout(30, break_when_any_done=False)
    assert rolled["next", "observation"].shape == (30, 2 + 20)
    assert rolled["observation"][0, 2:].abs().max() == 0
    assert rolled["next", "observation"][:, 12:].sum() > 0


@pytest.mark.filterwarnings("ignore::UserWarning:minari", "ignore::ResourceWarning")
def test_minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    pytest.importorskip("jax", reason="Minari records with it")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(made(rewards="raw", dict_key="ledger"))
    for seed in range(2):
        env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            over = terminated or truncated
    data = env.create_dataset("bandit/ledger-v0", algorithm_name="random", author="me", author_email="me@example.org")
    episode = data[0]
    assert episode.observations["ledger"].shape == (201, 10)
    assert np.abs(episode.observations["ledger"][0]).max() == 0
    recovered = data.recover_environment()
    assert recovered.observation_space == env.observation_space
    assert recovered.spec.additional_wrappers[-1].name == "LedgerObservation"
    env.close()
    del env, data, recovered
    gc.collect()  # Minari leaves its temporary folder to it


def test_the_rooms_names_come_from_where_type_checkers_see_them() -> None:
    tree = ast.parse(Path(integrations.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {alias.name: node.module for node in block.body for alias in node.names}
    assert sorted(declared) == sorted(integrations.__all__)
    for name, module in declared.items():
        assert getattr(integrations, name) is getattr(importlib.import_module(module), name), name
    assert set(dir(integrations)) >= set(integrations.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'ledger_observations'"):
        integrations.ledger_observations  # noqa: B018
