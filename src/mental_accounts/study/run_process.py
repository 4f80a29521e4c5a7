"""The process of a worker: `python -P -m mental_accounts.study.run_process` reads the folders of runs, and makes them.

It sends their events to the study as lines of JSON, their memory after every iteration, `{"error": ...}` if a run
fails, and `{"ended": true}` after each.
"""

import contextlib
import gc
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mental_accounts.errors import InterruptedRunError
from mental_accounts.learning.events import SENT, Event, IterationEnded, UpdateDone, from_plain, to_plain
from mental_accounts.learning.freed_memory import keep_freed_memory
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_view import SilentView
from mental_accounts.learning.trainer import Trainer
from mental_accounts.machine import is_out_of_memory, own_memory
from mental_accounts.module_paths import find_own_modules
from mental_accounts.study.room import Footprint

ON_GPU = "--gpu"
"""Connect to the GPU at once: it takes seconds, in which the data of the first run may still be made."""
REPORT_SECONDS = 0.25
CONTEXT_BYTES = 600_000_000
"""What CUDA and its libraries take of a GPU for one process."""


@dataclass(frozen=True)
class Failed:
    """A run ended by an error."""

    error: str
    out_of_memory: bool = False
    """Whether it may succeed where fewer runs share the machine."""


@dataclass(frozen=True)
class Ended:
    """A run is over, and the worker is ready for another."""


def parse_line(line: str) -> dict[str, Any] | None:
    """A line from a run's process as plain values; None if it is something else."""
    with contextlib.suppress(ValueError):
        values = json.loads(line)
        if isinstance(values, dict):
            return values
    return None


def event_of(values: dict[str, Any]) -> Event | Failed | Ended | Footprint | None:
    """The event in such a line."""
    if "ended" in values:
        return Ended()
    if "footprint" in values:
        return Footprint(*values["footprint"])
    if "error" in values:
        return Failed(str(values["error"]), bool(values.get("out_of_memory")))
    return from_plain(values)


class SendingView(SilentView):
    """Sends events to the study; of updates, a few per second; after every iteration the run's memory."""

    follows_steps = True

    def __init__(self) -> None:
        self._sent = 0.0

    def __call__(self, event: Event) -> None:
        if type(event).__name__ not in SENT:
            return
        if isinstance(event, UpdateDone):
            if time.monotonic() - self._sent <= REPORT_SECONDS:
                return
            self._sent = time.monotonic()
        send(to_plain(event))
        if isinstance(event, IterationEnded):
            send({"footprint": [own_memory(), _gpu_memory()]})


ANSWER = sys.stdout
"""Only for lines of JSON; output of environments goes to standard error."""


def send(values: dict[str, Any]) -> None:
    """Send one line to the study. If it no longer reads them, the run stops after a checkpoint."""
    try:
        print(json.dumps(values), file=ANSWER, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), ANSWER.fileno())
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Make one run after another, until there are no more or a signal says so."""
    sys.stdout = sys.stderr
    find_own_modules()
    keep_freed_memory()
    if ON_GPU in sys.argv:
        _connect()
    for line in sys.stdin:
        code = make_run(RunFolder(Path(line.rstrip("\n"))))
        if code:
            return code
        send({"ended": True})
    return 0


def make_run(folder: RunFolder) -> int:
    """Start a run or continue it; 0 unless it was interrupted. What it held is free afterwards."""
    try:
        Trainer(folder.read_config(), folder, SendingView()).run()
    except (InterruptedRunError, KeyboardInterrupt) as stop:
        return 128 + int(getattr(stop, "signal_number", signal.SIGINT))
    except Exception as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"
        send({"error": words, "out_of_memory": is_out_of_memory(error)})
    gc.collect()  # a trainer refers to itself, by its callbacks
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return 0


def _connect() -> None:
    """Make the process's CUDA context, and load the libraries that every run needs."""
    with contextlib.suppress(RuntimeError, AssertionError):  # without a GPU, or room on it, the run says so
        ones = torch.ones(16, 16, device="cuda")
        (ones @ ones).sum().item()


def _gpu_memory() -> int:
    """The most that this process has taken of a GPU, in bytes."""
    return torch.cuda.max_memory_reserved() + CONTEXT_BYTES if torch.cuda.is_initialized() else 0


if __name__ == "__main__":
    sys.exit(main())
