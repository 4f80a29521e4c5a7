"""What a person sees while a run goes on: a live display in a terminal, plain lines elsewhere."""

from collections.abc import Mapping
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class View(Protocol):
    """Told of everything; shows what it can."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def stage(self, text: str, total: int, done: int = 0) -> None:
        """A stage of `total` parts begins."""
        ...

    def advance(self) -> None:
        """One more part is done."""
        ...

    def say(self, text: str) -> None:
        """A line that stays."""
        ...

    def metrics(self, line: Mapping[str, Any]) -> None:
        """An iteration is over."""
        ...


class PlainView:
    """Lines for logs: one per iteration."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stage(self, text: str, total: int, done: int = 0) -> None:
        pass

    def advance(self) -> None:
        pass

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def metrics(self, line: Mapping[str, Any]) -> None:
        self.say(summary_line(line))


class LiveView(PlainView):
    """A bar for the stage that is under way with the time left, above it the lines so far."""

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

    def stage(self, text: str, total: int, done: int = 0) -> None:
        self.progress.reset(self.task, total=total, completed=done, description=text)

    def advance(self) -> None:
        self.progress.advance(self.task)

    def metrics(self, line: Mapping[str, Any]) -> None:
        super().metrics(line)
        names = {"nll": "training/nll_last", "return": "evaluation/return_mean_gm", "best": "best_return"}
        self.latest |= {short: line[name] for short, name in names.items() if line.get(name) is not None}
        status = "  ".join(f"{short} {value:.1f}" for short, value in self.latest.items())
        self.progress.update(self.task, status=status)


class SilentView(PlainView):
    """For programs: nothing is shown."""

    def say(self, text: str) -> None:
        pass


def make_view(console: Console | None = None) -> View:
    """Live in a terminal, lines elsewhere."""
    console = console or Console()
    return LiveView(console) if console.is_terminal else PlainView(console)


def summary_line(line: Mapping[str, Any]) -> str:
    """The numbers a person follows, in one line."""
    parts = [f"{line['phase']:<8} {line['iteration']:>4}", f"updates {line['updates']:>6}"]
    if "training/nll_last" in line:
        parts.append(f"nll {line['training/nll_last']:8.3f}")
    if "aug_traj/return" in line:
        parts.append(f"explored {line['aug_traj/return']:8.1f}")
    if "evaluation/return_mean_gm" in line:
        parts.append(f"return {line['evaluation/return_mean_gm']:8.1f} ± {line['evaluation/return_std_gm']:.1f}")
        parts.append(f"best {line['best_return']:8.1f}")
    parts.append(f"{line['time/iteration']:.1f} s")
    return "  ".join(parts)
