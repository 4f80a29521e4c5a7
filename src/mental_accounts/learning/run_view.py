"""The display of a run: live in a terminal, plain lines elsewhere."""

from collections.abc import Mapping
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mental_accounts.learning.events import Event, IterationEnded, Message, StageBegan, StepDone, UpdateDone
from mental_accounts.return_text import return_text

FITS = {"nll": "training/nll_last", "error": "training/squared_error_last"}
"""How well actions are predicted: a run logs one of them. (Before version 0.2, dt and bc logged their error as nll.)"""


class View(Protocol):
    """Called with every event; displays what it can."""

    follows_steps: bool
    """Whether it is called with UpdateDone and StepDone too."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def __call__(self, event: Event) -> None:
        """Handle an event."""
        ...


class SilentView:
    """For programs: nothing is shown."""

    follows_steps = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, event: Event) -> None:
        pass


class WarningView(SilentView):
    """For scripts: only warnings, on standard error."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Message) and event.kind == "warning":
            print_line(Console(stderr=True), line_of(event))


class PlainView(SilentView):
    """Lines for logs: messages, and one per iteration."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Message):
            print_line(self.console, line_of(event))
        elif isinstance(event, IterationEnded):
            print_line(self.console, summary_line(event.metrics))


class LiveView(PlainView):
    """A progress bar for the current stage with the time left, and above it the lines so far."""

    follows_steps = True

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self.latest: dict[str, float] = {}
        self.progress = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
        )
        self.task = self.progress.add_task("starting", total=None, status="")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, event: Event) -> None:
        if isinstance(event, (UpdateDone, StepDone)):
            self.progress.advance(self.task)
            return
        super().__call__(event)
        if isinstance(event, StageBegan):
            self.progress.reset(self.task, total=event.total, completed=event.done, description=event.title)
        elif isinstance(event, IterationEnded):
            names = FITS | {"return": "evaluation/return_mean_gm", "best": "best_return"}
            found = {short: event.metrics.get(name) for short, name in names.items()}
            self.latest |= {short: value for short, value in found.items() if value is not None}
            status = "  ".join(f"{short} {return_text(value)}" for short, value in self.latest.items())
            self.progress.update(self.task, status=status)


def make_view(console: Console | None = None) -> View:
    """Live in a terminal, lines elsewhere."""
    console = console or Console()
    return LiveView(console) if console.is_terminal else PlainView(console)


def view_for(progress: bool | None) -> View:
    """For Python: True shows progress, False nothing; None: progress in a terminal, elsewhere only warnings."""
    if progress is None:
        return make_view() if Console().is_terminal else WarningView()
    return make_view() if progress else SilentView()


def line_of(message: Message) -> str:
    """A message as one line."""
    return f"warning: {message.text}" if message.kind == "warning" else message.text


def print_line(console: Console, text: str) -> None:
    """Print a line verbatim: no markup, no wrapping."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def summary_line(line: Mapping[str, Any]) -> str:
    """The main numbers of an iteration, in one line."""
    parts = [f"{line['phase']:<8} {line['iteration']:>4}", f"updates {line['updates']:>6}"]
    parts += [f"{short} {line[name]:8.3f}" for short, name in FITS.items() if name in line]
    if "values/policy_mean" in line:
        parts.append(f"value {line['values/policy_mean']:8.4g}  TD error {line['values/td_error']:8.3g}")
    if "aug_traj/return" in line:
        parts.append(f"explored {return_text(line['aug_traj/return']):>8}")
    if "evaluation/return_mean_gm" in line:
        mean, spread = (return_text(line[f"evaluation/return_{name}_gm"]) for name in ("mean", "std"))
        parts.append(f"return {mean:>8} ± {spread}  best {return_text(line['best_return']):>8}")
    parts.append(f"{line['time/iteration']:.1f} s")
    return "  ".join(parts)
