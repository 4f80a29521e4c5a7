"""Runs that end far below the data they have learned from: one line for each task and method."""

from dataclasses import dataclass

from mental_accounts.learning.run_ending import Ending
from mental_accounts.report.runs import RETURN, SAMPLED, Evidence, Run
from mental_accounts.return_text import return_text


@dataclass(frozen=True)
class LowEnding:
    """Runs of a method on a task that warn, at their end, of a return far below their data."""

    task: str
    method: str
    seeds: tuple[int, ...]
    text: str
    """How many of the runs, and their returns."""

    @property
    def subject(self) -> str:
        """The method and the task."""
        return f"{self.method} on {self.task}"

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}."


def low_endings(evidence: Evidence) -> list[LowEnding]:
    """Those of every task and method that has any."""
    found = []
    for task in evidence.tasks:
        for method in evidence.methods:
            runs = evidence.of(task, method)
            low = [run for run in runs if run.summary.get("warning")]
            if low:
                seeds = tuple(run.seed for run in low)
                found.append(LowEnding(task, method, seeds, _said(list(map(_ending, low)), len(runs))))
    return found


def _ending(run: Run) -> Ending:
    last, sampled = run.curve(RETURN)[1], run.curve(SAMPLED)[1]
    return Ending(
        float(last[-1]), float(run.summary["data"]["return_mean"]), float(sampled[-1]) if len(sampled) else None
    )


def _said(endings: list[Ending], runs: int) -> str:
    last, data = _range([ending.last for ending in endings]), _range([ending.data_mean for ending in endings])
    end = "end far below their" if len(endings) > 1 else "ends far below its"
    text = f"{len(endings)} of {runs} runs {end} data (last return {last}, the data {data})"
    if all(ending.is_better_sampled for ending in endings):
        text += f"; sampled actions earn {_range([ending.sampled for ending in endings if ending.sampled is not None])}"
    return text


def _range(values: list[float]) -> str:
    low, high = return_text(min(values)), return_text(max(values))
    return low if low == high else f"{low} to {high}"
