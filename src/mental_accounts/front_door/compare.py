"""Comparing methods: every task with every method and seed, then the statistics and a report."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from rich.console import Console

from mental_accounts.account_options import AccountScope
from mental_accounts.changes import with_changes
from mental_accounts.data.d4rl import cached_d4rl
from mental_accounts.errors import UsageError
from mental_accounts.folder_lock import locked
from mental_accounts.learning.run_view import print_line
from mental_accounts.presets import PresetName, preset_of, usual_comparison
from mental_accounts.report.analysis import Analysis, analyse
from mental_accounts.report.figures import check_matplotlib
from mental_accounts.report.inspected import inspect_evidence
from mental_accounts.report.low_endings import low_endings
from mental_accounts.report.merging import merged
from mental_accounts.report.packed import write_packed
from mental_accounts.report.report import Report, write_report
from mental_accounts.report.runs import Evidence, files_of, is_study, read_runs, read_study
from mental_accounts.study.launch import Outcome, check_study, run_study
from mental_accounts.study.plan import OWN_FLAGS, Arm, Study
from mental_accounts.study.running import LauncherKind, Running
from mental_accounts.study.study_view import RunWarning

MOST_SEEDS = 100_000
PAPER_TASKS = ("hopper-medium", "walker2d-medium-replay")
Say = Callable[[str], None]


@dataclass(frozen=True)
class ComparisonResult:
    """The result of a comparison."""

    folder: Path
    """Runs, report and figures."""
    headlines: tuple[str, ...]
    """One sentence for each task and method: it helps, it hurts, no difference was detected, or seeds are too few."""
    report: Path
    """report.html; report.md and report.json are next to it."""
    evidence: Evidence
    """The runs that were compared."""
    problems: Mapping[str, str]
    """Failed runs, with the reason; they are left out."""
    warnings: tuple[RunWarning, ...]
    """Warnings of the runs."""

    @cached_property
    def analysis(self) -> Analysis:
        """All numbers: scores by task and method, differences from the baseline with intervals."""
        return analyse(self.evidence)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per task and method: the last return, and the difference from the baseline, with 95% intervals."""
        found = []
        for part in self.analysis.tasks:
            against = {comparison.method: comparison for comparison in part.comparisons}
            for scores in part.scores:
                last, comparison = scores.last_mean, against.get(scores.method)
                difference = None if comparison is None else comparison.last
                found.append(
                    {
                        "task": part.task,
                        "method": scores.method,
                        "seeds": len(scores.seeds),
                        "last_return": last.estimate,
                        "last_return_low": last.low,
                        "last_return_high": last.high,
                        "difference": None if difference is None else difference.estimate,
                        "difference_low": None if difference is None else difference.low,
                        "difference_high": None if difference is None else difference.high,
                        "verdict": None if comparison is None else comparison.verdict,
                    }
                )
        return found


def compare(
    tasks: str | Sequence[str] | None = None,
    methods: str | Sequence[str] | None = None,
    *,
    seeds: int | Sequence[int] = 2,
    data_per_seed: bool = False,
    preset: PresetName = "quick",
    out: str | Path | None = None,
    workers: int | None = None,
    launcher: LauncherKind = "local",
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    progress: bool | None = None,
    **changes: Any,
) -> ComparisonResult:
    """Run every task with every method and seed, each in a process of its own, and report which method helps.

    Args:
        tasks: one or several, by the names of `mental-accounts data list`. None: the preset's (hopper-medium; hidden:
            hidden-arm).
        methods: the baseline, then the methods to compare with it; `ewa-vq-odt:beta=0.1` changes fields of one method.
            None: odt, ewa-vq-odt and bc, with preset hidden ledger-odt too.
        seeds: how many (0, 1, ...), or which.
        data_per_seed: whether every seed has data of its own, instead of one data set for all.
        preset: where every run starts from.
        out: the folder; None: comparisons/<tasks>-<preset>. Given the same folder again, it continues where it stopped.
        workers: runs at a time; None: as many as cores and memory allow.
        launcher: local: processes on this machine; ray: tasks on a Ray cluster.
        address: of a running Ray cluster; None: start one here.
        cpus: Ray: CPU cores per run.
        gpus: Ray: GPUs per run.
        progress: as in `ma.train`.
        changes: fields of TrainConfig, for all methods that have them: lr=3e-4, model={"hidden": 64}, or hidden=64.
    """
    for name in changes:
        if name in OWN_FLAGS:
            raise UsageError(f"{name} is not a change: a comparison sets it itself, by tasks=, methods= and seeds=")
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    usual_tasks, usual_methods = usual_comparison(preset)
    tasks, methods = usual_tasks if tasks is None else tasks, usual_methods if methods is None else methods
    given = (tasks,) if isinstance(tasks, str) else tuple(tasks)
    running = Running(None if out is None else Path(out), workers, launcher, address, cpus, gpus)
    named = (methods,) if isinstance(methods, str) else methods
    study = plan_study(given, named, chosen, preset, changes, running.out, data_per_seed=data_per_seed)
    shown = Console().is_terminal if progress is None else progress
    console = Console(quiet=not shown)
    again, say = "the same call of ma.compare", partial(print_line, console)
    result = run_comparison(study, running, ["python", *sys.argv], again, console, say)
    if progress is None and not shown:
        for warning in result.warnings:
            print(warning, file=sys.stderr)
    return result


def plan_study(
    tasks: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    preset: PresetName,
    changes: Mapping[str, Any],
    out: Path | None = None,
    *,
    data_per_seed: bool = False,
) -> Study:
    """The runs of a comparison; invalid settings are refused here.

    Changes apply to the published method, which has all that can be changed; every other one takes from it what it has.
    """
    start = preset_of(preset)
    start = start.for_task(tasks[0]) if tasks else start
    base = with_changes(start.for_method("ewa-vq-odt"), changes)
    name = "-".join(re.sub(r"[^A-Za-z0-9]+", "-", task) for task in tasks)[:80]
    arms = tuple(Arm.parse(text) for text in methods)
    folder = out or Path("comparisons") / f"{name}-{preset}"
    return Study(folder, tuple(tasks), arms, tuple(seeds), base, preset, data_per_seed)


def seeds_from(first: int, count: int) -> tuple[int, ...]:
    """`count` consecutive seeds."""
    if count < 1:
        raise UsageError(f"a comparison needs at least one seed, got --seeds {count}")
    if count > MOST_SEEDS:
        raise UsageError(f"--seeds must be at most {MOST_SEEDS:,}, since each is a run, got {count}")
    return tuple(range(first, first + count))


def plan_paper(
    seeds: Sequence[int], scopes: Sequence[AccountScope], changes: Mapping[str, Any], out: Path | None
) -> Study:
    """The paper's experiment: on D4RL's data if they have been downloaded, else on built-in data."""
    if not scopes:
        raise UsageError("give at least one --scope: window, trajectory")
    tasks = tuple(f"d4rl/{name}-v2" if cached_d4rl(f"{name}-v2").exists() else name for name in PAPER_TASKS)
    arms: tuple[str, ...] = ("ewa-vq-odt",)
    if tuple(scopes) != ("window",):
        arms = tuple(f"ewa-vq-odt:account_scope={scope}" for scope in scopes)
    return plan_study(tasks, ("odt", *arms), seeds, "paper", changes, out or Path("comparisons") / "paper")


def run_comparison(
    study: Study, running: Running, command: Sequence[str], again: str, console: Console, say: Say
) -> ComparisonResult:
    """Run the missing runs, then report. `command` started the comparison, and `again` continues it."""
    check_matplotlib()
    check_study(study, running)
    with locked(study.folder):
        outcome = run_study(study, running, command, again, console)
        return report_on(read_study(study.folder), study.folder, say, outcome)


def report_folders(folders: Sequence[Path], out: Path | None, say: Say) -> ComparisonResult:
    """Write the report again, for the folder or packed file of a comparison, or for any run folders."""
    first = _first_of(folders)
    check_matplotlib()
    if is_study(first):
        evidence, out = read_study(first), out or (first.parent if first.is_file() else first)
    else:
        evidence, out = read_runs(folders), out or Path()
    out.mkdir(parents=True, exist_ok=True)
    return report_on(evidence, out, say)


def pack_study(folders: Sequence[Path], path: Path) -> int:
    """Write a comparison as one small file that `report_folders` can read; returns the number of runs.

    Several folders or packed files are parts of one comparison, with other seeds or tasks.
    """
    if not folders:
        raise UsageError("give the folder of a comparison, or those of its parts")
    return write_packed(merged([files_of(part) for part in folders]), path)


def _first_of(folders: Sequence[Path]) -> Path:
    """The first of the folders, if all exist and a comparison is the only one."""
    if not folders:
        raise UsageError("give the folder of a comparison, or folders of runs")
    missing = next((folder for folder in folders if not folder.exists()), None)
    if missing is not None:
        raise UsageError(f"{missing} does not exist; give the folder of a comparison, or folders of runs")
    if any(map(is_study, folders)) and len(folders) > 1:
        raise UsageError("give one comparison at a time (parts of one are put together by --pack), or folders of runs")
    return folders[0]


def report_on(evidence: Evidence, folder: Path, say: Say, outcome: Outcome | None = None) -> ComparisonResult:
    """Write the report, linked to one inspected episode for each method and task."""
    outcome = outcome or Outcome()
    if evidence.runs:
        inspected = inspect_evidence(evidence, folder, say)
        found = replace(evidence, warnings=(*evidence.warnings, *inspected.warnings))
        written: Report = write_report(found, folder, inspected.links)
    elif outcome.problems:
        reasons = "; ".join(f"{name}: {problem}" for name, problem in outcome.problems.items())
        raise UsageError(f"there is no finished run to report on; {reasons}")
    else:
        written = write_report(evidence, folder)  # raises, with what is missing
    low = (
        RunWarning(end.text, tuple(f"{end.task} {end.method} seed {seed}" for seed in end.seeds), end.subject)
        for end in low_endings(evidence)
    )
    warnings = (*outcome.warnings, *low)
    return ComparisonResult(folder, written.headlines, written.html, evidence, outcome.problems, warnings)
