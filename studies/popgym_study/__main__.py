"""The command: python -m studies.popgym_study --out FOLDER."""

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from .suite_methods import METHODS
from .suite_report import write_report
from .suite_runs import BANDITS, STEPS, DifferentRunError, Job, attempt, is_finished, players_path

DESCRIPTION = """Trains PPO with a ledger and with other memories on POPGym, and writes a report.

    python -m studies.popgym_study --out results/popgym --workers 16         # all of it
    python -m studies.popgym_study --out tried --environments MineSweeperEasy --seeds 1000 --steps 100000
    python -m studies.popgym_study --out results/popgym --report             # tables and picture from finished runs
    python -m studies.popgym_study --out results/popgym --list               # what is finished

A run that is finished is not run again; one that was interrupted begins anew.
"""
COST = {"lstm": 4.0, "stack": 2.0, "ledger-per-code": 2.0}
"""Roughly, relative to the others: the longest runs go first, so that no core idles at the end."""

SURROUNDINGS = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # glibc gives large arrays back after every use, and fetching the pages anew takes half the time of an update.
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
}
"""Of the processes that train."""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.popgym_study",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for runs, tables and picture")
    parser.add_argument("--environments", nargs="+", default=list(STEPS), choices=list(STEPS), metavar="NAME",
                        help=f"of {', '.join(STEPS)}")  # fmt: skip
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="NAME",
                        help=f"of {', '.join(METHODS)}")  # fmt: skip
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)), help="default: 0 1 2 3 4")
    parser.add_argument("--steps", type=int, help="for all environments; default: 2M on bandits, 1M elsewhere")
    parser.add_argument("--workers", type=int, default=1, help="processes, with one thread each")
    parser.add_argument("--device", default="cpu", help="for networks; a GPU may pay off for lstm alone")
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--list", action="store_true", help="print the runs and whether they are finished")
    return parser.parse_args(given)


def jobs_of(asked: argparse.Namespace) -> list[Job]:
    """All runs that were asked for, the longest first."""
    jobs = [
        Job(environment, method, seed, asked.steps or STEPS[environment], asked.out, asked.device)
        for environment in asked.environments
        for method in asked.methods
        for seed in asked.seeds
    ]
    return sorted(jobs, key=lambda job: -COST.get(job.method, 1.0) * job.steps)


def main(given: list[str] | None = None) -> int:
    """Train what is missing, write the report; 1 if a run failed."""
    asked = arguments(given)
    try:
        jobs = jobs_of(asked)
        finished = {job: is_finished(job) for job in jobs}
    except DifferentRunError as error:
        print(f"error: {error}")
        return 2
    if asked.list:
        for job, done in finished.items():
            print(f"{'finished' if done else 'missing ':8} {job.path.stem} ({job.steps:,} steps)")
        return 0
    failed = 0 if asked.report else train(asked, [job for job in jobs if not finished[job]])
    print(write_report(asked.out))
    return 1 if failed else 0


def train(asked: argparse.Namespace, missing: list[Job]) -> int:
    """Run what is missing in processes of their own; how many failed."""
    os.environ |= SURROUNDINGS  # before the processes start
    bandits = [name for name in asked.environments if name in BANDITS]
    tasks: list[Job | tuple[Path, str]] = [*missing]
    tasks += [(asked.out, name) for name in bandits if not players_path(asked.out, name).exists()]
    print(f"{len(tasks)} to run, {asked.workers} at a time", flush=True)
    failed = 0
    with ProcessPoolExecutor(asked.workers, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(attempt, task): task for task in tasks}
        for number, future in enumerate(as_completed(futures), 1):
            try:
                said, wrong = future.result()
            except Exception as error:  # the process itself ended
                said, wrong = str(futures[future]), repr(error)
            failed += wrong is not None
            print(f"[{number}/{len(tasks)}] {said}{'' if wrong is None else f' FAILED: {wrong}'}", flush=True)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
