"""The display of a study: a bar for all runs and one for each active run; plain lines outside a terminal."""

import threading
import time
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mental_accounts.learning.events import Event, IterationEnded, Message, StageBegan, UpdateDone
from mental_accounts.learning.run_view import print_line
from mental_accounts.study.plan import Job

MINUTE = 60.0


@dataclass(frozen=True)
class RunWarning:
    """A warning of one or several runs, in the same words."""

    text: str
    runs: tuple[str, ...]
    """Their names."""
    subject: str | None = None
    """What the runs have in common; None: a line names the first of them."""

    def __str__(self) -> str:
        if self.subject is not None:
            return f"warning: {self.subject}: {self.text}"
        whose = self.runs[0] if len(self.runs) == 1 else f"{len(self.runs)} runs, first {self.runs[0]}"
        return f"warning: {whose}: {self.text}"


class StudyView:
    """The display; called from several threads."""

    def __init__(self, total: int, finished: int, console: Console | None = None) -> None:
        self.console = console or Console()
        self.total, self.finished = total, finished
        self._lock = threading.Lock()
        self._shares: dict[str, float] = {}
        self._titles: dict[str, str] = {}
        self._warned: dict[str, list[str]] = {}
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

    @property
    def warnings(self) -> tuple[RunWarning, ...]:
        """The warnings so far; the same text from several runs is listed once."""
        with self._lock:
            return tuple(RunWarning(text, tuple(sorted(runs))) for text, runs in self._warned.items())

    def say(self, text: str) -> None:
        """Print a permanent line."""
        print_line(self._progress.console if self._progress is not None else self.console, text)

    def makes(self, what: str, share: float | None) -> None:
        """So much of something that runs wait for is made; None: nothing more is to be said of it."""
        with self._lock:
            if self._progress is None:
                if share is not None and self._has_been_silent():
                    self.say(f"{what}: {100 * share:.0f}%")
            elif share is None:
                if what in self._bars:
                    self._progress.remove_task(self._bars.pop(what))
            else:
                if what not in self._bars:
                    self._bars[what] = self._progress.add_task(what, total=1.0)
                self._progress.update(self._bars[what], completed=share)

    def begins(self, job: Job) -> None:
        """A run has started."""
        with self._lock:
            self._shares[job.name] = 0.0
            if self._progress is not None:
                self._bars[job.name] = self._progress.add_task(job.name, total=1.0)
            else:
                self.say(f"begins: {job.name}")

    def hears(self, job: Job, event: Event) -> None:
        """A run sent an event."""
        with self._lock:
            if isinstance(event, Message):
                if event.kind == "warning" and not event.in_summary:
                    self._warn(job, event.text)
            elif isinstance(event, StageBegan):
                self._titles[job.name] = event.title
                self._show(job)
            elif isinstance(event, UpdateDone):
                self._shares[job.name] = event.update / max(event.updates, 1)
                self._show(job)
            elif isinstance(event, IterationEnded):
                self._shares[job.name] = event.metrics.get("updates", 0) / max(job.config.total_updates, 1)
                self._show(job)

    def _warn(self, job: Job, text: str) -> None:
        """Show a warning that no run has sent before; collect the runs that repeat it."""
        runs = self._warned.setdefault(text, [])
        if not runs:
            self.say(f"warning: {job.name}: {text}")
        if job.name not in runs:
            runs.append(job.name)

    def _show(self, job: Job) -> None:
        share, done = self._shares.get(job.name, 0.0), self.finished + sum(self._shares.values())
        if self._progress is not None:
            if job.name in self._bars:
                title = f"{job.name}: {self._titles.get(job.name, '')}"
                self._progress.update(self._bars[job.name], completed=share, description=title)
            self._progress.update(self._overall, completed=done)
        elif self._has_been_silent():
            self.say(f"{100 * done / self.total:.0f}% of all runs, {len(self._shares)} active")

    def _has_been_silent(self) -> bool:
        """Whether nothing was said of any progress for a minute; then something will be."""
        is_silent = time.monotonic() - self._said > MINUTE
        if is_silent:
            self._said = time.monotonic()
        return is_silent

    def postpones(self, job: Job, why: str) -> None:
        """A run goes on later."""
        with self._lock:
            self._shares.pop(job.name, None)
            self.say(f"{job.name}: {why}")
            if self._progress is not None:
                self._progress.remove_task(self._bars.pop(job.name))

    def ends(self, job: Job, problem: str | None) -> None:
        """A run has ended."""
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
