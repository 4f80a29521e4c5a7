"""Runs on this machine: workers make one after the other, as many at a time as cores and memory have room for."""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from threading import Event, Lock, Thread
from typing import Any

from mental_accounts.learning.events import from_plain
from mental_accounts.study.mps import multi_process_service
from mental_accounts.study.plan import Job
from mental_accounts.study.room import Footprint, Room
from mental_accounts.study.study_view import StudyView
from mental_accounts.study.worker import Worker

STOP_SECONDS = 120
"""Seconds that runs have to write a checkpoint when the study is stopped."""


class LocalLauncher:
    """Runs jobs in `workers` processes of `threads` each; None: as many as there is room for.

    A failed run is reported, and the others continue. One that finds no memory waits until fewer run at a time.
    """

    def __init__(self, workers: int | None = None, threads: int | None = None) -> None:
        self.workers, self.threads = workers, threads

    def run(self, jobs: Sequence[Job], view: StudyView) -> dict[str, str]:
        """Run them all; returns the errors, by the name of the run. If interrupted, runs stop after a checkpoint."""
        room = Room.for_jobs(jobs)
        most = min(self.workers or room.cores, len(jobs))
        threads = self.threads or max(1, room.cores // most)
        shares_gpu = room.gpu is not None and most > 1
        with multi_process_service(wanted=shares_gpu) as environ:
            crew = Crew(jobs, view, room, most, threads, environ, measures=self.workers is None)
            where = "" if not shares_gpu else ", on one GPU through MPS" if environ else ", on one GPU"
            view.say(f"runs at a time: {crew.limit}, threads each: {threads}{where}")
            crew.work()
        return crew.problems


class Crew:
    """Threads with a worker each. More join when runs turn out to be small, and fewer go on when memory ran out."""

    def __init__(
        self,
        jobs: Sequence[Job],
        view: StudyView,
        room: Room,
        most: int,
        threads: int,
        environ: Mapping[str, str],
        *,
        measures: bool,
    ) -> None:
        """At most `most` workers, of `threads` each; with `measures`, no more than measured memory has room for."""
        self.view, self.room, self.most, self.measures = view, room, most, measures
        self.limit = min(most, room.runs()) if measures else most
        """How many runs at a time, at present."""
        self.problems: dict[str, str] = {}
        self._new_worker = partial(Worker, threads, environ)
        self._waiting = deque(jobs)
        self._largest: Footprint | None = None
        self._lock = Lock()
        self._stop = Event()
        self._serving = 0
        self._workers: list[Worker] = []
        self._threads: list[Thread] = []

    def work(self) -> None:
        """Until every job is done."""
        try:
            self._hire()
            for thread in self._threads:  # the list may grow meanwhile
                thread.join()
        except BaseException:
            self._stop.set()
            for worker in self._workers:
                worker.terminate()
            raise
        finally:
            for worker in self._workers:
                worker.end(STOP_SECONDS)

    def _hire(self) -> None:
        """Start as many workers as may and can work."""
        with self._lock:
            for _ in range(min(self.limit - self._serving, len(self._waiting))):
                worker = self._new_worker()
                thread = Thread(target=self._serve, args=(worker,), daemon=True)
                self._workers.append(worker)
                self._threads.append(thread)
                self._serving += 1
                thread.start()

    def _serve(self, worker: Worker) -> None:
        while (job := self._take()) is not None:
            self.view.begins(job)
            problem = worker.run(job.path, partial(_tell, self.view, job), self._weigh)
            if self._stop.is_set() and problem is not None:
                break
            if problem is not None and problem.out_of_memory and self._retreat(job):
                break
            if problem is not None:
                self.problems[job.name] = problem.error
            self.view.ends(job, None if problem is None else problem.error)
        worker.close()

    def _take(self) -> Job | None:
        """The next job; None if there is none, or if too many work: then the caller is to leave."""
        with self._lock:
            if not self._stop.is_set() and self._waiting and self._serving <= self.limit:
                return self._waiting.popleft()
            self._serving -= 1
            return None

    def _weigh(self, footprint: Footprint) -> None:
        """Learn what a run takes. The first one says how many have room; larger ones lower the number."""
        if not self.measures:
            return
        with self._lock:
            known = self._largest
            self._largest = footprint if known is None else known | footprint
            found, before = min(self.most, self.room.runs(self._largest)), self.limit
            if known is not None:
                found = min(found, before)
            self.limit = found
        if found != before:
            self.view.say(f"runs at a time: {found} ({self.room.describe(self._largest)})")
            self._hire()

    def _retreat(self, job: Job) -> bool:
        """Put a job back that found no memory, to be made when fewer run; False if it had all of it."""
        with self._lock:
            others = self._serving - 1
            if others < 1:
                return False
            self.most = self.limit = min(self.limit, others)
            self._serving = others
            self._waiting.appendleft(job)
        self.view.postpones(job, f"out of memory; it goes on later; runs at a time: {self.limit}")
        return True


def _tell(view: StudyView, job: Job, values: dict[str, Any]) -> None:
    """Show an event of a run."""
    event = from_plain(values)
    if event is not None:
        view.hears(job, event)
