"""Observations that carry a ledger: what they hold, where, by which codes and rewards."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import mental_accounts as ma
from mental_accounts.environments import DriftingBandit, HiddenArm
from mental_accounts.integrations import LedgerObservation, RunningRewards
from tests.integrations.told_env import Quadrants, Told, told


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
    assert ledger_of(env.step(2)[0]) == pytest.approx([0, 1 - 1.5**-0.5, 1 - 2**-0.5, 0, 2, 2])


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
    assert env._observed.observe_one(np.array([2, 1])).tolist() == [0, 1, 0, 1, 0, 0, 0, 0]


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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_observations_stay_as_they_were_handed_out(dtype: type) -> None:
    env = LedgerObservation(Told(spaces.Box(-1, 1, (2,), dtype), spaces.Discrete(3)), channels=("mean", "count"))
    seen = [env.reset(seed=0)[0]]
    then = [seen[0].copy()]
    for i in range(5):
        seen.append(env.step(i % 3)[0])
        then.append(seen[-1].copy())
    assert all(np.array_equal(*pair) for pair in zip(seen, then, strict=True))
    assert len({observation[2:].tobytes() for observation in seen}) == 6
