"""Statistics of runs: averages as in the paper, robust means, intervals, tests. NumPy with explicit seeds.

A *study* compares two methods on one or more tasks, run with the same seeds: arrays (seeds,) or (tasks, seeds), paired.
Intervals are bootstrapped by resampling seeds within each task. For a mean, each side is the wider of a studentised
bootstrap and Student's interval: with ten seeds and skewed returns, a plain percentile interval covers too little.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # scipy.stats takes most of a second to import

Array = NDArray[np.float64]
Verdict = Literal["helps", "hurts", "cannot tell"]
RESAMPLES = 4_000
FEWEST_TO_RESAMPLE = 5
"""With fewer runs a bootstrap has too little to resample: only Student's interval for a mean, otherwise none."""


@dataclass(frozen=True)
class Interval:
    """An estimate with an interval that covers the true value in a share `confidence` of studies."""

    estimate: float
    low: float
    high: float
    confidence: float = 0.95

    def verdict(self, higher_is_better: bool = True) -> Verdict:
        """The verdict of a difference's interval: on which side of zero it is, or that it cannot tell."""
        if self.low > 0:
            return "helps" if higher_is_better else "hurts"
        if self.high < 0:
            return "hurts" if higher_is_better else "helps"
        return "cannot tell"


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
    return float(_middle_means(_values(values)))


def area_under_curve(steps: ArrayLike, values: ArrayLike) -> float:
    """The mean height of a learning curve over its steps (trapezoidal rule); the value itself for a single point."""
    x, y = _values(steps), _values(values)
    if len(x) != len(y):
        raise ValueError(f"steps and values must have the same length, got {len(x)} and {len(y)}")
    if len(x) == 1:
        return float(y[0])
    if (np.diff(x) <= 0).any():
        raise ValueError("steps must be increasing")
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def mean_interval(
    values: ArrayLike, *, seed: int = 0, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Interval:
    """The mean over tasks of the mean over seeds, (seeds,) or (tasks, seeds), with its interval."""
    data = _study(values, confidence, resamples)
    return _studentised(data, np.random.default_rng(seed), confidence, resamples)


def difference_interval(
    ours: ArrayLike, baseline: ArrayLike, *, seed: int = 0, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Interval:
    """The mean difference of paired runs, ours minus baseline: (seeds,) or (tasks, seeds) each."""
    one, other = _paired(ours, baseline, confidence, resamples)
    return _studentised(one - other, np.random.default_rng(seed), confidence, resamples)


def iqm_interval(values: ArrayLike, *, seed: int = 0, confidence: float = 0.95, resamples: int = RESAMPLES) -> Interval:
    """IQM over all runs of all tasks with a bias-corrected and accelerated (BCa) interval, stratified by task.

    With fewer than five seeds there is no interval: with two, a bootstrap's would cover the true value in only half of
    all studies.
    """
    data = _study(values, confidence, resamples)
    tasks, seeds = data.shape
    if seeds < FEWEST_TO_RESAMPLE:
        return Interval(interquartile_mean(data), -math.inf, math.inf, confidence)
    draws = _draws(data, np.random.default_rng(seed), resamples).reshape(resamples, -1)
    boot = _middle_means(draws)
    left_out = [
        interquartile_mean(np.delete(data.ravel(), task * seeds + run)) for task in range(tasks) for run in range(seeds)
    ]
    return _bca(interquartile_mean(data), boot, np.array(left_out), confidence)


def probability_of_improvement(
    ours: ArrayLike, baseline: ArrayLike, *, seed: int = 0, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Interval:
    """P(a run of ours beats a run of the baseline), ties counting half, averaged over tasks; percentile interval.

    Seeds are resampled in pairs. A percentile interval, since the estimate is in [0, 1]; with fewer than five seeds it
    is all of [0, 1].
    """
    one, other = _paired(ours, baseline, confidence, resamples)
    estimate = float(np.mean([_superiority(a, b) for a, b in zip(one, other, strict=True)]))
    if one.shape[1] < FEWEST_TO_RESAMPLE:
        return Interval(estimate, 0.0, 1.0, confidence)
    rng = np.random.default_rng(seed)
    chosen = rng.integers(one.shape[1], size=(resamples, *one.shape))
    boot = np.zeros(resamples)
    for task in range(one.shape[0]):
        a, b = one[task][chosen[:, task]], other[task][chosen[:, task]]  # (resamples, seeds)
        wins = (a[:, :, None] > b[:, None, :]).mean((1, 2)) + 0.5 * (a[:, :, None] == b[:, None, :]).mean((1, 2))
        boot += wins / one.shape[0]
    low, high = np.quantile(boot, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(estimate, float(low), float(high), confidence)


def paired_p_value(ours: ArrayLike, baseline: ArrayLike, *, seed: int = 0, permutations: int = 2**14) -> float:
    """Two-sided sign-flip test of a zero mean difference: exact if all flips can be tried, else Monte Carlo."""
    one, other = _paired(ours, baseline)
    differences = (one - other).ravel()
    n = len(differences)
    if 2**n <= permutations:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    else:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(permutations, n))
        signs[0] = 1.0  # the study itself is one of the permutations
    observed = abs(differences.mean())
    return float((np.abs(signs @ differences / n) >= observed - 1e-12 * max(observed, 1.0)).mean())


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several tests: adjusted p-values, in the same order."""
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p-values must be numbers in [0, 1], got {list(p_values)}")
    order = np.argsort(p, kind="stable")
    adjusted = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
    found = np.empty_like(p)
    found[order] = np.minimum(adjusted, 1.0)
    return [float(value) for value in found]


def _studentised(data: Array, rng: np.random.Generator, confidence: float, resamples: int) -> Interval:
    """Bootstrap-t: (resampled mean - mean) / its standard error in place of Student's t, or Student's if wider."""
    tasks, seeds = data.shape
    estimate = float(data.mean())
    if seeds < 2:
        return Interval(estimate, -math.inf, math.inf, confidence)  # one run has no spread
    squares = data.var(axis=1, ddof=1) / seeds
    error = math.sqrt(float(squares.sum())) / tasks
    if error == 0.0:  # all runs agree: with few runs that shows nothing, unless the difference is exactly zero
        known = estimate == 0.0 or tasks * seeds >= FEWEST_TO_RESAMPLE
        return Interval(estimate, *((estimate, estimate) if known else (-math.inf, math.inf)), confidence)
    freedom = float(squares.sum() ** 2 / (squares**2).sum()) * (seeds - 1)  # Welch: tasks have different variances
    student = float(special.stdtrit(freedom, (1 + confidence) / 2))
    if tasks * seeds < FEWEST_TO_RESAMPLE:
        return Interval(estimate, estimate - student * error, estimate + student * error, confidence)
    draws = _draws(data, rng, resamples)  # (resamples, tasks, seeds)
    errors = np.sqrt((draws.var(axis=2, ddof=1) / seeds).sum(axis=1)) / tasks
    usable = errors > 1e-6 * error  # a resample with only one distinct run has no spread
    t = (draws.mean(axis=(1, 2))[usable] - estimate) / errors[usable]
    low = min(-student, float(np.quantile(t, (1 - confidence) / 2)))
    high = max(student, float(np.quantile(t, (1 + confidence) / 2)))
    return Interval(estimate, estimate - high * error, estimate - low * error, confidence)


def _bca(estimate: float, boot: Array, left_out: Array, confidence: float) -> Interval:
    share = float(((boot < estimate).sum() + 0.5 * (boot == estimate).sum()) / len(boot))
    if not 0.0 < share < 1.0:
        return Interval(estimate, float(boot.min()), float(boot.max()), confidence)
    correction = special.ndtri(share)
    centred = left_out.mean() - left_out
    spread = float((centred**2).sum())
    acceleration = 0.0 if spread == 0.0 else float((centred**3).sum()) / (6 * spread**1.5)
    z = special.ndtri(np.array([(1 - confidence) / 2, (1 + confidence) / 2]))
    adjusted = special.ndtr(correction + (correction + z) / (1 - acceleration * (correction + z)))
    low, high = np.quantile(boot, adjusted).tolist()
    return Interval(estimate, float(low), float(high), confidence)


def _middle_means(values: Array) -> Array:
    """The mean of the middle half of the last dimension; a fractional quarter is rounded down."""
    n = values.shape[-1]
    kept: Array = np.sort(values)[..., n // 4 : n - n // 4].mean(-1)
    return kept


def _draws(data: Array, rng: np.random.Generator, resamples: int) -> Array:
    """Seeds resampled with replacement within every task: (resamples, tasks, seeds)."""
    tasks, seeds = data.shape
    chosen = rng.integers(seeds, size=(resamples, tasks, seeds))
    return data[np.arange(tasks)[:, None], chosen]


def _superiority(a: Array, b: Array) -> float:
    return float((a[:, None] > b).mean() + 0.5 * (a[:, None] == b).mean())


def _study(values: ArrayLike, confidence: float = 0.95, resamples: int = 1) -> Array:
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


def _paired(ours: ArrayLike, baseline: ArrayLike, confidence: float = 0.95, resamples: int = 1) -> tuple[Array, Array]:
    one, other = _study(ours, confidence, resamples), _study(baseline)
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
