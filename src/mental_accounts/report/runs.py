"""Finished runs, from their folders or a packed file; runs that cannot be compared are left out, with a warning."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.errors import UsageError
from mental_accounts.fields import check_fields
from mental_accounts.report.packed import PACKED_FILE, read_packed
from mental_accounts.report.run_settings import OWN, completed, differences, settings_key
from mental_accounts.report.study_files import STUDY_FILE, RunFiles, StudyFiles, read_run_files, read_study_folder

Array = NDArray[np.float64]
METRIC_NAMES = {
    "evaluation/return_mean_gm": "mean return, mean action",
    "evaluation/return_std_gm": "standard deviation of the return, mean action",
    "evaluation/return_vs_samples": "mean return by environment steps",
    "evaluation/length_mean_gm": "mean episode length, mean action",
    "evaluation/length_std_gm": "standard deviation of the length, mean action",
    "aug_traj/return": "return while exploring",
    "aug_traj/length": "episode length while exploring",
}
"""The paper's metrics, by the key under which a run logs them, with readable names."""
SEVEN = tuple(METRIC_NAMES)
"""In the order of the paper's tables."""
LOWER_IS_BETTER = {"evaluation/return_std_gm", "evaluation/length_std_gm"}
RETURN, SAMPLED = "evaluation/return_mean_gm", "evaluation/return_mean_sampled"

# The fields read from the files of a run, and their kinds.
CONFIG = {"task": "text or null", "env_id": "text or null", "method": "text", "seed": "a whole number"}
MADE_BY = {
    "command": "a list of texts or null",
    "versions": "an object or null",
    "hardware": "an object or null",
    "git_commit": "text or null",
}
SUMMARY = {
    "iterations": "a whole number",
    "normalised_score": "a finite number or null",
    "seconds": "a finite number",
    "data": "an object",
}
LINE = {"phase": "text", "updates": "a finite number", "env_steps": "a finite number"}


@dataclass(frozen=True)
class Run:
    """One finished run."""

    task: str
    method: str
    """The label of the method, with its changes."""
    seed: int
    path: Path | None
    """Its folder; None in a packed file."""
    config: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    """metrics.jsonl."""
    summary: Mapping[str, Any]
    made_by: Mapping[str, Any]
    """Command, versions and hardware."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """task.json: the environment, and what identifies the data."""

    def curve(self, name: str, *, online: bool = False, against: str = "updates") -> tuple[Array, Array]:
        """A metric where it was measured: (n,) updates or env_steps, (n,) values; of the online phase only, if set."""
        found = [line for line in self.lines if name in line and (line["phase"] == "online" or not online)]
        return np.array([line[against] for line in found], float), np.array([line[name] for line in found], float)


@dataclass(frozen=True)
class Evidence:
    """Everything in a report."""

    title: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    """The first is the baseline."""
    runs: tuple[Run, ...]
    warnings: tuple[str, ...]
    made_by: Mapping[str, Any] = field(default_factory=dict)
    seeds: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The seeds that every method should have, by task."""

    def missing(self, task: str, method: str) -> list[int]:
        """The seeds of a task that a method does not have."""
        return sorted(set(self.seeds.get(task, ())) - {run.seed for run in self.of(task, method)})

    def of(self, task: str, method: str) -> list[Run]:
        """The runs of one task and method, by seed."""
        return sorted((run for run in self.runs if run.task == task and run.method == method), key=lambda run: run.seed)

    def paired(self, task: str, one: str, other: str) -> list[tuple[Run, Run]]:
        """Runs of both methods with the same seed."""
        theirs = {run.seed: run for run in self.of(task, other)}
        return [(run, theirs[run.seed]) for run in self.of(task, one) if run.seed in theirs]


def is_study(place: Path) -> bool:
    """Whether this is a comparison: a folder with study.json or a packed file in it, or a packed file itself."""
    return place.is_file() or any((place / name).exists() for name in (STUDY_FILE, PACKED_FILE))


def files_of(place: Path) -> StudyFiles:
    """The files of a comparison, from its folder or its packed file."""
    if place.is_file():
        return read_packed(place)
    if not (place / STUDY_FILE).exists() and (place / PACKED_FILE).exists():
        return read_packed(place / PACKED_FILE)
    return read_study_folder(place)


def read_study(place: Path) -> Evidence:
    """The runs of a comparison, from its folder or its packed file."""
    return _evidence(files_of(place))


def _evidence(files: StudyFiles) -> Evidence:
    tasks, methods = tuple(files.study["tasks"]), tuple(files.study["methods"])
    runs: list[Run] = []
    warnings: list[str] = []
    seeds: dict[str, list[int]] = {}
    for planned in files.runs:
        task, method, seed = (planned.entry[name] for name in ("task", "method", "seed"))
        seeds.setdefault(task, []).append(seed)
        name = f"{task} {method} seed {seed}"
        run = _read_run(planned.read, planned.folder, task, method, name, warnings)
        if run is None:
            continue
        different = differences(run.config, completed(planned.entry["config"]))
        if different:
            warnings.append(f"{name}: left out, it was run with other settings ({', '.join(different)})")
            continue
        runs.append(run)
    warnings += _without_partner(tasks, methods, runs)
    made_by = dict(runs[0].made_by) if runs else {}
    made_by["command"] = files.study.get("command")
    return Evidence(files.name, tasks, methods, tuple(runs), tuple(warnings), made_by, seeds)


def _without_partner(tasks: Sequence[str], methods: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Seeds that only one of two methods has."""
    warnings = []
    for task in tasks:
        for method in methods[1:]:
            seeds = [
                {run.seed for run in runs if (run.task, run.method) == (task, name)} for name in (methods[0], method)
            ]
            alone = sorted(seeds[0] ^ seeds[1])
            if alone:
                listed = ", ".join(map(str, alone))
                warnings.append(
                    f"{task}: seeds {listed} have no partner; {method} and {methods[0]} are compared without them"
                )
    return warnings


def _unlike_the_baseline(tasks: Sequence[str], methods: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Settings other than the method and its accounts in which runs differ from the baseline's."""
    warnings = []
    for task in tasks:
        cells = {run.method: run for run in reversed(runs) if run.task == task}
        for method in methods[1:]:
            if method in cells and methods[0] in cells:
                different = differences(cells[method].config, cells[methods[0]].config, but=(*OWN, "method"))
                other = [path for path in different if not path.startswith("model.accounts.")]
                if other:
                    warnings.append(
                        f"{task}: {method} and {methods[0]} also differ in {', '.join(other)}: compared anyway"
                    )
    return warnings


def _of_other_data(tasks: Sequence[str], methods: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Seeds whose runs did not learn from the data that the baseline had, or other seeds of the method."""
    warnings = []
    given = [run for run in runs if run.config["task"] is not None]  # without, each run begins with its own episodes
    for task in tasks:
        data = {
            method: {run.seed: run.config["data_seed"] for run in given if (run.task, run.method) == (task, method)}
            for method in methods
        }
        for method, of_seed in data.items():
            shared_ones = sorted(seed for seed, data_seed in of_seed.items() if data_seed != seed)
            if 0 < len(shared_ones) < len(of_seed) and len(set(of_seed.values())) > 1:
                warnings.append(
                    f"{task}: seeds {', '.join(map(str, shared_ones))} of {method} learned from the data of another "
                    "seed, the others from their own"
                )
            theirs = data[methods[0]]
            unlike = sorted(seed for seed in of_seed.keys() & theirs.keys() if of_seed[seed] != theirs[seed])
            if unlike:
                warnings.append(
                    f"{task}: {method} and {methods[0]} learned from different data with seeds "
                    f"{', '.join(map(str, unlike))}: compared anyway"
                )
    return warnings


def read_runs(folders: Sequence[Path]) -> Evidence:
    """Any run folders, grouped by task and method. If settings differ within a group, the most common are kept."""
    runs: list[Run] = []
    warnings: list[str] = []
    for folder in folders:
        run = _read_run(partial(read_run_files, folder), folder, None, None, str(folder), warnings)
        if run is not None:
            runs.append(run)
    kept: list[Run] = []
    tasks, methods = (tuple(dict.fromkeys(getattr(run, name) for run in runs)) for name in ("task", "method"))
    for task in tasks:
        for method in methods:
            group = [run for run in runs if (run.task, run.method) == (task, method)]
            kinds = Counter(settings_key(run.config) for run in group)
            seen: set[int] = set()
            for run in group:
                usual = next(other for other in group if settings_key(other.config) == kinds.most_common(1)[0][0])
                different = differences(run.config, usual.config, but=OWN)
                if different:
                    warnings.append(
                        f"{run.path}: left out, its settings differ from the others ({', '.join(different)})"
                    )
                elif run.seed in seen:
                    warnings.append(
                        f"{run.path}: left out, there is a run of seed {run.seed} of {task} {method} already (this one "
                        f"has data seed {run.config['data_seed']})"
                    )
                else:
                    seen.add(run.seed)
                    kept.append(run)
    if not kept:
        raise UsageError("there is no finished run to report on" + "".join(f"; {text}" for text in warnings))
    ordered = sorted(methods, key=lambda method: method != "odt")  # stable; odt, if present, is the baseline
    for found in (_without_partner, _unlike_the_baseline, _of_other_data):
        warnings += found(tasks, ordered, kept)
    seeds = {task: [run.seed for run in kept if run.task == task] for task in tasks}
    return Evidence("runs", tasks, tuple(ordered), tuple(kept), tuple(warnings), kept[0].made_by, seeds)


def _read_run(
    read: Callable[[], RunFiles], folder: Path | None, task: str | None, method: str | None, name: str,
    warnings: list[str],
) -> Run | None:  # fmt: skip
    try:
        files = read()
        record = check_fields(files.made, {"config": "an object"}, "config.json")
        check_fields(dict.fromkeys(MADE_BY) | record, MADE_BY, "config.json")
        if not {"task", "method", "seed"} <= record["config"].keys():
            raise ValueError("config.json does not say which task, method and seed")
        config = completed(record["config"])
        check_fields(config, CONFIG, "config.json, config")
        if not (config["task"] or config["env_id"]):
            raise ValueError("config.json names neither a task nor an env_id")
        lines = files.metrics
        if files.summary is None:
            warnings.append(f"{name}: left out, it is not finished ({len(lines)} iterations so far)")
            return None
        summary = check_fields(files.summary, SUMMARY, "summary.json")
        check_fields(summary["data"], {"return_mean": "a finite number"}, "summary.json, data")
        if len(lines) != summary["iterations"]:
            raise ValueError(f"metrics.jsonl has {len(lines)} lines, not {summary['iterations']}")
        if not any(RETURN in line for line in lines):
            warnings.append(f"{name}: left out, it was never evaluated")
            return None
        for number, line in enumerate(lines, 1):
            _check_line(line, f"metrics.jsonl, line {number}")
        check_fields(summary, dict.fromkeys(("last_return", "best_return"), "a finite number"), "summary.json")
        made_by = {key: record.get(key) for key in MADE_BY}
        subject = task or config["task"] or config["env_id"]
        label, facts = method or config["method"], files.facts or {}
        return Run(subject, label, config["seed"], folder, config, lines, summary, made_by, facts)
    except FileNotFoundError:
        warnings.append(f"{name}: left out, it is missing")
    except (OSError, ValueError) as error:
        warnings.append(f"{name}: left out, it cannot be read ({error})")
    return None


def _check_line(line: Mapping[str, Any], where: str) -> None:
    """Refuse values in a report that are not numbers."""
    check_fields(line, LINE, where)
    read = {name: "a finite number" for name in (*SEVEN, SAMPLED, "time/training") if name in line}
    check_fields(line, read | {name: "a number" for name in line if name.startswith(("accounts/", "values/"))}, where)
