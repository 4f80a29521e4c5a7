"""Which return to ask a policy for, where no table says: what the data show can be reached, outliers aside."""

from dataclasses import dataclass

from torch import Tensor

TOP_SHARE = 0.05
"""Of the episodes: so many may have a return above the one that is asked for."""
LARGE_SHARE = 0.01
"""Of the steps: so many may have a return-to-go larger than the one that is scaled to 1."""


@dataclass(frozen=True)
class AskedReturns:
    """The returns that a policy is asked for."""

    evaluation: float
    """In evaluation: a return of the data that 5% of the episodes exceed, or the second best of fewer than 21. The best
    episode may be one of luck, or of an easy start."""
    exploration: float
    """While exploring: as far above the former as that is above the median, but no more than the best episode had."""


def asked_returns(returns: Tensor) -> AskedReturns:
    """By the returns of episodes, (trajectories,); the signs of rewards play no part."""
    known = returns.double()
    evaluation = _quantile(known, 1 - TOP_SHARE)
    return AskedReturns(evaluation, min(2 * evaluation - _quantile(known, 0.5), float(known.max())))


def return_scale(returns_to_go: Tensor) -> float:
    """One over the largest return-to-go by absolute value, (steps,), the largest hundredth left out."""
    return 1.0 / max(_quantile(returns_to_go.abs().double(), 1 - LARGE_SHARE), 1e-6)


def return_range(returns_to_go: Tensor) -> tuple[float, float]:
    """The smallest and the largest return-to-go, (steps,)."""
    return float(returns_to_go.min()), float(returns_to_go.max())


def _quantile(values: Tensor, share: float) -> float:
    """The largest of the values that has no more than this share of the others below it; for any number of them."""
    return float(values.kthvalue(int(share * (len(values) - 1)) + 1).values)


def describe_range(returns: Tensor) -> str:
    """The returns of episodes in a line."""
    low, middle, top, high = (_quantile(returns.double(), share) for share in (0.0, 0.5, 1 - TOP_SHARE, 1.0))
    return f"{low:.4g} to {high:.4g}, median {middle:.4g}, 95% at most {top:.4g}"


def is_far_outside(asked: float, returns: Tensor) -> bool:
    """Whether a return lies further from all of the data's than half of their range, or a tenth of the largest."""
    low, high = return_range(returns)
    margin = max(0.5 * (high - low), 0.1 * max(abs(low), abs(high)))
    return not low - margin <= asked <= high + margin
