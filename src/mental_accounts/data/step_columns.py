"""The columns of a store: what a row of each holds, and those that follow from the others."""

import torch
from torch import Tensor

from mental_accounts.data.data_checks import Steps
from mental_accounts.data.description import returns_to_go
from mental_accounts.data.storage import Column


def columns_of(obs_dim: int, action_dim: int | None, foregone: int | None) -> dict[str, Column]:
    """The columns of a step; `action_dim` None means discrete actions, `foregone` is the number of their rewards.

    `remaining` counts the steps to the trajectory's end, including the step itself. `terminal` is True at a
    trajectory's last step, if it ended in a terminal state.
    """
    columns = {
        "observations": Column((obs_dim,), torch.float32),
        "actions": Column((), torch.int64) if action_dim is None else Column((action_dim,), torch.float32),
        "rewards": Column((), torch.float32),
        "timesteps": Column((), torch.int32),
        "remaining": Column((), torch.int32),
        "terminal": Column((), torch.bool),
        "returns_to_go": Column((), torch.float32),
    }
    return columns if foregone is None else columns | {"foregone": Column((foregone,), torch.float32)}


NAMES = tuple(columns_of(1, 1, 1))
"""Of all of them; a store that is annotated has more."""


def columns_for(steps: Steps) -> dict[str, Column]:
    """The columns that hold these steps."""
    return columns_of(
        steps.observations.shape[1],
        steps.actions.shape[1] if steps.actions.ndim == 2 else None,
        None if steps.foregone is None else steps.foregone.shape[1],
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
    return rows if steps.foregone is None else rows | {"foregone": steps.foregone}
