"""Gymnasium spaces -> what a policy needs to know about them; actions between the environment's units and [-1, 1]."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mental_accounts.accounts.precision import FullPrecisionModule, full_precision
from mental_accounts.action_spec import ActionSpec
from mental_accounts.flattening import parts_of

if TYPE_CHECKING:
    import gymnasium

MOST_DIMENSIONS = 10**6
"""Most dimensions of a box of actions: the bounds of each are stored."""


def state_dim_of(space: "gymnasium.Space[Any]") -> int:
    """The size of observations as flat vectors (flattening.py); spaces that have none are refused."""
    return sum(part.size for part in parts_of(space))


def action_spec_of(space: "gymnasium.Space[Any]") -> ActionSpec:
    """A Box with finite bounds, or Discrete; anything else is refused, with what to do about it."""
    from gymnasium import spaces  # a policy itself needs no environments

    if isinstance(space, spaces.Discrete):
        return ActionSpec("discrete", int(space.n), start=int(space.start))
    if not isinstance(space, spaces.Box):
        raise ValueError(f"action_space must be Box or Discrete, got {space}")
    if len(space.shape) != 1 or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(f"action_space must be a flat Box of floats (n,), got {space.dtype} {space.shape}")
    if space.shape[0] > MOST_DIMENSIONS:
        raise ValueError(f"action_space must have at most {MOST_DIMENSIONS:,} dimensions, got {space.shape[0]:,}")
    if not space.is_bounded():
        raise ValueError(
            f"action_space must be bounded on both sides, got low={space.low}, high={space.high}; "
            "gymnasium.wrappers.TransformAction(env, lambda a: a, gymnasium.spaces.Box(-1, 1, env.action_space.shape)) "
            "gives it bounds"
        )
    return ActionSpec("box", int(space.shape[0]), tuple(space.low.tolist()), tuple(space.high.tolist()))


class ActionScale(FullPrecisionModule):
    """Actions of the environment <-> actions of the policy: [-1, 1] per dimension, or numbers from 0."""

    low: Tensor
    high: Tensor
    middle: Tensor
    half_range: Tensor

    def __init__(self, spec: ActionSpec) -> None:
        super().__init__()
        self.spec = spec
        low, high = torch.tensor(spec.low, dtype=torch.float64), torch.tensor(spec.high, dtype=torch.float64)
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)
        self.register_buffer("middle", (high + low) / 2, persistent=False)
        self.register_buffer("half_range", (high - low) / 2, persistent=False)

    def to_unit(self, actions: Tensor) -> Tensor:
        """Environment -> policy: (..., dim) floats in [-1, 1], or (...) int64 from 0."""
        if self.spec.is_discrete:
            return actions.long() - self.spec.start
        actions = full_precision(actions)
        return (actions - self.middle.to(actions)) / self.half_range.to(actions)

    def values_taken(self, actions: Tensor) -> Tensor:
        """Discrete actions of the environment -> the place of each number among all values: (...) -> (..., numbers)."""
        return self.to_unit(actions).unsqueeze(-1)

    def from_unit(self, actions: Tensor) -> Tensor:
        """Policy -> environment, clamped to the bounds despite rounding."""
        if self.spec.is_discrete:
            return actions + self.spec.start
        scaled = actions * self.half_range.to(actions) + self.middle.to(actions)
        return scaled.clamp(self.low.to(actions), self.high.to(actions))
