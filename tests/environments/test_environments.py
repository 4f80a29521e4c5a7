"""The tasks with a hidden context: Gymnasium's own checks, what they hide, what they pay, and that seeds decide all."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import mental_accounts.environments as environments
from mental_accounts import GridCodebook
from mental_accounts.environments.hidden_arm import WIDTH, HiddenArm, cell_of, centre, is_hijacked, pay
from mental_accounts.environments.learners import Learner
from mental_accounts.environments.playing import own_chance
from mental_accounts.environments.yardsticks import AtRandom, Oracle

IDS = ["HiddenArm-v0", "DriftingBandit-v0", "BrokenHopper-v0"]


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_finds_nothing_wrong(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of MuJoCo's unbounded observations
        check_env(gymnasium.make(name).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", IDS)
def test_a_seed_decides_everything(name: str) -> None:
    env = gymnasium.make(name)
    logs = []
    for seed in (3, 3, 4):
        observation, _ = env.reset(seed=seed)
        env.action_space.seed(0)
        log = [*observation]
        for _ in range(30):
            observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            log += [*observation, reward]
            if terminated or truncated:
                break
        logs.append(np.array(log))
    np.testing.assert_array_equal(logs[0], logs[1])
    assert logs[0].shape != logs[2].shape or (logs[0] != logs[2]).any()


def test_no_import_is_needed_with_the_modules_name() -> None:
    code = "import gymnasium; print(gymnasium.make('mental_accounts.environments:HiddenArm-v0').spec.id)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "HiddenArm-v0"
    environments.register()  # twice does no harm


def test_the_arm_pays_where_it_should_and_tells_what_was_done() -> None:
    env = HiddenArm(noise=0.0, jump=0.0)
    observation, info = env.reset(seed=0)
    best = centre(info["cell"], 3)
    assert observation[0] == 0
    _, reward, _, _, info = env.step(best)
    assert reward == pytest.approx(pay(best, best)) == pytest.approx(1 - 0.105)
    np.testing.assert_array_equal(info["action_taken"], best)
    observation, reward, _, _, info = env.step(best)  # every second action is another's
    assert (info["action_taken"] != best).any()
    assert reward == pytest.approx(pay(info["action_taken"], best))
    assert pay(best + np.array([WIDTH, 0, 0], np.float32), best) == pytest.approx(np.exp(-0.5) - 0.105)
    assert [is_hijacked(t, 0.25) for t in range(8)] == [False, False, False, True] * 2
    assert not any(is_hijacked(t, 0.0) for t in range(9))
    assert all(is_hijacked(t, 1.0) for t in range(9))
    assert [cell_of(centre(cell, 3)) for cell in range(27)] == list(range(27))
    book, actions = GridCodebook(3, 3), np.random.default_rng(0).uniform(-1, 1, (500, 3)).astype(np.float32)
    assert book.route(torch.from_numpy(actions)).tolist() == [cell_of(action) for action in actions]


def test_the_cell_jumps_as_often_as_it_is_told() -> None:
    env = HiddenArm(jump=0.2, steps=5000)
    _, info = env.reset(seed=1)
    cells = [info["cell"]]
    for _ in range(5000):
        cells.append(env.step(np.zeros(3, np.float32))[4]["cell"])
    changed = np.mean(np.array(cells[1:]) != np.array(cells[:-1]))
    assert changed == pytest.approx(0.2 * 26 / 27, abs=0.02)


def test_an_actuator_breaks_once_and_for_the_rest_of_the_episode() -> None:
    env = environments.BrokenActuator(gymnasium.make("Hopper-v5", terminate_when_unhealthy=False), "reversed", 20, 0.0)
    plain = gymnasium.make("Hopper-v5", terminate_when_unhealthy=False)
    _, info = env.reset(seed=2)
    plain.reset(seed=2)
    plain.unwrapped.set_state(env.unwrapped.data.qpos, env.unwrapped.data.qvel)
    broken = []
    for t in range(40):
        action = np.full(3, 0.3, np.float32)
        broken.append(info["broken"])
        meant = action.copy()
        if info["broken"] >= 0:
            meant[info["broken"]] *= -1
        seen, _, _, _, info = env.step(action)
        same, *_ = plain.step(meant)
        np.testing.assert_allclose(seen, same, err_msg=str(t))
    assert broken[0] == -1 or env.when == 0
    first = broken.index(env.which)
    assert set(broken[first:]) == {env.which}
    spared = environments.BrokenActuator(gymnasium.make("Hopper-v5"), spared=1.0)
    spared.reset(seed=0)
    assert spared.when == np.inf


def test_bad_arguments_say_why() -> None:
    with pytest.raises(ValueError, match="hijack must be in"):
        HiddenArm(hijack=2.0)
    with pytest.raises(ValueError, match="arms must be at least 2"):
        environments.DriftingBandit(arms=1)
    with pytest.raises(TypeError, match="actions are a vector"):
        environments.BrokenActuator(gymnasium.make("CartPole-v1"))
    with pytest.raises(ValueError, match="fault must be dead or reversed"):
        environments.BrokenActuator(gymnasium.make("Hopper-v5"), fault="stuck")  # type: ignore[arg-type]
    env = gymnasium.make("DriftingBandit-v0").unwrapped
    env.reset(seed=0)
    with pytest.raises(ValueError, match="an arm from 0 to 9"):
        env.step(10)


@pytest.mark.parametrize("name", ["HiddenArm-v0", "DriftingBandit-v0"])
def test_a_learner_is_between_chance_and_an_oracle(name: str) -> None:
    env = gymnasium.make(name)
    means = [
        np.mean([player.play(env, seed).rewards.sum() for seed in range(40)])
        for player in (AtRandom(), Learner(), Oracle())
    ]
    assert means[0] < means[1] - 20
    assert means[1] < means[2] - 20
    one, other = Learner().play(env, 7), Learner().play(env, 7)
    np.testing.assert_array_equal(one.actions, other.actions)
    assert len(one.rewards) == 200


def test_players_do_not_share_the_environments_luck() -> None:
    for seed in range(5):
        theirs, _ = gymnasium.utils.seeding.np_random(seed)
        luck = set(theirs.random(1000))
        assert luck & set(np.random.default_rng(seed).random(1000)) == luck  # the trap: the seed's own stream is theirs
        assert not luck & set(own_chance(seed).random(1000))
    env = HiddenArm()
    own = AtRandom().play(env, seed=1).actions[::2]  # the others are the environment's
    env.action_space.seed(1)
    assert not np.isin(np.stack([env.action_space.sample() for _ in range(200)]), own).any()
