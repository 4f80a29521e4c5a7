"""Runs on this machine, as many at a time as cores and memory allow; each worker makes one after the other."""

import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

import torch

from mental_accounts.learning.events import from_plain
from mental_accounts.machine import available_memory, usable_cores
from mental_accounts.study.plan import Job
from mental_accounts.study.study_view import StudyView
from mental_accounts.study.worker import Worker

GIBIBYTE = 2**30
CPU_RUN_BYTES = 2 * GIBIBYTE
"""Memory reserved for one run on a CPU."""
GPU_RUN_BYTES = 4 * GIBIBYTE
"""GPU memory reserved for one run on a GPU."""
STOP_SECONDS = 120
"""Seconds that runs have to write a checkpoint when the study is stopped."""


def default_workers(jobs: Sequence[Job]) -> int:
    """How many runs at a time: one per core, if memory (and GPU memory, if there is a GPU) allows."""
    limits = [usable_cores(), available_memory() // CPU_RUN_BYTES, len(jobs)]
    if torch.cuda.is_available() and any(job.config.device != "cpu" for job in jobs):
        limits.append(torch.cuda.mem_get_info()[0] // GPU_RUN_BYTES)
    return max(1, min(limits))


class LocalLauncher:
    """Runs jobs in `workers` processes of `threads` each. A failed run is reported, and the others continue."""

    def __init__(self, workers: int, threads: int | None = None) -> None:
        self.workers = workers
        self.threads = threads or max(1, usable_cores() // workers)

    def run(self, jobs: Sequence[Job], view: StudyView) -> dict[str, str]:
        """Run them all; returns the errors, by the name of the run. If interrupted, runs stop after a checkpoint."""
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)
        problems: dict[str, str] = {}
        workers = [Worker(self.threads) for _ in range(min(self.workers, len(jobs)))]
        stop = Event()

        def work(worker: Worker) -> None:
            while not stop.is_set():
                try:
                    job = waiting.get_nowait()
                except queue.Empty:
                    break
                view.begins(job)
                problem = worker.run(job.path, partial(_tell, view, job))
                if stop.is_set() and problem is not None:
                    break
                view.ends(job, problem)
                if problem is not None:
                    problems[job.name] = problem
            worker.close()

        with ThreadPoolExecutor(len(workers)) as pool:
            futures = [pool.submit(work, worker) for worker in workers]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                stop.set()
                for worker in workers:
                    worker.terminate()
                for worker in workers:
                    worker.end(STOP_SECONDS)
                raise
        for worker in workers:
            worker.end(STOP_SECONDS)
        return problems


def _tell(view: StudyView, job: Job, values: dict[str, Any]) -> None:
    """Show an event of a run."""
    event = from_plain(values)
    if event is not None:
        view.hears(job, event)
