"""The analysis of runs: the metrics of every task and method, and how each method differs from the baseline.

The outcome is fixed in advance: the return of the last evaluation, averaged over seeds, with methods paired by seed.
All tests of a report are corrected together; those of the outcome have half of the weight.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mental_accounts.report.runs import LOWER_IS_BETTER, RETURN, SAMPLED, SEVEN, Array, Evidence, Run
from mental_accounts.report.significance import PairedTest, Verdict, paired_tests
from mental_accounts.report.statistics import (
    Interval,
    area_under_curve,
    difference_interval,
    geometric_mean,
    iqm_interval,
    mean_interval,
    paper_average,
    probability_of_improvement,
    relative_change,
)

LAST, ALL_TASKS = "last return", "all tasks"
"""Names of tests beside those of metrics and tasks."""
Tests = Mapping[tuple[str, str, str], PairedTest]
"""By task, method, and metric or LAST."""


@dataclass(frozen=True)
class MetricRow:
    """One of the paper's metrics for a method, compared with the baseline."""

    name: str
    value: float
    """Averaged over seeds, then over steps, as in the paper."""
    baseline: float
    change_percent: float
    difference: Interval
    test: PairedTest

    @property
    def verdict(self) -> Verdict:
        """By the test."""
        return self.test.verdict(self.difference.estimate, higher_is_better=self.name not in LOWER_IS_BETTER)


@dataclass(frozen=True)
class Scores:
    """The results of a method on a task: values by seed, and their summaries."""

    method: str
    seeds: tuple[int, ...]
    last: tuple[float, ...]
    best: tuple[float, ...]
    area: tuple[float, ...]
    """Mean height of the learning curve."""
    last_mean: Interval
    best_mean: Interval
    area_mean: Interval
    last_iqm: Interval
    geometric_mean: float
    normalised: Interval | None
    """D4RL's score of the last evaluation, if the task has one."""
    data_mean: float
    seconds: float
    updates_per_second: float
    accounts: dict[str, float]
    """The last account metrics, averaged over seeds."""
    values: dict[str, float]
    """The last metrics of critics, averaged over seeds; none where runs have no critics."""
    sampled_mean: Interval | None
    """The last return with sampled actions, if all runs were evaluated with them."""


@dataclass(frozen=True)
class Comparison:
    """A method against the baseline on one task."""

    method: str
    baseline: str
    seeds: tuple[int, ...]
    last: Interval
    """Difference of the last return: the headline."""
    best: Interval
    area: Interval
    improvement: Interval
    """P(a run of the method beats one of the baseline)."""
    test: PairedTest
    """Of the last return."""
    rows: tuple[MetricRow, ...]

    @property
    def verdict(self) -> Verdict:
        """On the last return, by the test."""
        return self.test.verdict(self.last.estimate)


@dataclass(frozen=True)
class TaskAnalysis:
    """Everything about one task."""

    task: str
    scores: tuple[Scores, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Pooled:
    """A method against the baseline over all tasks, in normalised score."""

    method: str
    difference: Interval
    improvement: Interval
    seeds: tuple[int, ...]
    """Those that all tasks have for both methods."""
    test: PairedTest

    @property
    def verdict(self) -> Verdict:
        """By the test."""
        return self.test.verdict(self.difference.estimate)


@dataclass(frozen=True)
class Analysis:
    """The numbers of a report."""

    tasks: tuple[TaskAnalysis, ...]
    pooled: tuple[Pooled, ...]
    tests: int
    """The number of tests that were corrected together."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        found: dict[str, Any] = _finite(asdict(self))
        for scores in (scores for task in found["tasks"] for scores in task["scores"]):
            for name in ("values", "sampled_mean"):  # what most runs do not have
                if not scores[name]:
                    del scores[name]
        return found


def analyse(evidence: Evidence) -> Analysis:
    """All numbers of a report."""
    there = tuple(task for task in evidence.tasks if any(run.task == task for run in evidence.runs))
    pools = {method: found for method in evidence.methods[1:] if (found := _shared_scores(evidence, method))}
    tests = paired_tests(
        {(task, method, name): pair for task in there for method, name, pair in _pairs(evidence, task)}
        | {(ALL_TASKS, method, LAST): (found.ours, found.theirs) for method, found in pools.items()},
        lambda key: key[2] == LAST,
    )
    tasks = tuple(_analyse_task(evidence, task, tests) for task in there)
    pooled = tuple(
        Pooled(
            method,
            difference_interval(found.ours, found.theirs),
            probability_of_improvement(found.ours, found.theirs),
            found.seeds,
            tests[ALL_TASKS, method, LAST],
        )
        for method, found in pools.items()
    )
    return Analysis(tasks, pooled, sum(not math.isnan(test.p_value) for test in tests.values()))


def metric_matrix(runs: Sequence[Run], name: str) -> Array:
    """(seeds, steps) of a metric; `return_vs_samples` on the union of the seeds' sample counts, by interpolation."""
    online = any(line["phase"] == "online" for run in runs for line in run.lines)
    if name == "evaluation/return_vs_samples":
        return interpolated(runs, name, online=online)[1]
    curves = [run.curve(name, online=online) for run in runs]
    steps = sorted({float(x) for xs, _ in curves for x in xs})
    matrix = np.full((len(runs), len(steps)), np.nan)
    for row, (xs, ys) in enumerate(curves):
        matrix[row, [steps.index(float(x)) for x in xs]] = ys
    return matrix


def interpolated(runs: Sequence[Run], name: str, *, online: bool, against: str = "env_steps") -> tuple[Array, Array]:
    """Curves of several seeds on the union of their steps: (steps,), (seeds, steps); NaN outside a seed's own range."""
    curves = [run.curve(name, online=online, against=against) for run in runs]
    steps = np.unique(np.concatenate([xs for xs, _ in curves]))
    rows = [
        np.interp(steps, xs, ys, left=np.nan, right=np.nan) if len(xs) else np.full(len(steps), np.nan)
        for xs, ys in curves
    ]
    return steps, np.stack(rows)


def _pairs(evidence: Evidence, task: str) -> Iterator[tuple[str, str, tuple[Array, Array]]]:
    """Everything that is tested on a task: the method, the metric, and the values of paired runs."""
    baseline = evidence.methods[0]
    for method in evidence.methods[1:]:
        pairs = evidence.paired(task, method, baseline)
        if not pairs:
            continue
        ours, theirs = [one for one, _ in pairs], [other for _, other in pairs]
        yield method, LAST, (np.array(list(map(_last, ours))), np.array(list(map(_last, theirs))))
        for name in SEVEN:
            one, other = (metric_matrix(runs, name) for runs in (ours, theirs))
            if not any(matrix.shape[1] == 0 or np.isnan(matrix).all(axis=1).any() for matrix in (one, other)):
                yield method, name, (np.nanmean(one, axis=1), np.nanmean(other, axis=1))


def _analyse_task(evidence: Evidence, task: str, tests: Tests) -> TaskAnalysis:
    there = [method for method in evidence.methods if evidence.of(task, method)]
    scores = tuple(_scores(evidence.of(task, method), method) for method in there)
    values = {(method, name): pair for method, name, pair in _pairs(evidence, task)}
    comparisons = [_compare(evidence, task, method, values, tests) for method in there if (method, LAST) in values]
    return TaskAnalysis(task, scores, tuple(comparisons))


def _scores(runs: Sequence[Run], method: str) -> Scores:
    last, best, area = (tuple(map(find, runs)) for find in (_last, _best, _area))
    normalised = [run.summary["normalised_score"] for run in runs]
    sampled = [values[-1] for run in runs if len(values := run.curve(SAMPLED)[1])]
    rates = [run.lines[-1]["updates"] / max(run.curve("time/training")[1].sum(), 1e-9) for run in runs]
    return Scores(
        method=method,
        seeds=tuple(run.seed for run in runs),
        last=last,
        best=best,
        area=area,
        last_mean=mean_interval(last),
        best_mean=mean_interval(best),
        area_mean=mean_interval(area),
        last_iqm=iqm_interval(last),
        geometric_mean=geometric_mean(last),
        normalised=None if None in normalised else mean_interval(normalised),
        data_mean=float(runs[0].summary["data"]["return_mean"]),
        seconds=float(np.mean([run.summary["seconds"] for run in runs])),
        updates_per_second=float(np.mean(rates)),
        accounts=_at_the_end(runs, "accounts/"),
        values=_at_the_end(runs, "values/"),
        sampled_mean=mean_interval(sampled) if len(sampled) == len(runs) else None,
    )


def _at_the_end(runs: Sequence[Run], prefix: str) -> dict[str, float]:
    """The last metrics whose names begin with the prefix, averaged over the runs that have them."""
    ends = [run.lines[-1] for run in runs]
    names = sorted({name for end in ends for name in end if name.startswith(prefix)})
    return {name: float(np.mean([end[name] for end in ends if name in end])) for name in names}


def _compare(
    evidence: Evidence, task: str, method: str, values: Mapping[tuple[str, str], tuple[Array, Array]], tests: Tests
) -> Comparison:
    pairs = evidence.paired(task, method, evidence.methods[0])
    ours, theirs = [one for one, _ in pairs], [other for _, other in pairs]

    def difference(find: Callable[[Run], float]) -> Interval:
        return difference_interval([find(run) for run in ours], [find(run) for run in theirs])

    rows = []
    for name in (name for name in SEVEN if (method, name) in values):
        value, reference = (paper_average(metric_matrix(runs, name)) for runs in (ours, theirs))
        change, interval = relative_change(value, reference), difference_interval(*values[method, name])
        rows.append(MetricRow(name, value, reference, change, interval, tests[task, method, name]))
    return Comparison(
        method=method,
        baseline=evidence.methods[0],
        seeds=tuple(run.seed for run in ours),
        last=difference_interval(*values[method, LAST]),
        best=difference(_best),
        area=difference(_area),
        improvement=probability_of_improvement(*values[method, LAST]),
        test=tests[task, method, LAST],
        rows=tuple(rows),
    )


@dataclass(frozen=True)
class _SharedScores:
    """Normalised scores of two methods: tasks × the seeds that all of them have."""

    seeds: tuple[int, ...]
    ours: Array
    theirs: Array


def _shared_scores(evidence: Evidence, method: str) -> _SharedScores | None:
    """Over all tasks with a normalised score; None if there are not two, or no seed in common."""
    by_task = [
        {one.seed: (one, other) for one, other in evidence.paired(task, method, evidence.methods[0])}
        for task in evidence.tasks
    ]
    seeds = sorted(set.intersection(*map(set, by_task)))
    pairs = [[found[seed] for seed in seeds] for found in by_task]
    scores = [[[run.summary["normalised_score"] for run in pair] for pair in row] for row in pairs]
    if len(pairs) < 2 or not seeds or any(score is None for row in scores for pair in row for score in pair):
        return None
    ours, theirs = np.moveaxis(np.array(scores, dtype=np.float64), 2, 0)
    return _SharedScores(tuple(seeds), ours, theirs)


def _last(run: Run) -> float:
    return float(run.curve(RETURN)[1][-1])


def _best(run: Run) -> float:
    return float(run.curve(RETURN)[1].max())


def _area(run: Run) -> float:
    return area_under_curve(*run.curve(RETURN))


def _finite(value: Any) -> Any:
    """Values for JSON, which has no infinity: null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
