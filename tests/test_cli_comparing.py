"""compare, reproduce and report from the command line: what they refuse, and what they print."""

import re
from pathlib import Path

import pytest

from mental_accounts.cli import main
from mental_accounts.commands import conclusions
from mental_accounts.errors import UsageError
from mental_accounts.front_door import compare as front_door_compare
from mental_accounts.study.launch import Outcome
from mental_accounts.study.plan import Study
from mental_accounts.study.running import Running
from mental_accounts.study.study_view import RunWarning
from tests.report.made_studies import write_study

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "--task", "hoper-medium"], "there is no task 'hoper-medium'; did you mean hopper-medium"),
        (["compare", "--methods", "odt", "ewa"], "there is no method 'ewa'; did you mean ewa-vq-odt"),
        (["compare", "--methods", "odt", "ledger-odt:beta=0.2"], "ledger-odt has no attention bias, so accounts.beta"),
        (["compare", "--methods"], "at least one of --methods"),
        (["compare", "--seeds", "0"], "needs at least one seed, got --seeds 0"),
        (["compare", "--set", "bta=3"], "no field 'bta' to set; did you mean beta"),
        (["compare", "--set", "lr=-1"], "lr must be"),
        (["compare", "--methods", "odt", "odt"], "method odt is given twice"),
        (["compare", "--workers", "0"], "--workers must be at least 1"),
        (["report", "nowhere"], "nowhere does not exist"),
        (["report", "."], "there is no finished run"),
        (["report"], "give the folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert len(errors.strip().splitlines()) == 1
    assert not list(tmp_path.glob("**/report.html"))


def by_seed(task: str, method: str, seed: int, name: str, n: int) -> float:
    return 1000.0 + 10 * seed + (100 + seed if method != "odt" else 0) + n


def test_a_report_of_a_study_and_of_its_runs(tmp_path: Path, capsys: Captured) -> None:
    study = write_study(tmp_path / "study", by_seed)
    assert main(["report", str(tmp_path / "study")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("hopper-medium: ewa-vq-odt helps. Mean last return 1125, odt 1023: +102, 95% interval")
    assert shown[-1] == f"report: {tmp_path / 'study' / 'report.html'} (and report.md)"
    assert main(["report", *[str(job.path) for job in study.jobs], "--out", str(tmp_path / "other")]) == 0
    assert "ewa-vq-odt helps" in capsys.readouterr().out
    assert (tmp_path / "other" / "report.html").is_file()
    both = [str(tmp_path / "study")] * 2
    assert main(["report", *both]) == 2


def test_reproduce_prints_the_tables_and_draws_the_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Everything but the training, which other tests do."""
    asked: list[Study] = []

    def run_study(study: Study, running: Running, *_: object) -> Outcome:
        asked.append(study)
        write_study(study.folder, by_seed, tasks=study.tasks, methods=tuple(arm.label for arm in study.arms), seeds=3)
        return Outcome({"some run": "broke"}, (RunWarning("it is slow", ("one run", "another")),))

    monkeypatch.setattr(front_door_compare, "run_study", run_study)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "paper"
    assert main(["reproduce", "--scope", "window", "trajectory", "--out", str(out)]) == conclusions.FAILED_RUNS
    shown = capsys.readouterr().out
    (study,) = asked
    assert study.tasks == ("hopper-medium", "walker2d-medium-replay")
    assert study.seeds == (1, 2, 3)
    assert study.base.optimizer == "adamw"
    assert len(study.arms) == 3
    assert re.search(r"evaluation/return_mean_gm .*167\.1 .*82\.4 .*\+102\.9%", shown)
    assert re.search(r"aug_traj/length .*357\.5 .*376\.8 .*-5\.1%", shown)
    assert "1 runs failed and are left out: some run: broke" in shown
    assert "warning: 2 runs, first one run: it is slow" in shown
    for kind in ("png", "svg", "pdf"):
        assert (out / f"figure.{kind}").is_file()


@pytest.mark.parametrize(
    ("arguments", "task", "methods"),
    [
        ([], "hopper-medium", ["odt", "ewa-vq-odt", "bc"]),
        (["--preset", "paper"], "hopper-medium", ["odt", "ewa-vq-odt", "bc"]),
        (["--preset=hidden"], "hidden-arm", ["odt", "ewa-vq-odt", "ledger-odt", "bc"]),
        (["--preset", "hidden", "--task", "drifting-bandit", "--methods", "odt", "ledger-odt"], "drifting-bandit",
         ["odt", "ledger-odt"]),
        (["--methods", "odt", "gru"], "hopper-medium", ["odt", "gru"]),
    ],
)  # fmt: skip
def test_what_is_compared_unless_told(
    arguments: list[str], task: str, methods: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preset brings its task and its method; a change to all methods reaches those that have the field."""
    asked: list[Study] = []

    def run_comparison(study: Study, *_: object) -> None:
        asked.append(study)
        raise UsageError("planned")

    monkeypatch.setattr(conclusions, "run_comparison", run_comparison)
    changes = ["--set", "beta=0.2", "read=now", "phi=0.1", "reward_input=state"]
    assert main(["compare", *arguments, *changes, "--out", str(tmp_path)]) == 2
    (study,) = asked
    assert (study.tasks, [arm.label for arm in study.arms]) == ((task,), methods)
    for job in study.jobs:
        accounts = job.config.model.accounts
        assert accounts.phi == 0.1
        assert job.config.model.reward_input == ("none" if job.arm.method == "bc" else "state")
        if job.arm.method == "ledger-odt":
            assert (accounts.ledger_input, accounts.beta, accounts.read) == ("state", 0.05, "then")
        else:
            assert (accounts.ledger_input, accounts.beta, accounts.read) == ("none", 0.2, "now")


def test_downloaded_d4rl_data_are_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path))
    (tmp_path / "d4rl").mkdir()
    (tmp_path / "d4rl" / "hopper_medium-v2.hdf5").write_bytes(b"there")
    asked: list[Study] = []

    def run_study(study: Study, running: Running, *_: object) -> Outcome:
        asked.append(study)
        write_study(study.folder, by_seed, tasks=study.tasks, seeds=2)
        return Outcome()

    monkeypatch.setattr(front_door_compare, "run_study", run_study)
    assert main(["reproduce", "--out", str(tmp_path / "out")]) == 0
    assert asked[0].tasks == ("d4rl/hopper-medium-v2", "walker2d-medium-replay")
    text = (tmp_path / "out" / "report.md").read_text()
    assert "D4RL's own files" in text
    assert "not D4RL's files" in text
