"""The files of a comparison, as plain values: study.json, and the files of every run.

A folder has them separately, a packed file (packed.py) all together; reports read both.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mental_accounts.errors import UsageError
from mental_accounts.fields import check_fields
from mental_accounts.files import read_json
from mental_accounts.learning.run_folder import RunFolder

STUDY_FILE = "study.json"
STUDY = {"tasks": "a list of texts", "methods": "a list of texts"}
PLANNED = {"task": "text", "method": "text", "seed": "a whole number", "path": "text", "config": "an object"}


@dataclass(frozen=True)
class RunFiles:
    """The contents of a run's JSON files."""

    made: Mapping[str, Any]
    """config.json: the configuration, command, versions and hardware."""
    facts: Mapping[str, Any] | None
    """task.json; None if the run never began."""
    summary: Mapping[str, Any] | None
    """summary.json; None if the run is not finished."""
    metrics: Sequence[Mapping[str, Any]]
    """metrics.jsonl: one table per line."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of study.json, and how to read its files."""

    entry: Mapping[str, Any]
    """Its task, method, seed, path and config in study.json."""
    folder: Path | None
    """None in a packed file, which has only the files that a report reads."""
    read: Callable[[], RunFiles]
    """Raises FileNotFoundError if there is no such run, and ValueError if it cannot be read."""


@dataclass(frozen=True)
class StudyFiles:
    """All files of a comparison. Runs are read on demand, in the order of study.json."""

    name: str
    study: Mapping[str, Any]
    """study.json without its runs."""
    runs: Iterable[PlannedRun]


def read_study_folder(folder: Path) -> StudyFiles:
    """The files of a comparison's folder."""
    path = folder / STUDY_FILE
    if not path.exists():
        raise UsageError(f"{folder} holds no comparison: {STUDY_FILE} is missing")
    try:
        found = check_fields(read_json(path), {"runs": "a list"}, str(path))
        study = check_study({name: value for name, value in found.items() if name != "runs"}, str(path))
        entries = [check_entry(entry, study, f"{path}, run {n}") for n, entry in enumerate(found["runs"])]
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    places = [folder / entry["path"] for entry in entries]
    runs = [
        PlannedRun(entry, place, partial(read_run_files, place)) for entry, place in zip(entries, places, strict=True)
    ]
    return StudyFiles(folder.name, study, runs)


def check_study(study: object, where: str) -> dict[str, Any]:
    """The fields of study.json that a report reads."""
    table = check_fields(study, STUDY, where)
    check_fields({"command": None, **table}, {"command": "a list of texts or null"}, where)
    return table


def check_entry(entry: object, study: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A run of study.json: of a task and a method that the study has."""
    table = check_fields(entry, PLANNED, where)
    for name in ("task", "method"):
        if table[name] not in study[f"{name}s"]:
            raise ValueError(f"{where} cannot be read: {name}s does not list {table[name]!r}")
    return table


def read_run_files(folder: Path) -> RunFiles:
    """The files of one run folder."""
    run = RunFolder(folder)

    def table(name: str) -> dict[str, Any]:
        return check_fields(read_json(folder / name), {}, name)

    return RunFiles(
        made=table("config.json"),
        facts=table("task.json") if (folder / "task.json").exists() else None,
        summary=table("summary.json") if run.is_finished else None,
        metrics=run.read_metrics(),
    )
