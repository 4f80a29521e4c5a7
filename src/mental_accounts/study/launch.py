"""Running a study: all unfinished runs, on this machine or on a cluster."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Console

from mental_accounts.errors import UsageError
from mental_accounts.learning.preparation import check_settings
from mental_accounts.learning.signals import stopping_by_signal
from mental_accounts.study.local import LocalLauncher
from mental_accounts.study.plan import Job, Study
from mental_accounts.study.running import Running
from mental_accounts.study.study_view import RunWarning, StudyView


@dataclass(frozen=True)
class Outcome:
    """The outcome of the runs, in addition to their folders."""

    problems: dict[str, str] = field(default_factory=dict)
    """Errors, by the name of the run."""
    warnings: tuple[RunWarning, ...] = ()
    """Warnings of the runs."""


def check_study(study: Study, running: Running) -> None:
    """Refuse what cannot be run here, before anything is written."""
    if running.workers is not None and running.workers < 1:
        raise UsageError(f"--workers must be at least 1, got {running.workers}")
    if running.launcher == "local":  # a cluster has other memory
        missing = (job for job in study.jobs if not job.is_finished)
        for job in {job.arm.label: job for job in missing}.values():  # tasks and seeds change no size
            check_settings(job.config, lambda path: f"--set {path}")


def run_study(
    study: Study,
    running: Running,
    command: Sequence[str],
    again: str,
    console: Console,
    view_of: Callable[[int, int, Console], StudyView] = StudyView,
) -> Outcome:
    """Run all unfinished runs. `command` started the study; `again` says how to continue if it is interrupted.

    `view_of` makes the display, of so many runs, so many of which are finished.
    """
    study.write(command)
    return run_jobs(study.jobs, running, again, console, view_of, f" ({study.shape}) in {study.folder}")


def run_jobs(
    jobs: Sequence[Job],
    running: Running,
    again: str,
    console: Console,
    view_of: Callable[[int, int, Console], StudyView] = StudyView,
    described: str = "",
) -> Outcome:
    """Run those that are not finished, of one study or of several, whose folders are written."""
    missing = [job for job in jobs if not job.is_finished]
    done = len(jobs) - len(missing)
    console.print(
        f"{len(jobs)} runs{described}" + (f", {done} finished before" if done else ""),
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
    if not missing:
        return Outcome()
    state = "every run after a checkpoint"
    view = view_of(len(jobs), done, console)
    try:
        with stopping_by_signal(), view:
            if running.launcher == "ray":
                from mental_accounts.study.cluster import RayLauncher  # optional dependency

                state = "every run at its last checkpoint"
                problems = RayLauncher(running.address, running.cpus, running.gpus).run(missing, view)
            else:
                problems = LocalLauncher(running.workers).run(missing, view)
    except KeyboardInterrupt:
        print(f"stopped, {state}; continue with: {again}", file=sys.stderr)
        raise
    return Outcome(problems, view.warnings)
