"""Exceptions, by cause: the user's input (`UsageError`), the environment, training, a signal, a callback."""

import signal


class UsageError(ValueError):
    """The request cannot be carried out; the message says what was expected, what was given, and what to do."""


class DataError(UsageError):
    """Data that cannot be used; the message names the file or the field."""


class NoRoomError(UsageError):
    """Less memory is free now than is needed; where other runs share the machine, more may be free later."""


class CheckpointError(UsageError):
    """No usable checkpoint."""


class DivergenceError(RuntimeError):
    """The loss is no longer finite."""


class BrokenEnvironmentError(RuntimeError):
    """An environment raised, returned something that is not a number, or its process ended."""

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message)
        self.place = place


class InterruptedRunError(RuntimeError):
    """The run was stopped by a signal, after a checkpoint."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.signal_number = signal_number


class StoppedRunError(RuntimeError):
    """The run was stopped by a callback, after a checkpoint."""


class CallbackError(RuntimeError):
    """A callback raised; if the run had begun, it wrote a checkpoint first."""
