"""Where and how to run a study, as a user says it; light to import, since the command line has these as flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LauncherKind = Literal["local", "ray"]


@dataclass(frozen=True)
class Running:
    """Where and how to run a study."""

    out: Path | None = None
    """Folder of runs and report; None: comparisons/<tasks>-<preset>. Given the same folder again, it continues."""
    workers: int | None = None
    """Runs at a time; None: as many as cores and measured memory have room for."""
    launcher: LauncherKind = "local"
    """local: processes on this machine. ray: tasks on a Ray cluster (extra `ray`)."""
    address: str | None = None
    """Ray: address of a running cluster; None: start one here."""
    cpus: float = 1.0
    """Ray: CPU cores per run."""
    gpus: float = 0.0
    """Ray: GPUs per run; 0.25 puts four runs on one GPU."""
