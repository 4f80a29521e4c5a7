"""What can go wrong, by whose turn it is: the user's (`UsageError`), the environment's, the learner's, a signal's."""

import signal


class UsageError(ValueError):
    """What was asked for cannot be done; the message says what was expected, what came, and what to do."""


class DataError(UsageError):
    """Data that cannot be used; the message names the file or the field."""


class CheckpointError(UsageError):
    """No checkpoint that can be used."""


class DivergenceError(RuntimeError):
    """A loss that is no number any more."""


class BrokenEnvironmentError(RuntimeError):
    """An environment that raised, answered with something that is no number, or whose process ended."""

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
    """A callback raised; the run wrote a checkpoint first, where it had begun."""
