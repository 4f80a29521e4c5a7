"""A progress bar on a terminal, silence elsewhere; or whoever wants to be told instead."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Listener = Callable[[float], None]
"""Is told the share that is done."""
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def progress_told_to(listener: Listener) -> Iterator[None]:
    """No bars in this block; the listener is told instead."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields a function that advances the bar; on standard error, so that standard output stays clean."""
    listener, done = _listener.get(), 0

    def tell(more: int) -> None:
        nonlocal done
        done += more
        if listener is not None and total:
            listener(done / total)

    if listener is not None:
        yield tell
        return
    console = Console(stderr=True)
    if not console.is_terminal:  # a disabled bar of rich before 14.3 still ends a line
        yield lambda done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda done: progress.advance(bar, done)
