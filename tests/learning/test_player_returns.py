"""Players that do not learn, on the episodes of `evaluate`; and environments whose names carry settings."""

from pathlib import Path

import numpy as np
import pytest

import mental_accounts as ma
from mental_accounts.environments.hidden_arm import HiddenArm
from mental_accounts.environments.makers import EpsilonGreedy
from mental_accounts.errors import UsageError
from mental_accounts.learning.evaluation import environment_seed
from mental_accounts.learning.make_env import declared_limit, make_environment
from mental_accounts.learning.parallel_envs import Environments
from mental_accounts.learning.player_returns import play_player
from mental_accounts.presets import PRESETS

ARM = "mental_accounts.environments:HiddenArm-v0"
TINY = {
    "model": {"hidden": 8, "layers": 1, "heads": 1}, "data_steps": 1_000, "pretrain_iterations": 1,
    "updates_per_pretrain_iteration": 2, "warmup_updates": 1, "batch_size": 4, "eval_episodes": 2, "device": "cpu",
}  # fmt: skip


def test_players_meet_the_episodes_that_policies_meet() -> None:
    returns = play_player("hidden-arm", "oracle", 3, seed=4)
    assert returns.shape == (3,)
    env, totals = HiddenArm(), []
    for place in range(3):
        _, info = env.reset(seed=environment_seed(4, place))
        total, over = 0.0, False
        while not over:
            cell = info["cell"]
            action = np.array([0.75 * ((cell // 3**d) % 3 - 1) for d in range(3)], np.float32)
            _, reward, _, over, info = env.step(action)
            total += reward
        totals.append(total)
    assert returns == pytest.approx(totals, abs=1e-3)
    assert play_player("hidden-arm", "oracle", 2, seed=4) == pytest.approx(returns[:2])
    assert play_player("drifting-bandit-free", EpsilonGreedy(0.1, 0.3), 2).shape == (2,)


@pytest.mark.parametrize(
    ("task", "player", "episodes", "message"),
    [
        ("hidden-arm", "thomson", 1, "there is no player 'thomson'; there are random, thompson"),
        ("hidden-arm", "random", 0, "episodes must be at least 1"),
        ("minari/some/data-v0", "random", 1, "does not say which environment"),
    ],
)
def test_bad_requests_say_why(task: str, player: str, episodes: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        play_player(task, player, episodes)


def test_an_id_may_carry_settings() -> None:
    env = make_environment(f"{ARM}:dim=2,hijack=0,steps=33")
    inner = env.unwrapped
    assert isinstance(inner, HiddenArm)
    assert (inner.dim, inner.hijack, inner.steps) == (2, 0.0, 33)
    assert declared_limit(env) == 33
    env.reset(seed=0)
    for t in range(33):
        truncated = env.step(env.action_space.sample())[3]
        assert truncated == (t == 32)
    assert declared_limit(make_environment(f"{ARM}:steps=900")) == 900
    assert declared_limit(make_environment(ARM)) == 200
    with pytest.raises(UsageError, match=r"HiddenArm-v0:size=2 cannot be made: 'size=2' is no setting of HiddenArm-v0"):
        make_environment(f"{ARM}:size=2")
    with pytest.raises(UsageError, match="hijack must be in"):
        make_environment(f"{ARM}:hijack=7")


def test_other_processes_make_the_same_environment() -> None:
    source = f"{ARM}:dim=2,hijack=0,steps=12"
    here, apart = (Environments(lambda: make_environment(source), 3, workers) for workers in (0, 1))
    seen = []
    for envs in (here, apart):
        envs.reset([1, 2, 3])
        board = [envs.step(np.full((3, 2), 0.5), np.ones(3, bool), t).rewards.copy() for t in range(12)]
        assert bool(envs.board.truncated.all())
        seen.append(np.array(board))
        envs.close()
    np.testing.assert_array_equal(*seen)


def test_runs_learn_and_act_where_their_data_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    name = "hidden-arm-free:dim=2,steps=40/ucb"
    run = ma.train(data=name, preset=PRESETS["hidden"], run="one", **TINY)
    assert run.config.task == name
    found = ma.evaluate("one", episodes=2, device="cpu")
    assert found.env_id == f"{ARM}:dim=2,hijack=0,steps=40"
    assert found.length_mean == 40
    longer = ma.evaluate("one", env=f"{ARM}:dim=2,hijack=0,steps=90", episodes=2, device="cpu")
    assert longer.length_mean == 90
    assert len(list((tmp_path / "cache" / "hidden").iterdir())) == 1
