"""The report of a comparison: results, their uncertainty, and how to reproduce them, as HTML, Markdown and JSON."""

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mental_accounts.data.hidden_tasks import is_hidden
from mental_accounts.data.tasks import TASKS
from mental_accounts.errors import UsageError
from mental_accounts.files import write_atomically
from mental_accounts.report.analysis import Analysis, Comparison, Scores, TaskAnalysis, analyse
from mental_accounts.report.end_tables import account_table, value_table
from mental_accounts.report.figures import as_svg, paper_figure, save, seed_figure
from mental_accounts.report.page import Block, Code, Heading, Link, Picture, Table, Text, to_html, to_markdown
from mental_accounts.report.paper import paper_table_for
from mental_accounts.report.runs import LOWER_IS_BETTER, METRIC_NAMES, Evidence, Run
from mental_accounts.report.statistics import Interval

FEW_SEEDS = 5


@dataclass(frozen=True)
class Report:
    """The files of a report, and its headlines."""

    html: Path
    markdown: Path
    headlines: tuple[str, ...]


def write_report(evidence: Evidence, folder: Path, links: Mapping[str, str] | None = None) -> Report:
    """Write all three files into `folder`. `links` are further pages to link to: text by path."""
    if not evidence.runs:
        raise UsageError("there is no finished run to report on; " + "; ".join(evidence.warnings))
    analysis = analyse(evidence)
    blocks, headlines = _blocks(evidence, analysis, folder, links or {})
    title = f"Mental accounts: {evidence.title}"
    html, markdown = folder / "report.html", folder / "report.md"
    write_atomically(html, to_html(title, blocks).encode())
    write_atomically(markdown, to_markdown(blocks).encode())
    content = {"warnings": list(evidence.warnings), "made_by": dict(evidence.made_by), **analysis.to_dict()}
    write_atomically(folder / "report.json", (json.dumps(content, indent=1) + "\n").encode())
    return Report(html, markdown, tuple(headlines))


def headline(comparison: Comparison, task: str) -> str:
    """One sentence on whether the method helps."""
    seeds = len(comparison.seeds)
    if seeds < 2:
        return f"{task}: {comparison.method} against {comparison.baseline}: one seed cannot show a difference."
    words = {
        "helps": f"{comparison.method} helps",
        "hurts": f"{comparison.method} hurts",
        "cannot tell": f"{comparison.method}: cannot tell",
    }[comparison.verdict]
    few = f" ({seeds} seeds are few)" if seeds < FEW_SEEDS else ""
    estimate, _, interval = _estimate(comparison.last, signed=True).partition(" ")
    return (
        f"{task}: {words}. Last return {estimate} against {comparison.baseline}, 95% interval {interval}, "
        f"{seeds} seeds{few}."
    )


def _blocks(
    evidence: Evidence, analysis: Analysis, folder: Path, links: Mapping[str, str]
) -> tuple[list[Block], list[str]]:
    headlines = [headline(found, part.task) for part in analysis.tasks for found in part.comparisons]
    blocks: list[Block] = [Heading(f"Do mental accounts help? {evidence.title}", 1)]
    blocks += [Text(text, "headline") for text in headlines]
    for pooled in analysis.pooled:
        blocks.append(
            Text(
                f"All tasks together, in normalised score: {pooled.method}: {pooled.verdict}, "
                f"{_estimate(pooled.difference, signed=True, digits=1)}; a run of it beats one of "
                f"{evidence.methods[0]} with probability {_estimate(pooled.improvement, digits=2)}.",
                "headline",
            )
        )
    blocks += [Text(text, "warning") for text in evidence.warnings]
    blocks.append(
        Text(
            "The outcome was fixed in advance: the return of the last evaluation, paired by seed. A 95% interval is "
            "designed to cover the true mean difference in 95 of 100 such studies; it is the wider of Student's and a "
            "studentised bootstrap interval. “Cannot tell” means that it contains zero."
        )
    )
    for part in analysis.tasks:
        blocks += _task_blocks(evidence, part, folder)
    if links:
        blocks.append(Heading("Inspected episodes"))
        blocks += [Link(text, target) for target, text in links.items()]
    return [*blocks, *_making(evidence)], headlines


def _task_blocks(evidence: Evidence, part: TaskAnalysis, folder: Path) -> list[Block]:
    blocks: list[Block] = [Heading(part.task)]
    name = _anchor(part.task)
    svg = as_svg(paper_figure(evidence, [part.task]), f"Learning curves on {part.task}")
    [png, *others] = save(paper_figure(evidence, [part.task]), folder / "figures" / name)
    for other in others:
        other.unlink()
    caption = "Learning curves: mean over seeds, band of one standard deviation, every seed as a thin line."
    blocks.append(Picture(svg, caption, f"figures/{png.name}"))
    blocks.append(_score_table(part.scores, name))
    blocks.append(
        Picture(
            as_svg(seed_figure(part.scores, evidence.methods), f"Last return of every seed on {part.task}"),
            "Every seed's last return (dots), the mean (diamond) and its 95% interval (bar).",
        )
    )
    if part.comparisons:
        blocks.append(_difference_table(part.comparisons, name))
    for comparison in part.comparisons:
        blocks.append(_paper_table(part.task, comparison, name))
    blocks += account_table(part.scores, name) + value_table(part.scores, name)
    blocks.append(
        Table(
            ["method", "seconds per run", "updates/s"],
            [[score.method, f"{score.seconds:.0f}", f"{score.updates_per_second:.1f}"] for score in part.scores],
            "Cost: mean over runs, several of which may have shared the machine.",
            name=f"cost-{name}",
        )
    )
    return blocks


def _score_table(scores: Sequence[Scores], name: str) -> Table:
    rows = []
    for score in scores:
        means = (score.last_mean, score.last_iqm, score.best_mean, score.area_mean)
        cells = [_estimate(value) for value in means]
        normalised = "–" if score.normalised is None else _estimate(score.normalised, digits=1)
        geometric = "–" if math.isnan(score.geometric_mean) else f"{score.geometric_mean:.1f}"
        rows.append([score.method, str(len(score.seeds)), *cells, geometric, normalised])
    return Table(
        [
            "method",
            "seeds",
            "last return",
            "last, IQM",
            "best return",
            "area under curve",
            "geometric mean",
            "normalised",
        ],
        rows,
        "Return, mean over seeds with 95% intervals ([?]: too few seeds for one). The data's mean return is "
        f"{scores[0].data_mean:.1f}. Best is the best of a run's evaluations, which is biased upwards; the geometric "
        "mean is of the last returns.",
        name=f"scores-{name}",
    )


def _difference_table(comparisons: Sequence[Comparison], name: str) -> Table:
    rows = [
        [
            f"{found.method} − {found.baseline}",
            *(_estimate(value, signed=True) for value in (found.last, found.best, found.area)),
            _estimate(found.improvement, digits=2),
            f"{found.p_value:.3f}",
            found.verdict,
        ]
        for found in comparisons
    ]
    return Table(
        ["difference", "last return", "best return", "area under curve", "P(improvement)", "p, last", "verdict"],
        rows,
        "Paired by seed, with 95% intervals; p of a sign-flip test.",
        text=(0, 6),
        name=f"differences-{name}",
    )


def _paper_table(task: str, comparison: Comparison, name: str) -> Table:
    paper = paper_table_for(task)
    rows = []
    for row in comparison.rows:
        wanted = "↓" if row.name in LOWER_IS_BETTER else "↑"
        theirs = (
            []
            if paper is None
            else [f"{paper.rows[row.name][0]:g} / {paper.rows[row.name][1]:g}", _percent(paper.rows[row.name][2])]
        )
        rows.append(
            [
                f"{METRIC_NAMES[row.name]} ({row.name}) {wanted}",
                f"{row.value:.1f}",
                f"{row.baseline:.1f}",
                _percent(row.change_percent),
                _estimate(row.difference, signed=True),
                f"{row.p_value:.3f}",
                row.verdict,
                *theirs,
            ]
        )
    header = ["metric", comparison.method, comparison.baseline, "Δ", "difference", "p (Holm)", "verdict"]
    header += [] if paper is None else ["paper", "paper's Δ"]
    return Table(
        header,
        rows,
        "The paper's seven metrics as in its tables, averaged over seeds, then over steps; the difference is between "
        "the means of each seed, which is not the same if seeds were measured at different steps (return_vs_samples)"
        + ("" if paper is None else f"; the last columns are the paper's numbers for {paper.dataset}, EWA-VQ-ODT / ODT")
        + ".",
        text=(0, 6),
        name=f"metrics-{name}-{_anchor(comparison.method)}",
    )


def _making(evidence: Evidence) -> list[Block]:
    made: Mapping[str, Any] = evidence.made_by
    blocks: list[Block] = [Heading("How this was made")]
    if made.get("command"):
        blocks.append(Code(shlex.join(made["command"])))
    versions, hardware = made.get("versions") or {}, made.get("hardware") or {}
    machine = ", ".join(str(hardware[key]) for key in ("gpu", "cpu", "cpus") if hardware.get(key))
    listed = ", ".join(f"{key} {value}" for key, value in versions.items())
    blocks.append(
        Text(f"Versions: {listed}. Hardware: {machine} cores. Commit: {made.get('git_commit') or 'unknown'}.")
    )
    sources = sorted({f"{run.task}: {_source(run)}" for run in evidence.runs})
    blocks.append(Text("Data: " + "; ".join(sources) + "."))
    rows = [
        [run.task, run.method, str(run.seed), f"{run.summary['last_return']:.1f}", f"{run.summary['best_return']:.1f}",
         f"{run.summary['seconds']:.0f}"]
        for run in sorted(evidence.runs, key=lambda run: (run.task, evidence.methods.index(run.method), run.seed))
    ]  # fmt: skip
    header = ["task", "method", "seed", "last return", "best return", "seconds"]
    blocks.append(Table(header, rows, "Every run.", text=(0, 1), name="runs"))
    return blocks


SOURCES = {
    "builtin": "built-in (rolled out here from behaviour policies of this project; not D4RL's files)",
    "hidden": "rolled out here by adaptive behaviour policies",
    "d4rl": "D4RL's own files",
    "minari": "Minari",
    "imported": "imported by the user",
}


def _source(run: Run) -> str:
    if run.config.get("task") is None:
        return "none: starts with random episodes"
    if is_hidden(run.task):
        return SOURCES["hidden"]
    prefix = run.task.partition("/")[0] if "/" in run.task else ""
    return SOURCES[prefix if prefix in SOURCES else TASKS[run.task].source if run.task in TASKS else "imported"]


def _estimate(value: Interval, *, signed: bool = False, digits: int | None = None) -> str:
    """The estimate and its interval, by default to three significant figures."""
    ends = [number for number in (value.estimate, value.low, value.high) if math.isfinite(number)]
    if digits is None:
        largest = max(map(abs, ends), default=0.0)
        digits = 0 if largest >= 100 or largest == 0 else min(2 - math.floor(math.log10(largest)), 6)
    show = _signed if signed else lambda number, places: f"{number:.{places}f}"
    known = math.isfinite(value.low) and math.isfinite(value.high)
    interval = f"[{show(value.low, digits)}, {show(value.high, digits)}]" if known else "[?]"
    return f"{show(value.estimate, digits)} {interval}"


def _signed(value: float, digits: int = 0) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.1f}%".replace("-", "−")


def _anchor(name: str) -> str:
    """A name as a part of the address of a table or a figure."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())
