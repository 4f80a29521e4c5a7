"""How many runs at a time: by cores and by memory, which runs tell once they know; fewer where memory runs out."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.console import Console

from mental_accounts.config import TrainConfig
from mental_accounts.data.storage import check_memory
from mental_accounts.errors import DataError, NoRoomError
from mental_accounts.machine import is_out_of_memory
from mental_accounts.study import local
from mental_accounts.study.data_ahead import DataAhead
from mental_accounts.study.local import Crew, LocalLauncher
from mental_accounts.study.plan import Arm, Job, Study
from mental_accounts.study.room import GIBIBYTE, GUESSED, Footprint, Room
from mental_accounts.study.run_process import Failed
from mental_accounts.study.study_view import StudyView

SMALL = Footprint(GIBIBYTE // 2, 0)


@pytest.mark.parametrize(
    ("room", "each", "expected"),
    [
        (Room(8, 100 * GIBIBYTE, None), GUESSED, 8),
        (Room(8, 5 * GIBIBYTE, None), GUESSED, 2),
        (Room(8, 5 * GIBIBYTE, None), SMALL, 8),
        (Room(8, 0, None), GUESSED, 1),
        (Room(16, 100 * GIBIBYTE, 16 * GIBIBYTE), GUESSED, 3),
        (Room(16, 100 * GIBIBYTE, 16 * GIBIBYTE), Footprint(GIBIBYTE, GIBIBYTE), 14),
        (Room(16, 100 * GIBIBYTE, 16 * GIBIBYTE), SMALL, 16),
    ],
)
def test_as_many_as_cores_and_memory_have_room_for(room: Room, each: Footprint, expected: int) -> None:
    assert room.runs(each) == expected


class Machine:
    """Workers that only pretend: each run takes `each` of memory, of which there is enough for `fits` at a time.

    The run in the folder `greedy` needs all of it; its first try is beside `company` others, who do not end before.
    """

    def __init__(
        self, each: Footprint, fits: int = 1000, lasts: float = 0.05, greedy: Path | None = None, company: int = 0
    ) -> None:
        self.each, self.fits, self.lasts, self.greedy, self.company = each, fits, lasts, greedy, company
        self.tried = threading.Event()
        self.lock, self.active, self.most, self.made = threading.Lock(), 0, 0, list[Path]()

    def __call__(self, threads: int, environ: object, *, on_gpu: bool) -> "Machine":
        return self

    def prepare(self) -> None: ...

    def run(self, path: Path, hear: object, weigh: Callable[[Footprint], None]) -> Failed | None:
        with self.lock:
            self.active += 1
            self.most = max(self.most, self.active)
            is_full = self.active > (1 if path == self.greedy else self.fits)
        try:
            self._meet(path)
            is_full |= path == self.greedy and self.active > 1
            if is_full:
                return Failed("OutOfMemoryError: CUDA out of memory", out_of_memory=True)
            weigh(self.each)
            time.sleep(self.lasts)
            self.made.append(path)
            return None
        finally:
            with self.lock:
                self.active -= 1

    def _meet(self, path: Path) -> None:
        """A moment, until all who share the machine are there."""
        ends = time.monotonic() + 10
        if path == self.greedy and not self.tried.is_set():
            while self.active <= self.company and time.monotonic() < ends:
                time.sleep(0.001)
            self.tried.set()
        elif self.greedy is not None:
            self.tried.wait(10)
        time.sleep(0.01)

    def close(self) -> None: ...

    def end(self, seconds: float) -> None: ...

    def release(self) -> None: ...

    def terminate(self) -> None: ...


def launched(
    machine: Machine,
    room: Room,
    aim: TrainConfig,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int | None = None,
) -> tuple[dict[str, str], str, list[Job]]:
    monkeypatch.setattr(local, "Worker", machine)
    monkeypatch.setattr(Room, "for_jobs", lambda jobs: room)
    monkeypatch.setattr(local, "multi_process_service", lambda *, wanted: nullcontext({}))
    jobs = Study(folder, ("imported/aim",), (Arm.parse("odt"), Arm.parse("bc")), tuple(range(6)), aim, "test").jobs
    with Path(os.devnull).open("w") as nowhere:
        console = Console(file=nowhere, record=True, force_terminal=False, width=300)
        with StudyView(len(jobs), 0, console) as view:
            problems = LocalLauncher(workers).run(jobs, view)
    return problems, console.export_text(), jobs


def test_more_join_when_runs_are_small(aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(Footprint(GIBIBYTE // 2, GIBIBYTE // 2))
    room = Room(5, 100 * GIBIBYTE, 9 * GIBIBYTE)
    problems, shown, jobs = launched(machine, room, aim, tmp_path, monkeypatch)
    assert problems == {}
    assert sorted(machine.made) == sorted(job.path for job in jobs)
    assert "runs at a time: 2, threads each: 1, on one GPU" in shown
    assert "runs at a time: 5 (5 cores, 107.4 GB free, a run takes 536.9 MB; GPU 9.7 GB free, 536.9 MB a run)" in shown
    assert machine.most == 5


def test_fewer_go_on_when_runs_are_large(aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(Footprint(4 * GIBIBYTE, 0))
    problems, shown, jobs = launched(machine, Room(4, 9 * GIBIBYTE, None), aim, tmp_path, monkeypatch)
    assert problems == {}
    assert len(machine.made) == len(jobs)
    assert "runs at a time: 4, " in shown
    assert "runs at a time: 2 (4 cores" in shown


@pytest.mark.parametrize("workers", [None, 4])
def test_out_of_memory_means_fewer_at_a_time_and_nothing_is_lost(
    aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None
) -> None:
    machine = Machine(SMALL, fits=2)
    problems, shown, jobs = launched(machine, Room(4, 100 * GIBIBYTE, None), aim, tmp_path, monkeypatch, workers)
    assert problems == {}
    assert sorted(machine.made) == sorted(job.path for job in jobs)
    assert "out of memory; it goes on later; runs at a time: 2" in shown
    assert "FAILED" not in shown


def test_runs_that_run_out_of_memory_together_are_all_made(
    aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, made = threading.Barrier(2), []

    class Together(Machine):
        def run(self, path: Path, hear: object, weigh: Callable[[Footprint], None]) -> Failed | None:
            if len(made) < 2:
                made.append(path)
                both.wait(30)
                return Failed("OutOfMemoryError: CUDA out of memory", out_of_memory=True)
            return super().run(path, hear, weigh)

    machine = Together(SMALL)
    problems, _, jobs = launched(machine, Room(2, 100 * GIBIBYTE, None), aim, tmp_path, monkeypatch)
    assert problems == {}
    assert sorted(machine.made) == sorted(job.path for job in jobs)


def test_one_that_needs_all_the_memory_is_made_last_and_does_not_slow_the_others(
    aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(SMALL, greedy=tmp_path / "runs" / "imported-aim" / "odt" / "seed-0", company=3)
    problems, shown, jobs = launched(machine, Room(4, 100 * GIBIBYTE, None), aim, tmp_path, monkeypatch)
    assert machine.greedy in {job.path for job in jobs}
    assert problems == {}
    assert machine.made[-1] == machine.greedy
    assert len(machine.made) == len(jobs)
    assert "runs at a time: 3" in shown
    assert "runs at a time: 2" not in shown
    assert "it goes on when all others are done" in shown


def test_an_error_of_our_own_is_raised(aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begins(view: StudyView, job: Job) -> None:
        raise OSError("the terminal is gone")

    monkeypatch.setattr(StudyView, "begins", begins)
    with pytest.raises(OSError, match="the terminal is gone"):
        launched(Machine(SMALL), Room(2, 100 * GIBIBYTE, None), aim, tmp_path, monkeypatch)


def test_a_run_that_has_all_the_memory_and_not_enough_fails(
    aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(SMALL, fits=0)
    problems, shown, jobs = launched(machine, Room(3, 100 * GIBIBYTE, None), aim, tmp_path, monkeypatch)
    assert set(problems) == {job.name for job in jobs}
    assert all("CUDA out of memory" in problem for problem in problems.values())
    assert shown.count("FAILED") == len(jobs)


def test_memory_that_other_runs_have_is_known_by_its_errors() -> None:
    with pytest.raises(RuntimeError, match="can't allocate memory") as of_torch:
        torch.empty(10**15, dtype=torch.uint8)
    with pytest.raises(NoRoomError, match="are free there") as of_data:
        check_memory(10**18, "cpu")
    assert is_out_of_memory(of_torch.value)
    assert is_out_of_memory(of_data.value)
    assert not is_out_of_memory(DataError("a damaged file"))


def test_nobody_is_hired_once_the_crew_stops(aim: TrainConfig, tmp_path: Path) -> None:
    jobs = Study(tmp_path, ("imported/aim",), (Arm.parse("odt"),), (0, 1), aim, "test").jobs
    machine = Machine(SMALL)
    with StudyView(len(jobs), 0, Console(quiet=True)) as view, DataAhead(jobs, view) as data:
        crew = Crew(jobs, view, data, 2, 2, None)
        crew._new_worker = partial(machine, 1, {}, on_gpu=False)
        crew._end_all()
        crew._hire()
        assert crew._workers == []
