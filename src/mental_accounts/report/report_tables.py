"""Tables of a report: returns, differences, the paper's metrics, and every run."""

import json
import math
import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from mental_accounts.report.analysis import Comparison, Scores
from mental_accounts.report.page import Block, Cell, Details, Linked, Named, Table
from mental_accounts.report.paper import paper_table_for
from mental_accounts.report.runs import LOWER_IS_BETTER, METRIC_NAMES, SEVEN, Evidence, Run
from mental_accounts.report.significance import PairedTest, Verdict
from mental_accounts.report.statistics import FEWEST_SEEDS, Interval


def score_table(evidence: Evidence, task: str, scores: Sequence[Scores]) -> Table:
    """The returns of every method, with their intervals."""
    rows = []
    is_sampled = any(score.sampled_mean is not None for score in scores)
    for score in scores:
        means = (score.last_mean, score.last_iqm, score.best_mean, score.area_mean)
        normalised = "–" if score.normalised is None else estimate(score.normalised, digits=1)
        geometric = "–" if math.isnan(score.geometric_mean) else f"{score.geometric_mean:.1f}"
        seeds = _seeds(len(score.seeds), evidence.missing(task, score.method))
        also = ["–" if score.sampled_mean is None else estimate(score.sampled_mean)] if is_sampled else []
        rows.append([score.method, seeds, *map(estimate, means), geometric, normalised, *also])
    known = any(score.last_mean.is_known for score in scores)
    return Table(
        [
            "method",
            "seeds",
            *_with_intervals(known, "last return, mean", "last return, IQM", "best return, mean"),
            *_with_intervals(known, "area under curve, mean"),
            "last return, geometric mean",
            *_with_intervals(known, "normalised score, mean"),
            *_with_intervals(known, *(["last return, sampled actions"] if is_sampled else [])),
        ],
        rows,
        f"Returns over seeds. The data's mean return is {scores[0].data_mean:.1f}. IQM: interquartile mean. Best is "
        "the best of a run's evaluations, which is biased upwards."
        + (
            " In brackets the 95% interval of the number above it: of a mean Student's, widened by a studentised "
            "bootstrap; of an IQM a BCa bootstrap."
            if known
            else ""
        )
        + _too_few(len(score.seeds) for score in scores),
        name=f"scores-{anchor(task)}",
    )


def difference_table(task: str, comparisons: Sequence[Comparison], tests: int, told: Collection[int] = ()) -> Table:
    """How each method differs from the baseline, and the verdict. Of `told` numbers of seeds it was said before that
    they are too few.
    """
    rows = [
        [
            f"{found.method} − {found.baseline}",
            str(len(found.seeds)),
            *(estimate(value, signed=True) for value in (found.last, found.best, found.area)),
            estimate(found.improvement, digits=2),
            probability(found.test.p_value),
            probability(found.test.corrected),
            verdict_said(found.verdict, found.test, found.last),
        ]
        for found in comparisons
    ]
    known = any(found.last.is_known for found in comparisons)
    columns = ("last return, mean", "best return, mean", "area under curve, mean", "P(improvement)")
    return Table(
        [
            "difference",
            "seeds",
            *_with_intervals(known, *columns),
            "p, last return",
            "p (Holm)",
            "verdict on the last return",
        ],
        rows,
        "Paired by seed. P(improvement): the probability that a run beats one of the baseline."
        + (
            " In brackets the 95% interval: of a mean as above, of a probability the percentiles of a bootstrap. "
            f"p of a paired t-test; {_corrected(tests)} Detectable: the difference that would have been detected with "
            "a probability of 80%."
            if known
            else ""
        )
        + _too_few((len(found.seeds) for found in comparisons), told),
        text=(0, 8),
        name=f"differences-{anchor(task)}",
    )


def paper_table(task: str, comparison: Comparison, tests: int, told: Collection[int] = ()) -> Table:
    """Those of the paper's seven metrics that there are, beside its own numbers where it has them."""
    paper = paper_table_for(task)
    rows: list[list[Cell]] = []
    for row in comparison.rows:
        wanted = " ↓" if row.name in LOWER_IS_BETTER else " ↑"
        theirs = [] if paper is None else [f"{paper.rows[row.name][0]:g} / {paper.rows[row.name][1]:g}"]
        theirs += [] if paper is None else [percent(paper.rows[row.name][2])]
        rows.append(
            [
                Named(f"{METRIC_NAMES[row.name]}{wanted}", row.name),
                f"{row.value:.1f}",
                f"{row.baseline:.1f}",
                percent(row.change_percent),
                estimate(row.difference, signed=True),
                probability(row.test.corrected),
                verdict_said(row.verdict, row.test, row.difference),
                *theirs,
            ]
        )
    known = any(row.difference.is_known for row in comparison.rows)
    gap = _with_intervals(known, "mean difference")
    header = ["metric", comparison.method, comparison.baseline, "Δ", *gap, "p (Holm)", "verdict"]
    header += [] if paper is None else ["the paper's", "the paper's Δ"]
    which = "The" if len(rows) == len(SEVEN) else f"{len(rows)} of the"
    return Table(
        header,
        rows,
        f"{which} paper's seven metrics: {comparison.method} and {comparison.baseline} averaged over seeds, then over "
        "steps, as in the paper's tables; ↑ higher is better, ↓ lower. The difference is between the means of each "
        "seed, which is not the same if seeds were measured at different steps (return_vs_samples)."
        + (f" {_corrected(tests)}" if known else "")
        + _too_few([len(comparison.seeds)], told)
        + ("" if paper is None else f" The last columns are the paper's for {paper.dataset}, EWA-VQ-ODT / ODT."),
        text=(0, 6),
        name=f"metrics-{anchor(task)}-{anchor(comparison.method)}",
    )


def run_blocks(evidence: Evidence, folder: Path) -> list[Block]:
    """Every run with a link to its configuration; packed runs have theirs below the table."""
    runs = sorted(evidence.runs, key=lambda run: (run.task, evidence.methods.index(run.method), run.seed))
    rows = [[run.task, run.method, str(run.seed), *_ends(run), _configuration(run, folder)] for run in runs]
    header = ["task", "method", "seed", "last return", "best return", "seconds", "configuration"]
    blocks: list[Block] = [Table(header, rows, "Every run.", text=(0, 1, 6), name="runs")]
    shown = {(run.task, run.method): run.config for run in reversed(runs) if run.path is None}
    for (task, method), config in reversed(shown.items()):
        settings = {name: value for name, value in config.items() if name != "seed"}
        blocks.append(Details(f"Configuration: {task}, {method}", json.dumps(settings)))
    return blocks


def _ends(run: Run) -> list[str]:
    returns = [f"{run.summary[name]:.1f}" for name in ("last_return", "best_return")]
    return [*returns, duration(run.summary["seconds"])]


def _configuration(run: Run, folder: Path) -> Cell:
    if run.path is None:
        return "below"
    return Linked("config.json", quote(os.path.relpath(run.path / "config.json", folder).replace(os.sep, "/")))


def _seeds(there: int, missing: Sequence[int]) -> str:
    """The number of seeds; those that are missing are named."""
    return f"{there} of {there + len(missing)}, without {', '.join(map(str, missing))}" if missing else str(there)


def verdict_said(verdict: Verdict, test: PairedTest, difference: Interval) -> str:
    """A verdict; where no difference was detected, with the one that would have been."""
    if verdict != "no difference detected":
        return verdict
    return f"{verdict} (detectable: {number(test.detectable, digits_of(test.detectable, difference.estimate))})"


def estimate(value: Interval, *, signed: bool = False, digits: int | None = None) -> str:
    """The estimate and its interval, by default to three significant figures; without one below five seeds."""
    shown = (value.estimate, value.low, value.high) if value.is_known else (value.estimate,)
    places = digits_of(*shown) if digits is None else digits
    first, *ends = (number(part, places, signed=signed) for part in shown)
    return f"{first} [{', '.join(ends)}]" if ends else first


def number(value: float, digits: int, *, signed: bool = False) -> str:
    """A number with a true minus sign if signed."""
    return f"{value:+.{digits}f}".replace("-", "−") if signed else f"{value:.{digits}f}"


def probability(value: float) -> str:
    """A p-value; NaN if there was no test."""
    return "–" if math.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def percent(value: float) -> str:
    """A relative change."""
    return "–" if math.isnan(value) else f"{value:+.1f}%".replace("-", "−")


def duration(seconds: float) -> str:
    """Seconds; short ones with a decimal."""
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"


def anchor(name: str) -> str:
    """A name as a part of the address of a table or a figure."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def digits_of(*values: float) -> int:
    """Decimals that show three significant figures of the largest value."""
    largest = max(map(abs, values), default=0.0)
    return 0 if largest >= 100 or largest == 0 else min(2 - math.floor(math.log10(largest)), 6)


def _with_intervals(known: bool, *titles: str) -> list[str]:
    return [f"{title} [95%]" if known else title for title in titles]


def _corrected(tests: int) -> str:
    return f"Holm's correction is over all {tests} tests of this report, of which those of the last return weigh half."


def _too_few(seeds: Iterable[int], told: Collection[int] = ()) -> str:
    few = sorted({count for count in seeds if count < FEWEST_SEEDS} - set(told))
    said = " and ".join(f"{count} {'seed' if count == 1 else 'seeds'}" for count in few)
    return f" {said}: no interval and no test, which take at least {FEWEST_SEEDS}." if few else ""
