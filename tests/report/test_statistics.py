import math

import numpy as np
import pytest
from scipy import stats

from mental_accounts.report.statistics import (
    Interval,
    area_under_curve,
    difference_interval,
    geometric_mean,
    holm,
    interquartile_mean,
    iqm_interval,
    mean_interval,
    paired_p_value,
    paper_average,
    probability_of_improvement,
    relative_change,
)

STUDIES, SEEDS = 1_000, 10


def test_little_evidence_claims_nothing() -> None:
    assert difference_interval([1.0, 2.0], [0.0, 1.0]).verdict() == "cannot tell"
    assert difference_interval([1.0, 2.0], [1.0, 2.0]) == Interval(0.0, 0.0, 0.0)
    for seeds in (1, 2, 4):
        ours, theirs = np.arange(10.0, 10.0 + seeds), np.arange(seeds)
        assert probability_of_improvement(ours, theirs) == Interval(1.0, 0.0, 1.0)
        assert iqm_interval(ours).low == -math.inf
    assert iqm_interval(np.arange(5.0)).low > -math.inf


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return 1000 + 300 * rng.standard_normal(shape)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns with a long tail upwards: a few runs take off."""
    return 500 + 400 * rng.gamma(1.5, size=shape)


def falling(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Most runs do well, one in eight falls over."""
    return np.where(rng.random(shape) < 0.125, 700, 1500) + 150 * rng.standard_normal(shape)


MEANS = {normal: 1000.0, skewed: 500 + 400 * 1.5, falling: 0.125 * 700 + 0.875 * 1500}


@pytest.mark.parametrize("returns", MEANS, ids=lambda f: f.__name__)
def test_the_interval_of_a_mean_covers_it(returns: object) -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for study in range(STUDIES):
        interval = mean_interval(returns(rng, (SEEDS,)), seed=study, resamples=1_000)
        covered += interval.low <= MEANS[returns] <= interval.high
    # One in four studies of `falling` sees no fall at all: no interval can know of what it has not seen.
    assert covered / STUDIES >= (0.88 if returns is falling else 0.92)


@pytest.mark.parametrize("returns", MEANS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("tasks", [1, 2])
def test_the_interval_of_a_difference_covers_it_and_no_effect_cannot_be_told(returns: object, tasks: int) -> None:
    rng = np.random.default_rng(2)
    effect, covered, told = 200.0, 0, 0
    for study in range(STUDIES):
        shared = 100 * rng.standard_normal((tasks, SEEDS))  # what paired runs have in common
        baseline = returns(rng, (tasks, SEEDS)) + shared
        ours = returns(rng, (tasks, SEEDS)) + shared
        null = difference_interval(ours, baseline, seed=study, resamples=1_000)
        told += null.verdict() != "cannot tell"
        shifted = difference_interval(ours + effect, baseline, seed=study, resamples=1_000)
        covered += shifted.low <= effect <= shifted.high
    assert covered / STUDIES >= 0.92
    assert told / STUDIES <= 0.08


def test_a_percentile_interval_would_not_do() -> None:
    """The reason for the studentised one."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(STUDIES):
        values = skewed(rng, (SEEDS,))
        boot = values[rng.integers(SEEDS, size=(1_000, SEEDS))].mean(axis=1)
        low, high = np.quantile(boot, [0.025, 0.975])
        covered += low <= MEANS[skewed] <= high
    assert covered / STUDIES < 0.92


def test_the_interval_of_a_mean_agrees_with_students_for_normal_runs() -> None:
    values = normal(np.random.default_rng(0), (40,))
    ours = mean_interval(values, resamples=20_000)
    low, high = stats.t.interval(0.95, 39, values.mean(), stats.sem(values))
    assert ours.estimate == pytest.approx(values.mean())
    assert ours.low == pytest.approx(low, abs=0.15 * (high - low))
    assert ours.high == pytest.approx(high, abs=0.15 * (high - low))


def test_a_few_seeds_of_tasks_that_differ_in_spread() -> None:
    rng = np.random.default_rng(9)
    found = [mean_interval(rng.standard_normal((2, 2)) * [[1.0], [10.0]]) for _ in range(4 * STUDIES)]
    assert np.mean([interval.low <= 0.0 <= interval.high for interval in found]) >= 0.92


def test_seeds_make_intervals_repeatable() -> None:
    values = normal(np.random.default_rng(0), (10,))
    assert mean_interval(values, seed=3) == mean_interval(values, seed=3)
    assert mean_interval(values, seed=3) != mean_interval(values, seed=4)


def test_extremes() -> None:
    assert mean_interval([5.0]) == Interval(5.0, -math.inf, math.inf)
    assert mean_interval([5.0] * 5) == Interval(5.0, 5.0, 5.0)
    up, down = [3.0, 4.0, 5.0, 6.0, 7.1], [1.0, 2.0, 3.0, 4.0, 5.0]
    assert difference_interval(up, down).verdict() == "helps"
    assert difference_interval(down, up).verdict() == "hurts"
    assert difference_interval(up, down).verdict(higher_is_better=False) == "hurts"
    assert difference_interval([1.0], [0.0]).verdict() == "cannot tell"


def test_iqm_against_scipy_and_by_coverage() -> None:
    values = normal(np.random.default_rng(0), (3, 8))
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values.ravel(), 0.25))
    rng = np.random.default_rng(5)
    truth = interquartile_mean(skewed(rng, (400_000,)))
    covered = 0
    for study in range(300):
        interval = iqm_interval(skewed(rng, (2, 10)), seed=study, resamples=1_000)
        assert interval.low <= interval.estimate <= interval.high
        covered += interval.low <= truth <= interval.high
    assert covered / 300 >= 0.9


def test_probability_of_improvement_is_mann_whitneys() -> None:
    rng = np.random.default_rng(0)
    ours, baseline = rng.integers(0, 9, 12), rng.integers(0, 9, 12)
    u = stats.mannwhitneyu(ours, baseline).statistic
    found = probability_of_improvement(ours, baseline)
    assert found.estimate == pytest.approx(u / 144)
    assert 0 <= found.low <= found.estimate <= found.high <= 1
    assert probability_of_improvement([2.0, 3.0], [0.0, 1.0]).estimate == 1.0


def test_the_sign_flip_test_against_scipy_and_under_no_effect() -> None:
    rng = np.random.default_rng(0)
    ours, baseline = normal(rng, (10,)), normal(rng, (10,))
    expected = stats.permutation_test(
        (ours, baseline), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert paired_p_value(ours, baseline) == pytest.approx(expected, abs=1e-9)
    p = [paired_p_value(skewed(rng, (8,)), skewed(rng, (8,))) for _ in range(400)]
    assert np.mean(np.array(p) <= 0.05) <= 0.08
    many = paired_p_value(normal(rng, (40,)), normal(rng, (40,)))
    assert 0 < many <= 1


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_papers_average_and_tables() -> None:
    runs = np.array([[1.0, 2.0, 3.0], [3.0, np.nan, 5.0]])
    assert paper_average(runs) == pytest.approx((2.0 + 2.0 + 4.0) / 3)
    walker = {
        "return_mean_gm": (167.1, 82.4, 102.9),
        "length_std_gm": (70.1, 16.2, 331.7),
        "aug_length": (116.1, 90.5, 28.3),
    }
    for ours, theirs, delta in walker.values():  # the paper's Δ%, but for the rounding of its averages
        assert relative_change(ours, theirs) == pytest.approx(delta, abs=1.2)
    assert math.isnan(relative_change(1.0, 0.0))


def test_geometric_means_and_areas() -> None:
    assert geometric_mean([1.0, 4.0, 16.0]) == pytest.approx(4.0)
    assert math.isnan(geometric_mean([1.0, -4.0]))
    assert area_under_curve([0, 10, 20], [0.0, 10.0, 10.0]) == pytest.approx(7.5)
    assert area_under_curve([5], [3.0]) == 3.0


def test_bad_input() -> None:
    cases = [
        (lambda: mean_interval([]), "at least one seed"),
        (lambda: mean_interval([1.0, math.nan]), "task 0, seed 1 has nan"),
        (lambda: difference_interval([1.0, 2.0], [1.0]), "paired by task and seed"),
        (lambda: mean_interval([1.0, 2.0], confidence=95), "between 0 and 1, as in 0.95, got 95"),
        (lambda: probability_of_improvement([1.0], [2.0], resamples=0), "at least 1, got 0"),
        (lambda: holm([0.5, 2.0]), r"in \[0, 1\]"),
        (lambda: interquartile_mean([]), "at least one"),
        (lambda: area_under_curve([1, 1], [1.0, 2.0]), "steps must be increasing"),
        (lambda: area_under_curve([1], [1.0, 2.0]), "must have the same length"),
        (lambda: paper_average([[math.nan], [math.nan]]), "at least one seed"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
