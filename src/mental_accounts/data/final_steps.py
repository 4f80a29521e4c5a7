"""What was seen after the last steps of trajectories that were cut off, as it comes in: checked, and without gaps.

A step that a time limit cut off is no end: what follows it is worth something. Critics need the observation there, and
which actions were allowed, where that matters.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mental_accounts.action_masks import checked_masks
from mental_accounts.action_spec import ActionSpec
from mental_accounts.data.data_checks import Steps, Values, number_tensor
from mental_accounts.errors import DataError


@dataclass(frozen=True, eq=False)
class FinalSteps:
    """Of E trajectories that were cut off: what was seen after their last step. On the CPU."""

    trajectories: Tensor  # (E,) int64: which they are, ascending
    observations: Tensor  # (E, obs) float32
    action_masks: Tensor | None = None  # (E, values) bool: the actions allowed there, if those of other steps are known

    def __len__(self) -> int:
        return len(self.trajectories)


def checked_final(
    observations: Values | None, masks: Values | None, steps: Steps, spec: ActionSpec | None, where: str
) -> FinalSteps | None:
    """A row for each trajectory, (trajectories, obs) and (trajectories, values); observations NaN where not known.

    Rows of trajectories that terminated are left out: nothing follows them. None if no row is left.
    """
    if observations is None:
        return None
    seen, count = number_tensor("final_observations", observations, where), len(steps.lengths)
    if tuple(seen.shape) != (count, steps.observations.shape[1]):
        raise DataError(
            f"{where}: final_observations must have shape {(count, steps.observations.shape[1])}, one for each "
            f"trajectory (NaN where it is not known), got {tuple(seen.shape)}"
        )
    known = (~seen.isnan().all(dim=1) & ~steps.terminated).nonzero().squeeze(-1)
    allowed = None
    if steps.action_masks is not None and len(known):
        if masks is None:
            raise DataError(f"{where}: final_masks are missing: the steps have action masks, so what follows needs one")
        allowed = number_tensor("final_masks", masks, where)
        if allowed.ndim != 2 or len(allowed) != count:
            raise DataError(
                f"{where}: final_masks must have shape (trajectories, values), one for each of {count} trajectories, "
                f"got {tuple(allowed.shape)}"
            )
        allowed = allowed[known]
    return _checked(known, seen[known], allowed, steps, spec, where)


def one_row(values: Values | None) -> Values | None:
    """What belongs to a single trajectory, as `checked_final` takes it: (n,) -> (1, n)."""
    if values is None:
        return None
    return values.unsqueeze(0) if isinstance(values, Tensor) else np.asarray(values)[None]


def checked_rows(
    trajectories: Tensor,
    observations: Tensor,
    masks: Tensor | None,
    steps: Steps,
    spec: ActionSpec | None,
    where: str,
) -> FinalSteps | None:
    """As a file holds them: trajectories (E,), observations (E, obs), masks (E, values)."""
    which = number_tensor("final.trajectories", trajectories, where)
    seen = number_tensor("final.observations", observations, where)
    if which.ndim != 1 or which.is_floating_point() or which.dtype == torch.bool:
        raise DataError(f"{where}: final.trajectories must be whole numbers, got {which.dtype} {tuple(which.shape)}")
    which = which.long()
    if tuple(seen.shape) != (len(which), steps.observations.shape[1]):
        raise DataError(
            f"{where}: final.observations must have shape {(len(which), steps.observations.shape[1])}, "
            f"got {tuple(seen.shape)}"
        )
    if len(which):
        ascends = bool((which[1:] > which[:-1]).all())
        if not ascends or int(which[0]) < 0 or int(which[-1]) >= len(steps.lengths):
            raise DataError(f"{where}: final.trajectories must ascend from 0 to {len(steps.lengths) - 1} at most")
        if bool(steps.terminated[which].any()):
            raise DataError(f"{where}: final.trajectories must be trajectories that were cut off, not terminated")
    if (masks is None) != (steps.action_masks is None):
        raise DataError(f"{where}: final.action_masks must be there where the steps have action masks, and only there")
    allowed = None if masks is None else number_tensor("final.action_masks", masks, where)
    return _checked(which, seen, allowed, steps, spec, where)


def _checked(
    which: Tensor, observations: Tensor, masks: Tensor | None, steps: Steps, spec: ActionSpec | None, where: str
) -> FinalSteps | None:
    """Refuse numbers that are not finite, and masks that forbid everything or do not fit those of the steps."""
    if not len(which):
        return None
    values = observations.float()
    wrong = (~torch.isfinite(values)).nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        raise DataError(
            f"{where}: final_observations of trajectory {int(which[row])} must be finite, or NaN throughout where they "
            f"are not known, got {float(values[row, column]):g} at {column}"
        )
    if masks is None or steps.action_masks is None:
        return FinalSteps(which, values)
    choices = (steps.action_masks.shape[1],) if spec is None else spec.choices
    flags = masks.float() if masks.is_floating_point() else masks  # NumPy has no bfloat16
    try:
        return FinalSteps(which, values, torch.from_numpy(checked_masks(flags.numpy(), choices, len(which))))
    except ValueError as error:
        raise DataError(f"{where}: final_masks: {error}") from None
