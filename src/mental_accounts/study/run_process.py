"""The process of a worker: `python -P -m mental_accounts.study.run_process` reads the folders of runs, and makes them.

It sends their events to the study as lines of JSON, `{"error": ...}` if a run fails, and `{"ended": true}` after each.
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
from mental_accounts.learning.events import SENT, Event, UpdateDone, from_plain, to_plain
from mental_accounts.learning.freed_memory import keep_freed_memory
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_view import SilentView
from mental_accounts.learning.trainer import Trainer
from mental_accounts.module_paths import find_own_modules

REPORT_SECONDS = 0.25


@dataclass(frozen=True)
class Failed:
    """A run ended by an error."""

    error: str


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


def event_of(values: dict[str, Any]) -> Event | Failed | Ended | None:
    """The event in such a line."""
    if "ended" in values:
        return Ended()
    return Failed(str(values["error"])) if "error" in values else from_plain(values)


class SendingView(SilentView):
    """Sends events to the study; of updates, a few per second."""

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
        send({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"})
    gc.collect()  # a trainer refers to itself, by its callbacks
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
