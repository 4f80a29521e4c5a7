"""The user's callbacks: called with every event of a run, which they can stop.

A callback is anything that can be called with an event. Returning `STOP` stops the run at the next point from which it
can be resumed exactly: before the next update, step or iteration. So does an exception, which is re-raised there as a
`CallbackError`. Either way the run writes a checkpoint first.
"""

import enum
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import torch

from mental_accounts.errors import CallbackError, StoppedRunError, UsageError
from mental_accounts.learning.events import Event


class Stop(enum.Enum):
    """Returned by a callback to stop the run."""

    STOP = "stop"


STOP: Final = Stop.STOP
"""What a callback returns to stop its run."""
Callback = Callable[[Event], object]


def check_callbacks(callbacks: Callback | Sequence[Callback]) -> tuple[Callback, ...]:
    """One callback or several, as a tuple; anything that cannot be called with an event is refused."""
    given = (callbacks,) if callable(callbacks) else callbacks
    if not isinstance(given, Sequence):
        raise UsageError(f"callbacks must be functions of an event, got {given!r}; pass a list: callbacks=[f, g]")
    for callback in given:
        if isinstance(callback, type):
            raise UsageError(
                f"callback {callback.__name__} is a class; pass an instance of it: callbacks=[{callback.__name__}()]"
            )
        if not callable(callback):
            raise UsageError(
                f"a callback must be a function of an event, or an object with __call__(self, event), got {callback!r}"
            )
    return tuple(given)


class Callbacks:
    """Calls the callbacks; `check` acts on their results once the run can stop."""

    def __init__(self, callbacks: Callback | Sequence[Callback], folder: Path) -> None:
        self._callbacks, self._folder = check_callbacks(callbacks), folder
        self._stopped_by: str | None = None
        self._error: tuple[str, Exception] | None = None
        self.can_checkpoint = False
        """Whether there is anything to save: until then an error is raised at once, and nothing is left behind."""

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def __call__(self, event: Event) -> None:
        """Call all of them, unless one has raised before. Their use of PyTorch's generator does not affect the run."""
        if not self._callbacks or self._error is not None:
            return
        drawn = torch.get_rng_state()
        try:
            self._call_all(event)
        finally:
            torch.set_rng_state(drawn)

    def _call_all(self, event: Event) -> None:
        for callback in self._callbacks:
            try:
                answer = callback(event)
                if isinstance(answer, bool):
                    raise TypeError(f"it returned {answer}; return ma.STOP to stop the run, or None to continue")
            except Exception as error:
                who = f"callback {_name(callback)} raised {type(error).__name__} at {_when(event)}: {error}"
                self._error = who, error
                if not self.can_checkpoint:
                    self.check_error()
                return
            if answer is STOP and self._stopped_by is None:
                self._stopped_by = f"callback {_name(callback)} at {_when(event)}"

    def check(self) -> None:
        """Stop here, if a callback returned STOP or raised."""
        if self._error is not None:
            self.check_error()
        if self._stopped_by is not None:
            raise StoppedRunError(f"stopped by {self._stopped_by}")

    def check_error(self, how_to_go_on: str | None = None) -> None:
        """Re-raise a callback's exception."""
        if self._error is not None:
            what, error = self._error
            if how_to_go_on is None:
                again = f"continue with ma.resume({str(self._folder)!r}, callbacks=...)"
                how_to_go_on = f"the run is saved: fix the callback, and {again}"
                if not self.can_checkpoint:
                    how_to_go_on = "nothing was trained yet: fix the callback, and try again"
            raise CallbackError(f"{what}; {how_to_go_on}") from error


def _name(callback: Callback) -> str:
    return str(getattr(callback, "__qualname__", None) or type(callback).__qualname__)


def _when(event: Event) -> str:
    iteration = getattr(event, "iteration", None)
    return type(event).__name__ + (f" of iteration {iteration}" if iteration else "")
