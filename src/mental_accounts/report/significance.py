"""Tests of paired differences: p-values, Holm's correction, verdicts, and what a study could have detected.

The test is Student's for the mean difference of paired runs. A sign-flip test would assume less, but with five seeds it
cannot come below 0.06, however large the difference.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mental_accounts.report.statistics import FEWEST_SEEDS, checked_pairs, standard_error

Verdict = Literal["helps", "hurts", "no difference detected", "too few seeds"]
LEVEL, POWER = 0.05, 0.8
Key = TypeVar("Key")


def paired_p_value(ours: ArrayLike, baseline: ArrayLike) -> float:
    """Two-sided t-test of a zero mean difference of paired runs, (seeds,) or (tasks, seeds); NaN below five seeds.

    If all differences are equal they have no spread to compare with, and only their signs are evidence: 2 / 2^runs.
    """
    one, other = checked_pairs(ours, baseline)
    differences = one - other
    if differences.shape[1] < FEWEST_SEEDS:
        return math.nan
    mean = float(differences.mean())
    error, freedom = standard_error(differences)
    if mean == 0.0:
        return 1.0
    if error <= 1e-12 * abs(mean):
        return 2.0 ** (1 - differences.size)
    return float(2 * special.stdtr(freedom, -abs(mean) / error))


def detectable_difference(ours: ArrayLike, baseline: ArrayLike, *, level: float = LEVEL, power: float = POWER) -> float:
    """The true mean difference that `paired_p_value` would call with this probability, given the runs' spread.

    With several tests, `level` is to be divided by their number. NaN below five seeds.
    """
    if not (0.0 < level < power < 1.0):
        raise ValueError(f"level and power must be between 0 and 1, the level below the power, got {level} and {power}")
    one, other = checked_pairs(ours, baseline)
    if one.shape[1] < FEWEST_SEEDS:
        return math.nan
    error, freedom = standard_error(one - other)
    critical = special.stdtrit(freedom, 1 - level / 2)
    return float(special.nctdtrinc(freedom, 1 - power, critical)) * error


def holm(p_values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Holm's correction for several tests: adjusted p-values, in the same order. NaN is no test, and stays.

    With weights, tests of larger weight are corrected less; the probability of any false claim stays the same.
    """
    p = np.asarray(p_values, dtype=np.float64)
    share = np.ones_like(p) if weights is None else np.asarray(weights, dtype=np.float64)
    made = ~np.isnan(p)
    if p.ndim != 1 or not ((p[made] >= 0) & (p[made] <= 1)).all():
        raise ValueError(f"p-values must be numbers in [0, 1], got {list(p_values)}")
    if share.shape != p.shape or not (share > 0).all():
        raise ValueError(f"weights must be positive, one for each test, got {weights}")
    order = np.flatnonzero(made)[np.argsort(p[made] / share[made], kind="stable")]
    left = np.cumsum(share[order][::-1])[::-1]  # the weight of a test and of all after it
    found = p.copy()
    found[order] = np.minimum(np.maximum.accumulate(p[order] / share[order] * left), 1.0)
    return [float(value) for value in found]


def verdict(difference: float, p_value: float, *, higher_is_better: bool = True, level: float = LEVEL) -> Verdict:
    """What a test says of a difference; the p-value is the corrected one where there are several tests."""
    if math.isnan(p_value):
        return "too few seeds"
    if p_value >= level:
        return "no difference detected"
    return "helps" if (difference > 0) == higher_is_better else "hurts"


@dataclass(frozen=True)
class PairedTest:
    """One of several tests that are made together."""

    p_value: float
    """Of this test alone; NaN below five seeds."""
    corrected: float
    """By Holm over all tests."""
    detectable: float
    """The difference that the study would have detected with a probability of 80%, at this test's share of 5%."""

    def verdict(self, difference: float, *, higher_is_better: bool = True) -> Verdict:
        """Of this test, by the corrected p-value."""
        return verdict(difference, self.corrected, higher_is_better=higher_is_better)


def paired_tests(
    pairs: Mapping[Key, tuple[ArrayLike, ArrayLike]], is_first: Callable[[Key], bool], unmade: int = 0
) -> dict[Key, PairedTest]:
    """All tests of a report, corrected together: ours and the baseline's runs by a key.

    Those that come first, the outcome fixed in advance, have half of the weight together, and all others the other.
    `unmade` tests of the first kind are planned and not made yet: they count as if they had found nothing, so that no
    verdict is lost when they are made.
    """
    p_values = [paired_p_value(*pair) for pair in pairs.values()] + [1.0] * unmade
    ranks = [is_first(key) for key in pairs] + [True] * unmade
    counts = Counter(rank for rank, p in zip(ranks, p_values, strict=True) if not math.isnan(p))
    weights = [1 / (len(counts) * counts[rank]) if counts[rank] else 1.0 for rank in ranks]
    corrected = holm(p_values, weights)
    return {
        key: PairedTest(p, adjusted, detectable_difference(*pair, level=LEVEL * weight))
        for (key, pair), p, adjusted, weight in zip(pairs.items(), p_values, corrected, weights, strict=False)
    }
