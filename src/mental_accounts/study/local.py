"""Runs on this machine: workers make one after the other, as many at a time as cores and memory have room for."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Lock, Thread
from typing import Any

from mental_accounts.learning.events import from_plain
from mental_accounts.machine import most_threads
from mental_accounts.study.data_ahead import DataAhead
from mental_accounts.study.mps import multi_process_service
from mental_accounts.study.plan import Job
from mental_accounts.study.room import Footprint, Room
from mental_accounts.study.run_process import Failed
from mental_accounts.study.study_view import StudyView
from mental_accounts.study.worker import Worker

STOP_SECONDS = 120
"""Seconds that runs have to write a checkpoint when the study is stopped."""
DATA_SECONDS = 0.5
"""Seconds after which a worker looks again whether there is something to do, while data are being made."""
JOIN_SECONDS = 10
"""Seconds that threads have to read the last words of their workers."""


class LocalLauncher:
    """Runs jobs in `workers` processes of `threads` each; None: as many as there is room for.

    A failed run is reported, and the others continue. One that finds no memory waits until fewer run at a time.
    """

    def __init__(self, workers: int | None = None, threads: int | None = None) -> None:
        self.workers, self.threads = workers, threads

    def run(self, jobs: Sequence[Job], view: StudyView) -> dict[str, str]:
        """Run them all, each when its data are there; returns the errors, by the name of the run.

        If interrupted, runs stop after a checkpoint.
        """
        room = Room.for_jobs(jobs)
        most = min(self.workers or room.cores, len(jobs))
        limit = most if self.workers is not None else min(most, room.runs())
        share = max(1, room.cores // (limit if room.gpu is None else most))
        threads = self.threads or min(share, most_threads())
        shares_gpu = room.gpu is not None and most > 1
        with DataAhead(jobs, view) as data, multi_process_service(wanted=shares_gpu) as environ:
            where = "" if not shares_gpu else ", on one GPU through MPS" if environ else ", on one GPU"
            view.say(f"runs at a time: {limit}, threads each: {threads}{where}")
            measured = None if self.workers is not None else room
            crew = Crew(jobs, view, data, limit, min(most, max(limit, room.cores // threads)), measured)
            first_gpu = room.gpu is not None and all(job.config.device in ("auto", "cuda") for job in jobs)
            crew.work(partial(Worker, threads, environ, on_gpu=first_gpu))
        return crew.problems


class Crew:
    """Threads with a worker each. More join when runs turn out to be small, and fewer go on when memory ran out."""

    def __init__(
        self, jobs: Sequence[Job], view: StudyView, data: DataAhead, limit: int, most: int, room: Room | None
    ) -> None:
        """`limit` runs at a time at first, and up to `most` if measured runs have `room`; None: nothing is measured."""
        self.view, self.data, self.limit, self.most, self.room = view, data, limit, most, room
        self.problems: dict[str, str] = {}
        self._waiting, self._for_last = deque(jobs), deque[Job]()
        self._active, self._had_company = set[str](), set[str]()  # by the names of jobs
        self._postponed, self._weighed = set[str](), set[str]()
        self._largest: Footprint | None = None
        self._lock = Lock()
        self._stop = Event()
        self._serving = 0
        self._workers: list[Worker] = []
        self._threads: list[Thread] = []
        self._error: BaseException | None = None

    def work(self, new_worker: Callable[[], Worker]) -> None:
        """Until every job is done. An error of our own ends all, after checkpoints, and is raised."""
        self._new_worker = new_worker
        try:
            self._hire()
            for thread in self._threads:  # the list may grow meanwhile
                thread.join()
        except BaseException:
            self._end_all()
            raise
        finally:
            for worker in self._workers:
                worker.end(STOP_SECONDS)
            for thread in self._threads:
                thread.join(JOIN_SECONDS)
            for worker in self._workers:
                worker.release()
        if self._error is not None:
            raise self._error

    def _end_all(self) -> None:
        """Ask all workers to stop; their runs write checkpoints first."""
        self._stop.set()
        for worker in self._workers:
            worker.terminate()

    def _hire(self) -> None:
        """Start as many workers as may and can work."""
        with self._lock:
            if self._stop.is_set():
                return
            for _ in range(min(self.limit - self._serving, len(self._waiting))):
                worker = self._new_worker()
                thread = Thread(target=self._serve, args=(worker,), daemon=True)
                self._workers.append(worker)
                self._threads.append(thread)
                self._serving += 1
                thread.start()

    def _serve(self, worker: Worker) -> None:
        job: Job | None = None
        try:
            worker.prepare()
            while (job := self._take(job)) is not None:
                self.view.begins(job)
                problem = worker.run(job.path, partial(_tell, self.view, job), partial(self._weigh, job))
                if self._stop.is_set() and problem is not None:
                    break
                self._conclude(job, problem)
            worker.close()
        except BaseException as error:
            self._error = self._error or error
            self._end_all()

    def _take(self, last: Job | None) -> Job | None:
        """The next job, once its data are there; None if there is none, or if too many work: the caller is to leave."""
        while True:
            with self._lock:
                is_wanted = not self._stop.is_set() and self._serving <= self.limit
                job = self._next_for(last) if is_wanted else None
                if is_wanted and not self._waiting and not self._active and self._for_last:
                    job = self._for_last[0]
                if job is not None:
                    self._begin(job)
                    return job
                if not is_wanted or not self._waiting:
                    self._serving -= 1
                    return None
            self.data.wait(DATA_SECONDS)

    def _next_for(self, last: Job | None) -> Job | None:
        """The first job whose data are there; where updates are compiled, one like the worker's last before others."""
        ready = [job for job in self._waiting if self.data.is_there(job)]
        alike = [job for job in ready if last is not None and job.shares_code_with(last)]
        return next(iter(alike or ready), None)

    def _begin(self, job: Job) -> None:
        """Note that a job is being worked on; the caller holds the lock."""
        (self._waiting if job in self._waiting else self._for_last).remove(job)
        self._had_company.discard(job.name)
        if self._active:
            self._had_company |= {*self._active, job.name}
        self._active.add(job.name)

    def _conclude(self, job: Job, problem: Failed | None) -> None:
        """Note how a run ended. One that found no memory beside others goes on later: with fewer, and then alone."""
        with self._lock:
            self._active.discard(job.name)
            if problem is not None and problem.out_of_memory and job.name in self._had_company:
                if job.name in self._postponed:
                    self.view.postpones(job, "out of memory again; it goes on when all others are done")
                    self._for_last.append(job)
                    return
                self._postponed.add(job.name)
                self.most = self.limit = max(1, min(self.limit, len(self._active)))
                self.view.postpones(job, f"out of memory; it goes on later; runs at a time: {self.limit}")
                self._waiting.append(job)
                return
        if problem is not None:
            self.problems[job.name] = problem.error
        self.view.ends(job, None if problem is None else problem.error)

    def _weigh(self, job: Job, footprint: Footprint) -> None:
        """Learn what a run takes: larger ones lower the number of runs at once; more join when all have told."""
        if self.room is None:
            return
        with self._lock:
            self._weighed.add(job.name)
            self._largest = footprint if self._largest is None else self._largest | footprint
            found, before = min(self.most, self.room.runs(self._largest)), self.limit
            if found > before and not self._active <= self._weighed:
                return
            self.limit = found
        if found != before:
            self.view.say(f"runs at a time: {found} ({self.room.describe(self._largest)})")
            self._hire()


def _tell(view: StudyView, job: Job, values: dict[str, Any]) -> None:
    """Show an event of a run."""
    event = from_plain(values)
    if event is not None:
        view.hears(job, event)
