"""What ledger observations refuse, and in which words."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import mental_accounts as ma
from mental_accounts.errors import UsageError
from mental_accounts.integrations import LedgerObservation, RunningRewards
from tests.integrations.told_env import Quadrants, Told, told


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
        (
            spaces.Box(-1, 1, (3,)),
            ma.GridCodebook(dim=2),
            "needs one of 3 dimensions, got GridCodebook of 9 codes, dim=2",
        ),
        (spaces.Box(-1, 1, (3,)), ma.DiscreteCodebook(n=3), "does not fit"),
        (spaces.Box(-1, 1, (3,)), Quadrants(), "needs one of 3 dimensions, got Quadrants of 4 codes, dim=2"),
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
    twice = Quadrants()
    twice.route = lambda actions: np.zeros((len(actions), 2), int)  # type: ignore[method-assign]
    env = LedgerObservation(told(spaces.Box(-1, 1, (2,))), twice)
    env.reset(seed=0)
    with pytest.raises(UsageError, match="codes of one action must differ"):
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
