"""Observations that carry a ledger: spaces, episodes, statistics, bad input, and other people's libraries."""

import copy
import gc
import json
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
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import mental_accounts as ma
from mental_accounts.environments import DriftingBandit, HiddenArm
from mental_accounts.errors import UsageError
from mental_accounts.integrations import LedgerObservation, RunningRewards

BANDIT = "mental_accounts.environments:DriftingBandit-v0"


class Told(gymnasium.Env[Any, Any]):
    """Rewards and observations as told; episodes of 5 steps."""

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any], reward: float = 1.0) -> None:
        self.observation_space, self.action_space, self.reward = observations, actions, reward
        self.took: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.took.append(action)
        self.t += 1
        return self.observation_space.sample(), self.reward, self.t >= 5, False, {}


def told(actions: spaces.Space[Any] | None = None, **more: Any) -> Told:
    return Told(spaces.Box(-1, 1, (2,)), spaces.Discrete(3) if actions is None else actions, **more)


def ledger_of(observation: np.ndarray) -> list[float]:
    return observation[2:].tolist()


# What observations carry.


def test_balances_along_an_episode() -> None:
    env = LedgerObservation(told(reward=2.0), phi=0.5, rewards="raw")
    seen, _ = env.reset(seed=0)
    assert ledger_of(seen) == [0, 0, 0]
    assert ledger_of(env.step(1)[0]) == [0, 1, 0]  # an average of recent payoffs: φ r̃
    assert ledger_of(env.step(2)[0]) == [0, 0.5, 1]
    assert ledger_of(env.step(1)[0]) == [0, 1.25, 0.5]
    assert ledger_of(env.reset()[0]) == [0, 0, 0]


def test_counts_and_means() -> None:
    env = LedgerObservation(told(reward=2.0), phi=0.5, rewards="raw", channels=("count", "mean"))
    env.reset(seed=0)
    env.step(1)
    assert ledger_of(env.step(2)[0]) == pytest.approx([0, 0.5 / 1.5, 0.5, 0, 2, 2])


def test_delta_cancels_in_balances() -> None:
    for rule in (ma.EWA(0.5, 0.3), ma.EWA(0.5, 1.0), None):
        numbers = {"phi": 0.5, "delta": 0.7} if rule is None else {}
        env = LedgerObservation(told(), rule=rule, rewards="raw", **numbers)
        env.reset(seed=0)
        assert ledger_of(env.step(0)[0]) == pytest.approx([0.5, 0, 0])
        assert env.ledger.attractions[0, 0] == pytest.approx(env.ledger.rule.delta)


def test_the_ledger_is_that_of_torch() -> None:
    for rule in (ma.EWA(0.1, 0.6), ma.CanonicalEWA(phi=0.1, rho=0.3, delta=0.6)):
        env = LedgerObservation(HiddenArm(), rule=rule, rewards="raw")
        book, ledger = ma.GridCodebook(dim=3), rule.ledger(27)
        env.reset(seed=0)
        env.action_space.seed(0)
        for _ in range(100):
            observation, reward, *_, info = env.step(env.action_space.sample())
            ledger.post(book.route(torch.from_numpy(info["action_taken"])), torch.tensor(reward))
            expected = ledger.attractions.numpy() / rule.unit
            assert np.abs(np.array(ledger_of(observation)) - expected).max() < 1e-6


def test_rewards_are_posted_under_the_action_that_was_taken() -> None:
    env = LedgerObservation(DriftingBandit(hijack=1.0), channels=("count",))
    env.reset(seed=0)
    *_, info = env.step(3)
    assert np.flatnonzero(env.ledger.counts[0]).tolist() == [info["action_taken"]]


def test_accounts_across_episodes() -> None:
    env = LedgerObservation(told(), rewards="raw", across_episodes=True)
    env.reset(seed=0)
    for _ in range(5):
        seen, *_ = env.step(0)
    assert ledger_of(env.reset()[0]) == ledger_of(seen) != [0, 0, 0]
    env.clear_ledger()
    assert ledger_of(env.reset()[0]) == [0, 0, 0]


def test_an_observation_is_never_overwritten() -> None:
    env = LedgerObservation(told(), rewards="raw")
    env.reset(seed=0)
    first = env.step(0)[0]
    kept = first.copy()
    env.step(0)
    assert np.array_equal(first, kept)


SPACES = {
    "box": (spaces.Box(-1, 1, (2,)), None, (2 + 3,), np.float32),
    "float64": (spaces.Box(-1, 1, (2,), np.float64), None, (2 + 3,), np.float64),
    "bytes": (spaces.Box(0, 255, (2,), np.uint8), None, (2 + 3,), np.float32),
    "discrete": (spaces.Discrete(4, start=2), None, (4 + 3,), np.float32),
    "multi-discrete": (spaces.MultiDiscrete([2, 3], start=[1, 0]), None, (5 + 3,), np.float32),
    "multi-binary": (spaces.MultiBinary(4), None, (4 + 3,), np.float32),
    "named": (spaces.Box(-1, 1, (2,)), "mine", {"observation", "mine"}, None),
    "discrete named": (spaces.Discrete(4), "mine", {"observation", "mine"}, None),
    "dict": (spaces.Dict(a=spaces.Discrete(2)), None, {"a", "ledger"}, None),
    "dict named": (spaces.Dict(a=spaces.Discrete(2)), "mine", {"a", "mine"}, None),
    "image": (spaces.Box(0, 255, (4, 4, 3), np.uint8), None, {"observation", "ledger"}, None),
    "tuple": (spaces.Tuple([spaces.Discrete(2)]), None, {"observation", "ledger"}, None),
}


@pytest.mark.parametrize("name", SPACES)
def test_where_the_ledger_goes(name: str) -> None:
    space, key, expected, dtype = SPACES[name]
    env = LedgerObservation(Told(space, spaces.Discrete(3)), dict_key=key, channels=("balance",))
    seen, _ = env.reset(seed=0)
    for observation in (seen, *(env.step(i % 3)[0] for i in range(5))):
        assert env.observation_space.contains(observation)
    if isinstance(expected, set):
        assert set(env.observation_space.spaces) == expected
    else:
        assert env.observation_space.shape == expected
        assert env.observation_space.dtype == dtype


def test_discrete_observations_are_one_hot() -> None:
    env = LedgerObservation(Told(spaces.MultiDiscrete([2, 3], start=[1, 0]), spaces.Discrete(3)))
    assert env._observed.layout.join(np.array([2, 1]), [np.zeros(3)]).tolist() == [0, 1, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("actions", "codes"),
    [
        (spaces.Discrete(5, start=-2), 5),
        (spaces.Box(-2, 3, (2,)), 9),
        (spaces.Box(-1, 1, (4,), np.float64), 81),
        (spaces.Box(-1, 1, (6,)), 54),
        (spaces.Box(-1, 1, (2, 3)), 54),
        (spaces.Box(-1, 1, (17,)), 5 * 27 + 9),
        (spaces.Box(0, 9, (2,), np.int64), 9),
        (spaces.Box(np.array([0, 1], np.float32), np.array([0, 2], np.float32)), 9),  # one dimension cannot vary
        (spaces.MultiDiscrete([3, 2, 4]), 9),
        (spaces.MultiDiscrete([[3, 2], [4, 2]]), 11),
        (spaces.MultiBinary(4), 8),
    ],
)
def test_default_codebooks(actions: spaces.Space[Any], codes: int) -> None:
    env = LedgerObservation(told(actions), channels=("count",))
    assert env.ledger.num_codes == codes
    env.reset(seed=0)
    env.action_space.seed(0)
    env.step(action := env.action_space.sample())
    assert env.unwrapped.took == [action] or np.array_equal(env.unwrapped.took[0], action)
    assert env.ledger.counts.sum() == len(env._observed.route(action)[0])


class Quadrants:
    """A codebook of a user's own."""

    num_codes, dim = 4, 2

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift

    def route(self, actions: np.ndarray) -> np.ndarray:
        return (actions > 0).astype(int) @ np.array([1, 2]) + self.shift


class Halves(ma.GridCodebook):
    """A codebook of PyTorch that NumPy does not know."""

    kind = "halves"

    def route(self, actions: torch.Tensor) -> torch.Tensor:
        return (actions[..., 0] > 0).long()


@pytest.mark.parametrize(
    ("book", "codes"),
    [(ma.GridCodebook(dim=2, bins=5), 25), (ma.KMeansCodebook(torch.eye(2)), 2), (Quadrants(), 4), (Halves(2), 9)],
)
def test_given_codebooks(book: Any, codes: int) -> None:
    env = LedgerObservation(told(spaces.Box(-1, 1, (2,))), book, channels=("count",))
    env.reset(seed=0)
    assert env.step(np.array([0.7, -0.6], np.float32))[0].shape == (2 + codes,)
    assert env.ledger.counts.sum() == 1


# Rewards.


def test_running_rewards() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(5.0, 3.0, 500)
    one, many = RunningRewards(), RunningRewards()
    for place, reward in enumerate(rewards):
        payoff = one.payoff(float(reward))
        seen = rewards[: place + 1]
        if place >= 20:
            assert payoff == pytest.approx(np.clip((reward - seen.mean()) / seen.std(), -5, 5))
        else:
            assert payoff == 0
    for part in rewards.reshape(50, 10):
        last = many.payoffs(part)
    assert (many.count, many.mean, many.std) == pytest.approx((500, rewards.mean(), rewards.std()))
    assert last == pytest.approx(np.clip((rewards[-10:] - rewards.mean()) / rewards.std(), -5, 5))
    assert one.state() == pytest.approx(many.state())


def test_constant_rewards_pay_nothing() -> None:
    running = RunningRewards()
    assert {running.payoff(0.1) for _ in range(100)} == {0.0}
    assert running.std == 1


def test_fitted_rewards_and_bounds() -> None:
    transform = ma.RewardTransform.fit(torch.tensor([1.0, 2.0, 6.0]), clip=0.7)
    env = LedgerObservation(told(reward=9.0), phi=0.5, rewards=transform, channels=("balance", "mean"))
    assert env.observation_space.high[2:].tolist() == pytest.approx([0.7] * 6)
    env.reset(seed=0)
    assert env.step(0)[0][[2, 5]] == pytest.approx([0.35, 0.7])
    raw = LedgerObservation(told(), rewards="raw", channels=("mean", "count"))
    assert raw.observation_space.high[2:].tolist() == [np.inf] * 3 + [1] * 3
    assert LedgerObservation(told()).observation_space.high[2:].tolist() == [5] * 3


def test_statistics_are_frozen_saved_and_merged(tmp_path: Path) -> None:
    train = LedgerObservation(DriftingBandit())
    train.reset(seed=0)
    for i in range(100):
        train.step(i % 10)
    state = json.loads(json.dumps(train.get_reward_state()))
    test = LedgerObservation(DriftingBandit())
    test.set_reward_state(state, frozen=True)
    test.reset(seed=1)
    test.step(0)
    assert test.get_reward_state() == train.get_reward_state() == state
    test.set_reward_state(state, frozen=False)
    test.step(0)
    assert test.get_reward_state()["count"] == 101

    train.rewards.save(tmp_path / "rewards.json")
    loaded = RunningRewards.load(tmp_path / "rewards.json")
    assert loaded.frozen
    assert loaded.state() == state
    rng = np.random.default_rng(0)
    parts = [rng.normal(i, 1 + i, 30 + i) for i in range(3)]
    states = []
    for part in parts:
        running = RunningRewards()
        running.payoffs(part)
        states.append(running.state())
    whole = RunningRewards.merged([*states, RunningRewards().state()])
    every = np.concatenate(parts)
    assert (whole.count, whole.mean, whole.std) == pytest.approx((len(every), every.mean(), every.std()))


def test_environments_can_share_statistics() -> None:
    shared = RunningRewards(clip=2.0)
    for _ in range(2):
        env = LedgerObservation(told(), rewards=shared)
        env.reset(seed=0)
        env.step(0)
    assert shared.count == 2
    assert "of 2 rewards, clip=2" in repr(shared)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "has no clip"),
        ('{"clip": 5, "count": 3}', "has count, mean and squares"),
        ('{"clip": 5, "count": 3, "mean": NaN, "squares": 1}', "mean must be in"),
        ('{"clip": 5, "count": 2.5, "mean": 0, "squares": 1}', "whole number"),
        ('{"clip": -1, "count": 2, "mean": 0, "squares": 1}', "clip must be"),
        ("nothing", "not JSON"),
    ],
)
def test_bad_files_of_statistics(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        RunningRewards.load(tmp_path / "bad.json")


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"channels": ("balance", "visits")}, r"channels must be of \('balance', 'count', 'mean'\).*visits"),
        ({"channels": "balance"}, "one or more of"),
        ({"channels": ()}, "one or more of"),
        ({"channels": ("mean", "mean")}, "at most once"),
        ({"rewards": "standard"}, "rewards must be 'running', 'raw', a fitted RewardTransform"),
        ({"rewards": 3}, "rewards must be"),
        ({"rule": "ewa"}, r"rule must be ma.EWA"),
        ({"rule": ma.EWA(), "phi": 0.1}, "not both"),
        ({"phi": 1.5}, r"phi must be in \(0, 1\), got 1.5"),
        ({"dict_key": ""}, "dict_key must be the name"),
        ({"dict_key": "observation"}, "has an entry 'observation' already"),
        ({"codebook": ma.DiscreteCodebook(n=4)}, r"does not fit.*ma.DiscreteCodebook\(n=3\), got DiscreteCodebook"),
        ({"codebook": ma.GridCodebook(dim=1)}, "does not fit"),
        ({"codebook": object()}, "codebook must be one such as"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LedgerObservation(told(), **arguments)


@pytest.mark.parametrize(
    ("actions", "book", "message"),
    [
        (spaces.Tuple([spaces.Discrete(2)]), None, "must be Discrete, MultiDiscrete, MultiBinary or a bounded Box"),
        (spaces.Dict(a=spaces.Discrete(2)), None, "must be Discrete"),
        (spaces.Box(-np.inf, np.inf, (2,)), None, "must be bounded.*ClipAction"),
        (spaces.Box(0, np.inf, (2,)), None, "must be bounded"),
        (spaces.Box(-1, 1, ()), None, "at least one dimension"),
        (spaces.Discrete(5000), None, "5000 codes by default, over 4096: give a codebook of fewer"),
        (spaces.Box(-1, 1, (3,)), ma.GridCodebook(dim=2), "needs one of 3 dimensions, got GridCodebook of dim=2"),
        (spaces.Box(-1, 1, (3,)), ma.DiscreteCodebook(n=3), "does not fit"),
        (spaces.Box(-1, 1, (3,)), Quadrants(), "needs one of 3 dimensions, got Quadrants of dim=2"),
        (spaces.MultiDiscrete([2, 2]), ma.DiscreteCodebook(n=4), "which codebook=None gives"),
    ],
)
def test_action_spaces_without_codes(actions: spaces.Space[Any], book: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LedgerObservation(told(actions), book)


@pytest.mark.parametrize(
    ("actions", "action"),
    [
        (spaces.Discrete(3), 3),
        (spaces.Discrete(3, start=1), 0),
        (spaces.Discrete(3), -1),
        (spaces.Discrete(3), 1.0),
        (spaces.Discrete(3), None),
        (spaces.Discrete(3), np.array([0, 1])),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3])),
        (spaces.MultiDiscrete([2, 3]), np.array([1])),
        (spaces.Box(-1, 1, (2,)), np.array([0.0, np.nan])),
        (spaces.Box(-1, 1, (2,)), np.array([0.0, 1.1])),
        (spaces.Box(-1, 1, (2,)), np.array([0.0])),
        (spaces.Box(0, 5, (6,)), np.full(6, -0.1)),
        (spaces.Box(-1, 1, (2,)), "left"),
    ],
)
def test_actions_outside_the_space(actions: spaces.Space[Any], action: Any) -> None:
    env = LedgerObservation(told(actions))
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"actions must be .*got"):
        env.step(action)
    assert env.unwrapped.took == []  # refused before the environment moved


def test_actions_out_by_rounding_are_taken() -> None:
    env = LedgerObservation(told(spaces.Box(-1, 1, (2,))))
    env.reset(seed=0)
    env.step(np.array([1 + 1e-6, -1 - 1e-6]))


@pytest.mark.parametrize("reward", [np.nan, np.inf])
def test_rewards_that_are_no_numbers(reward: float) -> None:
    env = LedgerObservation(told(reward=reward))
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"rewards must be finite, got (nan|inf); fix the environment"):
        env.step(0)


def test_steps_outside_of_episodes() -> None:
    env = LedgerObservation(told())
    with pytest.raises(UsageError, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    for _ in range(5):
        env.step(0)
    with pytest.raises(UsageError, match="call reset"):
        env.step(0)


def test_other_refusals() -> None:
    env = LedgerObservation(told(spaces.Box(-1, 1, (2,))), Quadrants(shift=1))
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"Quadrants.route must give whole numbers in \[0, 4\).*\[\[4\]\]"):
        env.step(np.array([0.5, 0.5]))
    with pytest.raises(UsageError, match="these rewards are fixed"):
        LedgerObservation(told(), rewards="raw").get_reward_state()
    with pytest.raises(UsageError, match="have seen no reward"):
        RunningRewards(frozen=True).payoff(1.0)
    with pytest.raises(UsageError, match="LedgerVectorObservation is for"):
        LedgerObservation(gymnasium.make_vec("CartPole-v1", 2))
    with pytest.raises(UsageError, match="dict_key='ledger' keeps it"):
        LedgerObservation(Told(spaces.Discrete(10**6), spaces.Discrete(2)))
    for bad in ({"kind": "other"}, {"kind": "fixed", "mode": 1}, {"kind": "running"}):
        with pytest.raises(UsageError, match="rewards"):
            LedgerObservation(told(), rewards=bad)
    with pytest.raises(UsageError, match="rule as a dict"):
        LedgerObservation(told(), rule={"psi": 1})


# Other people's libraries.


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
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_go_on_alike(copied: Callable[[Any], Any]) -> None:
    env = made(rule=ma.CanonicalEWA(0.1, 0.1, 0.5), channels=("balance", "count", "mean"))
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
def test_environment_checkers(name: str, key: str | None) -> None:
    arguments: dict[str, Any] = {"channels": ("balance", "count", "mean"), "dict_key": key}
    check_env(LedgerObservation(gymnasium.make(name, disable_env_checker=True), **arguments), skip_render_check=True)
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(LedgerObservation(gymnasium.make(name, disable_env_checker=True), **arguments))


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
