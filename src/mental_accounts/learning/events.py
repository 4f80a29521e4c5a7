"""Events of a run, as typed values: the display, a study's processes and the user's callbacks all read these.

A run emits them in this order:

    StageBegan("loading"), RunBegan
    then per iteration: StageBegan and what it consists of (StepDone while playing, UpdateDone while learning),
        ExplorationEnded, EvaluationEnded where there is one, IterationEnded
    RunEnded

Message and CheckpointWritten can come at any time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from mental_accounts.config import TrainConfig
from mental_accounts.policy import DecisionTransformer

MessageKind = Literal["note", "warning"]
Stage = Literal["loading", "exploring", "learning", "evaluating", "playing"]
Phase = Literal["pretrain", "online"]


@dataclass(frozen=True)
class Message:
    """A message for the user."""

    kind: MessageKind
    """note: what the run is doing. warning: something is probably wrong, or slower than it could be."""
    text: str
    in_summary: bool = False
    """Whether summary.json has it, too: a comparison then counts the runs that end like this, instead of repeating."""


@dataclass(frozen=True)
class StageBegan:
    """A part of a run begins."""

    stage: Stage
    """playing: episodes of a trained policy, outside a run."""
    total: int | None = None
    """Number of updates, or an upper bound on environment steps; None: unknown."""
    done: int = 0
    """How many of them were already done, if the run was resumed."""
    iteration: int = 0
    """From 1; 0 before the first."""
    iterations: int = 0
    """Iterations of the whole run."""
    phase: Phase = "pretrain"

    @property
    def title(self) -> str:
        """A few words for a progress bar."""
        if self.stage == "learning":
            return f"{self.phase} {self.iteration}/{self.iterations}"
        return f"{self.stage}, iteration {self.iteration}" if self.iteration else self.stage


@dataclass(frozen=True)
class RunBegan:
    """Everything is loaded; the first update or step comes next."""

    folder: Path
    config: TrainConfig
    policy: DecisionTransformer
    """The policy that is trained, in place."""
    iteration: int
    """Iterations already done, if the run was resumed."""
    updates: int
    """Updates already made."""


@dataclass(frozen=True)
class StepDone:
    """One step of all environments, while exploring, evaluating or playing."""


@dataclass(frozen=True)
class UpdateDone:
    """One update of the weights."""

    update: int
    """Its number in the run, from 1."""
    updates: int
    """Updates of the whole run."""
    iteration: int
    """From 1."""
    nll: Tensor | None = None  # (): -log p of the actions, or their squared error (bc, dt), on the run's device
    """Overwritten by the next update; `float(event.nll)` synchronises a GPU. None outside the run's process."""


@dataclass(frozen=True)
class ExplorationEnded:
    """New episodes are in the replay."""

    iteration: int
    returns: tuple[float, ...]  # (episodes,)
    lengths: tuple[int, ...]  # (episodes,)
    env_steps: int
    """Online steps of the run so far."""


@dataclass(frozen=True)
class EvaluationEnded:
    """Episodes with the mean action were played."""

    iteration: int
    returns: tuple[float, ...]  # (episodes,)
    return_mean: float
    return_std: float
    target_return: float
    """The target return."""
    best_return: float
    """The best mean so far, this one included."""


@dataclass(frozen=True)
class IterationEnded:
    """One more line of metrics.jsonl."""

    iteration: int
    """From 1."""
    phase: Phase
    metrics: Mapping[str, Any]
    """The line; docs/metrics.md defines every number."""


@dataclass(frozen=True)
class CheckpointWritten:
    """The run can be resumed from here."""

    folder: Path
    """The run folder."""
    iteration: int
    """Complete iterations in the checkpoint."""
    updates: int


@dataclass(frozen=True)
class RunEnded:
    """The run is complete, and summary.json is written."""

    folder: Path
    summary: Mapping[str, Any]


Event = (
    Message
    | StageBegan
    | RunBegan
    | StepDone
    | UpdateDone
    | ExplorationEnded
    | EvaluationEnded
    | IterationEnded
    | CheckpointWritten
    | RunEnded
)
"""What callbacks are called with."""
SENT = {kind.__name__: kind for kind in (Message, StageBegan, UpdateDone, IterationEnded)}
"""Events that the processes of a study send to it."""


def to_plain(event: Event) -> dict[str, Any]:
    """An event of SENT as JSON values."""
    values = {item.name: getattr(event, item.name) for item in fields(event)}
    return {"event": type(event).__name__} | {k: v for k, v in values.items() if not isinstance(v, Tensor)}


def from_plain(values: Mapping[str, Any]) -> Event | None:
    """The inverse of `to_plain`; None for anything else."""
    kind = SENT.get(str(values.get("event")))
    if kind is None:
        return None
    try:
        return kind(**{name: value for name, value in values.items() if name != "event"})
    except TypeError:
        return None
