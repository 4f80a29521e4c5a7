"""Gymnasium spaces -> what a policy needs to know about them; actions between the environment's units and [-1, 1]."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mental_accounts.accounts.precision import FullPrecisionModule, full_precision
from mental_accounts.action_masks import choices_of
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
    """A Box with finite bounds, Discrete, MultiDiscrete or MultiBinary; others are refused, with what to do."""
    from gymnasium import spaces  # a policy itself needs no environments

    if isinstance(space, spaces.Discrete):
        return ActionSpec("discrete", int(space.n), start=int(space.start))
    if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        if len(space.shape) != 1:
            raise ValueError(
                f"action_space must be a flat MultiDiscrete or MultiBinary (n,), got shape {space.shape}; "
                "gymnasium.wrappers.TransformAction gives the environment a flat one"
            )
        values, starts = choices_of(space), tuple(map(int, getattr(space, "start", np.zeros(space.shape))))
        return ActionSpec("multi-discrete", sum(values), values=values, starts=starts)
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"action_space must be Box, Discrete, MultiDiscrete or MultiBinary, got {space}; make it one of these with "
            "gymnasium.wrappers.TransformAction"
        )
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
    """Actions of the environment <-> actions of the policy: [-1, 1] per dimension, or whole numbers from 0."""

    low: Tensor
    high: Tensor
    middle: Tensor
    half_range: Tensor
    first: Tensor
    offsets: Tensor

    def __init__(self, spec: ActionSpec) -> None:
        super().__init__()
        self.spec = spec
        low, high = torch.tensor(spec.low, dtype=torch.float64), torch.tensor(spec.high, dtype=torch.float64)
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)
        self.register_buffer("middle", (high + low) / 2, persistent=False)
        self.register_buffer("half_range", (high - low) / 2, persistent=False)
        starts = spec.starts if spec.kind == "multi-discrete" else spec.start
        first = torch.tensor(starts) if spec.is_discrete else torch.zeros(spec.size)
        self.register_buffer("first", first, persistent=False)  # what stands where there is no action
        self.register_buffer("offsets", torch.tensor((0, *spec.choices[:-1])).cumsum(0), persistent=False)

    def to_unit(self, actions: Tensor) -> Tensor:
        """Environment -> policy: (..., dim) floats in [-1, 1], or (...) or (..., numbers) int64 from 0."""
        if self.spec.is_discrete:
            return actions.long() - (self.spec.start if self.spec.kind == "discrete" else self.first)
        actions = full_precision(actions)
        return (actions - self.middle.to(actions)) / self.half_range.to(actions)

    def places(self, actions: Tensor) -> Tensor:
        """The place of each number of discrete actions, in the policy's units, among all values: (..., numbers)."""
        return actions + self.offsets if self.spec.kind == "multi-discrete" else actions.unsqueeze(-1)

    def from_unit(self, actions: Tensor) -> Tensor:
        """Policy -> environment, clamped to the bounds despite rounding."""
        if self.spec.is_discrete:
            return actions + (self.spec.start if self.spec.kind == "discrete" else self.first)
        scaled = actions * self.half_range.to(actions) + self.middle.to(actions)
        return scaled.clamp(self.low.to(actions), self.high.to(actions))
