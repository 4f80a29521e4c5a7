"""The data of a study's runs, made by processes of their own: a run begins when its data are there.

Making all of them first would leave a GPU idle, and most makers of hidden tasks use one core each.
"""

import contextlib
import json
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock, Thread
from typing import Self

from mental_accounts.data.tasks import has_to_be_made, load_task
from mental_accounts.errors import DataError
from mental_accounts.learning.footprint import check_data_steps
from mental_accounts.machine import usable_cores
from mental_accounts.study.plan import Job
from mental_accounts.study.run_process import parse_line
from mental_accounts.study.study_view import StudyView

PROGRAM = [sys.executable, "-P", "-m", "mental_accounts.study.data_process"]
DataSet = tuple[str, int | None, int]
"""Task, steps and seed."""


@dataclass(frozen=True)
class Problem:
    """Why a data set could not be made."""

    words: str
    out_of_memory: bool = False


class DataAhead:
    """Makes what is missing of the data of jobs, in their order, as many data sets at a time as there are cores.

    Within its block; what is being made when it ends is given up. What only has to be read is read at once.
    """

    def __init__(self, jobs: Sequence[Job], view: StudyView) -> None:
        self._missing: deque[DataSet] = deque()
        for data in dict.fromkeys(map(data_of, jobs)):
            check_data_steps(data[1], "--set data_steps")
            if has_to_be_made(*data):
                self._missing.append(data)
            else:
                view.say(f"data: {data[0]}")
                load_task(*data)
        self._unmade, self._count = set(self._missing), len(self._missing)
        self._view, self._lock, self._news = view, Lock(), Event()
        self._processes: list[subprocess.Popen[str]] = []
        self._error: Exception | None = None
        self._over, self._working = False, 0

    def __enter__(self) -> Self:
        processes = min(usable_cores(), self._count)
        if processes:
            sets = "a data set" if self._count == 1 else f"{self._count} data sets"
            self._view.say(f"data: {sets} to be made; a run begins when its data are there")
        self._working = processes
        self._threads = [Thread(target=self._work, args=(processes,), daemon=True) for _ in range(processes)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over = True
            for process in self._processes:
                process.kill()
        for thread in self._threads:
            thread.join()

    def is_there(self, job: Job) -> bool:
        """Whether the data of a job are there; raises if some could not be made."""
        if self._error is not None:
            raise self._error
        return data_of(job) not in self._unmade

    def wait(self, seconds: float) -> None:
        """Until one more data set is there, or so long."""
        self._news.wait(seconds)
        self._news.clear()

    def _work(self, processes: int) -> None:
        """What one thread does. Runs wait for it, so an error of ours is theirs, too."""
        try:
            self._make_data(processes)
        except Exception as error:
            self._give_up(DataError(f"data could not be made: {type(error).__name__}: {error}"))

    def _give_up(self, error: DataError) -> None:
        if not self._over:
            self._error = self._error or error
        self._news.set()

    def _make_data(self, processes: int) -> None:
        """One process, and what it is asked for."""
        with self._lock:
            if self._over:
                return
            process = subprocess.Popen(
                PROGRAM,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C reaches only us; we end it
            )
            self._processes.append(process)
        workers = max(1, usable_cores() // processes)
        with contextlib.suppress(BrokenPipeError), process:  # one that died may not have read its last line
            while (data := self._next()) is not None:
                steps = "" if data[1] is None else f", {data[1]:,} steps"
                words = f"data of {data[0]}, seed {data[2]}{steps}"
                problem = _ask(process, data, workers, partial(self._view.makes, words))
                self._view.makes(words, None)
                if problem is None:
                    self._unmade.discard(data)
                    self._news.set()
                elif problem.out_of_memory and self._left_to_others(data):
                    self._view.say(f"{words}: no memory; tried again with fewer data sets at a time")
                    return
                else:
                    self._give_up(DataError(f"the data of {data[0]} could not be made: {problem.words}"))

    def _next(self) -> DataSet | None:
        """The next data set to be made; None if there is none, or one could not be made: then this thread is done."""
        with self._lock:
            if self._missing and not self._over and self._error is None:
                return self._missing.popleft()
            self._working -= 1
            return None

    def _left_to_others(self, data: DataSet) -> bool:
        """Put a data set back for the other threads, and end this one; False if there are no others."""
        with self._lock:
            if self._working == 1:
                return False
            self._working -= 1
            self._missing.appendleft(data)
            return True


def _ask(
    process: "subprocess.Popen[str]", data: DataSet, workers: int, tell: Callable[[float], None]
) -> Problem | None:
    """Let a process make a data set, telling the share that is made; what went wrong, or None."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps([*data, workers]) + "\n")
        process.stdin.flush()
        for line in process.stdout:  # libraries may print lines of their own
            answer = parse_line(line)
            if answer is not None and "share" in answer:
                tell(answer["share"])
            elif answer is not None and answer.keys() & {"made", "error"}:
                return Problem(answer["error"], answer["out_of_memory"]) if "error" in answer else None
    except BrokenPipeError:
        pass
    return Problem("its process died")


def data_of(job: Job) -> DataSet:
    """The data set that a job learns from."""
    return job.task, job.config.data_steps, job.config.data_seed
