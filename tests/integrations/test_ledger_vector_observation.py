"""Ledgers of environments that are stepped together: the same as one by one, in every autoreset mode."""

import pickle
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

import mental_accounts as ma
from mental_accounts.environments import DriftingBandit, HiddenArm
from mental_accounts.errors import UsageError
from mental_accounts.integrations import LedgerObservation, LedgerVectorObservation, RunningRewards

CHANNELS = ("balance", "count", "mean")
CANONICAL = ma.CanonicalEWA(phi=0.2, rho=0.1, delta=0.5)
LENGTHS = (7, 4, 5)
"""Steps of an episode in each environment: they end at different times."""


def make_one(steps: int, kind: str = "bandit") -> gymnasium.Env[Any, Any]:
    if kind == "arm":
        return HiddenArm(dim=2, steps=steps)
    env = DriftingBandit(steps=steps)
    if kind == "dict":
        return gymnasium.wrappers.TransformObservation(env, as_entry, spaces.Dict(seen=env.observation_space))
    if kind == "discrete":
        return gymnasium.wrappers.TransformObservation(env, as_number, spaces.Discrete(2))
    return env


def as_entry(observation: Any) -> dict[str, Any]:
    return {"seen": observation}


def as_number(observation: Any) -> np.int64:
    return np.int64(observation[0])


def flat(observation: Any) -> np.ndarray:
    parts = observation.values() if isinstance(observation, dict) else [observation]
    return np.concatenate([np.atleast_1d(part) for part in parts], axis=-1)


def at(observations: Any, i: int) -> Any:
    if isinstance(observations, dict):
        return {key: part[i] for key, part in observations.items()}
    return observations[i]


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", ["bandit", "arm", "dict", "discrete"])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("more", [{}, {"rule": CANONICAL}, {"reward_delay": 2}, {"rule": CANONICAL, "foregone": True}])
def test_as_one_by_one(mode: AutoresetMode, kind: str, across: bool, more: dict[str, Any]) -> None:
    if kind == "arm" and "foregone" in more:
        pytest.skip("reports no foregone payoffs")
    arguments: dict[str, Any] = {"rewards": "raw", "channels": CHANNELS, "across_episodes": across, **more}
    together = LedgerVectorObservation(
        SyncVectorEnv([partial(make_one, steps, kind) for steps in LENGTHS], autoreset_mode=mode), **arguments
    )
    apart = [LedgerObservation(make_one(steps, kind), **arguments) for steps in LENGTHS]
    seen, _ = together.reset(seed=[10, 11, 12])
    expected = [env.reset(seed=10 + i)[0] for i, env in enumerate(apart)]
    together.action_space.seed(0)
    over = np.zeros(3, bool)
    for _ in range(30):
        assert together.observation_space.contains(seen)
        for i in range(3):
            assert np.allclose(flat(at(seen, i)), flat(expected[i]), atol=1e-6), (i, mode)
        actions = together.action_space.sample()
        seen, rewards, _, truncated, infos = together.step(actions)
        for i, env in enumerate(apart):
            if mode == AutoresetMode.NEXT_STEP and over[i]:
                expected[i] = env.reset()[0]
                over[i] = False
                continue
            expected[i], reward, _, cut, _ = env.step(actions[i])
            assert rewards[i] == pytest.approx(reward)
            over[i] = cut
            if cut and mode == AutoresetMode.SAME_STEP:
                final = infos["final_obs"][i]
                assert together.single_observation_space.contains(final)
                assert np.allclose(flat(final), flat(expected[i]), atol=1e-6)
                expected[i] = env.reset()[0]
        assert np.array_equal(truncated, over)
        if mode == AutoresetMode.DISABLED and over.any():
            seen, _ = together.reset(options={"reset_mask": over.copy()})
            for i in np.flatnonzero(over):
                expected[i] = apart[i].reset()[0]
    together.close()


def test_one_set_of_statistics() -> None:
    envs = LedgerVectorObservation(SyncVectorEnv([partial(make_one, steps) for steps in LENGTHS]))
    envs.reset(seed=0)
    every = []
    resets = np.zeros(3, bool)
    for _ in range(40):
        _, rewards, _, truncated, _ = envs.step(envs.action_space.sample())
        every += rewards[~resets].tolist()  # a step that resets earns nothing
        resets = truncated
    assert isinstance(envs.rewards, RunningRewards)
    assert envs.rewards.count == len(every)
    assert (envs.rewards.mean, envs.rewards.std) == pytest.approx((np.mean(every), np.std(every)))
    state = envs.get_reward_state()
    envs.set_reward_state(state, frozen=True)
    envs.step(envs.action_space.sample())
    assert envs.get_reward_state() == state
    envs.close()


def test_processes_and_make_vec() -> None:
    envs = LedgerVectorObservation(AsyncVectorEnv([partial(make_one, 4)] * 2, autoreset_mode="SameStep"), phi=0.1)
    seen, _ = envs.reset(seed=0)
    assert seen.shape == (2, 12)
    for _ in range(4):
        seen, *_, infos = envs.step(np.array([1, 2]))
    assert np.abs(seen[:, 2:]).max() == 0
    assert envs.single_observation_space.contains(infos["final_obs"][0])
    envs.close()
    name = "mental_accounts.environments:DriftingBandit-v0"
    within = gymnasium.make_vec(name, 2, "sync", wrappers=[LedgerObservation])
    around = LedgerVectorObservation(gymnasium.make_vec(name, 2, "async"))
    for one in (within, around):
        assert one.single_observation_space.shape == (12,)
        assert one.observation_space.contains(one.reset(seed=0)[0])
        one.close()


def test_a_loop_as_in_cleanrl() -> None:
    """Next-step autoreset, float actions, one array of observations for the whole rollout."""
    envs = LedgerVectorObservation(
        SyncVectorEnv([partial(make_one, steps, "arm") for steps in LENGTHS]), channels=("mean", "count")
    )
    stored = np.zeros((20, 3, *envs.single_observation_space.shape), np.float32)
    stored[0], _ = envs.reset(seed=1)
    over = np.zeros(3, bool)
    for t in range(1, 20):
        stored[t], _, terminated, truncated, _ = envs.step(envs.action_space.sample())
        assert (stored[t][over, 2:] == 0).all()  # the first of an episode: empty accounts
        assert (stored[t][~over, 11:].max(axis=1) >= 0.29).all()  # else one visit is new
        over = terminated | truncated
    envs.close()


def test_pickles() -> None:
    envs = LedgerVectorObservation(SyncVectorEnv([partial(make_one, 9)] * 2))
    envs.reset(seed=0)
    other = pickle.loads(pickle.dumps(envs))
    for _ in range(12):
        actions = envs.action_space.sample()
        assert np.array_equal(envs.step(actions)[0], other.step(actions)[0])


class Nan(DriftingBandit):
    def step(self, action: Any) -> Any:
        seen, _, *rest = super().step(action)
        return seen, float("nan"), *rest


def test_refusals() -> None:
    envs = LedgerVectorObservation(SyncVectorEnv([partial(make_one, 2)] * 2, autoreset_mode="Disabled"))
    with pytest.raises(UsageError, match="call reset"):
        envs.step(np.array([0, 0]))
    with pytest.raises(UsageError, match="reset_mask came before"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset(seed=0)
    for bad in (np.array([0, 10]), np.array([0]), np.array([0.0, 1.0])):
        with pytest.raises(UsageError, match=r"actions.* must be"):
            envs.step(bad)
    for _ in range(2):
        envs.step(np.array([0, 0]))
    with pytest.raises(UsageError, match=r"episodes of environments \[0, 1\] are over and autoreset is disabled"):
        envs.step(np.array([0, 0]))
    with pytest.raises(UsageError, match="LedgerObservation is for one environment"):
        LedgerVectorObservation(make_one(3))  # type: ignore[arg-type]
    bad = LedgerVectorObservation(SyncVectorEnv([Nan] * 2))
    bad.reset(seed=0)
    with pytest.raises(UsageError, match=r"rewards must be finite, got \[nan nan\]"):
        bad.step(np.array([0, 0]))


class Odd(VectorEnv[Any, Any, Any]):
    """Of one's own; says what it is told to."""

    num_envs = 2
    single_observation_space = spaces.Box(0, 1, (1,))
    single_action_space = spaces.Discrete(2)

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        observations = np.zeros((2, 1), np.float32)
        ended = np.array([True, False])
        return observations, np.zeros(2), ended, ~ended & False, {"final_obs": observations}


def test_vector_environments_of_other_kinds() -> None:
    for metadata in ({}, {"autoreset_mode": "sometimes"}):
        with pytest.raises(UsageError, match=r"must say in metadata\['autoreset_mode'\]"):
            LedgerVectorObservation(Odd(metadata))
    envs = LedgerVectorObservation(Odd({"autoreset_mode": AutoresetMode.SAME_STEP}))
    envs.reset()
    with pytest.raises(UsageError, match="must be an array of one object per environment"):
        envs.step(np.array([0, 1]))
