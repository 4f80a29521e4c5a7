"""Runs in parallel processes: all finish, one that fails stops nobody, an interrupted study goes on."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from mental_accounts import machine
from mental_accounts.config import TrainConfig
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.study.data_ahead import DataAhead
from mental_accounts.study.local import Crew, LocalLauncher
from mental_accounts.study.plan import Arm, Job, Study
from mental_accounts.study.run_process import Failed
from mental_accounts.study.study_view import StudyView
from mental_accounts.study.worker import Worker
from tests.fresh_process import FreshProcess, command


def study_of(aim: TrainConfig, folder: Path, seeds: tuple[int, ...] = (0, 1)) -> Study:
    return Study(folder, ("imported/aim",), (Arm.parse("odt"), Arm.parse("ewa-vq-odt")), seeds, aim, "test")


def launch(jobs: list[Job], workers: int = 2, threads: int | None = 1) -> tuple[dict[str, str], str]:
    with Path(os.devnull).open("w") as nowhere:
        console = Console(file=nowhere, record=True, force_terminal=False, width=200)
        with StudyView(len(jobs), 0, console) as view:
            problems = LocalLauncher(workers, threads).run(jobs, view)
    return problems, console.export_text()


def test_runs_finish_and_a_failing_one_stops_nobody(aim: TrainConfig, tmp_path: Path) -> None:
    study = study_of(aim, tmp_path / "study")
    study.write(["test"])
    broken = study.jobs[1]
    (broken.path / "metrics.jsonl").mkdir()  # cannot be written
    problems, shown = launch(study.jobs)
    assert list(problems) == [broken.name]
    assert "metrics.jsonl cannot be read: it is a folder" in problems[broken.name]
    assert [job.is_finished for job in study.jobs] == [True, False, True, True]
    assert f"FAILED: {broken.name}" in shown
    assert "finished 3/4" in shown


@pytest.mark.parametrize(("said", "most"), [("1", 1), ("3,2", 3), ("0", 8), ("many", 8), ("", 8)])
def test_runs_have_no_more_threads_than_the_user_wants(said: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    monkeypatch.setattr(machine, "usable_cores", lambda: 8)
    assert machine.most_threads() == most


def test_a_single_run_at_a_time_keeps_to_the_users_threads(
    aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    study = study_of(aim, tmp_path / "study", seeds=(0,))
    study.write(["test"])
    problems, shown = launch(study.jobs[:1], workers=1, threads=None)
    assert problems == {}
    assert "runs at a time: 1, threads each: 1" in shown


def test_parallel_runs_equal_runs_by_themselves(aim: TrainConfig, tmp_path: Path) -> None:
    results = []
    for workers in (1, 2):
        study = study_of(aim, tmp_path / str(workers), seeds=(3,))
        study.write(["test"])
        assert launch(study.jobs, workers)[0] == {}
        lines = [RunFolder(job.path).read_metrics() for job in study.jobs]
        results.append([[{k: v for k, v in line.items() if "time" not in k} for line in run] for run in lines])
    assert results[0] == results[1]


@pytest.mark.parametrize("compiled", [False, True])
def test_where_updates_are_compiled_a_worker_prefers_runs_of_one_form(
    aim: TrainConfig, tmp_path: Path, compiled: bool
) -> None:
    jobs = study_of(replace(aim, compile=compiled), tmp_path / "study", seeds=(0, 1, 2)).jobs
    with StudyView(len(jobs), 0, Console(quiet=True)) as view, DataAhead(jobs, view) as data:
        crew = Crew(jobs, view, data, 1, 1, None)
        crew._serving = 1
        taken = [job := crew._take(None)]
        while crew._waiting:
            taken.append(job := crew._take(job))
    made = [(job.arm.label, job.seed) for job in taken]
    by_seed = [(arm, seed) for seed in (0, 1, 2) for arm in ("odt", "ewa-vq-odt")]
    assert made == (sorted(by_seed, key=lambda one: one[0] != "odt") if compiled else by_seed)


def test_a_killed_worker_takes_one_run_with_it(aim: TrainConfig, tmp_path: Path) -> None:
    study = study_of(aim, tmp_path / "study")
    study.write(["test"])
    worker, heard = Worker(1), []

    def hear(values: dict[str, object]) -> None:
        heard.append(values)
        assert worker._process is not None
        worker._process.kill()

    first, second, *_ = study.jobs
    assert worker.run(first.path, hear) == Failed("its process ended with signal SIGKILL")
    assert worker.run(second.path, lambda values: None) is None
    assert worker.run(first.path, lambda values: None) is None  # goes on where it was
    process = worker._process
    worker.close()
    worker.end(60)
    worker.release()
    assert process is not None
    assert process.returncode == 0
    assert [first.is_finished, second.is_finished] == [True, True]
    assert heard
    assert worker.run(first.path, hear) == Failed("stopped")


def test_a_prepared_worker_has_its_process_before_its_first_run(aim: TrainConfig, tmp_path: Path) -> None:
    study = study_of(aim, tmp_path / "study")
    study.write(["test"])
    worker = Worker(1, on_gpu=True)  # a machine without a GPU is no error
    worker.prepare()
    process = worker._process
    assert process is not None
    worker.prepare()
    assert worker.run(study.jobs[0].path, lambda values: None) is None
    assert worker._process is process
    worker.close()
    worker.end(60)
    worker.release()
    assert process.returncode == 0


def test_a_closed_worker_starts_no_process() -> None:
    worker = Worker(1)
    worker.close()
    worker.prepare()
    assert worker._process is None


def on_one_core(*arguments: str) -> None:
    """So that a run has one thread: two that wait for each other on a busy machine are slow."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, list(os.sched_getaffinity(0))[-1:])
    command(*arguments)


@pytest.mark.learning
def test_an_interrupted_comparison_goes_on_without_repeating(aim: TrainConfig, tmp_path: Path) -> None:
    out = tmp_path / "out"
    small = ["pretrain_iterations=1", "updates_per_pretrain_iteration=60", "online_iterations=3"]
    small += ["updates_per_iteration=20", "eval_every=1", "eval_episodes=2", "hidden=16", "layers=1", "heads=1"]
    small += ["context_length=4", "device=cpu", "precision=float32", "batch_size=16", "pretrain_eval_every=1"]
    asked = ["compare", "--task", "imported/aim", "--seeds", "3", "--methods", "odt", "--workers", "1"]
    asked += ["--out", str(out), "--set", *small]
    process = FreshProcess(tmp_path, on_one_core, *asked)
    until = time.monotonic() + 200
    while not list(out.glob("runs/*/*/*/summary.json")):
        assert time.monotonic() < until
        assert process.poll() is None, process.stdout + process.stderr
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(200) == 130
    assert "continue with:" in process.stderr
    finished = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/*/summary.json")}
    assert 1 <= len(finished) < 3
    done = FreshProcess(tmp_path, on_one_core, *asked)
    assert done.wait(300) == 0, done.stderr
    assert f"{len(finished)} finished before" in done.stdout
    assert len(list(out.glob("runs/*/*/*/summary.json"))) == 3
    assert all(path.stat().st_mtime_ns == when for path, when in finished.items())
    assert (out / "report.html").is_file()
    assert done.stdout.strip().splitlines()[-1].startswith("report: ")
    again = FreshProcess(tmp_path, on_one_core, *asked)
    assert again.wait(200) == 0
    assert "begins" not in again.stdout


def test_what_an_environment_prints_disturbs_nobody(aim: TrainConfig, tmp_path: Path) -> None:
    """A bare number on standard output is valid JSON, and no message."""
    config = replace(aim, env_id="tests.study.talking_env:Talking-v0")
    study = Study(tmp_path / "study", ("imported/aim",), (Arm.parse("odt"),), (0,), config, "test")
    study.write(["test"])
    problems, _ = launch(study.jobs, 1)
    assert problems == {}


@pytest.mark.learning
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_study_that_is_told_to_end_leaves_checkpoints(aim: TrainConfig, tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"
    asked = ["compare", "--task", "imported/aim", "--seeds", "1", "--methods", "odt", "--out", str(out), "--set"]
    asked += ["hidden=16", "layers=1", "heads=1", "device=cpu", "updates_per_pretrain_iteration=100000"]
    process = FreshProcess(tmp_path, command, *asked, "pretrain_iterations=1", "checkpoint_seconds=1000")
    until = time.monotonic() + 200
    while not list(out.glob("runs/*/*/*/task.json")):  # it is under way
        assert time.monotonic() < until
        assert process.poll() is None, process.stdout + process.stderr
        time.sleep(0.1)
    time.sleep(1.0)
    second = FreshProcess(tmp_path, command, *asked, "pretrain_iterations=1", "checkpoint_seconds=1000")
    assert second.wait(200) == 2
    assert f"{out} is being written by process" in second.stderr
    process.send_signal(number)
    assert process.wait(200) == 128 + number
    assert "continue with:" in process.stderr
    assert list(out.glob("runs/*/*/*/checkpoint/*/state.json"))
