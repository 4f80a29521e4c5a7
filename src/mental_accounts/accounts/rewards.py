"""Reward -> r̃, the payoff that is entered in an account: centred or standardised on data, then clipped to ±R."""

from typing import Self, get_args

import torch
from torch import Tensor

from mental_accounts.account_kinds import RewardKind
from mental_accounts.accounts.precision import FullPrecisionModule, full_precision
from mental_accounts.checks import check_finite, check_positive


class RewardTransform(FullPrecisionModule):
    """r̃ = clip((r - mean) / std, ±clip). A module, so that it moves and is saved with the model.

    The paper mentions "centred/clipped" rewards but gives no numbers, and its Algorithm 1 enters raw rewards. With a
    clip at R an attraction is bounded by δR/φ (Proposition 1), whatever the rewards.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, kind: RewardKind = "raw", mean: float = 0.0, std: float = 1.0, clip: float | None = None
    ) -> None:
        if kind not in get_args(RewardKind):
            raise ValueError(f"kind must be one of {list(get_args(RewardKind))}, got {kind!r}")
        check_finite("mean", torch.tensor(float(mean)))
        check_positive("std", std)
        super().__init__()
        self.kind: RewardKind = kind
        self.clip = None if clip is None else check_positive("clip", clip)
        self.register_buffer("mean", torch.tensor(0.0 if kind == "raw" else float(mean), dtype=torch.float64))
        self.register_buffer("std", torch.tensor(float(std) if kind == "standardised" else 1.0, dtype=torch.float64))

    @classmethod
    def fit(cls, rewards: Tensor, kind: RewardKind = "standardised", clip: float | None = 1.0) -> Self:
        """Take mean and standard deviation from data; constant rewards keep a standard deviation of 1."""
        if rewards.numel() == 0:
            raise ValueError("rewards must hold at least one reward to fit a transform, got none")
        check_finite("rewards", rewards)
        values = rewards.detach().double()
        std = float(values.std(correction=0))
        return cls(kind, mean=float(values.mean()), std=std if std > 0 else 1.0, clip=clip)

    def forward(self, rewards: Tensor) -> Tensor:
        """(...) -> (...), in float32, or in float64 if the rewards are."""
        transformed = full_precision(rewards)
        if self.kind != "raw":
            transformed = (transformed - self.mean.to(transformed.dtype)) / self.std.to(transformed.dtype)
        return transformed if self.clip is None else transformed.clamp(-self.clip, self.clip)

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}, mean={float(self.mean):.4g}, std={float(self.std):.4g}, clip={self.clip}"
