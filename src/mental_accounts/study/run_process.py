"""One run in a process of its own: `python -P -m mental_accounts.study.run_process RUN`.

It tells how it goes in lines of JSON.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mental_accounts.errors import InterruptedRunError
from mental_accounts.learning.freed_memory import keep_freed_memory
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_view import SilentView
from mental_accounts.learning.trainer import Trainer
from mental_accounts.module_paths import find_own_modules

REPORT_SECONDS = 0.25


class ReportingView(SilentView):
    """Tells another process: the share of updates made, the stage, and each iteration's numbers."""

    def __init__(self, total_updates: int, updates: int = 0) -> None:
        self.total = max(total_updates, 1)
        self.updates = updates
        self.text = ""
        self._learns = False
        self._told = 0.0

    def stage(self, text: str, total: int, done: int = 0) -> None:
        """Another stage."""
        self.text, self._learns = text, text.startswith(("pretrain", "online"))
        self._tell()

    def advance(self) -> None:
        """One more update, or one more step."""
        self.updates += self._learns
        if time.monotonic() - self._told > REPORT_SECONDS:
            self._tell()

    def say(self, text: str) -> None:
        """A line that stays."""
        tell(said=text)

    def metrics(self, line: Mapping[str, Any]) -> None:
        """An iteration is over."""
        self.updates = line["updates"]
        tell(share=self.updates / self.total, stage=self.text, value=line.get("evaluation/return_mean_gm"))

    def _tell(self) -> None:
        self._told = time.monotonic()
        tell(share=self.updates / self.total, stage=self.text)


ANSWER = sys.stdout
"""For lines of JSON alone; what an environment prints goes to standard error."""


def tell(**what: Any) -> None:
    """One line for whoever listens. Where nobody does any more, the run stops after a checkpoint."""
    try:
        print(json.dumps(what), file=ANSWER, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), ANSWER.fileno())
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Start the run or go on with it."""
    folder = RunFolder(Path(sys.argv[1]))
    sys.stdout = sys.stderr
    find_own_modules()
    keep_freed_memory()
    try:
        config = folder.read_config()
        done = [line["updates"] for line in folder.read_metrics()]
        Trainer(config, folder, ReportingView(config.total_updates, max(done, default=0))).run()
    except (InterruptedRunError, KeyboardInterrupt) as stop:
        return 128 + getattr(stop, "signal_number", signal.SIGINT)
    except Exception as error:
        tell(error=f"{type(error).__name__}: {' '.join(str(error).split())}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
