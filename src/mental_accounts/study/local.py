"""Runs on this machine, as many at a time as cores and memory allow, each in its own process."""

import os
import queue
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock

import torch

from mental_accounts.machine import available_memory, usable_cores
from mental_accounts.study.plan import Job
from mental_accounts.study.run_process import Failed, event_of, parse_line
from mental_accounts.study.study_view import StudyView

WORKER = (sys.executable, "-P", "-m", "mental_accounts.study.run_process")
"""-P: modules of the current folder must not shadow others."""
GIBIBYTE = 2**30
CPU_RUN_BYTES = 2 * GIBIBYTE
"""Memory reserved for one run on a CPU."""
GPU_RUN_BYTES = 4 * GIBIBYTE
"""GPU memory reserved for one run on a GPU."""
THREAD_SETTINGS = ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
"""Environment variables that limit a run to its share of the cores."""
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
        self._stop = Event()
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = Lock()

    def run(self, jobs: Sequence[Job], view: StudyView) -> dict[str, str]:
        """Run them all; returns the errors, by the name of the run. If interrupted, runs stop after a checkpoint."""
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)
        problems: dict[str, str] = {}

        def work() -> None:
            while not self._stop.is_set():
                try:
                    job = waiting.get_nowait()
                except queue.Empty:
                    return
                view.begins(job)
                problem = self._run(job, view)
                if self._stop.is_set() and problem is not None:
                    return
                view.ends(job, problem)
                if problem is not None:
                    problems[job.name] = problem

        with ThreadPoolExecutor(self.workers) as pool:
            futures = [pool.submit(work) for _ in range(min(self.workers, len(jobs)))]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self._stop_all()
                raise
        return problems

    def _run(self, job: Job, view: StudyView) -> str | None:
        """One run; returns its error, if any."""
        with tempfile.TemporaryFile("w+") as errors:
            with self._lock:
                if self._stop.is_set():
                    return "stopped"
                process = subprocess.Popen(
                    [*WORKER, str(job.path)],
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env=os.environ | dict.fromkeys(THREAD_SETTINGS, str(self.threads)),
                    start_new_session=True,  # Ctrl-C reaches only us; we ask the runs to stop
                )
                self._running.add(process)
            problem = None
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    values = parse_line(line)
                    event = None if values is None else event_of(values)
                    if isinstance(event, Failed):
                        problem = event.error
                    elif event is not None:
                        view.hears(job, event)
            code = process.wait()
            with self._lock:
                self._running.discard(process)
            if code == 0:
                return None
            errors.seek(0)
            last = [line.strip() for line in errors.read().splitlines() if line.strip()][-1:]
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            return problem or f"its process ended with {how}{': ' if last else ''}{''.join(last)}"

    def _stop_all(self) -> None:
        with self._lock:
            self._stop.set()
            running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
