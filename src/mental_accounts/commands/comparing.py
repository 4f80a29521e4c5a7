"""compare, reproduce, report."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from mental_accounts.commands.program import command, one_line, value_of
from mental_accounts.front_door.compare import (
    ComparisonResult,
    Scope,
    pack_study,
    plan_paper,
    plan_study,
    report_folders,
    run_comparison,
    seeds_from,
    usual_comparison,
)
from mental_accounts.presets import PRESETS, PresetName
from mental_accounts.report.analysis import Analysis
from mental_accounts.report.figures import paper_figure, save
from mental_accounts.report.paper import beside_the_paper, paper_table_for
from mental_accounts.study.launch import Running
from mental_accounts.study.plan import Study, parse_changes

FAILED_RUNS = 3
"""Exit code of a comparison of which some runs failed: the report is there, without them."""


@dataclass(frozen=True)
class Compare:
    """Run every task with every method and seed, and report who wins, if anybody does.

    `compare` alone: built-in hopper-medium, preset quick, odt, ewa-vq-odt and bc, 2 seeds.

    `compare --preset hidden`: hidden-arm, and ledger-odt, the policy that reads its ledger, among the methods.

    `compare --task hopper-medium walker2d-medium-replay --methods odt ewa-vq-odt:account_scope=window --seeds 10
    --preset paper`: the first method is the baseline; a method can carry changes of its own.

    Interrupted, the same command goes on; finished runs are never repeated.
    """

    task: tuple[str, ...] = usual_comparison("quick")[0]
    """Tasks, by the names of `mental-accounts data list`."""
    methods: tuple[str, ...] = usual_comparison("quick")[1]
    """The baseline and what is compared with it; METHOD:field=value,field=value changes fields of one of them."""
    seeds: int = 2
    """How many seeds: 0, 1, ..."""
    first_seed: int = 0
    """The first of them."""
    preset: PresetName = "quick"
    """Where every run starts from."""
    set: tuple[str, ...] = ()
    """field=value: changes to the preset, for all methods that have the field."""
    running: Annotated[Running, tyro.conf.arg(name="")] = field(default_factory=Running)
    """Where and how runs are made."""

    def execute(self) -> int:
        """Run what is missing, then report."""
        seeds = seeds_from(self.first_seed, self.seeds)
        changes = parse_changes(self.set)
        study = plan_study(self.task, self.methods, seeds, self.preset, changes, self.running.out)
        return _conclude(_run(study, self.running))


@dataclass(frozen=True)
class Reproduce:
    """The paper's experiment: its two tables beside ours, and its figure.

    Preset paper on both tasks. D4RL's data are used where they have been downloaded (`data make`), built-in
    data where not; the report says which.
    """

    seeds: int = 3
    """How many seeds; the paper has 3."""
    first_seed: int = 1
    """The paper's seeds begin with 1."""
    scope: tuple[Scope, ...] = ("window",)
    """Where accounts begin: with every window (what the authors ran), with the trajectory (what the text says)."""
    set: tuple[str, ...] = ()
    """field=value: changes to the preset, for a shorter look."""
    running: Annotated[Running, tyro.conf.arg(name="")] = field(default_factory=Running)
    """Where and how runs are made."""

    def execute(self) -> int:
        """Run, print the tables, draw the figure."""
        seeds = seeds_from(self.first_seed, self.seeds)
        result = _run(plan_paper(seeds, self.scope, parse_changes(self.set), self.running.out), self.running)
        print_tables(result.analysis, Console())
        figure = save(paper_figure(result.evidence), result.folder / "figure")
        print(f"figure: {', '.join(map(str, figure))}")
        return _conclude(result)


@dataclass(frozen=True)
class ReportCommand:
    """Write the report of a comparison again, or one of any runs; or pack a comparison into one file."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """The folder of a comparison, or its packed file; or folders of runs, which are grouped by task and method."""
    out: Path | None = None
    """Where to; None: into the comparison's folder, or the current one."""
    pack: Path | None = None
    """Instead of a report, write the comparison as one small file, NAME.jsonl.gz, that `report` reads as well."""

    def execute(self) -> int:
        """Read and write."""
        if self.pack is not None:
            runs = pack_study(self.folders, self.pack)
            print(f"packed: {runs} runs in {self.pack}, {self.pack.stat().st_size / 1e6:.2f} MB")
            return 0
        return _conclude(report_folders(self.folders, self.out, _say))


def usual_compare(arguments: list[str]) -> Compare:
    """The defaults of `compare`: those of the preset that the arguments name."""
    named = value_of(arguments, "--preset")
    preset: PresetName = next((known for known in PRESETS if known == named), "quick")
    task, methods = usual_comparison(preset)
    return Compare(task=task, methods=methods, preset=preset)


def _run(study: Study, running: Running) -> ComparisonResult:
    made_by = ["mental-accounts", *sys.argv[1:]]
    return run_comparison(study, running, made_by, command(sys.argv[1:]), Console(), _say)


def _say(text: str) -> None:
    Console(stderr=True).print(one_line(text), highlight=False, markup=False)


def print_tables(analysis: Analysis, console: Console) -> None:
    """The paper's tables, ours beside the paper's numbers."""
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
                "95% interval says",
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


def _conclude(result: ComparisonResult) -> int:
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
