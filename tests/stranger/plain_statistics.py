"""Student's tests and intervals with NumPy alone, as docs/compare.md describes them."""

import math
from itertools import combinations
from typing import Any

import numpy as np

FEWEST, MOST_COUNTED, DRAWS = 5, 11, 400_000
"""Seeds for an interval; seeds of which all samples are counted; random samples of more."""
POWER = 0.8


def beta_share(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun, 26.5.8)."""
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_share(b, a, 1.0 - x)
    if x == 0.0:
        return 0.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    fraction = 1.0
    for m in range(300, 0, -1):  # from the inside out
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1))
        fraction = 1.0 + odd / (1.0 + even / fraction)
    return front / fraction


def two_sided(t: float, freedom: float) -> float:
    """P(|T| > |t|)."""
    return beta_share(freedom / 2, 0.5, freedom / (freedom + t * t))


def quantile(share: float, freedom: float) -> float:
    """The t with P(T < t) = share, for shares above a half."""
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - two_sided(middle, freedom) / 2 < share else (low, middle)
    return low


# Means, differences, tests: of (tasks, seeds) numbers.


def standard_error(data: np.ndarray) -> tuple[float, float]:
    """Of the mean over tasks, and its degrees of freedom by Welch."""
    tasks, seeds = data.shape
    squares = data.var(axis=1, ddof=1) / seeds
    total = float(squares.sum())
    return math.sqrt(total) / tasks, total**2 / float((squares**2).sum()) * (seeds - 1) if total else seeds - 1.0


def interval(values: Any) -> dict[str, float | None]:
    """A mean and its interval: on each side the wider of Student's and bootstrap-t, at most twice Student's.

    `within` is how far an end may be off where samples are random: 3% of the width.
    """
    data = np.atleast_2d(np.asarray(values, float))
    tasks, seeds = data.shape
    mean = float(data.mean())
    if seeds < FEWEST:
        return {"estimate": mean, "low": None, "high": None}
    error, freedom = standard_error(data)
    if error == 0:
        return {"estimate": mean, "low": mean, "high": mean}
    counts, weights = samples(tasks, seeds)
    means = np.einsum("bts,ts->bt", counts, data) / seeds
    spreads = np.einsum("bts,bts->bt", counts, (data[None] - means[..., None]) ** 2) / seeds
    errors = np.sqrt(spreads.sum(axis=1) / (seeds - 1)) / tasks
    there = errors > 1e-6 * error
    t, weights = (means.mean(axis=1) - mean)[there] / errors[there], weights[there]
    order = np.argsort(t)
    until = np.cumsum(weights[order]) - weights[order] / 2
    left, right = np.interp([0.025, 0.975], until / weights.sum(), t[order])
    student = quantile(0.975, freedom)
    below, above = (error * min(max(end, student), 2 * student) for end in (right, -left))
    found: dict[str, float | None] = {"estimate": mean, "low": mean - below, "high": mean + above}
    is_random = tasks > 1 or seeds > MOST_COUNTED
    return found | ({"within": 0.03 * (below + above)} if is_random else {})


_SAMPLES: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}


def samples(tasks: int, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each seed is drawn, (samples, tasks, seeds), and how likely that is: all there are, or random ones."""
    if (tasks, seeds) not in _SAMPLES:
        if tasks == 1 and seeds <= MOST_COUNTED:  # bars between stars
            bars = np.array(list(combinations(range(2 * seeds - 1), seeds - 1)))
            ends = np.concatenate([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), 2 * seeds - 1)], axis=1)
            counts = np.diff(ends, axis=1) - 1
            logs = np.array([math.lgamma(count + 1) for count in range(seeds + 1)])
            weights = np.exp(logs[seeds] - logs[counts].sum(axis=1) - seeds * math.log(seeds))
            _SAMPLES[tasks, seeds] = counts[:, None].astype(float), weights
        else:
            rng, most = np.random.default_rng(20_261_118), min(DRAWS, 20_000_000 // (tasks * seeds))
            counts = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=(most, tasks))
            _SAMPLES[tasks, seeds] = counts.astype(float), np.full(most, 1 / most)
    return _SAMPLES[tasks, seeds]


def p_value(ours: Any, theirs: Any) -> float | None:
    """Student's t-test of paired runs."""
    data = np.atleast_2d(np.asarray(ours, float) - np.asarray(theirs, float))
    if data.shape[1] < FEWEST:
        return None
    mean, (error, freedom) = float(data.mean()), standard_error(data)
    if mean == 0:
        return 1.0
    return 2.0 ** (1 - data.size) if error <= 1e-12 * abs(mean) else two_sided(mean / error, freedom)


def holm(p: list[float | None], weights: list[float] | None = None) -> list[float | None]:
    """Corrected p-values: step by step from the smallest p for its weight."""
    share = [1.0] * len(p) if weights is None else weights
    left = {place: value for place, value in enumerate(p) if value is not None}
    found: list[float | None] = [None] * len(p)
    highest = 0.0
    while left:
        first = min(left, key=lambda place: left[place] / share[place])
        highest = max(highest, left[first] / share[first] * sum(share[place] for place in left))
        found[first] = min(highest, 1.0)
        del left[first]
    return found


def detectable(ours: Any, theirs: Any, level: float) -> float | None:
    """The true difference that the test would find with a probability of 80%: T is noncentral then."""
    data = np.atleast_2d(np.asarray(ours, float) - np.asarray(theirs, float))
    if data.shape[1] < FEWEST:
        return None
    error, freedom = standard_error(data)
    critical = quantile(1 - level / 2, freedom)
    s = np.linspace(1e-6, 1 + 12 / math.sqrt(2 * freedom), 3_000)  # the ratio of estimated and true spread
    density = np.exp((freedom - 1) * np.log(s) - freedom * s * s / 2)
    density /= density.sum()
    low, high = 0.0, 100.0
    for _ in range(50):
        middle = (low + high) / 2
        missed = float((density * [(1 + math.erf((critical * x - middle) / math.sqrt(2))) / 2 for x in s]).sum())
        low, high = (middle, high) if missed > 1 - POWER else (low, middle)
    return low * error
