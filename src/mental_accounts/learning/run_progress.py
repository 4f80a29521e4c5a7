"""The progress of a run, between iterations and within one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mental_accounts.checks import check_count
from mental_accounts.fields import config_from_dict, shown


@dataclass
class Progress:
    """The progress of a run; plain JSON values, saved with every checkpoint."""

    iteration: int = 0
    """Completed iterations; the next one has this number."""
    skipped: int = 0
    """Iterations of pretraining that were left out, since the last ones were no better."""
    explored: dict[str, float] | None = None
    """Metrics of this iteration's exploration, once it is done."""
    explored_episodes: int = 0
    """Episodes of this iteration's exploration."""
    update: int = 0
    """Updates made in this iteration."""
    updates: int = 0
    """Total updates made."""
    env_steps: int = 0
    """Total online environment steps, without evaluation."""
    best_return: float | None = None
    """The best mean evaluation return so far."""
    best_iteration: int | None = None
    files: list[str] = field(default_factory=list)
    """Files of trajectories collected so far, oldest first."""
    seconds: float = 0.0
    """Wall time so far."""
    device: str = "cpu"
    """The device that the run began on: random number generators differ between devices."""

    @property
    def made(self) -> int:
        """Iterations that were made; metrics.jsonl has a line for each."""
        return self.iteration - self.skipped

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Progress":
        """From a checkpoint's state.json; errors name invalid values."""
        progress = config_from_dict(cls, state, "state.")
        for name in ("iteration", "skipped", "explored_episodes", "update", "updates", "env_steps"):
            check_count(f"state.{name}", getattr(progress, name), 0)
        for name in progress.files:
            if Path(name).name != name:
                raise ValueError(f"state.files must be names of files in trajectories/, got {shown(name)}")
        return progress
