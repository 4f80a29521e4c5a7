"""Running a planned comparison from the command line, and what is printed at its end."""

import sys

from rich.console import Console
from rich.table import Table

from mental_accounts.commands.program import command, one_line
from mental_accounts.front_door.compare import ComparisonResult, run_comparison
from mental_accounts.report.analysis import Analysis
from mental_accounts.report.paper import beside_the_paper, paper_table_for
from mental_accounts.study.plan import Study
from mental_accounts.study.running import Running

FAILED_RUNS = 3
"""Exit code of a comparison of which some runs failed: the report is there, without them."""


def run_planned(study: Study, running: Running) -> ComparisonResult:
    """Run what is missing of a study, then report."""
    made_by = ["mental-accounts", *sys.argv[1:]]
    return run_comparison(study, running, made_by, command(sys.argv[1:]), Console(), say)


def say(text: str) -> None:
    """One line on standard error."""
    Console(stderr=True).print(one_line(text), highlight=False, markup=False)


def print_tables(analysis: Analysis) -> None:
    """The paper's tables, ours beside the paper's numbers."""
    console = Console()
    for part in analysis.tasks:
        paper = paper_table_for(part.task)
        for comparison in part.comparisons:
            seeds = len(comparison.seeds)
            table = Table(title=f"{part.task}, {seeds} seeds (the paper: {paper.dataset if paper else '–'}, 3 seeds)")
            for name in (
                "metric",
                comparison.method,
                comparison.baseline,
                "Δ",
                "paper",
                "paper ODT",
                "paper Δ",
                "verdict",
            ):
                table.add_column(name, justify="left" if name == "metric" else "right")
            for method, ours, theirs, verdict in beside_the_paper(part):
                if method == comparison.method:
                    numbers = (
                        ["–"] * 3 if theirs is None else [f"{theirs[0]:g}", f"{theirs[1]:g}", f"{theirs[2]:+.1f}%"]
                    )
                    row = [f"{ours.ours:.1f}", f"{ours.baseline:.1f}", f"{ours.change_percent:+.1f}%"]
                    table.add_row(ours.metric, *row, *numbers, verdict)
            console.print(table)


def conclude(result: ComparisonResult) -> int:
    """What runs warned of, what came out, what failed, where to read on; the exit code."""
    for warning in result.warnings:
        print(one_line(str(warning)))
    for text in result.headlines or ("nothing to compare: there are no two methods with a seed in common.",):
        print(one_line(text))
    if result.problems:
        told = "; ".join(f"{name}: {problem}" for name, problem in result.problems.items())
        print(one_line(f"{len(result.problems)} runs failed and are left out: {told}"))
    print(f"report: {result.report} (and report.md)")
    return FAILED_RUNS if result.problems else 0
