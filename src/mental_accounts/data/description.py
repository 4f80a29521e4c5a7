"""Numbers that describe trajectories: returns and lengths, and returns-to-go."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Statistics:
    """Of whole trajectories, with population standard deviations as ODT has them."""

    steps: int
    trajectories: int
    return_mean: float
    return_std: float
    return_min: float
    return_max: float
    length_mean: float

    def summary(self) -> dict[str, float]:
        """By name."""
        return asdict(self)


def statistics_of(steps: int, returns: Tensor) -> Statistics:
    """Of so many steps in trajectories with these returns (trajectories,)."""
    return Statistics(
        steps=steps,
        trajectories=len(returns),
        return_mean=float(returns.mean()),
        return_std=float(returns.std(correction=0)),
        return_min=float(returns.min()),
        return_max=float(returns.max()),
        length_mean=steps / len(returns),
    )


def returns_to_go(rewards: Tensor, remaining: Tensor, gamma: float) -> Tensor:
    """g_t = Σ_{τ >= t} γ^(τ-t) r_τ for many trajectories one after the other: (N,), (N,) -> (N,).

    After round k every step holds the sum over its next 2^k steps, so log2 of the longest trajectory rounds are enough.
    """
    sums = rewards.clone()
    span, longest = 1, int(remaining.max())
    while span < longest:
        ahead = sums[span:] if gamma == 1 else sums[span:] * gamma**span
        later = torch.where(remaining[:-span] > span, ahead, 0.0)
        sums[:-span] += later
        span *= 2
    return sums
