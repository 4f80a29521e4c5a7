"""The columns of a store: what a row of each holds, and those that follow from the others."""

import torch
from torch import Tensor

from mental_accounts.data.data_checks import Steps
from mental_accounts.data.description import returns_to_go
from mental_accounts.data.storage import Column


def columns_of(
    obs_dim: int,
    action_dim: int | None,
    foregone: int | None = None,
    action_masks: int | None = None,
    *,
    whole: bool = False,
) -> dict[str, Column]:
    """The columns of a step; `action_dim` None means discrete actions, `foregone` is the number of their rewards.

    `action_masks` is the number of flags that say which actions were allowed. `whole`: actions are several discrete
    numbers.
    `remaining` counts the steps to the trajectory's end, including the step itself. `terminal` is True at a
    trajectory's last step, if it ended in a terminal state.
    """
    wide = torch.int64 if whole else torch.float32
    columns = {
        "observations": Column((obs_dim,), torch.float32),
        "actions": Column((), torch.int64) if action_dim is None else Column((action_dim,), wide),
        "rewards": Column((), torch.float32),
        "timesteps": Column((), torch.int32),
        "remaining": Column((), torch.int32),
        "terminal": Column((), torch.bool),
        "returns_to_go": Column((), torch.float32),
    }
    if foregone is not None:
        columns["foregone"] = Column((foregone,), torch.float32)
    if action_masks is not None:
        columns["action_masks"] = Column((action_masks,), torch.bool)
    return columns


NAMES = tuple(columns_of(1, 1, 1, 1))
"""Of all of them; a store that is annotated has more."""


def columns_for(steps: Steps) -> dict[str, Column]:
    """The columns that hold these steps."""
    return columns_of(
        steps.observations.shape[1],
        steps.actions.shape[1] if steps.actions.ndim == 2 else None,
        None if steps.foregone is None else steps.foregone.shape[1],
        None if steps.action_masks is None else steps.action_masks.shape[1],
        whole=steps.actions.dtype == torch.int64,
    )


def rows_of_steps(steps: Steps, gamma: float) -> dict[str, Tensor]:
    """Rows (N, ...) of every column, not yet of the column's type."""
    lengths = steps.lengths
    begins = lengths.cumsum(0) - lengths
    timesteps = torch.arange(len(steps)) - torch.repeat_interleave(begins, lengths)
    remaining = torch.repeat_interleave(lengths, lengths) - timesteps
    rows = {
        "observations": steps.observations,
        "actions": steps.actions,
        "rewards": steps.rewards,
        "timesteps": timesteps,
        "remaining": remaining,
        "terminal": torch.repeat_interleave(steps.terminated, lengths) & (remaining == 1),
        "returns_to_go": returns_to_go(steps.rewards.double(), remaining, gamma),
    }
    told = {"foregone": steps.foregone, "action_masks": steps.action_masks}
    return rows | {name: values for name, values in told.items() if values is not None}
