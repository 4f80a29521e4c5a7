"""Target returns for tasks without published ones: what the data show to be reachable, ignoring outliers."""

from dataclasses import dataclass

from torch import Tensor

TOP_SHARE = 0.05
"""Share of episodes whose return exceeds the evaluation target."""
LARGE_SHARE = 0.01
"""Share of steps whose return-to-go exceeds the one that is scaled to 1."""


@dataclass(frozen=True)
class AskedReturns:
    """The target returns of a policy."""

    evaluation: float
    """In evaluation: a return in the data that 5% of the episodes exceed, or the second best of fewer than 21. The best
    episode may be luck, or an easy start."""
    exploration: float
    """While exploring: as far above the evaluation target as that is above the median, but at most the best return."""


def asked_returns(returns: Tensor) -> AskedReturns:
    """From the returns of episodes, (trajectories,); works for rewards of either sign."""
    known = returns.double()
    evaluation = _quantile(known, 1 - TOP_SHARE)
    return AskedReturns(evaluation, min(2 * evaluation - _quantile(known, 0.5), float(known.max())))


def return_scale(returns_to_go: Tensor) -> float:
    """1 over the largest absolute return-to-go, (steps,), ignoring the largest 1% unless all others are 0."""
    sizes = returns_to_go.abs().double()
    return 1.0 / (_quantile(sizes, 1 - LARGE_SHARE) or float(sizes.max()) or 1.0)


def return_range(returns_to_go: Tensor) -> tuple[float, float]:
    """The smallest and the largest return-to-go, (steps,)."""
    return float(returns_to_go.min()), float(returns_to_go.max())


def _quantile(values: Tensor, share: float) -> float:
    """A quantile that is one of the values (the lower neighbour); for any number of them."""
    return float(values.kthvalue(int(share * (len(values) - 1)) + 1).values)


def describe_range(returns: Tensor) -> str:
    """The distribution of episode returns, in one line."""
    low, middle, top, high = (_quantile(returns.double(), share) for share in (0.0, 0.5, 1 - TOP_SHARE, 1.0))
    return f"{low:.4g} to {high:.4g}, median {middle:.4g}, 95% at most {top:.4g}"


def is_far_outside(asked: float, returns: Tensor) -> bool:
    """Whether a return is outside the data's range by more than half that range and a tenth of the largest return."""
    low, high = return_range(returns)
    margin = max(0.5 * (high - low), 0.1 * max(abs(low), abs(high)))
    return not low - margin <= asked <= high + margin
