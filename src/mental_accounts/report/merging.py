"""Parts of one comparison, made at different times or on different machines, put together.

Parts have the same methods, and the same settings for each task and method; tasks and seeds may differ. What each run
was made with stays with it, so that a report can name the mixture.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mental_accounts.errors import UsageError
from mental_accounts.fields import shown
from mental_accounts.report.run_settings import OWN, completed, differences
from mental_accounts.report.study_files import PlannedRun, RunFiles, StudyFiles

MADE_WITH = ("command", "versions", "hardware", "git_commit")
"""What a part was made with."""

Place = tuple[str, str, int]
"""Task, method, seed."""
Settings = dict[tuple[str, str], dict[str, Any]]
"""By task and method."""


def merged(parts: Sequence[StudyFiles]) -> StudyFiles:
    """One comparison of several parts: their tasks and seeds in order. A run that two parts have is taken once.

    Where only one of the two is finished, it is that one; two different finished runs are refused.
    """
    if len(parts) == 1:
        return parts[0]
    first, found, settings = parts[0], dict[Place, PlannedRun](), Settings()
    for part in parts:
        _check_alike(first, part)
        for run in part.runs:
            _check_settings(run.entry, settings)
            place = run.entry["task"], run.entry["method"], run.entry["seed"]
            found[place] = run if place not in found else _one_of(found[place], run, place)
    tasks = list(dict.fromkeys(task for part in parts for task in part.study["tasks"]))
    order = {(task, method): n for n, (task, method) in enumerate(_grid(tasks, first.study["methods"]))}
    places = sorted(found, key=lambda place: (order[place[:2]], place[2]))
    study = {**first.study, "tasks": tasks, "seeds": sorted({place[2] for place in found})}
    study["parts"] = [told for part in parts for told in part.study.get("parts", [_made_with(part)])]
    return replace(first, study=study, runs=[found[place] for place in places])


def _grid(tasks: Sequence[str], methods: Sequence[str]) -> Iterable[tuple[str, str]]:
    return ((task, method) for task in tasks for method in methods)


def _made_with(part: StudyFiles) -> dict[str, Any]:
    return {name: part.study[name] for name in MADE_WITH if name in part.study}


def _check_alike(first: StudyFiles, part: StudyFiles) -> None:
    for name in ("methods", "preset", "data_per_seed"):
        ours, theirs = first.study.get(name), part.study.get(name)
        if ours != theirs:
            raise UsageError(
                f"{first.name} and {part.name} are not parts of one comparison: {name} is {shown(ours)} in the first "
                f"and {shown(theirs)} in the second"
            )


def _check_settings(entry: Mapping[str, Any], known: Settings) -> None:
    """Refuse a run that differs from others of its task and method in more than its seeds."""
    settings = completed(entry["config"])
    before = known.setdefault((entry["task"], entry["method"]), settings)
    differing = differences(before, settings, but=OWN)
    if differing:
        raise UsageError(
            f"{entry['task']} {entry['method']} was not run with the same settings in all parts: "
            f"{', '.join(differing)} differ; report on them separately"
        )


def _one_of(first: PlannedRun, second: PlannedRun, place: Place) -> PlannedRun:
    one, other = _read(first), _read(second)
    if other is None or other.summary is None:
        return first
    if one is None or one.summary is None:
        return second
    if _results(one) == _results(other):
        return first
    raise UsageError(f"{' '.join(map(str, place))} was run twice, with different results; leave one of the two out")


def _results(files: RunFiles) -> list[dict[str, Any]]:
    """The metrics of a run, but for the time that it took."""
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in files.metrics]


def _read(run: PlannedRun) -> RunFiles | None:
    try:
        return run.read()
    except FileNotFoundError:
        return None
