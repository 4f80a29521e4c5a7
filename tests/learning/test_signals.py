"""A signal is noted; one that comes again later is obeyed at once."""

import os
import signal
import time

import pytest

from mental_accounts.errors import InterruptedRunError
from mental_accounts.learning import signals
from mental_accounts.learning.signals import SignalWatch, StopSignal


def test_a_second_signal_later_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with SignalWatch() as watch:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # the same one, to the process and to its group
        with pytest.raises(InterruptedRunError, match="SIGTERM"):
            watch.check()
        monkeypatch.setattr(signals, "PATIENCE_S", 0.01)
        time.sleep(0.02)
        with pytest.raises(StopSignal) as stopped:
            os.kill(os.getpid(), signal.SIGTERM)
        assert stopped.value.signal_number == signal.SIGTERM
