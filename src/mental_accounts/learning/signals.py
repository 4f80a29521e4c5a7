"""SIGINT and SIGTERM: noted when they arrive, handled where a run can stop."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

from mental_accounts.errors import InterruptedRunError

PATIENCE_S = 2.0
"""A signal may arrive twice at once, for a process and for its group; a second one later than this is deliberate."""


class StopSignal(KeyboardInterrupt):
    """A request to stop by a signal, raised like Ctrl-C."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


@contextlib.contextmanager
def stopping_by_signal() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP raise `StopSignal`, as SIGINT raises KeyboardInterrupt. Main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: FrameType | None) -> None:
        raise StopSignal(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class SignalWatch:
    """Within its block signals are only noted; `check` raises after one has arrived. In the main thread only.

    A second one some seconds later raises `StopSignal` at once, in case something hangs.
    """

    def __init__(self) -> None:
        self.noted: int | None = None
        self._noted_at = 0.0
        self._before: dict[int, Any] = {}

    def check(self) -> None:
        """Stop here, if a signal has arrived."""
        if self.noted is not None:
            raise InterruptedRunError(self.noted)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.noted is not None and time.monotonic() - self._noted_at > PATIENCE_S:
            raise StopSignal(number)
        if self.noted is None:
            self.noted, self._noted_at = number, time.monotonic()
