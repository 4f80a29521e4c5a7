"""The report of a comparison: results, their uncertainty, and how to reproduce them, as HTML, Markdown and JSON."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mental_accounts.data.hidden_tasks import is_hidden
from mental_accounts.data.tasks import TASKS
from mental_accounts.errors import UsageError
from mental_accounts.files import write_atomically
from mental_accounts.report.analysis import Analysis, Comparison, Pooled, Scores, TaskAnalysis, analyse
from mental_accounts.report.end_tables import account_table, value_table
from mental_accounts.report.figures import as_svg, colours_of, curve_figures, paper_figure, save, seed_figure
from mental_accounts.report.low_endings import low_endings
from mental_accounts.report.mixture import mixed
from mental_accounts.report.page import Block, Code, Heading, Link, Picture, Table, Text, to_html, to_markdown
from mental_accounts.report.report_tables import (
    anchor,
    difference_table,
    digits_of,
    duration,
    estimate,
    number,
    paper_table,
    probability,
    run_blocks,
    score_table,
    verdict_said,
)
from mental_accounts.report.runs import RETURN, Evidence, Run
from mental_accounts.report.significance import LEVEL


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
    evidence = replace(evidence, warnings=(*evidence.warnings, *map(str, low_endings(evidence))))
    analysis = analyse(evidence)
    blocks, headlines = _blocks(evidence, analysis, folder, links or {})
    title = f"Mental accounts: {evidence.title}"
    html, markdown = folder / "report.html", folder / "report.md"
    write_atomically(html, to_html(title, blocks).encode())
    write_atomically(markdown, to_markdown(blocks).encode())
    content = {
        "mixed": mixed(evidence.runs),
        "warnings": list(evidence.warnings),
        "made_by": dict(evidence.made_by),
        **analysis.to_dict(),
    }
    write_atomically(folder / "report.json", (json.dumps(content, indent=1) + "\n").encode())
    return Report(html, markdown, tuple(headlines))


def headline(evidence: Evidence, part: TaskAnalysis, comparison: Comparison, tests: int) -> str:
    """One sentence on whether the method helps."""
    method, baseline, seeds = comparison.method, comparison.baseline, len(comparison.seeds)
    missing = sorted(set(evidence.seeds.get(part.task, ())) - set(comparison.seeds))
    ours, theirs = (
        _mean_of(score, comparison.seeds)
        for name in (method, baseline)
        for score in part.scores
        if score.method == name
    )
    counted = _counted(seeds, missing)
    gap, _, interval = estimate(comparison.last, signed=True).partition(" ")
    means = f"Mean last return {ours}, {baseline} {theirs}: {gap}"
    if comparison.verdict == "too few seeds":
        few = f"{counted} {'is' if counted == '1 seed' else 'are'} too few to tell"
        return f"{part.task}: {method}: {few}. {means}."
    words = (
        f"{method}: {comparison.verdict}" if comparison.test.corrected >= LEVEL else f"{method} {comparison.verdict}"
    )
    found = f"95% interval {interval}, {counted}, p {_equals(comparison.test.corrected)} after Holm over {tests} tests"
    if comparison.verdict == "no difference detected":
        detectable = number(comparison.test.detectable, digits_of(comparison.test.detectable))
        found += f". A difference of {detectable} would have been detected with a probability of 80%"
    return f"{part.task}: {words}. {means}, {found}."


def _mean_of(score: Scores, seeds: Sequence[int]) -> str:
    last = dict(zip(score.seeds, score.last, strict=True))
    mean = sum(last[seed] for seed in seeds) / len(seeds)
    return number(mean, digits_of(mean))


def _counted(there: int, missing: Sequence[int]) -> str:
    if missing:
        return f"{there} of {there + len(missing)} seeds (without {', '.join(map(str, missing))})"
    return "1 seed" if there == 1 else f"{there} seeds"


def _equals(p_value: float) -> str:
    shown = probability(p_value)
    return shown.replace("<", "< ") if shown.startswith("<") else f"= {shown}"


def _blocks(
    evidence: Evidence, analysis: Analysis, folder: Path, links: Mapping[str, str]
) -> tuple[list[Block], list[str]]:
    headlines = [
        headline(evidence, part, found, analysis.tests) for part in analysis.tasks for found in part.comparisons
    ]
    blocks: list[Block] = [Heading(f"Do mental accounts help? {evidence.title}", 1)]
    alike = mixed(evidence.runs)
    blocks += [Text(alike, "warning")] if alike else []
    blocks += [Text(text, "headline") for text in headlines]
    blocks += [Text(_pooled(found, evidence), "headline") for found in analysis.pooled]
    blocks += [Text(text, "warning") for text in evidence.warnings]
    if analysis.tests:
        blocks.append(
            Text(
                "The outcome was fixed in advance: the return of the last evaluation, paired by seed. “Helps” and "
                f"“hurts” mean that a paired t-test has p < {LEVEL:g} after Holm's correction over all "
                f"{analysis.tests} tests of this report, of which those of the outcome weigh half; else no difference "
                "was detected, which does not mean that there is none. A 95% interval is of one number alone, and is "
                "designed to cover its true value in 95 of 100 such studies."
            )
        )
    for part in analysis.tasks:
        blocks += _task_blocks(evidence, part, analysis.tests, folder)
    if links:
        blocks.append(Heading("Inspected episodes"))
        blocks += [Link(text, target) for target, text in links.items()]
    return [*blocks, *_making(evidence, folder)], headlines


def _pooled(found: Pooled, evidence: Evidence) -> str:
    baseline, seeds = evidence.methods[0], set().union(*map(set, evidence.seeds.values()))
    return (
        f"All tasks together, in normalised score: {found.method}: "
        f"{verdict_said(found.verdict, found.test, found.difference)}. Mean difference from {baseline} "
        f"{estimate(found.difference, signed=True, digits=1)}; a run of it beats one of {baseline} with probability "
        f"{estimate(found.improvement, digits=2)}; {_counted(len(found.seeds), sorted(seeds - set(found.seeds)))}."
    )


def _task_blocks(evidence: Evidence, part: TaskAnalysis, tests: int, folder: Path) -> list[Block]:
    blocks: list[Block] = [Heading(part.task)]
    name = anchor(part.task)
    if len(part.scores) > 1 and len({(score.seeds, score.last) for score in part.scores}) == 1:
        blocks.append(
            Text(
                "All methods have exactly the same last returns: either they act alike, or every episode has the "
                "highest or the lowest return there is.",
                "warning",
            )
        )
    blocks += _curves(evidence, part, folder)
    blocks.append(score_table(evidence, part.task, part.scores))
    bars = any(score.last_mean.is_known for score in part.scores)
    blocks.append(
        Picture(
            [as_svg(seed_figure(part.scores, evidence.methods), f"Last return of every seed on {part.task}")],
            f"Every seed's last return (dots) and the mean (diamond){' with its 95% interval (bar)' if bars else ''}.",
        )
    )
    told = {len(score.seeds) for score in part.scores}
    if part.comparisons:
        blocks.append(difference_table(part.task, part.comparisons, tests, told))
        told |= {len(comparison.seeds) for comparison in part.comparisons}
    blocks += [paper_table(part.task, comparison, tests, told) for comparison in part.comparisons]
    blocks += account_table(part.scores, name) + value_table(part.scores, name)
    blocks.append(
        Table(
            ["method", "seconds per run", "updates/s"],
            [[score.method, duration(score.seconds), f"{score.updates_per_second:.1f}"] for score in part.scores],
            "Cost: mean over runs, several of which may have shared the machine.",
            name=f"cost-{name}",
        )
    )
    return blocks


def _curves(evidence: Evidence, part: TaskAnalysis, folder: Path) -> list[Block]:
    """Learning curves; none if no run was evaluated more than once."""
    runs = [run for run in evidence.runs if run.task == part.task]
    if all(len(run.curve(RETURN)[0]) < 2 for run in runs):
        return []
    figures = curve_figures(evidence, part.task)
    svgs = [as_svg(figure, f"Learning curve {place} on {part.task}") for place, figure in enumerate(figures, 1)]
    [png, *others] = save(paper_figure(evidence, [part.task]), folder / "figures" / anchor(part.task))
    for other in others:
        other.unlink()
    pretrained = any(line["phase"] == "pretrain" for run in runs for line in run.lines)
    ringed = any(line["phase"] == "pretrain" and RETURN in line for run in runs for line in run.lines)
    caption = "Learning curves by updates: mean over seeds, band of one standard deviation, every seed as a thin line"
    caption += "; the shaded part is pretraining." if pretrained else "."
    if any(line["env_steps"] for run in runs for line in run.lines):
        caption += " By environment steps every evaluation of every seed is a point"
        caption += ", and a ring is the end of its pretraining." if ringed else "."
    there = [score.method for score in part.scores]
    legend = {method: colour for method, colour in colours_of(evidence.methods).items() if method in there}
    return [Picture(svgs, caption, f"figures/{png.name}", legend)]


def _making(evidence: Evidence, folder: Path) -> list[Block]:
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
    return [*blocks, *run_blocks(evidence, folder)]


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
