"""Numbers that describe trajectories: returns, lengths, the spread of states, and what was still to come."""

from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

ROWS = 2**17
"""Rows converted to float64 at a time: bounds the memory."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """As ODT has them: population standard deviations; states are standardised by `state_mean` and `state_std`."""

    steps: int
    trajectories: int
    return_mean: float
    return_std: float
    return_min: float
    return_max: float
    length_mean: float
    state_mean: Tensor = field(repr=False)  # (obs,) float32
    state_std: Tensor = field(repr=False)  # (obs,) float32; 1e-6 is added, so that constant states divide by no zero

    def summary(self) -> dict[str, float]:
        """The plain numbers among them."""
        return {item.name: getattr(self, item.name) for item in fields(self) if not item.name.startswith("state")}


def statistics_of(observations: Tensor, returns: Tensor) -> Statistics:
    """observations: (N, obs), returns: (trajectories,)."""
    N, obs = observations.shape
    total, square = torch.zeros(2, obs, dtype=torch.float64)
    for part in observations.split(ROWS):
        total += part.double().sum(0).cpu()
    mean = total / N
    for part in observations.split(ROWS):
        square += (part.double() - mean.to(part.device)).square_().sum(0).cpu()
    return Statistics(
        steps=N,
        trajectories=len(returns),
        return_mean=float(returns.mean()),
        return_std=float(returns.std(correction=0)),
        return_min=float(returns.min()),
        return_max=float(returns.max()),
        length_mean=N / len(returns),
        state_mean=mean.float(),
        state_std=((square / N).sqrt() + 1e-6).float(),
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
