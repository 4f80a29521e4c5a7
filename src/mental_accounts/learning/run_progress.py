"""Where a run stands between two iterations, and within one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mental_accounts.checks import check_count
from mental_accounts.fields import config_from_dict, shown


@dataclass
class Progress:
    """Where a run stands; plain JSON values, saved with every checkpoint."""

    iteration: int = 0
    """Iterations that are over; the next one has this number."""
    explored: dict[str, float] | None = None
    """Metrics of this iteration's exploration, once it has been done."""
    update: int = 0
    """Updates made in this iteration."""
    updates: int = 0
    """Updates made in all."""
    env_steps: int = 0
    """Online environment steps in all, without evaluation."""
    best_return: float | None = None
    """The best mean evaluation return so far."""
    best_iteration: int | None = None
    files: list[str] = field(default_factory=list)
    """Files of trajectories collected so far, oldest first."""
    seconds: float = 0.0
    """Wall time so far."""
    device: str = "cpu"
    """Where the run began: generators of random numbers differ between devices."""

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Progress":
        """Back from a checkpoint's state.json; what cannot be meant is named."""
        progress = config_from_dict(cls, state, "state.")
        for name in ("iteration", "update", "updates", "env_steps"):
            check_count(f"state.{name}", getattr(progress, name), 0)
        for name in progress.files:
            if Path(name).name != name:
                raise ValueError(f"state.files must be names of files in trajectories/, got {shown(name)}")
        return progress
