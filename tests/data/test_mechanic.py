"""The mechanic: the medium policy's actions, one of them turned round from some time after the break on."""

import gymnasium
import numpy as np
import pytest

import mental_accounts.environments  # noqa: F401 (registers)
from mental_accounts.data.mechanic import Mechanic

pytest.importorskip("mujoco")


def make_env() -> gymnasium.Env:
    return gymnasium.make("BrokenHalfCheetah-v0", spared=0.0)


def test_whoever_mends_at_once_never_notices_the_break() -> None:
    whole = gymnasium.make("BrokenHalfCheetah-v0", spared=1.0)
    mended = Mechanic("halfcheetah", 0, 0).play(make_env(), seed=1)
    assert (mended.contexts >= 0).any()
    # The actuator gets what it would have got: rewards are those of a whole robot with the same luck.
    unbroken = Mechanic("halfcheetah", 0, 0).play(whole, seed=1)
    begun = int(np.argmax(mended.contexts >= 0))
    turned = mended.actions.copy()
    which = mended.contexts[-1]
    turned[begun:, which] *= -1
    np.testing.assert_allclose(turned, unbroken.actions, atol=1e-6)
    np.testing.assert_allclose(mended.rewards, unbroken.rewards, atol=1e-4)


def test_actions_turn_round_after_the_delay_and_by_seed() -> None:
    late = Mechanic("halfcheetah", 30, 30).play(make_env(), seed=2)
    never = Mechanic("halfcheetah", 5000, 5000).play(make_env(), seed=2)
    begun = int(np.argmax(late.contexts >= 0))
    np.testing.assert_array_equal(late.actions[: begun + 30], never.actions[: begun + 30])
    which = late.contexts[-1]
    assert late.actions[begun + 30, which] == -never.actions[begun + 30, which]
    again = Mechanic("halfcheetah", 30, 30).play(make_env(), seed=2)
    np.testing.assert_array_equal(late.actions, again.actions)
    assert late.rewards.sum() > never.rewards.sum()
