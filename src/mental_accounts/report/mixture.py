"""What the runs of one report do not have in common: commits, versions, hardware, data, protocol."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mental_accounts.report.run_settings import differences
from mental_accounts.report.runs import Run

VARIED = ("task", "env_id", "method", "model", "improve", "values", "seed", "data_seed")
"""Settings in which methods, tasks and seeds may differ."""
OF_THE_MACHINE = ("device", "precision", "compile", "env_workers", "checkpoint_seconds")
MOST_NAMED = 4


def mixed(runs: Sequence[Run]) -> str:
    """One sentence about what differs between runs that are reported together; empty if nothing does."""
    parts = [_listed("data", _other_data(runs)), _listed("protocol", _other_settings(runs))]
    found = made_differently([run.made_by for run in runs]) + [part for part in parts if part]
    return f"These runs were not made alike. They mix {'; '.join(found)}." if found else ""


def made_differently(makings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The commits, versions and hardware that runs were made with, where there are several; from their records."""
    parts = [
        _named("commits", {str(made_by.get("git_commit") or "unknown")[:7] for made_by in makings}),
        _named("versions", _versions(makings)),
        _named("hardware", {_machine(made_by) for made_by in makings}),
    ]
    return [part for part in parts if part]


def _named(what: str, kinds: Iterable[str]) -> str:
    kinds = sorted(set(kinds))
    return _listed(what, kinds) if len(kinds) > 1 else ""


def _listed(what: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{what} ({', '.join(names[:MOST_NAMED])}{more})" if names else ""


def _versions(makings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every version of the packages of which there are several."""
    found: dict[str, set[str]] = {}
    for made_by in makings:
        for name, version in (made_by.get("versions") or {}).items():
            found.setdefault(name, set()).add(f"{name} {version}")
    return [text for texts in found.values() if len(texts) > 1 for text in texts]


def _machine(made_by: Mapping[str, Any]) -> str:
    hardware = made_by.get("hardware") or {}
    return str(hardware.get("gpu") or f"{hardware.get('cpus', '?')} cores of {hardware.get('cpu') or 'unknown'}")


def _other_data(runs: Sequence[Run]) -> list[str]:
    """Tasks of which runs with the same seed, or with the same seed of the data, had different data."""
    found = set()
    for of_data in (False, True):
        seen: dict[tuple[str, str], Any] = {}
        for run in runs:
            place = run.task, str(run.config["data_seed"] if of_data else run.seed)
            data = run.facts.get("data")
            is_given = data is not None and run.config["task"] is not None  # else each run begins with its own episodes
            if is_given and seen.setdefault(place, data) != data:
                found.add(run.task)
    return sorted(found)


def _other_settings(runs: Sequence[Run]) -> list[str]:
    """Settings other than those that belong to methods, or are named with them, in which runs of a task differ."""
    found: set[str] = set()
    named = {change.partition("=")[0].rpartition(".")[2] for run in runs for change in _changes(run.method)}
    for task in {run.task for run in runs}:
        kinds = {json.dumps(run.config, sort_keys=True): run.config for run in runs if run.task == task}
        first, *others = kinds.values()
        for other in others:
            found.update(differences(first, other, but=(*VARIED, *OF_THE_MACHINE, *named)))
    return sorted(found)


def _changes(method: str) -> list[str]:
    """The changes in a method's label, as in odt:lr=0.001,imitate=offline."""
    return method.partition(":")[2].split(",")
