"""The data on this machine, read from the files' headers."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from mental_accounts.data.d4rl import cached_d4rl
from mental_accounts.data.hidden_data import DATA_VERSION
from mental_accounts.data.hidden_tasks import hidden_task, is_hidden
from mental_accounts.data.minari import installed_minari
from mental_accounts.data.tasks import TASKS, imported_names, imported_path
from mental_accounts.data.tensor_files import cache_folder, read_facts
from mental_accounts.errors import DataError


@dataclass(frozen=True)
class Held:
    """One data set, on this machine (`here`) or not. Numbers are None if only reading all of it would tell."""

    task: str
    path: Path | None
    env_id: str | None = None
    seed: int | None = None
    steps: int | None = None
    trajectories: int | None = None
    return_mean: float | None = None
    return_std: float | None = None
    return_max: float | None = None
    here: bool = True

    @property
    def nbytes(self) -> int | None:
        return self.path.stat().st_size if self.path is not None and self.path.exists() else None


def held_data() -> list[Held]:
    """All of them, in the order of the table of tasks; then those of names that are not in it."""
    found = []
    for task in TASKS.values():
        if task.source == "builtin":
            files = sorted((cache_folder() / "builtin" / task.dataset).glob("[!.]*.safetensors"))
            found += [_held(task.name, path) for path in files]
        if task.source == "d4rl" and cached_d4rl(task.dataset).exists():
            found.append(Held(task.name, cached_d4rl(task.dataset)))
    found += _hidden_data()
    found += [Held(f"minari/{dataset}", None) for dataset in installed_minari()]
    found += [_held(f"imported/{name}", imported_path(name)) for name in imported_names()]
    return found


def _hidden_data() -> list[Held]:
    """Of tasks with a hidden context, by the names in their files; those of other versions are never read again."""
    found = []
    for path in sorted((cache_folder() / "hidden").glob("[!.]*.safetensors")):
        info = read_facts(path).get("info", {})
        name = str(info.get("name"))
        if info.get("version") == DATA_VERSION and is_hidden(name):
            with contextlib.suppress(DataError):  # a name that says nothing
                found.append(_held(hidden_task(name).name, path))
    return found


def _held(task: str, path: Path) -> Held:
    facts = read_facts(path)
    summary, info = facts.get("summary", {}), facts.get("info", {})
    numbers = {name: summary.get(name) for name in ("return_mean", "return_std", "return_max")}
    counts = {name: summary.get(name) for name in ("steps", "trajectories")}
    return Held(task, path, info.get("env_id"), info.get("seed"), **counts, **numbers)
