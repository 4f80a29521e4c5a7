"""The analysis of runs: the metrics of every task and method, and how each method differs from the baseline.

The outcome is fixed in advance: the return of the last evaluation, averaged over seeds, with methods paired by seed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mental_accounts.report.runs import LOWER_IS_BETTER, RETURN, SEVEN, Array, Evidence, Run
from mental_accounts.report.statistics import (
    Interval,
    Verdict,
    area_under_curve,
    difference_interval,
    geometric_mean,
    holm,
    iqm_interval,
    mean_interval,
    paired_p_value,
    paper_average,
    probability_of_improvement,
    relative_change,
)


@dataclass(frozen=True)
class MetricRow:
    """One of the paper's metrics for a method, compared with the baseline."""

    name: str
    value: float
    """Averaged over seeds, then over steps, as in the paper."""
    baseline: float
    change_percent: float
    difference: Interval
    p_value: float
    """Paired, corrected by Holm over the metrics of this table."""

    @property
    def verdict(self) -> Verdict:
        """By the interval."""
        return self.difference.verdict(self.name not in LOWER_IS_BETTER)


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
    p_value: float
    rows: tuple[MetricRow, ...]

    @property
    def verdict(self) -> Verdict:
        """helps, hurts or cannot tell, by the interval of the last return."""
        return self.last.verdict()


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
    seeds: int

    @property
    def verdict(self) -> Verdict:
        """By the interval."""
        return self.difference.verdict()


@dataclass(frozen=True)
class Analysis:
    """The numbers of a report."""

    tasks: tuple[TaskAnalysis, ...]
    pooled: tuple[Pooled, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        found: dict[str, Any] = _finite(asdict(self))
        for scores in (scores for task in found["tasks"] for scores in task["scores"]):
            if not scores["values"]:
                del scores["values"]
        return found


def analyse(evidence: Evidence) -> Analysis:
    """All numbers of a report."""
    tasks = tuple(
        _analyse_task(evidence, task) for task in evidence.tasks if any(r.task == task for r in evidence.runs)
    )
    pooled = tuple(found for method in evidence.methods[1:] if (found := _pool(evidence, method)) is not None)
    return Analysis(tasks, pooled)


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


def _analyse_task(evidence: Evidence, task: str) -> TaskAnalysis:
    there = [method for method in evidence.methods if evidence.of(task, method)]
    scores = tuple(_scores(evidence.of(task, method), method) for method in there)
    baseline = evidence.methods[0]
    comparisons = [
        _compare(pairs, method, baseline)
        for method in there
        if method != baseline and (pairs := evidence.paired(task, method, baseline))
    ]
    return TaskAnalysis(task, scores, tuple(comparisons))


def _scores(runs: Sequence[Run], method: str) -> Scores:
    last, best, area = (tuple(map(find, runs)) for find in (_last, _best, _area))
    normalised = [run.summary["normalised_score"] for run in runs]
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
    )


def _at_the_end(runs: Sequence[Run], prefix: str) -> dict[str, float]:
    """The last metrics whose names begin with the prefix, averaged over the runs that have them."""
    ends = [run.lines[-1] for run in runs]
    names = sorted({name for end in ends for name in end if name.startswith(prefix)})
    return {name: float(np.mean([end[name] for end in ends if name in end])) for name in names}


def _compare(pairs: Sequence[tuple[Run, Run]], method: str, baseline: str) -> Comparison:
    def difference(find: Callable[[Run], float]) -> Interval:
        return difference_interval([find(one) for one, _ in pairs], [find(other) for _, other in pairs])

    ours, theirs = [one for one, _ in pairs], [other for _, other in pairs]
    rows = []
    for name in SEVEN:
        matrices = [metric_matrix(runs, name) for runs in (ours, theirs)]
        if any(matrix.shape[1] == 0 or np.isnan(matrix).all(axis=1).any() for matrix in matrices):
            continue
        value, reference = map(paper_average, matrices)
        mine, base = (np.nanmean(matrix, axis=1) for matrix in matrices)
        rows.append((name, value, reference, difference_interval(mine, base), paired_p_value(mine, base)))
    corrected = holm([row[-1] for row in rows])
    last = [[_last(run) for run in runs] for runs in (ours, theirs)]
    return Comparison(
        method=method,
        baseline=baseline,
        seeds=tuple(run.seed for run in ours),
        last=difference(_last),
        best=difference(_best),
        area=difference(_area),
        improvement=probability_of_improvement(*last),
        p_value=paired_p_value(*last),
        rows=tuple(
            MetricRow(name, value, reference, relative_change(value, reference), interval, p)
            for (name, value, reference, interval, _), p in zip(rows, corrected, strict=True)
        ),
    )


def _pool(evidence: Evidence, method: str) -> Pooled | None:
    """Over all tasks with a normalised score, with the number of seeds that all of them have."""
    baseline = evidence.methods[0]
    ours, theirs = [], []
    for task in evidence.tasks:
        pairs = evidence.paired(task, method, baseline)
        if not pairs or any(run.summary["normalised_score"] is None for pair in pairs for run in pair):
            return None
        ours.append([float(one.summary["normalised_score"]) for one, _ in pairs])
        theirs.append([float(other.summary["normalised_score"]) for _, other in pairs])
    seeds = min(map(len, ours))
    if len(ours) < 2:
        return None
    one, other = ([row[:seeds] for row in rows] for rows in (ours, theirs))
    return Pooled(method, difference_interval(one, other), probability_of_improvement(one, other), seeds)


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
