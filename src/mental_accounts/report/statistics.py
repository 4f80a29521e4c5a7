"""Statistics of runs: averages as in the paper, robust means, and intervals. NumPy with explicit seeds.

A *study* compares two methods on one or more tasks, run with the same seeds: arrays (seeds,) or (tasks, seeds), paired.
Intervals are bootstrapped by resampling seeds within each task; below five seeds there is none. For a mean, each side
is the wider of Student's and a studentised bootstrap interval, but at most twice as wide as Student's: with few seeds
and skewed returns Student's covers too little, and with clumped returns a studentised bootstrap has no bound.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # scipy.stats takes most of a second to import

from mental_accounts.report.resampling import resample

Array = NDArray[np.float64]
RESAMPLES = 500_000
"""So many that another seed moves an end by less than 1% of the width. Of up to eleven seeds all samples are taken."""
FEWEST_SEEDS = 5
"""With fewer seeds there are neither intervals nor tests."""
WIDEST_SIDE = 2.0
"""How far a bootstrap may widen a side of Student's interval."""
ROUNDING = 1e-12
"""Differences of this share of the largest value are rounding, which machines do differently."""


@dataclass(frozen=True)
class Interval:
    """An estimate with an interval that covers the true value in a share `confidence` of studies."""

    estimate: float
    low: float
    high: float
    confidence: float = 0.95

    @property
    def is_known(self) -> bool:
        """Whether there are enough seeds for an interval; else it is infinite."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def paper_average(runs: ArrayLike) -> float:
    """The paper's number for a table: (seeds, steps) averaged over seeds at each step, then over steps.

    Seeds without a value at a step (NaN) are ignored at that step.
    """
    values = _finite_somewhere(np.atleast_2d(np.asarray(runs, dtype=np.float64)))
    return float(np.nanmean(np.nanmean(values, axis=0)))


def relative_change(ours: float, baseline: float) -> float:
    """Relative change from the baseline in per cent, as in the paper's tables."""
    if baseline == 0:
        return math.nan
    return 100.0 * (ours - baseline) / abs(baseline)


def geometric_mean(values: ArrayLike) -> float:
    """The geometric mean; NaN if a value is not positive."""
    found = _values(values)
    return float(np.exp(np.log(found).mean())) if (found > 0).all() else math.nan


def interquartile_mean(values: ArrayLike) -> float:
    """IQM: the mean of the middle half of all values; robust, and statistically more efficient than the median."""
    found = _values(values)
    return float(_middle_means(found, np.ones((1, len(found)), np.float32))[0])


def area_under_curve(steps: ArrayLike, values: ArrayLike) -> float:
    """The mean height of a learning curve over its steps (trapezoidal rule); the value itself for a single point."""
    x, y = _values(steps), _values(values)
    if len(x) != len(y):
        raise ValueError(f"steps and values must have the same length, got {len(x)} and {len(y)}")
    if len(x) == 1:
        return float(y[0])
    if (np.diff(x) <= 0).any():
        raise ValueError("steps must be increasing")
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum() / (x[-1] - x[0]))  # np.trapezoid came with NumPy 2


def mean_interval(
    values: ArrayLike, *, seed: int = 0, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Interval:
    """The mean over tasks of the mean over seeds, (seeds,) or (tasks, seeds), with its interval."""
    return _studentised(checked_study(values, confidence, resamples), seed, confidence, resamples)


def difference_interval(
    ours: ArrayLike, baseline: ArrayLike, *, seed: int = 0, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Interval:
    """The mean difference of paired runs, ours minus baseline: (seeds,) or (tasks, seeds) each."""
    one, other = checked_pairs(ours, baseline, confidence, resamples)
    return _studentised(one - other, seed, confidence, resamples)


def iqm_interval(values: ArrayLike, *, seed: int = 0, confidence: float = 0.95, resamples: int = RESAMPLES) -> Interval:
    """IQM over all runs of all tasks with a bias-corrected and accelerated (BCa) interval, stratified by task."""
    data = checked_study(values, confidence, resamples)
    tasks, seeds = data.shape
    estimate = interquartile_mean(data)
    if seeds < FEWEST_SEEDS:
        return no_interval(estimate, confidence)
    samples = resample(tasks, seeds, resamples, seed)
    boot = _middle_means(data.ravel(), samples.counts.reshape(-1, tasks * seeds))
    left_out = [
        interquartile_mean(np.delete(data.ravel(), task * seeds + run)) for task in range(tasks) for run in range(seeds)
    ]
    equal = np.abs(boot - estimate) <= ROUNDING * np.abs(data).max()  # however this machine adds up
    share = samples.share(np.where(equal, 0.5, boot < estimate))
    if not 0.0 < share < 1.0:
        return Interval(estimate, float(boot.min()), float(boot.max()), confidence)
    low, high = samples.quantiles(boot, _bca_shares(share, np.array(left_out), confidence)).tolist()
    return Interval(estimate, low, high, confidence)


def probability_of_improvement(
    ours: ArrayLike, baseline: ArrayLike, *, seed: int = 0, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Interval:
    """P(a run of ours beats a run of the baseline), ties counting half, averaged over tasks.

    Seeds are resampled in pairs. A percentile interval, since the estimate is in [0, 1].
    """
    one, other = checked_pairs(ours, baseline, confidence, resamples)
    tasks, seeds = one.shape
    wins = (one[:, :, None] > other[:, None, :]) + 0.5 * (one[:, :, None] == other[:, None, :])  # (tasks, seeds, seeds)
    estimate = float(wins.mean())
    if seeds < FEWEST_SEEDS:
        return no_interval(estimate, confidence)
    samples = resample(tasks, seeds, resamples, seed)
    counts = [samples.counts[:, task] for task in range(tasks)]
    boot = sum((mine @ won * mine).sum(axis=1) for mine, won in zip(counts, wins, strict=True)) / wins.size
    low, high = samples.quantiles(boot, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    return Interval(estimate, low, high, confidence)


def no_interval(estimate: float, confidence: float = 0.95) -> Interval:
    """An estimate from too few seeds for an interval."""
    return Interval(estimate, -math.inf, math.inf, confidence)


def standard_error(data: Array) -> tuple[float, float]:
    """The standard error of the mean of (tasks, seeds) and its degrees of freedom; tasks differ in variance (Welch)."""
    tasks, seeds = data.shape
    squares = data.var(axis=1, ddof=1) / seeds
    total = float(squares.sum())
    if total == 0.0:
        return 0.0, float(tasks * (seeds - 1))
    return math.sqrt(total) / tasks, total**2 / float((squares**2).sum()) * (seeds - 1)


def _studentised(data: Array, seed: int, confidence: float, resamples: int) -> Interval:
    """Bootstrap-t: (resampled mean - mean) / its standard error in place of Student's t, between 1 and 2 times that."""
    tasks, seeds = data.shape
    estimate = float(data.mean())
    if seeds < FEWEST_SEEDS:
        return no_interval(estimate, confidence)
    error, freedom = standard_error(data)
    if error == 0.0:
        return Interval(estimate, estimate, estimate, confidence)
    student = float(special.stdtrit(freedom, (1 + confidence) / 2))
    samples = resample(tasks, seeds, resamples, seed)
    centred = data - data.mean(axis=1, keepdims=True)
    shifts, squares = (np.einsum("bts,ts->bt", samples.counts, part) / seeds for part in (centred, centred**2))
    errors = np.sqrt(np.maximum(squares - shifts**2, 0.0).sum(axis=1) / (seeds - 1)) / tasks
    usable = errors > 1e-6 * error  # a sample with only one distinct run has no spread
    t = shifts.mean(axis=1)[usable] / errors[usable]
    left, right = samples.only(usable).quantiles(t, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    below = error * min(max(right, student), WIDEST_SIDE * student)
    above = error * min(max(-left, student), WIDEST_SIDE * student)
    return Interval(estimate, estimate - below, estimate + above, confidence)


def _bca_shares(share: float, left_out: Array, confidence: float) -> Array:
    """The quantiles that bound a BCa interval; `share` of the bootstrap's values are below the estimate."""
    correction = special.ndtri(share)
    centred = left_out.mean() - left_out
    spread = float((centred**2).sum())
    acceleration = 0.0 if spread == 0.0 else float((centred**3).sum()) / (6 * spread**1.5)
    z = special.ndtri(np.array([(1 - confidence) / 2, (1 + confidence) / 2]))
    found: Array = special.ndtr(correction + (correction + z) / (1 - acceleration * (correction + z)))
    return found


def _middle_means(values: Array, counts: NDArray[np.float32]) -> Array:
    """The mean of the middle half of (n,) values that occur `counts` (samples, n) times each: (samples,).

    A fractional quarter is rounded down. Numbers are added one after the other: the last bits of a matrix product
    differ between machines, and samples with the same middle half must have the same mean.
    """
    order = np.argsort(values)
    ends = np.cumsum(counts[:, order], axis=1)
    total = int(ends[0, -1])
    inside = np.clip(ends, total // 4, total - total // 4)
    kept = np.diff(inside, axis=1, prepend=total // 4)
    sums = np.zeros(len(counts))
    for place, value in enumerate(values[order]):
        sums += kept[:, place] * value
    found: Array = sums / (total - 2 * (total // 4))
    return found


def checked_study(values: ArrayLike, confidence: float = 0.95, resamples: int = 1) -> Array:
    """Runs as (tasks, seeds) of finite numbers."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, as in 0.95, got {confidence}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    data = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if data.ndim != 2 or data.shape[1] == 0:
        raise ValueError(f"runs must be an array (seeds,) or (tasks, seeds) with at least one seed, got {data.shape}")
    if not np.isfinite(data).all():
        task, run = (int(i) for i in np.argwhere(~np.isfinite(data))[0])
        raise ValueError(f"runs must be finite, but task {task}, seed {run} has {data[task, run]}")
    return data


def checked_pairs(
    ours: ArrayLike, baseline: ArrayLike, confidence: float = 0.95, resamples: int = 1
) -> tuple[Array, Array]:
    """Runs of two methods, paired by task and seed: (tasks, seeds) each."""
    one, other = checked_study(ours, confidence, resamples), checked_study(baseline)
    if one.shape != other.shape:
        raise ValueError(f"runs must be paired by task and seed, got {one.shape} and {other.shape}")
    return one, other


def _values(values: ArrayLike) -> Array:
    found = np.asarray(values, dtype=np.float64).ravel()
    if found.size == 0 or not np.isfinite(found).all():
        raise ValueError(f"values must be finite numbers, at least one, got {found}")
    return found


def _finite_somewhere(values: Array) -> Array:
    if values.size == 0 or np.isnan(values).all(axis=0).any():
        raise ValueError("every step needs at least one seed with a value")
    return values
