"""A process that makes run after run: it starts Python, imports torch and loads the data only once.

A run that fails does not end it. A worker that is killed takes only its own run with it: the next run gets a new one.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import IO, Any

from mental_accounts.study.room import Footprint
from mental_accounts.study.run_process import ON_GPU, Ended, Failed, event_of, parse_line

PROGRAM = (sys.executable, "-P", "-m", "mental_accounts.study.run_process")
"""-P: modules of the current folder must not shadow others."""
THREAD_SETTINGS = ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
"""Environment variables that limit a worker to its share of the cores."""


class Worker:
    """Makes one run at a time, in a process of `threads` threads that is started for the first of them, or before.

    `environ` is added to the process's environment. `on_gpu`: the process connects to the GPU when it starts.
    """

    def __init__(self, threads: int, environ: Mapping[str, str] | None = None, *, on_gpu: bool = False) -> None:
        self.threads, self.environ = threads, dict(environ or {})
        self._program = (*PROGRAM, ON_GPU) if on_gpu else PROGRAM
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None
        self._lock = Lock()
        self._stopped = False

    def prepare(self) -> None:
        """Start the process, which takes seconds, while the data of its first run are still being made."""
        with self._lock:
            if not self._stopped and self._process is None:
                self._start()

    def run(
        self,
        path: Path,
        hear: Callable[[dict[str, Any]], None],
        weigh: Callable[[Footprint], None] = lambda footprint: None,
    ) -> Failed | None:
        """Make a run, or go on with it; returns its error, if any.

        `hear` is given its events, as plain values, and `weigh` its memory, after every iteration.
        """
        with self._lock:
            if self._stopped:
                return Failed("stopped")
            process = self._process if self._process is not None and self._process.poll() is None else self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        problem = None
        try:
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            for line in process.stdout:
                values = parse_line(line)
                event = None if values is None else event_of(values)
                if isinstance(event, Ended):
                    return problem
                if isinstance(event, Failed):
                    problem = event
                elif isinstance(event, Footprint):
                    weigh(event)
                elif values is not None:
                    hear(values)
        except BrokenPipeError:
            pass
        code = process.wait()  # before another run is sent to it
        return problem or Failed(self._last_words(code))

    def close(self) -> None:
        """Let it end, once its run is over."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()

    def terminate(self) -> None:
        """Ask it to stop: its run writes a checkpoint first."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.terminate()

    def kill(self) -> None:
        """End it at once; its run can go on from its last checkpoint."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def end(self, seconds: float) -> None:
        """Wait for so many seconds; then it is killed."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def release(self) -> None:
        """Close what belonged to a process that has ended; nobody reads it any more."""
        process = self._process
        for file in (self._errors, *(() if process is None else (process.stdin, process.stdout))):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):  # it may not have read its last line
                    file.close()

    def _start(self) -> subprocess.Popen[str]:
        self.release()
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (it lives as long as the process)
        self._process = subprocess.Popen(
            self._program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            errors="replace",
            env=os.environ | self.environ | dict.fromkeys(THREAD_SETTINGS, str(self.threads)),
            start_new_session=True,  # Ctrl-C reaches only us; we ask the runs to stop
        )
        return self._process

    def _last_words(self, code: int) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        last = [line.strip() for line in self._errors.read().splitlines() if line.strip()][-1:]
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"its process ended with {how}{': ' if last else ''}{''.join(last)}"
