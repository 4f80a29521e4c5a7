"""What a person sees of a study: a bar for all runs and one for each that is under way; plain lines elsewhere."""

import threading
import time
from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mental_accounts.study.plan import Job

MINUTE = 60.0


class StudyView:
    """Told of runs from several threads."""

    def __init__(self, total: int, finished: int, console: Console | None = None) -> None:
        self.console = console or Console()
        self.total, self.finished = total, finished
        self._lock = threading.Lock()
        self._shares: dict[str, float] = {}
        self._bars: dict[str, TaskID] = {}
        self._progress: Progress | None = None
        self._said = time.monotonic()
        if self.console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._overall = self._progress.add_task("all runs", total=float(total), completed=finished)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        printer = self._progress.console if self._progress is not None else self.console
        printer.print(text, highlight=False, markup=False, soft_wrap=True)

    def begins(self, job: Job) -> None:
        """A run is under way."""
        with self._lock:
            self._shares[job.name] = 0.0
            if self._progress is not None:
                self._bars[job.name] = self._progress.add_task(job.name, total=1.0)
            else:
                self.say(f"begins: {job.name}")

    def hears(self, job: Job, what: Mapping[str, Any]) -> None:
        """Something that its process said."""
        with self._lock:
            if "said" in what:
                if what["said"].startswith(("updates cannot", "acting cannot", "note:")):
                    self.say(f"{job.name}: {what['said']}")
                return
            if "share" not in what:
                return
            self._shares[job.name] = what["share"]
            if self._progress is not None:
                self._progress.update(
                    self._bars[job.name], completed=what["share"], description=f"{job.name}: {what['stage']}"
                )
                self._progress.update(self._overall, completed=self.finished + sum(self._shares.values()))
            elif time.monotonic() - self._said > MINUTE:
                self._said = time.monotonic()
                done = self.finished + sum(self._shares.values())
                self.say(f"{100 * done / self.total:.0f}% of all runs, {len(self._shares)} under way")

    def ends(self, job: Job, problem: str | None) -> None:
        """A run is over."""
        with self._lock:
            self._shares.pop(job.name, None)
            if problem is None:
                self.finished += 1
                self.say(f"finished {self.finished}/{self.total}: {job.name}")
            else:
                self.say(f"FAILED: {job.name}: {problem}")
            if self._progress is not None:
                self._progress.remove_task(self._bars.pop(job.name))
                self._progress.update(self._overall, completed=self.finished + sum(self._shares.values()))
