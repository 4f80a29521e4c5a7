"""The time of a whole study: as `compare` makes it, by a process for each run, and one run after the other.

    python benchmarks/study.py --preset paper --task hopper-medium walker2d-medium-replay --seeds 10 --few 8
    python benchmarks/study.py --preset hidden --task hidden-arm --methods odt ledger-odt --seeds 4 --few 4 --json FILE

study: what `compare` does: long-lived workers, MPS where it is there, as many at a time as there is room for; with the
report. processes: as version 0.1 did: a new process for each run, one for each core at a time. sequence: a new process
for each run, one after the other, with all cores. The slow ways make only the first --few runs. Data are made before
the clock starts, which all ways would do alike. Parts are seconds of a run, averaged; several go on at a time, so they
add up to more than the seconds a run takes of the study.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console

from mental_accounts.data.tasks import load_task
from mental_accounts.front_door.compare import plan_study, report_folders
from mental_accounts.learning.events import Event, IterationEnded, StageBegan, UpdateDone, from_plain
from mental_accounts.learning.run_folder import surroundings
from mental_accounts.machine import usable_cores
from mental_accounts.study.data_ahead import data_of
from mental_accounts.study.launch import Running, run_study
from mental_accounts.study.plan import Job, Study, parse_changes
from mental_accounts.study.study_view import StudyView
from mental_accounts.study.worker import Worker

PARTS = ("start", "load", "first update", "updates", "episodes", "evaluation", "rest")
"""start: process and imports. load: data, network and environments. first update: kernels are chosen, and compiled."""


class Clock:
    """When each run began and got so far; called from several threads."""

    def __init__(self) -> None:
        self.times: dict[str, dict[str, float]] = {}
        self.spent: dict[str, dict[str, float]] = {}

    def begins(self, name: str) -> None:
        self.times[name], self.spent[name] = {"begun": time.monotonic()}, dict.fromkeys(PARTS, 0.0)

    def hears(self, name: str, event: Event | None) -> None:
        known, now = self.times[name], time.monotonic()
        if isinstance(event, StageBegan):
            known.setdefault("loading" if event.stage == "loading" else "loaded", now)
            if event.stage == "learning":
                known.setdefault("learning", now)
        elif isinstance(event, UpdateDone):
            known.setdefault("updated", now)
        elif isinstance(event, IterationEnded):
            for part, key in (("updates", "training"), ("episodes", "exploration"), ("evaluation", "evaluation")):
                self.spent[name][part] += event.metrics[f"time/{key}"]

    def ends(self, name: str) -> None:
        known, spent = self.times[name], self.spent[name]
        spent["start"] = known["loading"] - known["begun"]
        spent["load"] = known["loaded"] - known["loading"]
        spent["first update"] = known["updated"] - known["learning"]
        spent["updates"] -= spent["first update"]
        spent["rest"] = time.monotonic() - known["begun"] - sum(spent.values())

    def parts(self) -> dict[str, float]:
        """Seconds of a run, on average."""
        return {part: statistics.mean(found[part] for found in self.spent.values()) for part in PARTS}


class ClockedView(StudyView):
    """A study's display that notes times."""

    clock: Clock

    def begins(self, job: Job) -> None:
        self.clock.begins(job.name)
        super().begins(job)

    def hears(self, job: Job, event: Event) -> None:
        self.clock.hears(job.name, event)
        super().hears(job, event)

    def ends(self, job: Job, problem: str | None) -> None:
        assert problem is None, problem
        self.clock.ends(job.name)
        super().ends(job, problem)


class Utilisation:
    """How busy the GPU is, each second, by nvidia-smi; nothing where there is none."""

    def __enter__(self) -> "Utilisation":
        self.seen: list[float] = []
        self._process = None
        if shutil.which("nvidia-smi"):
            asked = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-l", "1"]
            self._process = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self.seen += (float(line) for line in self._process.stdout if line.strip().isdigit())

    @property
    def mean(self) -> float | None:
        return statistics.mean(self.seen) if self.seen else None


def as_study(study: Study, clock: Clock, workers: int | None, reports: bool) -> dict[str, float]:
    """All runs as `compare` makes them, and the report, if wanted; seconds of both."""
    begun = time.monotonic()
    ClockedView.clock = clock
    outcome = run_study(study, Running(workers=workers), ["benchmark"], "again", Console(stderr=True), ClockedView)
    assert not outcome.problems, outcome.problems
    ran = time.monotonic()
    if reports:
        report_folders([study.folder], None, lambda text: None)
    return {"runs": ran - begun, "report": time.monotonic() - ran}


def as_processes(jobs: Sequence[Job], clock: Clock, at_a_time: int) -> dict[str, float]:
    """A new process for each run."""

    def make(job: Job) -> None:
        clock.begins(job.name)
        worker = Worker(max(1, usable_cores() // at_a_time))
        problem = worker.run(job.path, lambda values: clock.hears(job.name, from_plain(values)))
        assert problem is None, problem
        worker.close()
        worker.end(60)
        worker.release()
        clock.ends(job.name)

    begun = time.monotonic()
    with ThreadPoolExecutor(at_a_time) as pool:
        list(pool.map(make, jobs))
    return {"runs": time.monotonic() - begun, "report": 0.0}


def measure(way: str, study: Study, few: int | None, workers: int | None, reports: bool) -> dict[str, Any]:
    """One way of making the study."""
    clock, jobs = Clock(), study.jobs if way == "study" else study.jobs[:few]
    study.write(["benchmark"])
    for data in dict.fromkeys(map(data_of, jobs)):
        load_task(*data)
    ways: dict[str, Callable[[], dict[str, float]]] = {
        "study": lambda: as_study(study, clock, workers, reports),
        "processes": lambda: as_processes(jobs, clock, min(workers or usable_cores(), len(jobs))),
        "sequence": lambda: as_processes(jobs, clock, 1),
    }
    with Utilisation() as gpu:
        taken = ways[way]()
    each = taken["runs"] / len(jobs)
    row = {"way": way, "runs": len(jobs), "seconds": taken, "seconds_a_run": each, "runs_an_hour": 3600 / each}
    row |= {"parts": clock.parts(), "gpu_percent": gpu.mean}
    parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in row["parts"].items())
    busy = "" if gpu.mean is None else f", GPU busy {gpu.mean:.0f}%"
    print(f"{way:10} {len(jobs):3} runs  {taken['runs']:7.1f} s  {each:6.2f} s a run  {3600 / each:6.0f} an hour{busy}")
    print(f"           a run: {parts}; report {taken['report']:.1f} s", flush=True)
    return row


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--preset", default="quick")
    arguments.add_argument("--task", nargs="+", default=["hopper-medium"])
    arguments.add_argument("--methods", nargs="+", default=["odt", "ewa-vq-odt"])
    arguments.add_argument("--seeds", type=int, default=2)
    arguments.add_argument("--set", nargs="*", default=[])
    arguments.add_argument("--ways", nargs="+", default=["study", "processes", "sequence"])
    arguments.add_argument("--few", type=int, help="how many runs the slow ways make; all by default")
    arguments.add_argument("--workers", type=int, help="runs at a time; by default as many as there is room for")
    arguments.add_argument("--no-report", action="store_true", help="do not make the study's report")
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    rows = []
    for way in asked.ways:
        with tempfile.TemporaryDirectory() as folder:
            study = plan_study(
                asked.task, asked.methods, range(asked.seeds), asked.preset, parse_changes(asked.set), Path(folder)
            )
            rows.append(measure(way, study, asked.few, asked.workers, not asked.no_report))
        if asked.json is not None:
            asked.json.write_text(json.dumps({"command": sys.argv, **surroundings(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
