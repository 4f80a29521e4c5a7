"""Trajectories on disk: a safetensors file of the store's columns as they lie in memory, the row of zeros included.

A file is mapped, not copied, so runs that read the same data share one copy of them. Files of version 0.1 have neither
that row nor the columns that follow from others; they are read, and copied. What was seen after the last steps of
trajectories that were cut off lies in tensors of its own, which files need not have.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mental_accounts.action_spec import ActionSpec
from mental_accounts.data.data_checks import Steps, checked_steps
from mental_accounts.data.final_steps import FinalSteps, checked_rows
from mental_accounts.data.step_columns import NAMES, columns_for, rows_of_steps
from mental_accounts.data.storage import StepStorage
from mental_accounts.data.tensor_files import OLD_FORMAT, read_tensors, write_tensors
from mental_accounts.errors import DataError
from mental_accounts.fields import config_from_dict

PADDED = "padded."
"""Begins the names of columns with one row more than there are steps."""
TABLES = ("lengths", "terminated", "truncated")
FINAL = "final."
"""Begins the names of what was seen after the last steps of trajectories, where it is known."""
REQUIRED = ("observations", "actions", "rewards")


@dataclass(frozen=True, eq=False)
class Stored:
    """What a file holds."""

    steps: Steps
    gamma: float
    action_spec: ActionSpec | None
    info: Mapping[str, Any] | None
    storage: StepStorage | None
    """All columns, mapped from the file; None where it does not have them as they are needed."""
    final: FinalSteps | None


def write_trajectories(
    path: Path,
    storage: StepStorage,
    tables: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    spec: ActionSpec | None,
    final: FinalSteps | None,
) -> None:
    """The columns of a storage, one length and two flags for each trajectory, and what is known of their ends."""
    tensors = {f"{PADDED}{name}": storage.padded(name) for name in NAMES if name in storage.columns}
    if final is not None:
        tensors |= {f"{FINAL}trajectories": final.trajectories, f"{FINAL}observations": final.observations}
        tensors |= {} if final.action_masks is None else {f"{FINAL}action_masks": final.action_masks}
    write_tensors(path, tensors | dict(tables), {**facts, "action_spec": None if spec is None else asdict(spec)})


def read_trajectories(path: Path) -> Stored:
    """Read and check a file; one that lies about what follows from other columns is believed in nothing but these."""
    tensors, facts = read_tensors(path, TABLES, older=OLD_FORMAT)
    padded = {name.removeprefix(PADDED): value for name, value in tensors.items() if name.startswith(PADDED)}
    columns = {name: value[:-1] for name, value in padded.items() if value.ndim} if padded else tensors
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise DataError(f"{path}: has no {missing}; delete it and make it again")
    gamma, action_spec = _facts_of(facts, path)
    steps = checked_steps(
        *(columns[name] for name in REQUIRED),
        *(tensors[name] for name in TABLES),
        where=str(path),
        action_spec=action_spec,
        foregone=columns.get("foregone"),
        action_masks=columns.get("action_masks"),
    )
    storage = StepStorage.holding(padded) if padded and _is_whole(padded, steps, gamma) else None
    final = _final_of(tensors, steps, action_spec, path)
    return Stored(steps, gamma, action_spec, facts.get("info"), storage, final)


def _final_of(
    tensors: Mapping[str, Tensor], steps: Steps, action_spec: ActionSpec | None, path: Path
) -> FinalSteps | None:
    """What a file knows of the ends of its trajectories."""
    found = {name.removeprefix(FINAL): value for name, value in tensors.items() if name.startswith(FINAL)}
    if not found:
        return None
    missing = [f"{FINAL}{name}" for name in ("trajectories", "observations") if name not in found]
    if missing:
        raise DataError(f"{path}: has no {missing}; delete it and make it again")
    told = (found["trajectories"], found["observations"], found.get("action_masks"))
    return checked_rows(*told, steps, action_spec, str(path))


def _is_whole(padded: Mapping[str, Tensor], steps: Steps, gamma: float) -> bool:
    """Whether these are the columns of the steps, each with its row of zeros."""
    wanted, rows = columns_for(steps), rows_of_steps(steps, gamma)
    if padded.keys() != wanted.keys():
        return False
    for name, (shape, dtype) in wanted.items():
        column = padded[name]
        if column.dtype != dtype or column.shape != (len(steps) + 1, *shape) or bool(column[-1].any()):
            return False
        if name not in REQUIRED and not column[:-1].equal(rows[name].to(dtype)):
            return False
    return True


def _facts_of(facts: Mapping[str, Any], path: Path) -> tuple[float, ActionSpec | None]:
    """γ and the action space in a header."""
    gamma, spec = facts.get("gamma", 1.0), facts.get("action_spec")
    try:
        action_spec = None if spec is None else config_from_dict(ActionSpec, spec)
        if isinstance(gamma, bool) or not isinstance(gamma, (int, float)) or not 0.0 < gamma <= 1.0:
            raise ValueError("gamma must be a number in (0, 1]")
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: its header is wrong ({error}); delete it and make it again") from None
    return float(gamma), action_spec
