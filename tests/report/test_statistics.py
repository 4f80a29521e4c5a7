import math

import numpy as np
import pytest
from scipy import stats

from mental_accounts.report.resampling import LARGEST, resample
from mental_accounts.report.statistics import (
    Interval,
    area_under_curve,
    difference_interval,
    geometric_mean,
    interquartile_mean,
    iqm_interval,
    mean_interval,
    paper_average,
    probability_of_improvement,
    relative_change,
)

STUDIES, SEEDS = 1_000, 10


def test_below_five_seeds_there_is_no_interval() -> None:
    for seeds in (1, 2, 4):
        ours, theirs = np.arange(10.0, 10.0 + seeds), np.arange(seeds)
        for found in (
            mean_interval(ours),
            mean_interval([ours, ours]),  # nor with several tasks
            difference_interval(ours, theirs),
            difference_interval(ours, ours),
            iqm_interval(ours),
            probability_of_improvement(ours, theirs),
        ):
            assert (found.low, found.high) == (-math.inf, math.inf)
            assert not found.is_known
    assert iqm_interval(np.arange(5.0)).is_known
    assert mean_interval(np.arange(5.0)).is_known


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return 1000 + 300 * rng.standard_normal(shape)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns with a long tail upwards: a few runs take off."""
    return 500 + 400 * rng.gamma(1.5, size=shape)


def falling(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Most runs do well, one in eight falls over."""
    return np.where(rng.random(shape) < 0.125, 700, 1500) + 150 * rng.standard_normal(shape)


def clumped(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Runs either learn or do not, and then all end at nearly the same return."""
    return np.where(rng.random(shape) < 0.5, 400, 1600) + 5 * rng.standard_normal(shape)


MEANS = {normal: 1000.0, skewed: 500 + 400 * 1.5, falling: 0.125 * 700 + 0.875 * 1500, clumped: 1000.0}
UNSEEN = {falling: 0.07, clumped: 0.02}
"""How much less is covered as some studies see no fall, or one clump only: no interval knows what it never saw."""


@pytest.mark.parametrize("seeds", [5, 10])
@pytest.mark.parametrize("returns", MEANS, ids=lambda f: f.__name__)
def test_the_interval_of_a_mean_covers_it_and_is_never_silly(returns: object, seeds: int) -> None:
    rng = np.random.default_rng(1)
    covered, ratios = 0, []
    for study in range(STUDIES):
        values = returns(rng, (seeds,))
        interval = mean_interval(values, seed=study, resamples=1_000)
        covered += interval.low <= MEANS[returns] <= interval.high
        low, high = stats.t.interval(0.95, seeds - 1, values.mean(), stats.sem(values))
        ratios.append((interval.high - interval.low) / (high - low))
    assert 0.935 - UNSEEN.get(returns, 0.0) <= covered / STUDIES
    assert returns is clumped or covered / STUDIES <= 0.985
    assert 1.0 - 1e-9 <= min(ratios)
    assert max(ratios) <= 2.0 + 1e-9
    assert np.mean(ratios) < 1.6


def test_values_that_nearly_agree_have_no_endless_interval() -> None:
    """A studentised bootstrap alone ends at -1600 and 5600."""
    interval = mean_interval([1000.0, 1000.1, 1000.2, 1000.3, 2000.0])
    assert -1000 < interval.low < 1000
    assert 1600 < interval.high < 2600


@pytest.mark.parametrize("returns", MEANS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("tasks", [1, 2])
def test_the_interval_of_a_difference_covers_it_and_no_effect_is_in_it(returns: object, tasks: int) -> None:
    rng = np.random.default_rng(2)
    effect, covered, told = 200.0, 0, 0
    for study in range(STUDIES):
        shared = 100 * rng.standard_normal((tasks, SEEDS))  # what paired runs have in common
        baseline = returns(rng, (tasks, SEEDS)) + shared
        ours = returns(rng, (tasks, SEEDS)) + shared
        null = difference_interval(ours, baseline, seed=study, resamples=1_000)
        told += not null.low <= 0.0 <= null.high
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
    found = [mean_interval(rng.standard_normal((2, 5)) * [[1.0], [10.0]], resamples=500) for _ in range(STUDIES)]
    assert np.mean([interval.low <= 0.0 <= interval.high for interval in found]) >= 0.94


def test_up_to_eleven_seeds_nothing_is_drawn_and_beyond_a_seed_moves_an_end_by_less_than_a_hundredth() -> None:
    rng = np.random.default_rng(0)
    for find in (mean_interval, iqm_interval):
        values = skewed(rng, (11,))
        assert find(values, seed=3) == find(values, seed=4)
        for more in (skewed(rng, (12,)), skewed(rng, (2, 8))):
            found = [find(more, seed=seed) for seed in range(4)]
            assert find(more, seed=3) == found[3]
            ends = np.array([[one.low, one.high] for one in found])
            width = found[0].high - found[0].low
            assert (np.abs(np.diff(ends, axis=0)) < 0.01 * width).all()
        assert ends.std() > 0


def test_all_samples_and_drawn_ones_agree() -> None:
    values = skewed(np.random.default_rng(0), (7,))  # 1,716 different samples
    for find in (mean_interval, iqm_interval):
        counted, drawn = find(values), find(values, resamples=1_700)
        width = counted.high - counted.low
        assert counted.low == pytest.approx(drawn.low, abs=0.1 * width)
        assert counted.high == pytest.approx(drawn.high, abs=0.1 * width)


def test_extremes() -> None:
    assert mean_interval([5.0] * 5) == Interval(5.0, 5.0, 5.0)
    up, down = [3.0, 4.0, 5.0, 6.0, 7.1], [1.0, 2.0, 3.0, 4.0, 5.0]
    assert difference_interval(up, down).low > 0
    assert difference_interval(down, up).high < 0


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
        (lambda: interquartile_mean([]), "at least one"),
        (lambda: area_under_curve([1, 1], [1.0, 2.0]), "steps must be increasing"),
        (lambda: area_under_curve([1], [1.0, 2.0]), "must have the same length"),
        (lambda: paper_average([[math.nan], [math.nan]]), "at least one seed"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def test_many_values_take_no_more_memory_than_few() -> None:
    values = np.random.default_rng(0).normal(size=3_000)
    found = mean_interval(values)
    half = 1.96 * values.std(ddof=1) / np.sqrt(3_000)
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)
    assert resample(1, 3_000, 500_000, 0).counts.size <= LARGEST
