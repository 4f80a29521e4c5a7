"""Foregone payoffs: those that an environment reports are entered as the canonical ledger of PyTorch enters them."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import mental_accounts as ma
from mental_accounts.environments import DriftingBandit
from mental_accounts.errors import UsageError
from mental_accounts.integrations import LedgerObservation, LedgerVectorObservation, RunningRewards
from tests.integrations.told_env import Told, told

CHANNELS = ("balance", "count", "mean")
CANONICAL = ma.CanonicalEWA(phi=0.1, rho=0.2, delta=0.6)
seeds = st.integers(0, 2**31 - 1)
canonical = st.builds(ma.CanonicalEWA, st.floats(0.01, 0.9), st.floats(0, 1), st.floats(0, 1), st.floats(0, 3))
TRANSFORM = ma.RewardTransform("standardised", 0.3, 2.0, 0.8)  # some payoffs are clipped


class Spoken(Told):
    """Says what it is told to of foregone payoffs; where rewards are late, they all belong to the first step."""

    def __init__(self, says: Any, steps: int = 5, is_late: bool = False) -> None:
        super().__init__(spaces.Box(-1, 1, (2,)), spaces.Discrete(3))
        self.says, self.steps, self.is_late = says, steps, is_late

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, *_ = super().step(action)
        info = {} if self.says is None else {"foregone": self.says}
        if self.is_late:
            info["reward_delay"] = self.t - 1
        return seen, reward, self.t >= self.steps, False, info


def checked(seen: np.ndarray, ledger: Any, sums: np.ndarray, counts: np.ndarray) -> None:
    """Balances are those of PyTorch; counts and means are of what was received."""
    assert np.abs(seen[2:12] - ledger.attractions.numpy()).max() < 1e-6
    assert np.allclose(seen[12:22], 1 - 1 / np.sqrt(1 + counts), atol=1e-6)
    assert np.allclose(seen[22:], np.where(counts > 0, sums / np.maximum(counts, 1e-30), 0), atol=1e-5)


@settings(max_examples=25)
@given(seed=seeds, rule=canonical, rewards=st.sampled_from(["raw", TRANSFORM]))
def test_one_environment(seed: int, rule: ma.CanonicalEWA, rewards: Any) -> None:
    env = LedgerObservation(DriftingBandit(steps=40), rule=rule, rewards=rewards, channels=CHANNELS, foregone=True)
    payoff = TRANSFORM if isinstance(rewards, ma.RewardTransform) else lambda values: values
    ledger = rule.ledger(10, dtype=torch.float64)
    sums, counts = np.zeros(10), np.zeros(10)
    env.reset(seed=seed)
    env.action_space.seed(seed)
    for _ in range(40):
        seen, reward, _, _, info = env.step(env.action_space.sample())
        assert env.observation_space.contains(seen)
        came, all_of_them = payoff(torch.tensor(reward).double()), payoff(torch.from_numpy(info["foregone"]))
        ledger.post(torch.tensor(info["action_taken"]), came, foregone=all_of_them)
        sums, counts = sums * (1 - rule.phi), counts * (1 - rule.phi)
        sums[info["action_taken"]] += float(came)
        counts[info["action_taken"]] += 1
        checked(seen, ledger, sums, counts)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@settings(max_examples=10)
@given(seed=seeds, rule=canonical)
def test_many_environments(mode: AutoresetMode, seed: int, rule: ma.CanonicalEWA) -> None:
    envs = LedgerVectorObservation(
        SyncVectorEnv([partial(DriftingBandit, steps=steps) for steps in (7, 4)], autoreset_mode=mode),
        rule=rule, rewards="raw", channels=CHANNELS, foregone=True,
    )  # fmt: skip
    ledger = rule.ledger(10, (2,), dtype=torch.float64)
    envs.reset(seed=seed)
    envs.action_space.seed(seed)
    over = np.zeros(2, bool)
    for _ in range(25):
        resets = over if mode == AutoresetMode.NEXT_STEP else np.zeros(2, bool)
        seen, rewards, _, over, infos = envs.step(envs.action_space.sample())
        codes, foregone = np.zeros(2, int), np.zeros((2, 10))
        for i in np.flatnonzero(~resets):
            said = infos["final_info"] if mode == AutoresetMode.SAME_STEP and over[i] else infos
            codes[i], foregone[i] = said["action_taken"][i], said["foregone"][i]
        ledger.post(*map(torch.from_numpy, (codes, rewards, ~resets)), foregone=torch.from_numpy(foregone))
        ledger.reset(torch.from_numpy(resets))
        if mode == AutoresetMode.SAME_STEP:
            for i in np.flatnonzero(over):
                final = infos["final_obs"][i]
                assert np.abs(final[2:12] - ledger.attractions[i].numpy()).max() < 1e-6
            ledger.reset(torch.from_numpy(over))
        assert np.abs(seen[:, 2:12] - ledger.attractions.numpy()).max() < 1e-6
        if mode == AutoresetMode.DISABLED and over.any():
            envs.reset(options={"reset_mask": over.copy()})
            ledger.reset(torch.from_numpy(over))


def test_statistics_learn_from_what_was_received() -> None:
    env = LedgerObservation(DriftingBandit(), rule=CANONICAL, channels=CHANNELS, foregone=True)
    plain = LedgerObservation(DriftingBandit(), rule=CANONICAL, channels=CHANNELS)
    for one in (env, plain):
        one.reset(seed=0)
    for t in range(100):
        ours, _, _, _, info = env.step(t % 10)
        theirs, *_ = plain.step(t % 10)
        assert np.array_equal(ours[12:], theirs[12:])  # counts and means are not of foregone payoffs
        assert env.get_reward_state() == plain.get_reward_state()
        if t < 20:
            assert not ours[2:12].any()  # no scale yet
    assert (ours[2:12] != theirs[2:12]).all()
    running = env.rewards
    assert isinstance(running, RunningRewards)
    last = np.clip((info["foregone"] - running.mean) / running.std, -5, 5)
    assert np.allclose(running.payoffs_now(info["foregone"]), last)


def test_accounts_that_were_never_tried_last() -> None:
    for delta, expected in ((0.5, 0.5), (0.0, 0.0)):
        rule, bandit = ma.CanonicalEWA(0.5, 0.5, delta), Spoken([1.0, 1.0, 1.0], steps=1000)
        env = LedgerObservation(bandit, rule=rule, rewards="raw", foregone=True)
        env.reset(seed=0)
        for t in range(600):
            seen, *_ = env.step(0)
            if t > 50:
                assert seen[2:].tolist() == pytest.approx([1, expected, expected])


@pytest.mark.parametrize("says", [[3, 4, 5], (3.0, 4.0, 5.0), np.array([3, 4, 5]), np.array([3, 4, 5], np.float16)])
def test_kinds_of_numbers(says: Any) -> None:
    env = LedgerObservation(Spoken(says), rule=ma.CanonicalEWA(0.5, 1.0, 0.5), rewards="raw", foregone=True)
    envs = LedgerVectorObservation(
        SyncVectorEnv([partial(Spoken, says)] * 2), rule=ma.CanonicalEWA(0.5, 1.0, 0.5), rewards="raw", foregone=True
    )
    env.reset(seed=0)
    envs.reset(seed=0)
    env.step(1)
    envs.step(np.array([1, 2]))
    assert env.ledger.attractions.tolist() == [[1.5, 1, 2.5]]
    assert envs.ledger.attractions.tolist() == [[1.5, 1, 2.5], [1.5, 2, 1]]


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (None, r"needs info\['foregone'\].* at every step.* not reported"),
        ([1.0, 2.0], "finite payoff of each of the 3 codes, got"),
        (np.ones((1, 3)), "each of the 3 codes"),
        (1.0, "each of the 3 codes"),
        ("all", "each of the 3 codes"),
        ([[1.0], 2.0, 3.0], "each of the 3 codes"),
        (np.array([1.0, np.nan, 2.0]), "finite payoff of each of the 3 codes"),
        ([np.inf, 1.0, 2.0], "finite payoff"),
    ],
)
def test_what_environments_may_not_say(says: Any, message: str) -> None:
    make = partial(Spoken, says)
    env = LedgerObservation(make(), rule=CANONICAL, foregone=True)
    for mode in ("NextStep", "SameStep"):
        vector = SyncVectorEnv([make] * 3, autoreset_mode=mode)  # as many as there are codes
        envs = LedgerVectorObservation(vector, rule=CANONICAL, foregone=True)
        for one, action in ((env, 0), (envs, np.zeros(3, int))):
            one.reset(seed=0)
            with pytest.raises(UsageError, match=message):
                one.step(action)


def test_environments_that_say_nothing_are_named() -> None:
    envs = SyncVectorEnv([partial(Spoken, [1, 2, 3]), partial(Spoken, None)])
    wrapped = LedgerVectorObservation(envs, rule=CANONICAL, foregone=True)
    wrapped.reset(seed=0)
    with pytest.raises(UsageError, match=r"info\['foregone'\] of environments \[1\]"):
        wrapped.step(np.zeros(2, int))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"foregone=True needs rule=ma.CanonicalEWA\(.*paper's rule"),
        ({"rule": ma.EWA()}, "needs rule=ma.CanonicalEWA"),
        (
            {"rule": CANONICAL, "reward_delay": 2},
            r"a reward_delay \(of 2\) and foregone=True do not go together: nothing",
        ),
        ({"rule": CANONICAL, "foregone": np.ones(3)}, "foregone must be True or False"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LedgerObservation(told(), **{"foregone": True, **arguments})


@pytest.mark.parametrize(
    ("actions", "book"),
    [
        (spaces.MultiDiscrete([2, 3]), None),
        (spaces.Box(-1, 1, (6,)), None),
        (spaces.Box(-1, 1, (2,)), ma.ProductCodebook(dim=2, groups=2, bins=3)),
        (spaces.Box(-1, 1, (2,)), ma.HierarchicalCodebook(dim=2, levels=(2, 3))),
    ],
)
def test_several_codes_per_action(actions: Any, book: Any) -> None:
    with pytest.raises(UsageError, match="foregone=True needs one code per action, but this codebook gives 2"):
        LedgerObservation(told(actions), book, rule=CANONICAL, foregone=True)


def test_late_rewards_and_foregone_payoffs() -> None:
    make = partial(Spoken, [1, 2, 3], is_late=True)
    env = LedgerObservation(make(), rule=CANONICAL, foregone=True)
    envs = LedgerVectorObservation(SyncVectorEnv([make] * 2), rule=CANONICAL, foregone=True)
    for one, action in ((env, 0), (envs, np.zeros(2, int))):
        one.reset(seed=0)
        one.step(action)  # a delay of 0 is none
        with pytest.raises(UsageError, match=r"a reward_delay \(of 1\) and foregone=True do not go together"):
            one.step(action)
