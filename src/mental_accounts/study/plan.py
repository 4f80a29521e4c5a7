"""The plan of a study: every task with every method and every seed, each a run with a folder and a config.

A method is written `ewa-vq-odt`, or with changes of its own, `ewa-vq-odt:account_scope=window,beta=0.1`. Runs with the
same seed share everything random across methods: data, initial weights, windows, environments.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from mental_accounts.changes import field_path, with_changes
from mental_accounts.config import TrainConfig
from mental_accounts.data.tasks import find_task
from mental_accounts.errors import UsageError
from mental_accounts.files import parse_json, slug, write_atomically
from mental_accounts.learning.run_folder import RunFolder, surroundings
from mental_accounts.policy_options import Method

__all__ = ["STUDY_FILE", "Arm", "Job", "Study", "parse_changes", "with_changes"]

STUDY_FILE = "study.json"
OWN_FLAGS = {"task": "--task", "method": "--methods", "seed": "--seeds and --first-seed"}
"""Fields that a study sets itself."""
BETWEEN_CHANGES = re.compile(r",(?![^\[]*\])")
"""A comma that is not inside of a list."""


@dataclass(frozen=True)
class Arm:
    """A method with its own changes to the configuration."""

    label: str
    """As written by the user; the method's name in the report."""
    method: Method
    changes: Mapping[str, Any]
    """Values by the path of their field, as `model.accounts.beta`."""

    @classmethod
    def parse(cls, text: str) -> "Arm":
        """`METHOD` or `METHOD:field=value,field=value`; a value can be a JSON list, `field=["one","other"]`."""
        name, _, rest = text.partition(":")
        known: tuple[Method, ...] = get_args(Method)
        method = next((one for one in known if one == name), None)
        if method is None:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.3)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(f"there is no method {name!r}; {hint}there are {', '.join(known)}")
        return cls(text, method, parse_changes([item for item in BETWEEN_CHANGES.split(rest) if item]))

    @property
    def folder(self) -> str:
        """The folder name of its runs."""
        return slug(self.label)


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    task: str
    arm: Arm
    seed: int
    config: TrainConfig
    path: Path
    study: str = ""
    """The name of its study, where runs of several make one queue."""

    @property
    def name(self) -> str:
        """Task, method and seed; with its study, where that has a name."""
        return f"{self.study}{': ' if self.study else ''}{self.task} {self.arm.label} seed {self.seed}"

    def shares_code_with(self, other: "Job") -> bool:
        """Whether what is compiled for one of them is likely to serve the other, in the same process."""
        return bool(self.config.compile) and (self.task, self.arm.label) == (other.task, other.arm.label)

    @property
    def is_finished(self) -> bool:
        """Whether its run is complete."""
        return RunFolder(self.path).is_finished


@dataclass(frozen=True)
class Study:
    """All runs of a comparison."""

    folder: Path
    tasks: tuple[str, ...]
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    base: TrainConfig
    preset: str
    data_per_seed: bool = False
    """Whether every seed has data of its own (`data_seed` is the seed), instead of one data set for all."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise UsageError("give at least one --task; `mental-accounts data list` shows all")
        if not self.arms:
            raise UsageError(f"give at least one of --methods: {', '.join(get_args(Method))}")
        if not self.seeds:
            raise UsageError("give at least one seed: --seeds 2")
        for what, values in (("task", self.tasks), ("method", [arm.folder for arm in self.arms]), ("seed", self.seeds)):
            twice = sorted({value for value in values if list(values).count(value) > 1}, key=str)
            if twice:
                raise UsageError(f"{what} {twice[0]} is given twice")
        for task in self.tasks:
            find_task(task)
        if self.data_per_seed and self.base.data_seed != TrainConfig.data_seed:
            raise UsageError("data_seed and --data-per-seed contradict each other: give one of them")

    @cached_property
    def jobs(self) -> list[Job]:
        """Every run, seed by seed, so that complete pairs are available early (unless `compile` is set: see Crew)."""
        found = []
        for seed in self.seeds:
            for task in self.tasks:
                for arm in self.arms:
                    changes = {**arm.changes, "task": task, "method": arm.method, "seed": seed}
                    changes |= {"data_seed": seed} if self.data_per_seed else {}
                    path = self.folder / "runs" / slug(task) / arm.folder / f"seed-{seed}"
                    found.append(Job(task, arm, seed, with_changes(self.base.for_method(arm.method), changes), path))
        return found

    @property
    def shape(self) -> str:
        """How many of each, in words."""
        counts = {"task": len(self.tasks), "method": len(self.arms), "seed": len(self.seeds)}
        return " × ".join(f"{count} {what}{'' if count == 1 else 's'}" for what, count in counts.items())

    def write(self, command: Sequence[str]) -> None:
        """Write study.json, and create the run folders. Existing runs with other settings are refused."""
        for job in self.jobs:
            folder = RunFolder(job.path)
            folder.path.mkdir(parents=True, exist_ok=True)
            try:
                folder.write_config(job.config, list(command))
            except UsageError as error:
                raise UsageError(f"{error}; or give another --out") from error
        content = {
            "preset": self.preset,
            "tasks": list(self.tasks),
            "methods": [arm.label for arm in self.arms],
            "seeds": list(self.seeds),
            "data_per_seed": self.data_per_seed,
            "runs": [
                {
                    "task": job.task,
                    "method": job.arm.label,
                    "seed": job.seed,
                    "path": str(job.path.relative_to(self.folder)),
                    "config": job.config.to_dict(),
                }
                for job in self.jobs
            ],
            "command": list(command),
            **surroundings(),
        }
        write_atomically(self.folder / STUDY_FILE, (json.dumps(content, indent=1) + "\n").encode())


def parse_changes(items: Sequence[str]) -> dict[str, Any]:
    """Items `field=value` -> values by path. A field can be given by its last name; values are JSON, or plain text."""
    changes: dict[str, Any] = {}
    for item in items:
        name, given, text = item.partition("=")
        if not given:
            raise UsageError(f"{item!r} must look like field=value")
        path = field_path(name.strip().replace("-", "_"))
        if path in OWN_FLAGS:
            raise UsageError(f"{path} is not changed by field=value: use {OWN_FLAGS[path]}")
        try:
            changes[path] = parse_json({"True": "true", "False": "false", "None": "null"}.get(text, text), item)
        except ValueError:
            changes[path] = text
    return changes
