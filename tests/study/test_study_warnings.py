"""Nothing that a run warns of is lost in a comparison: shown at once with its run, and counted at the end."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from mental_accounts.config import TrainConfig
from mental_accounts.learning.events import IterationEnded, Message, StageBegan, StepDone, UpdateDone
from mental_accounts.study import run_process
from mental_accounts.study.cluster import Mailbox
from mental_accounts.study.local import LocalLauncher
from mental_accounts.study.plan import Arm, Study
from mental_accounts.study.room import Footprint
from mental_accounts.study.run_process import Failed, SendingView, event_of, parse_line
from mental_accounts.study.study_view import RunWarning, StudyView


def study_of(config: TrainConfig, folder: Path) -> Study:
    arms = (Arm.parse("odt"), Arm.parse("ewa-vq-odt"))
    study = Study(folder, ("imported/aim",), arms, (0,), config, "test")
    study.write(["test"])
    return study


def launch(study: Study) -> tuple[StudyView, str]:
    console = Console(file=io.StringIO(), record=True, force_terminal=False, width=200)
    jobs = [job for job in study.jobs if not job.is_finished]
    with StudyView(len(jobs), 0, console) as view:
        assert LocalLauncher(2, threads=1).run(jobs, view) == {}
    return view, console.export_text()


def test_what_runs_warn_of_is_shown_with_its_run_and_kept(aim: TrainConfig, tmp_path: Path) -> None:
    env_id = "tests.study.locked_env:Locked-v0"
    config = replace(aim, env_id=env_id, env_workers=1, target_return=1e6, pretrain_iterations=1)
    config = replace(config, online_iterations=1, checkpoint_seconds=0.0)
    study = study_of(config, tmp_path / "study")
    view, shown = launch(study)
    names = {job.name for job in study.jobs}
    alone = "environments cannot be made in a process of their own (its specification cannot be pickled"
    for words in (alone, "--target-return asks for 1e+06, far outside the data"):
        (found,) = (warning for warning in view.warnings if warning.text.startswith(words))
        assert set(found.runs) == names, "the same words of both runs, once"
        assert str(found).startswith(f"warning: 2 runs, first {found.runs[0]}: {words}")
        (line,) = (line for line in shown.splitlines() if words in line)
        assert any(line.startswith(f"warning: {name}: ") for name in names)

    damaged = study.jobs[0].path
    (damaged / "summary.json").unlink()
    newest = max((damaged / "checkpoint").iterdir())
    (newest / "tensors.safetensors").write_bytes(b"cut")
    view, shown = launch(study)
    (found,) = (warning for warning in view.warnings if "damaged or truncated" in warning.text)
    assert found.runs == (study.jobs[0].name,)
    assert f"warning: {study.jobs[0].name}: checkpoint {newest} cannot be used" in shown
    assert "loading" not in shown, "notes are not warnings"
    shutil.rmtree(damaged)


def test_a_process_sends_events_with_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.StringIO()
    monkeypatch.setattr(run_process, "ANSWER", lines)
    view = SendingView()
    sent = [
        Message("warning", "slow"), Message("note", "loading"), StageBegan("learning", 9, 0, 1, 2),
        IterationEnded(1, "pretrain", {"updates": 3}), UpdateDone(4, 9, 2),
    ]  # fmt: skip
    for event in (*sent, UpdateDone(5, 9, 2), StepDone()):  # an update right after another is not sent
        view(event)
    heard = [event_of(parse_line(line)) for line in lines.getvalue().splitlines()]
    footprint = heard.pop(4)  # after the iteration
    assert heard == sent
    assert isinstance(footprint, Footprint)
    assert footprint.host > 10_000_000
    assert event_of({"error": "broke"}) == Failed("broke")
    for line in ("42", "null", "words", '"warning"'):
        assert parse_line(line) is None
    assert event_of({"event": "nothing"}) is None


def test_a_mailbox_forgets_no_warning() -> None:
    mailbox = Mailbox()
    warnings = []
    for n in range(200):
        mailbox.tell("a", {"event": "UpdateDone", "update": n})
        if n % 10 == 0:
            warnings.append({"event": "Message", "kind": "warning", "text": f"warning {n}"})
            mailbox.tell("a", warnings[-1])
    heard = mailbox.heard()["a"]
    assert [what for what in heard if what.get("kind") == "warning"] == warnings
    assert [what["update"] for what in heard if "update" in what] == list(range(180, 200))
    json.dumps(heard)
    assert mailbox.heard() == {}


def test_what_summaries_tell_is_not_told_run_by_run(aim: TrainConfig, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), record=True, force_terminal=False, width=200)
    job = study_of(aim, tmp_path / "study").jobs[0]
    with StudyView(1, 0, console) as view:
        view.hears(job, Message("warning", "slow"))
        view.hears(job, Message("warning", "the last return is low", in_summary=True))
    assert [warning.text for warning in view.warnings] == ["slow"]
    assert "the last return" not in console.export_text()


def test_warnings_in_words() -> None:
    assert str(RunWarning("2 of 2 runs", ("one", "two"), "odt on aim")) == "warning: odt on aim: 2 of 2 runs"
    assert str(RunWarning("slow", ("one",))) == "warning: one: slow"
    assert str(RunWarning("slow", ("one", "two", "three"))) == "warning: 3 runs, first one: slow"
