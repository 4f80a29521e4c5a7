"""The study of POPGym: every method runs, runs are resumed, and the report says what the runs say."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import popgym
import pytest
import torch
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import RNNStates

from mental_accounts.integrations import RunningRewards
from popgym_study import __main__ as command
from popgym_study import suite_report, suite_runs
from popgym_study.suite_envs import StackedSteps, SuiteEnvs
from popgym_study.suite_methods import METHODS, SharedLstmPolicy, make_envs, make_model
from popgym_study.suite_players import PLAYERS, play
from popgym_study.suite_runs import STEPS, DifferentRunError, Job, is_finished, run

MADE_WITH = {
    "git_commit": "abc", "hardware": {"cpu": "a chip", "cpus": 2},
    "versions": {"python": "3.11", "torch": "2", "popgym": "1", "stable-baselines3": "2", "sb3-contrib": "2"},
}  # fmt: skip
TINY = (("envs", 4), ("rollout", 32), ("batch", 64), ("epochs", 1), ("hidden", 8), ("lstm_hidden", 8), ("stacked", 3))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_runs, "EVALUATION_ENVS", 4)
    monkeypatch.setattr(suite_runs, "EPISODES_PER_ENV", 1)
    torch.set_num_threads(1)


def test_the_suite_is_not_hidden_by_the_study() -> None:
    assert "site-packages" in str(popgym.__file__)


@pytest.mark.parametrize("name", list(STEPS))
def test_observations_are_the_suites_with_the_previous_reward_and_action(name: str) -> None:
    rewards = RunningRewards()
    envs, alone = SuiteEnvs(name, 3, rewards), SuiteEnvs(name, 1, rewards)
    actions = int(envs.single_action_space.n)
    first, _ = envs.reset(seed=5)
    assert first.shape == (3, *envs.single_observation_space.shape)
    assert not first[:, -actions - 1 :].any()
    single, _ = alone.reset(seed=6)
    np.testing.assert_array_equal(first[1], single[0])
    rng, has_ended = np.random.default_rng(0), False
    for _ in range(250):
        chosen = rng.integers(actions, size=3)
        seen, paid, ends, _, _ = envs.step(chosen)
        np.testing.assert_array_equal(seen[~ends, -actions:], np.eye(actions)[chosen[~ends]])
        assert not seen[ends, -actions - 1 :].any()
        has_ended |= bool(ends.any())
        assert np.isfinite(paid).all()
    assert has_ended or "Bandit" in name


def test_a_stack_has_the_last_steps_of_the_episode_alone() -> None:
    envs = StackedSteps(SuiteEnvs("MineSweeperEasy", 2, RunningRewards()), 4)
    size = envs.single_observation_space.shape[0] // 4
    seen, _ = envs.reset(seed=0)
    assert not seen[:, size:].any()
    rng = np.random.default_rng(0)
    for _ in range(40):
        before, (seen, _, ends, _, _) = seen, envs.step(rng.integers(16, size=2))
        np.testing.assert_array_equal(seen[~ends, size:], before[~ends, :-size])
        assert not seen[ends, size:].any()


def test_whole_sequences_give_the_numbers_of_single_steps() -> None:
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(5, 7)
    features, states = torch.randn(3 * 6, 5), (torch.randn(1, 3, 7), torch.randn(1, 3, 7))
    for starts in (torch.zeros(3, 6), torch.tensor([[1.0] + [0.0] * 5] * 3), torch.eye(6)[:3]):
        given = (features, states, starts.flatten(), lstm)
        one, other = (kind._process_sequence(*given) for kind in (SharedLstmPolicy, RecurrentActorCriticPolicy))
        torch.testing.assert_close(one[0], other[0])
        torch.testing.assert_close(one[1], other[1])


def test_an_update_reads_what_acting_read_and_the_critic_trains_the_lstm() -> None:
    rewards = RunningRewards()
    settings = replace(METHODS["lstm"], **dict(TINY))
    policy = make_model(settings, make_envs("MineSweeperEasy", settings, 4, rewards), 0).policy
    assert isinstance(policy, SharedLstmPolicy)
    seen = torch.randn(4, policy.observation_space.shape[0])
    zeros, begun = torch.zeros(1, 4, 8), torch.ones(4)
    states = RNNStates((zeros, zeros), (zeros, zeros))
    actions, values, chances, _ = policy.forward(seen, states, begun)
    again, same, _ = policy.evaluate_actions(seen, actions, states, begun)
    torch.testing.assert_close(again, values)
    torch.testing.assert_close(same, chances)
    again.sum().backward()
    assert policy.lstm_actor.weight_ih_l0.grad.abs().sum() > 0


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_runs(method: str, tmp_path: Path) -> None:
    job = Job("MineSweeperEasy", method, 0, 512, tmp_path, changes=TINY)
    found = run(job)
    assert json.loads(job.path.read_text()) == json.loads(json.dumps(found))
    assert found["sampled"]["episodes"] == 4
    assert -1.01 <= found["mode"]["mean"] <= 1.01
    assert [point["steps"] for point in found["curve"]] == [128, 256, 384, 512]
    assert found["best"] == max(point["return"] for point in found["curve"])
    assert not job.partial.exists()
    if method == "ledger":
        again = run(Job("MineSweeperEasy", method, 0, 512, tmp_path / "again", changes=TINY))
        assert {**again, "seconds": 0} == {**found, "seconds": 0}


def test_evaluation_leaves_the_statistics_of_rewards_alone() -> None:
    rewards = RunningRewards()
    make_envs("MineSweeperEasy", METHODS["ledger"], 4, rewards).reset()
    rewards.payoffs(np.random.default_rng(0).normal(size=100))
    rewards.frozen = True
    before, envs = rewards.state(), make_envs("MineSweeperEasy", METHODS["ledger"], 4, rewards)
    envs.reset()
    envs.step(np.zeros(4, np.int64))
    assert rewards.state() == before


def test_finished_runs_are_skipped_and_others_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = Job("MineSweeperEasy", "plain", 0, 512, tmp_path)
    assert not is_finished(job)
    write_run(job, 0.1)
    assert is_finished(job)
    with pytest.raises(DifferentRunError, match="has other steps: delete it"):
        is_finished(Job("MineSweeperEasy", "plain", 0, 1024, tmp_path))
    asked = ["--out", str(tmp_path), "--environments", "MineSweeperEasy", "--methods", "plain", "ledger"]
    asked += ["--seeds", "0", "--steps"]
    assert command.main([*asked, "512", "--list"]) == 0
    said = capsys.readouterr().out
    assert "finished MineSweeperEasy--plain--0" in said
    assert "missing  MineSweeperEasy--ledger--0" in said
    assert command.main([*asked, "1024"]) == 2
    assert "other steps" in capsys.readouterr().out


def test_only_what_is_missing_is_run_and_failures_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def pretend(job: Job) -> dict[str, Any]:
        ran.append(job.method)
        if job.method == "lstm":
            raise RuntimeError("out of luck")
        return write_run(job, 0.2)

    class Pool:
        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> "Pool":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def submit(self, work: Any, task: Any) -> Any:
            from concurrent.futures import Future

            future: Future[Any] = Future()
            future.set_result(work(task))
            return future

    monkeypatch.setattr(suite_runs, "run", pretend)
    monkeypatch.setattr(command, "ProcessPoolExecutor", Pool)
    write_run(Job("MineSweeperEasy", "plain", 0, 512, tmp_path), 0.1)
    asked = ["--out", str(tmp_path), "--environments", "MineSweeperEasy", "--seeds", "0", "--steps", "512"]
    assert command.main(asked) == 1
    assert ran == ["lstm", "ledger-per-code", "stack", "ledger"]
    said = capsys.readouterr().out
    assert "MineSweeperEasy--lstm--0 FAILED: RuntimeError: out of luck" in said
    assert "| MineSweeperEasy | PPO | 1 | 0.100 |" in said


def write_run(job: Job, value: float) -> dict[str, Any]:
    summary = {"mean": value, "error": 0.01, "episodes": 512}
    made: dict[str, Any] = {
        **job.facts(), "parameters": 1, "sampled": summary, "mode": {**summary, "mean": value + 0.01},
        "best": value + 0.02, "made with": MADE_WITH,
        "seconds": {"training": 0.5, "training on its core": 0.4, "evaluation": 0.1},
        "curve": [{"steps": 64 * i, "return": value * i / 8, "episodes": 9} for i in range(1, 9)],
    }  # fmt: skip
    job.path.parent.mkdir(parents=True, exist_ok=True)
    job.path.write_text(json.dumps(made))
    return made


def test_the_report_of_made_up_runs(tmp_path: Path) -> None:
    for environment in ("MultiarmedBanditEasy", "MineSweeperEasy"):
        for place, method in enumerate(METHODS):
            for seed in range(5):
                write_run(Job(environment, method, seed, 512, tmp_path), -0.1 + 0.1 * place + 0.01 * seed)
    suite_runs.run_players(tmp_path, "MultiarmedBanditEasy", episodes=20)
    text = suite_report.write_report(tmp_path)
    assert text == (tmp_path / "README.md").read_text()
    assert "| PPO | sampled actions | −0.080 [" in text
    assert "| Recurrent PPO (LSTM) | best of training | 0.340 [" in text
    assert "−0.200 [−0.200, −0.200]" in text  # ledger-per-code compared with lstm: every pair differs by as much
    assert "| best of the suite's 13 memory models, 15M steps | best of training | 0.631 |" in text
    assert "{" not in text
    packed = json.loads((tmp_path / "runs.json").read_text())
    assert len(packed["runs"]) == 50
    assert packed["made with"] == [MADE_WITH]
    assert "50 runs on a chip, 2 cores, Python 3.11, torch 2" in text
    assert all(found["made with"] == 0 and "settings" not in found for found in packed["runs"])
    assert len(packed["players"]) == len(PLAYERS)
    assert packed["settings"]["lstm"] == asdict(METHODS["lstm"])
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    shutil.rmtree(tmp_path / "runs")
    shutil.rmtree(tmp_path / "players")
    assert suite_report.page(*suite_runs.read_runs(tmp_path)) == text  # the packed file says the same


def test_the_results_that_are_kept_say_what_their_runs_say() -> None:
    kept = Path(__file__).parents[1] / "results" / "popgym"
    runs, players = suite_runs.read_runs(kept)
    assert len(runs) == 5 * len(METHODS) * len(STEPS)
    assert suite_report.page(runs, players) == (kept / "README.md").read_text()


def test_players_are_as_good_as_they_should_be() -> None:
    found = {name: play("MultiarmedBanditEasy", player, 150, seed=1).mean() for name, player in PLAYERS.items()}
    assert abs(found["uniform"]) < 0.05
    assert found["Thompson sampling"] == pytest.approx(0.64, abs=0.06)
    assert found["UCB, c = 0.1"] == pytest.approx(0.70, abs=0.06)
    assert found["uniform"] + 0.2 < found["UCB1 (c = √2)"] < found["Thompson sampling"]
