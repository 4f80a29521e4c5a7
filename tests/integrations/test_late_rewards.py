"""Rewards that come late: entered under the action they belong to, as if they had come at once and decayed since."""

import copy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import mental_accounts as ma
from mental_accounts.channels import MOST_DELAY
from mental_accounts.errors import UsageError
from mental_accounts.integrations import LedgerObservation, LedgerVectorObservation, RunningRewards
from tests.integrations.late_env import Late, slow_ledger
from tests.integrations.told_env import Told, told

CHANNELS = ("balance", "count", "mean")
seeds = st.integers(0, 2**32 - 1)
rules = st.one_of(
    st.builds(ma.EWA, st.floats(0.01, 0.9)),
    st.builds(ma.CanonicalEWA, st.floats(0.01, 0.9), st.floats(0, 1), st.just(0.5), st.floats(0, 3)),
)


def expected_of(env: Late, rule: Any, constant: int, across: bool) -> np.ndarray:
    """The slow ledger of what the environment wrote down."""
    episodes = env.episodes if across else env.episodes[-1:]
    begin = getattr(rule, "initial_experience", 1.0)
    return slow_ledger(episodes, constant, env.arms, rule.phi, getattr(rule, "rho", None), begin)


def close(seen: np.ndarray, expected: np.ndarray) -> bool:
    return np.allclose(seen[1:], expected, rtol=1e-5, atol=1e-6)


# Against a version that recomputes everything from the list of all steps.


@settings(max_examples=60)
@given(seed=seeds, rule=rules, constant=st.integers(0, 6), tells=st.sampled_from([0.0, 0.5, 1.0]), across=st.booleans())
def test_one_environment(seed: int, rule: Any, constant: int, tells: float, across: bool) -> None:
    late = Late(tells=tells)
    env = LedgerObservation(
        late, rule=rule, rewards="raw", channels=CHANNELS, reward_delay=constant, across_episodes=across
    )
    rng = np.random.default_rng(seed)
    for episode in range(4):
        seen, _ = env.reset(seed=seed if not episode else None)
        over = False
        assert close(seen, expected_of(late, rule, constant, across))
        while not over:
            seen, _, over, _, _ = env.step(rng.integers(late.arms))
            assert env.observation_space.contains(seen)
            assert close(seen, expected_of(late, rule, constant, across))


@pytest.mark.parametrize("mode", list(AutoresetMode))
@settings(max_examples=25)
@given(seed=seeds, rule=rules, constant=st.integers(0, 4), tells=st.sampled_from([0.0, 0.5, 1.0]), across=st.booleans())
def test_many_environments(mode: Any, seed: int, rule: Any, constant: int, tells: float, across: bool) -> None:
    lates = [Late(tells=tells) for _ in range(3)]
    envs = LedgerVectorObservation(
        SyncVectorEnv([lambda late=late: late for late in lates], autoreset_mode=mode),
        rule=rule, rewards="raw", channels=CHANNELS, reward_delay=constant, across_episodes=across,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    seen, _ = envs.reset(seed=seed % 2**31)
    for _ in range(30):
        for i, late in enumerate(lates):
            assert close(seen[i], expected_of(late, rule, constant, across)), i
        seen, _, over, _, infos = envs.step(rng.integers(0, 4, 3))
        if mode == AutoresetMode.SAME_STEP:
            for i in np.flatnonzero(over):  # the last observation: before the reset that has come since
                before = copy.copy(lates[i])
                before.episodes = before.episodes[:-1]
                assert close(infos["final_obs"][i], expected_of(before, rule, constant, across))
        elif mode == AutoresetMode.DISABLED and over.any():
            for i in np.flatnonzero(over):
                assert close(seen[i], expected_of(lates[i], rule, constant, across))
            seen, _ = envs.reset(options={"reset_mask": over.copy()})


@settings(max_examples=30)
@given(seed=seeds, rule=rules, clip=st.floats(0.01, 3), constant=st.integers(0, 4))
def test_bounds_are_true(seed: int, rule: Any, clip: float, constant: int) -> None:
    transform = ma.RewardTransform("standardised", 0.0, 0.1, clip)  # most payoffs are at the bounds
    env = LedgerObservation(Late(arms=2), rule=rule, rewards=transform, channels=CHANNELS, reward_delay=constant)
    seen, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    for _ in range(40):
        seen, _, over, _, _ = env.step(env.action_space.sample())
        assert env.observation_space.contains(seen)
        if over:
            env.reset()


# By examples.


class Spoken(Told):
    """Says the delays that it is told to."""

    def __init__(self, delays: list[Any], steps: int = 5, actions: spaces.Space[Any] | None = None) -> None:
        super().__init__(spaces.Box(-1, 1, (2,)), spaces.Discrete(3) if actions is None else actions)
        self.delays, self.steps = delays, steps

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, _, _, _, info = super().step(action)
        delay = self.delays[self.t - 1] if self.t <= len(self.delays) else None
        if not isinstance(delay, str) or delay:
            info["reward_delay"] = delay
        return seen, float(self.t), self.t >= self.steps, False, info


def test_along_an_episode() -> None:
    env = LedgerObservation(Spoken([""] * 5), phi=0.5, rewards="raw", channels=("mean", "count"), reward_delay=2)
    env.reset(seed=0)
    for action in (0, 1):
        assert env.step(action)[0][2:].tolist() == [0] * 6  # nobody's rewards
    env.step(2)
    assert env.ledger.sums.tolist() == [[3 / 4, 0, 0]]
    assert env.ledger.counts.tolist() == [[1 / 4, 0, 0]]
    assert env.step(2)[0][2:5].tolist() == [3, 4, 0]
    assert env.ledger.counts.tolist() == [[1 / 8, 1 / 4, 0]]


@pytest.mark.parametrize("delay", [1, 3, 10])
@pytest.mark.parametrize("rule", [ma.EWA(0.2), ma.CanonicalEWA(0.2, 0.3, 0.5)])
def test_when_all_have_come_it_is_as_without_delay(delay: int, rule: Any) -> None:
    rng = np.random.default_rng(0)
    rewards, actions = rng.normal(size=40), rng.integers(0, 3, 40 + delay)
    ledgers = []
    for late in (0, delay):
        env = told()
        wrapped = LedgerObservation(env, rule=rule, rewards="raw", reward_delay=late)
        wrapped.reset(seed=0)
        for t in range(40 + late):
            env.t, env.reward = 0, rewards[t - late] if t >= late else 7.0
            wrapped.step(actions[t])
        ledgers.append(wrapped.ledger)
    since = (1 - rule.phi) ** delay  # the last actions, whose rewards have not come, only let the others decay
    assert np.allclose(ledgers[1].sums, ledgers[0].sums * since, rtol=1e-12)
    assert np.allclose(ledgers[1].counts, ledgers[0].counts * since, rtol=1e-12)
    assert np.allclose(ledgers[1].read("mean"), ledgers[0].read("mean"), rtol=1e-12)


def test_the_environment_has_the_last_word() -> None:
    env = LedgerObservation(Spoken([0, "", 2, np.int32(0)]), phi=0.5, rewards="raw", reward_delay=1)
    env.reset(seed=0)
    for action in (0, 1, 2, 2):
        env.step(action)
    # Steps 0 and 1 paid action 0, then step 0 again, and the last one action 2.
    assert env.ledger.sums.tolist() == [[1 / 8 + 2 / 8 + 3 / 8, 0, 4]]
    assert env.ledger.counts.tolist() == [[3 / 8, 0, 1]]


def test_several_codes_per_action() -> None:
    env = LedgerObservation(Spoken([""] * 5, actions=spaces.MultiDiscrete([2, 2])), rewards="raw", reward_delay=1)
    env.reset(seed=0)
    env.step(np.array([1, 0]))
    env.step(np.array([0, 1]))
    assert np.flatnonzero(env.ledger.counts[0]).tolist() == [1, 2]


def test_nobodys_rewards_are_not_in_the_statistics() -> None:
    running = RunningRewards()
    env = LedgerObservation(Spoken([""] * 5), rewards=running, reward_delay=2)
    envs = LedgerVectorObservation(SyncVectorEnv([partial(Spoken, [""] * 5)] * 3), rewards=running, reward_delay=2)
    for _ in range(2):
        env.reset(seed=0)
        for _ in range(5):
            env.step(0)
    assert running.state() == {"count": 6, "mean": 4.0, "squares": 4.0}  # 3, 4 and 5, twice
    envs.reset(seed=0)
    for _ in range(6):  # with the step that resets
        envs.step(np.zeros(3, int))
    assert running.count == 6 + 9
    assert running.mean == 4.0


def test_steps_are_kept() -> None:
    longest = MOST_DELAY + 100
    for constant, most in ((0, MOST_DELAY), (longest, longest)):
        delays = [""] * longest + [most, most + 1]
        for vector in (False, True):
            make = partial(Spoken, delays, longest + 5)
            wrapped: Any
            if vector:
                wrapped = LedgerVectorObservation(SyncVectorEnv([make]), phi=1e-3, rewards="raw", reward_delay=constant)
            else:
                wrapped = LedgerObservation(make(), phi=1e-3, rewards="raw", reward_delay=constant)
            wrapped.reset(seed=0)
            for t in range(longest + 1):
                action = 1 if t == longest - most else 0
                wrapped.step(np.array([action]) if vector else action)
            once = 0 if constant else longest - most + 1  # what came at once; then the late one
            assert wrapped.ledger.sums[0, 1] == pytest.approx((1 - 1e-3) ** most * (once + longest + 1))
            with pytest.raises(UsageError, match=f"{most + 1}, but only the last {most} steps are kept.*={most + 1}"):
                wrapped.step(np.array([0]) if vector else 0)


def test_accounts_that_are_emptied_within_an_episode() -> None:
    env = LedgerObservation(Spoken([""] * 5), phi=0.5, rewards="raw", reward_delay=1)
    env.reset(seed=0)
    env.step(0)
    env.clear_ledger()
    env.step(1)
    assert env.ledger.sums.tolist() == [[1, 0, 0]]  # what comes later is still entered


def test_codebooks_that_reuse_their_array() -> None:
    class Reusing:
        num_codes, dim, given = 3, 1, np.zeros(2, int)

        def route(self, actions: Any) -> Any:
            self.given[:] = actions[:, 0]
            return self.given

    envs = LedgerVectorObservation(SyncVectorEnv([partial(Spoken, [""] * 5)] * 2), Reusing(), reward_delay=1)
    envs.reset(seed=0)
    for action in (0, 1):
        envs.step(np.array([action, action]))
    assert np.flatnonzero(envs.ledger.counts[0]).tolist() == [0]


def test_processes() -> None:
    envs = LedgerVectorObservation(AsyncVectorEnv([Late] * 2, autoreset_mode="SameStep"), rewards="raw", reward_delay=1)
    envs.reset(seed=0)
    for _ in range(30):
        envs.step(envs.action_space.sample())
    envs.close()


# Refusals.


@pytest.mark.parametrize(
    ("delay", "message"),
    [
        (-1, "must be a whole number of steps, 0 or more, got -1"),
        (1.0, "whole number of steps, 0 or more, got 1.0"),
        (float("nan"), "whole number of steps, 0 or more, got nan"),
        (True, "whole number of steps.*True"),
        (None, "whole number of steps.*None"),
        ("two", "whole number of steps.*two"),
        (np.array([1, 2]), "whole number of steps"),
        (2, "is 2, but this is step 1 of its episode, counted from 0"),
        (MOST_DELAY, f"is {MOST_DELAY}, but this is step 1 of"),
        (10**30, "steps are kept"),
    ],
)
def test_delays_that_cannot_be(delay: Any, message: str) -> None:
    env = LedgerObservation(Spoken(["", delay]))
    envs = LedgerVectorObservation(SyncVectorEnv([partial(Spoken, ["", delay])] * 2))
    for one, action, whose in ((env, 0, ""), (envs, np.zeros(2, int), " of environment 0")):
        if whose and isinstance(delay, int) and delay > 2**63:
            continue  # Gymnasium refuses it itself
        one.reset(seed=0)
        one.step(action)
        with pytest.raises(UsageError, match=rf"info\['reward_delay'\]{whose} .*{message}"):
            one.step(action)


def test_earlier_episodes_are_out_of_reach() -> None:
    env = LedgerObservation(Spoken([0, 1], steps=2), across_episodes=True)
    for _ in range(2):
        env.reset(seed=0)
        env.step(0)
        env.step(0)
    env.unwrapped.delays = [1]
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"is 1, but this is step 0.*action of the same episode"):
        env.step(0)


@pytest.mark.parametrize(
    ("delay", "message"),
    [(-1, "at least 0"), (1.5, "whole number"), (True, "whole number"), (10**7, "at most 1000000 steps")],
)
def test_constants_that_cannot_be(delay: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"reward_delay must be .*{message}"):
        LedgerObservation(told(), reward_delay=delay)


def test_rewards_that_are_no_numbers_are_refused_even_if_nobodys() -> None:
    env = LedgerObservation(told(reward=np.nan), reward_delay=3)
    env.reset(seed=0)
    with pytest.raises(UsageError, match="rewards must be finite"):
        env.step(0)


def test_vector_environments_without_masks() -> None:
    class Plain(gymnasium.vector.VectorEnv[Any, Any, Any]):
        num_envs, single_observation_space, single_action_space = 2, spaces.Box(0, 1, (1,)), spaces.Discrete(2)
        metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 (Gymnasium's own convention)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            self.t = -1
            return np.zeros((2, 1), np.float32), {}

        def step(self, actions: Any) -> Any:
            self.t += 1
            over = np.zeros(2, bool)
            return np.zeros((2, 1), np.float32), np.ones(2), over, over, {"reward_delay": np.array([0, self.t])}

    envs = LedgerVectorObservation(Plain(), phi=0.5, rewards="raw")
    envs.reset()
    for actions in ([0, 1], [1, 0]):
        envs.step(np.array(actions))
    assert envs.ledger.sums.tolist() == [[0.5, 1], [0, 1]]
