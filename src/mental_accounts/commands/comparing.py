"""compare, reproduce, report."""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from mental_accounts.commands.program import command, one_line
from mental_accounts.data.d4rl import cached_d4rl
from mental_accounts.data.tasks import load_task
from mental_accounts.evidence.analysis import analyse
from mental_accounts.evidence.figures import check_matplotlib, paper_figure, save
from mental_accounts.evidence.inspected import inspect_evidence
from mental_accounts.evidence.paper import beside_the_paper, paper_table_for
from mental_accounts.evidence.report import Report, write_report
from mental_accounts.evidence.runs import Evidence, read_runs, read_study
from mental_accounts.learning.preparation import check_settings
from mental_accounts.learning.run_folder import RunError
from mental_accounts.learning.signals import stopping_by_signal
from mental_accounts.presets import PRESETS, PresetName
from mental_accounts.study.local import LocalLauncher, default_workers
from mental_accounts.study.plan import STUDY_FILE, Arm, Study, StudyError, parse_changes, with_changes
from mental_accounts.study.view import StudyView

FAILED_RUNS = 3
"""Exit code of a comparison of which some runs failed: the report is there, without them."""
MOST_SEEDS = 100_000
PAPER_TASKS = ("hopper-medium", "walker2d-medium-replay")
Launcher = Literal["local", "ray"]


@dataclass(frozen=True)
class Running:
    """Where and how runs are made."""

    out: Path | None = None
    """Folder of runs and report; None: comparisons/<tasks>-<preset>. The same folder again goes on where it was."""
    workers: int | None = None
    """Runs at a time; None: as many as cores and memory allow."""
    launcher: Launcher = "local"
    """local: processes of this machine. ray: tasks of a Ray cluster (pip install 'mental-accounts[ray]')."""
    address: str | None = None
    """Ray: address of a running cluster; None: start one here."""
    cpus: float = 1.0
    """Ray: CPU cores that a run needs."""
    gpus: float = 0.0
    """Ray: GPUs that a run needs; 0.25 puts four runs on one."""


@dataclass(frozen=True)
class Compare:
    """Run every task with every method and seed, and report who wins, if anybody does.

    `compare` alone: built-in hopper-medium, preset quick, odt, ewa-vq-odt and bc, 2 seeds.

    `compare --task hopper-medium walker2d-medium-replay --methods odt ewa-vq-odt:account_scope=window --seeds 10
    --preset paper`: the first method is the baseline; a method can carry changes of its own.

    Interrupted, the same command goes on; finished runs are never repeated.
    """

    task: tuple[str, ...] = ("hopper-medium",)
    """Tasks, by the names of `mental-accounts data list`."""
    methods: tuple[str, ...] = ("odt", "ewa-vq-odt", "bc")
    """The baseline and what is compared with it; METHOD:field=value,field=value changes fields of one of them."""
    seeds: int = 2
    """How many seeds: 0, 1, ..."""
    first_seed: int = 0
    """The first of them."""
    preset: PresetName = "quick"
    """Where every run starts from."""
    set: tuple[str, ...] = ()
    """field=value: changes to the preset, for all methods."""
    running: Annotated[Running, tyro.conf.arg(name="")] = Running()
    """Where and how runs are made."""

    def execute(self) -> int:
        """Run what is missing, then report."""
        study = self.plan()
        check_matplotlib()
        problems = run_study(study, self.running)
        report = report_with_episodes(read_study(study.folder), study.folder)
        _conclude(report, problems)
        return FAILED_RUNS if problems else 0

    def plan(self) -> Study:
        """What is to be run."""
        if self.seeds < 1:
            raise StudyError(f"a comparison needs at least one seed, got --seeds {self.seeds}")
        if self.seeds > MOST_SEEDS:
            raise StudyError(f"--seeds must be at most {MOST_SEEDS:,}, each is a run, got {self.seeds}")
        base = with_changes(PRESETS[self.preset], parse_changes(self.set))
        name = "-".join(re.sub(r"[^A-Za-z0-9]+", "-", task) for task in self.task)[:80]
        return Study(
            self.running.out or Path("comparisons") / f"{name}-{self.preset}",
            self.task,
            tuple(Arm.parse(text) for text in self.methods),
            tuple(range(self.first_seed, self.first_seed + self.seeds)),
            base,
            self.preset,
        )


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
    scope: tuple[Literal["window", "trajectory"], ...] = ("window",)
    """Where accounts begin: with every window (what the authors ran), with the trajectory (what the text says)."""
    set: tuple[str, ...] = ()
    """field=value: changes to the preset, for a shorter look."""
    running: Annotated[Running, tyro.conf.arg(name="")] = Running()
    """Where and how runs are made."""

    def execute(self) -> int:
        """Run, print the tables, draw the figure."""
        if not self.scope:
            raise StudyError("give at least one --scope: window, trajectory")
        tasks = tuple(f"d4rl/{name}-v2" if cached_d4rl(f"{name}-v2").exists() else name for name in PAPER_TASKS)
        arms = (
            ("ewa-vq-odt",) if self.scope == ("window",) else tuple(f"ewa-vq-odt:account_scope={s}" for s in self.scope)
        )
        out = self.running.out or Path("comparisons") / "paper"
        compare = Compare(
            tasks, ("odt", *arms), self.seeds, self.first_seed, "paper", self.set, replace(self.running, out=out)
        )
        study = compare.plan()
        check_matplotlib()
        problems = run_study(study, self.running)
        evidence = read_study(study.folder)
        report = report_with_episodes(evidence, study.folder)
        print_tables(evidence, Console())
        figure = save(paper_figure(evidence), study.folder / "figure")
        print(f"figure: {', '.join(map(str, figure))}")
        _conclude(report, problems)
        return FAILED_RUNS if problems else 0


@dataclass(frozen=True)
class ReportCommand:
    """Write the report of a comparison again, or one of any runs."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """The folder of a comparison; or folders of runs, which are grouped by task and method."""
    out: Path | None = None
    """Where to; None: into the comparison's folder, or the current one."""

    def execute(self) -> int:
        """Read and write."""
        check_matplotlib()
        if not self.folders:
            raise RunError("give the folder of a comparison, or folders of runs")
        missing = next((folder for folder in self.folders if not folder.is_dir()), None)
        if missing is not None:
            raise RunError(f"{missing} does not exist; give the folder of a comparison, or folders of runs")
        if (self.folders[0] / STUDY_FILE).exists():
            if len(self.folders) > 1:
                raise RunError("give one comparison at a time, or folders of runs")
            evidence, out = read_study(self.folders[0]), self.out or self.folders[0]
        else:
            evidence, out = read_runs(self.folders), self.out or Path()
        out.mkdir(parents=True, exist_ok=True)
        _conclude(report_with_episodes(evidence, out), {})
        return 0


def run_study(study: Study, running: Running) -> dict[str, str]:
    """Run what is not finished; what went wrong, by run."""
    if running.workers is not None and running.workers < 1:
        raise StudyError(f"--workers must be at least 1, got {running.workers}")
    missing = [job for job in study.jobs if not job.is_finished]
    if running.launcher == "local":  # a cluster has other memory
        for job in {job.arm.label: job for job in missing}.values():  # tasks and seeds change no size
            check_settings(job.config, lambda path: f"--set {path}")
    study.write(["mental-accounts", *sys.argv[1:]])
    console = Console()
    done = len(study.jobs) - len(missing)
    console.print(
        f"{len(study.jobs)} runs ({len(study.tasks)} tasks × {len(study.arms)} methods × {len(study.seeds)} seeds) in "
        f"{study.folder}" + (f", {done} finished before" if done else ""),
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
    if not missing:
        return {}
    again, state = command(sys.argv[1:]), "before the first run began"
    try:
        with stopping_by_signal(), StudyView(len(study.jobs), done, console) as view:
            if running.launcher == "ray":
                from mental_accounts.study.cluster import RayLauncher  # an extra

                state = "every run at its last checkpoint"
                return RayLauncher(running.address, running.cpus, running.gpus).run(missing, view)
            for task, steps, seed in dict.fromkeys((j.task, j.config.data_steps, j.config.data_seed) for j in missing):
                view.say(f"data: {task}")
                load_task(task, steps, seed)
            workers = running.workers or default_workers(missing)
            state = "every run after a checkpoint"
            return LocalLauncher(workers).run(missing, view)
    except KeyboardInterrupt:
        print(f"stopped, {state}; go on with: {again}", file=sys.stderr)
        raise


def report_with_episodes(evidence: Evidence, folder: Path) -> Report:
    """The report, linked to one inspected episode for each method and task."""
    if not evidence.runs:
        return write_report(evidence, folder)  # says what is missing
    console = Console(stderr=True)
    inspected = inspect_evidence(
        evidence, folder, lambda text: console.print(one_line(text), highlight=False, markup=False)
    )
    found = replace(evidence, warnings=(*evidence.warnings, *inspected.warnings))
    return write_report(found, folder, inspected.links)


def print_tables(evidence: Evidence, console: Console) -> None:
    """The paper's tables, ours beside the paper's numbers."""
    for part in analyse(evidence).tasks:
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


def _conclude(report: Report, problems: dict[str, str]) -> None:
    """Three lines: what came out, what failed, where to read on."""
    for text in report.headlines or ("nothing to compare: there are no two methods with a seed in common.",):
        print(one_line(text))
    if problems:
        told = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        print(one_line(f"{len(problems)} runs failed and are left out: {told}"))
    print(f"report: {report.html} (and {report.markdown.name})")
