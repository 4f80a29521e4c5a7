"""The studies of PROTOCOL.md, as questions.py has them: run, or printed as calls of `mental-accounts compare`.

    python studies/evidence.py q1 runs/evidence                            # run what is missing; may be killed
    python studies/evidence.py q1 runs/evidence --commands                 # print the calls, run nothing
    python studies/evidence.py q2 q3 runs/evidence --seconds 500 --pack results/evidence   # a part; packs what there is
    python studies/evidence.py q1 runs/evidence --skip 3 --pack results/evidence           # another part: later seeds

The runs of all calls make one queue, so that no machine waits for the last runs of a call. `--pack` writes one small
file per call, for `report`; what an earlier part has put there stays. `--choosing` makes the runs by which
forms are chosen, on seeds from 100 on; give them folders of their own, such as runs/choosing and results/choosing.
"""

import argparse
import contextlib
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from mental_accounts.folder_lock import locked
from mental_accounts.front_door.compare import pack_study, plan_study, seeds_from
from mental_accounts.study.launch import run_jobs
from mental_accounts.study.plan import parse_changes
from mental_accounts.study.running import Running
from questions import CHOICES, STUDIES, Call


@contextlib.contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Interrupt the block after so long, as Ctrl-C does; then nothing is raised. None: no limit."""
    if seconds is None:
        yield
        return
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C, also where that is ignored
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.1))
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def run(calls: Mapping[Path, Call], running: Running) -> None:
    """Run what is missing of the calls, by their folders, without reports. Runs can go on from their checkpoints."""
    with contextlib.ExitStack() as folders:
        jobs = []
        for out, call in calls.items():
            seeds, changes = seeds_from(call.first_seed, call.seeds), parse_changes(call.changes)
            study = plan_study(call.tasks, call.methods, seeds, call.preset, changes, out, data_per_seed=True)
            folders.enter_context(locked(out))
            study.write(["mental-accounts", *call.arguments(out)])
            jobs += [replace(job, study=out.name) for job in study.jobs]
        outcome = run_jobs(jobs, running, shlex.join(sys.argv), Console(stderr=True))
    for name, problem in outcome.problems.items():
        print(f"failed: {name}: {problem}", file=sys.stderr)


def pack(parts: Sequence[Path], file: Path) -> None:
    """Put the parts of a call into one file, with what it holds already."""
    found = [*([file] if file.exists() else []), *(part for part in parts if (part / "study.json").exists())]
    if found:
        file.parent.mkdir(parents=True, exist_ok=True)
        print(f"{file}: {pack_study(found, file)} runs", file=sys.stderr)


def main() -> None:
    """Run, print or pack the calls of some questions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="+", choices=STUDIES, metavar="question", help=", ".join(STUDIES))
    parser.add_argument("folder", type=Path, help="where the runs are")
    parser.add_argument("--only", nargs="*", help="names of calls; default: all")
    parser.add_argument("--choosing", action="store_true", help="the runs by which forms are chosen")
    parser.add_argument("--seeds", type=int, help="how many seeds; default: the protocol's, less those skipped")
    parser.add_argument("--skip", type=int, default=0, help="how many of the first seeds are left to another part")
    parser.add_argument("--seconds", type=float, help="stop after so long; the same command goes on")
    parser.add_argument("--workers", type=int, help="runs at a time; default: as many as there is room for")
    parser.add_argument(
        "--compile", action="store_true", help="compile updates: repaid by a dozen runs of a form per worker"
    )
    parser.add_argument("--commands", action="store_true", help="print the calls, run nothing")
    parser.add_argument("--pack", type=Path, help="pack what there is into this folder, after running")
    given = parser.parse_args()
    studies = CHOICES if given.choosing else STUDIES
    if nothing := [question for question in given.questions if question not in studies]:
        parser.error(f"nothing is chosen for {nothing[0]}, only for {', '.join(CHOICES)}")
    known = [(question, name) for question in given.questions for name in studies[question]]
    unknown = [name for name in given.only or () if name not in {name for _, name in known}]
    if unknown:
        parser.error(f"there is no call {unknown[0]!r}; there are {', '.join(name for _, name in known)}")
    calls, packed = {}, {}
    for question, name in known:
        if given.only and name not in given.only:
            continue
        whole = given.folder / question / name
        call = studies[question][name]
        first = call.first_seed + given.skip
        out = whole if given.skip == 0 else whole.with_name(f"{name}-from-{first}")
        changes = (*call.changes, "compile=True") if given.compile else call.changes
        seeds = given.seeds or call.seeds - given.skip
        calls[out] = replace(call, changes=changes, seeds=seeds, first_seed=first)
        packed[whole] = f"{question}-{name}.jsonl.gz"
    if given.commands:
        for out, call in calls.items():
            print("mental-accounts", shlex.join(call.arguments(out)))
        return
    with limited(given.seconds):
        run(calls, Running(workers=given.workers))
    if given.pack is not None:
        for whole, name in packed.items():
            pack([whole, *sorted(whole.parent.glob(f"{whole.name}-from-*"))], given.pack / name)


if __name__ == "__main__":
    main()
