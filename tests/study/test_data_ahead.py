"""Data sets of a study, made by processes of their own while runs begin."""

import io
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from mental_accounts.config import TrainConfig
from mental_accounts.data.tasks import has_to_be_made, load_task
from mental_accounts.errors import DataError
from mental_accounts.study import data_ahead
from mental_accounts.study.data_ahead import DataAhead
from mental_accounts.study.local import LocalLauncher
from mental_accounts.study.plan import Arm, Job, Study
from mental_accounts.study.study_view import StudyView

TASK, STEPS = "drifting-bandit", 400
FULL = '{"error": "full", "out_of_memory": %s}'


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Three seeds with data of their own, none of which are there."""
    return jobs_in(tmp_path / "study", tmp_path / "cache", monkeypatch)


def jobs_in(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, task: str = TASK) -> list[Job]:
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(cache))
    base = TrainConfig(
        task=task, method="bc", device="cpu", data_steps=STEPS, updates_per_pretrain_iteration=2, online_iterations=0,
        eval_episodes=1, batch_size=4,
    )  # fmt: skip
    study = Study(folder, (task,), (Arm.parse("bc"),), (0, 1, 2), base, "test", data_per_seed=True)
    study.write(["test"])
    return study.jobs


def wait_for(data: DataAhead, job: Job, seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not data.is_there(job):
        assert time.monotonic() < ends
        data.wait(0.1)


def test_missing_data_are_made_elsewhere_and_are_the_same(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(has_to_be_made(TASK, STEPS, seed) for seed in range(3))
    with DataAhead(jobs, StudyView(3, 0)) as data:
        for job in jobs:
            wait_for(data, job)
        assert not any(has_to_be_made(TASK, STEPS, seed) for seed in range(3))
    made = [load_task(TASK, STEPS, seed)[1].rewards.clone() for seed in range(3)]
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "other"))
    for seed in range(3):
        assert torch.equal(load_task(TASK, STEPS, seed)[1].rewards, made[seed])


def test_how_far_data_are_is_told(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, float | None]] = []
    view = StudyView(3, 0)
    monkeypatch.setattr(view, "makes", lambda what, share: heard.append((what, share)))
    with DataAhead(jobs, view) as data:
        for job in jobs:
            wait_for(data, job)
    for seed in range(3):
        own = [share for what, share in heard if what == f"data of {TASK}, seed {seed}, {STEPS} steps"]
        assert own[-1] is None
        assert all(0 < share <= 1 for share in own[:-1])
    assert any(share is not None for _, share in heard)


def test_the_view_shows_what_is_made_and_forgets_it() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    view = StudyView(3, 0, console)
    view.makes("data of x, seed 1", 0.25)
    view.makes("data of x, seed 1", 0.5)
    assert view._progress is not None
    assert [(task.description, task.completed) for task in view._progress.tasks][1:] == [("data of x, seed 1", 0.5)]
    view.makes("data of x, seed 1", None)
    view.makes("data of y, seed 2", None)  # one that never told anything
    assert len(view._progress.tasks) == 1


def test_without_a_terminal_a_line_is_said_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    view = StudyView(3, 0, Console(file=text))
    view.makes("data of x", 0.25)
    assert text.getvalue() == ""
    monkeypatch.setattr(view, "_said", view._said - 61)
    view.makes("data of x", 0.5)
    view.makes("data of x", 0.6)
    view.makes("data of x", None)
    assert text.getvalue() == "data of x: 50%\n"


def test_runs_begin_when_their_data_are_there(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, bool]] = []

    class Watching(StudyView):
        def begins(self, job: Job) -> None:
            begun.append((job.seed, has_to_be_made(TASK, STEPS, job.seed)))
            super().begins(job)

    assert LocalLauncher(2, threads=1).run(jobs, Watching(3, 0)) == {}
    assert sorted(begun) == [(seed, False) for seed in range(3)]
    assert all(job.is_finished for job in jobs)


def test_data_that_are_there_are_not_made_again(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        load_task(TASK, STEPS, seed)
    monkeypatch.setattr(data_ahead, "PROGRAM", ["false"])  # no process is needed
    with DataAhead(jobs, StudyView(3, 0)) as data:
        assert all(data.is_there(job) for job in jobs)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (["true"], "its process died"),
        (["sh", "-c", f"read x; echo 7; echo some library; echo '{FULL % 'false'}'"], "full"),
        (["sh", "-c", f"while read x; do echo '{FULL % 'true'}'; done"], "full"),  # also one at a time
    ],
)
def test_data_that_cannot_be_made_end_the_study(
    jobs: list[Job], program: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_ahead, "PROGRAM", program)
    with pytest.raises(DataError, match=f"the data of {TASK} could not be made: {words}"):
        LocalLauncher(2, threads=1).run(jobs, StudyView(3, 0))


def test_data_that_find_no_memory_are_made_with_fewer_at_a_time(
    jobs: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_ahead, "usable_cores", lambda: 2)
    first = f"mkdir {tmp_path}/first 2>/dev/null && read x && echo '{FULL % 'true'}'"
    monkeypatch.setattr(data_ahead, "PROGRAM", ["sh", "-c", f"{first} || exec {shlex.join(data_ahead.PROGRAM)}"])
    console = Console(file=io.StringIO(), width=120)
    with DataAhead(jobs, StudyView(3, 0, console)) as data:
        for job in jobs:
            wait_for(data, job)
    assert console.file.getvalue().count("no memory; tried again with fewer data sets at a time") == 1


def test_a_process_that_cannot_be_started_ends_the_study(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_ahead, "PROGRAM", ["no-such-program"])
    with pytest.raises(DataError, match="data could not be made: FileNotFoundError"):
        LocalLauncher(2, threads=1).run(jobs, StudyView(3, 0))


def test_an_error_of_a_maker_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_in(tmp_path / "study", tmp_path / "cache", monkeypatch)
    (tmp_path / "cache").write_text("a file where a folder should be")
    with DataAhead(jobs, StudyView(3, 0)) as data, pytest.raises(DataError, match=r"could not be made: \w+Error"):
        wait_for(data, jobs[0])


def test_nothing_goes_on_after_an_interruption(jobs: list[Job]) -> None:
    slow = [replace(job, config=replace(job.config, data_steps=10_000_000)) for job in jobs]
    with DataAhead(slow, StudyView(3, 0)) as data:
        while not data._processes:
            time.sleep(0.01)
        processes = data._processes
    assert all(process.returncode is not None for process in processes)
    assert not any(thread.is_alive() for thread in data._threads)
