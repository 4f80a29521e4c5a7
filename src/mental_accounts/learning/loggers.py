"""Loggers in addition to metrics.jsonl: TensorBoard if it is installed, Weights & Biases or trackio on request."""

import importlib
import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from mental_accounts.extras import how_to_install
from mental_accounts.files import named

Tracker = Literal["none", "wandb", "trackio"]


class Logger(Protocol):
    """Takes numbers by name."""

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """One iteration."""
        ...

    def close(self) -> None:
        """Finish logging."""
        ...


class TensorBoardLogger:
    """Event files in <run>/tensorboard."""

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # only where it is installed

        self.folder = folder / "tensorboard"
        self.writer = SummaryWriter(str(self.folder), purge_step=first_step)

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        try:
            for name, value in _numbers(metrics).items():
                self.writer.add_scalar(name, value, step)
            self.writer.flush()
        except OSError as error:  # a full disk
            raise named(error, self.folder) from error

    def close(self) -> None:
        self.writer.close()


class TrackerLogger:
    """Weights & Biases or trackio, which share an interface."""

    def __init__(self, name: Literal["wandb", "trackio"], run: str, config: Mapping[str, Any]) -> None:
        self.module: Any = importlib.import_module(name)
        self.module.init(project="mental-accounts", name=run, config=dict(config))

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        self.module.log(_numbers(metrics), step=step)

    def close(self) -> None:
        self.module.finish()


def check_tracker(tracker: Tracker) -> None:
    """Refuse a tracker that is not installed, before anything is created."""
    if tracker != "none" and importlib.util.find_spec(tracker) is None:
        raise ModuleNotFoundError(f"{tracker} is not installed: {how_to_install(tracker)}")


def make_loggers(folder: Path, config: Mapping[str, Any], first_step: int, tracker: Tracker) -> list[Logger]:
    """TensorBoard if it is installed, and the requested tracker."""
    loggers: list[Logger] = []
    if importlib.util.find_spec("tensorboard") is not None:
        loggers.append(TensorBoardLogger(folder, first_step))
    if tracker != "none":
        loggers.append(TrackerLogger(tracker, folder.name, config))
    return loggers


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {k: float(v) for k, v in metrics.items() if isinstance(v, (int, float)) and math.isfinite(v)}
