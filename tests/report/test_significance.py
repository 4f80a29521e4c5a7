"""Tests of paired differences: against SciPy, by simulation, and by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from mental_accounts.report.significance import (
    detectable_difference,
    holm,
    paired_p_value,
    paired_tests,
    verdict,
)


def test_the_p_value_is_students() -> None:
    rng = np.random.default_rng(0)
    ours, baseline = rng.normal(size=(2, 10))
    assert paired_p_value(ours, baseline) == pytest.approx(stats.ttest_rel(ours, baseline).pvalue)
    tasks = rng.normal(size=(2, 2, 200)) + np.array([0.1, 0.0])[:, None, None]
    pooled = (tasks[0] - tasks[1]).ravel()  # tasks of equal variance and many seeds: as one
    assert paired_p_value(*tasks) == pytest.approx(stats.ttest_1samp(pooled, 0.0).pvalue, rel=0.1)


@pytest.mark.parametrize("seeds", [5, 10])
def test_no_effect_is_rarely_called_one(seeds: int) -> None:
    rng = np.random.default_rng(1)
    for draw in (rng.standard_normal, lambda size: rng.gamma(1.5, size=size)):
        p = [paired_p_value(draw((seeds,)), draw((seeds,))) for _ in range(2_000)]
        assert 0.02 < np.mean(np.array(p) < 0.05) < 0.065


def test_what_there_is_too_little_of() -> None:
    assert math.isnan(paired_p_value([9.0, 9.1, 9.2, 9.3], [1.0, 1.0, 1.0, 1.0]))
    assert math.isnan(detectable_difference([9.0, 9.1], [1.0, 1.0]))
    assert paired_p_value([2.0] * 5, [1.0] * 5) == 2 / 2**5  # no spread: only the signs are evidence
    assert paired_p_value([2.0] * 5, [2.0] * 5) == 1.0


@pytest.mark.parametrize(("seeds", "level"), [(5, 0.05), (10, 0.05 / 16)])
def test_the_detectable_difference_is_detected_four_times_in_five(seeds: int, level: float) -> None:
    rng = np.random.default_rng(2)
    spread = rng.normal(size=seeds)
    spread = (spread - spread.mean()) / spread.std(ddof=1)  # the true spread, as if it were known
    effect = detectable_difference(spread, np.zeros(seeds), level=level)
    found = [paired_p_value(rng.normal(effect, 1.0, seeds), np.zeros(seeds)) < level for _ in range(4_000)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.02)
    assert detectable_difference(10 * spread, np.zeros(seeds), level=level) == pytest.approx(10 * effect)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([0.01, math.nan, 0.04])[::2] == pytest.approx([0.02, 0.04])
    # 0.01 / 0.5 is the smallest for its weight; what is left weighs 0.5, of which each has half
    assert holm([0.01, 0.02, 0.04], [0.5, 0.25, 0.25]) == pytest.approx([0.02, 0.04, 0.04])


def test_weights_keep_the_probability_of_any_false_claim() -> None:
    rng = np.random.default_rng(3)
    weights = [0.25, 0.25, *[0.5 / 14] * 14]
    false = [min(holm(rng.random(16).tolist(), weights)) < 0.05 for _ in range(4_000)]
    assert np.mean(false) == pytest.approx(0.05, abs=0.012)


def test_the_outcome_has_half_of_the_weight() -> None:
    rng = np.random.default_rng(4)
    ours, theirs = rng.normal(0.5, 1.0, 10), rng.normal(0.0, 1.0, 10)
    few = ([1.0, 2.0], [0.0, 0.0])
    tests = paired_tests({"last": (ours, theirs), "a": (ours, theirs), "b": (ours, theirs), "c": few}, "last".__eq__)
    p = paired_p_value(ours, theirs)
    assert tests["last"].p_value == tests["a"].p_value == p
    assert tests["last"].corrected == pytest.approx(min(1.0, 2 * p))
    assert tests["a"].corrected == pytest.approx(min(1.0, max(2 * p, 4 * p * 0.5)))
    assert tests["last"].detectable == pytest.approx(detectable_difference(ours, theirs, level=0.025))
    assert tests["a"].detectable == pytest.approx(detectable_difference(ours, theirs, level=0.0125))
    assert math.isnan(tests["c"].corrected)
    assert tests["c"].verdict(1.5) == "too few seeds"
    alone = paired_tests({"last": (ours, theirs)}, "last".__eq__)
    assert alone["last"].corrected == p


def test_verdicts() -> None:
    assert verdict(1.0, 0.01) == "helps"
    assert verdict(-1.0, 0.01) == "hurts"
    assert verdict(-1.0, 0.01, higher_is_better=False) == "helps"
    assert verdict(1.0, 0.05) == "no difference detected"
    assert verdict(1.0, math.nan) == "too few seeds"


def test_bad_input() -> None:
    for call, message in (
        (lambda: holm([0.5, 2.0]), r"in \[0, 1\]"),
        (lambda: holm([0.5, 0.2], [1.0]), "one for each test"),
        (lambda: holm([0.5], [0.0]), "must be positive"),
        (lambda: paired_p_value([1.0, 2.0], [1.0]), "paired by task and seed"),
        (lambda: detectable_difference([1.0] * 5, [1.0] * 5, level=1.5), "level and power"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_tests_that_are_planned_count_before_they_are_made() -> None:
    ours, theirs = [1.0, 2.0, 3.0, 4.0, 6.0], [0.5, 1.0, 2.8, 3.0, 4.0]
    (alone,) = paired_tests({"made": (ours, theirs)}, lambda _: True).values()
    (planned,) = paired_tests({"made": (ours, theirs)}, lambda _: True, unmade=3).values()
    assert planned.p_value == alone.p_value == alone.corrected
    assert planned.corrected == pytest.approx(4 * alone.p_value)
    assert planned.detectable > alone.detectable
    two = {"made": (ours, theirs), "nothing": (ours, ours)}
    assert paired_tests(two, lambda _: True, unmade=2)["made"] == planned  # what comes can only confirm it
