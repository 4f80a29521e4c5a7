"""The folder of a run: what was asked for, what came of it, and a lock so that one process at a time writes it.

config.json      the configuration, with versions, hardware and git commit
task.json        what the task came to: environment, returns to ask for, constants of the normalised score
metrics.jsonl    one line per iteration
checkpoint/      to go on from
trajectories/    what was collected online; offline data that no task names
policy/          the policy as it stands, for DecisionTransformer.load
critics.safetensors   its critics, where values improve it; those of a recurrent policy are in checkpoint/ alone
summary.json     the last and the best evaluation; written when the run is finished
"""

import contextlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from mental_accounts.config import TrainConfig
from mental_accounts.errors import UsageError
from mental_accounts.fields import check_fields
from mental_accounts.files import named, read_json, read_json_lines, read_lines, runs_within, write_atomically
from mental_accounts.folder_lock import locked
from mental_accounts.old_configs import fill_in_model

PACKAGES = ("mental-accounts", "torch", "numpy", "gymnasium", "mujoco", "transformers")

FACTS = {
    "env_id": "text",
    "target_return": "a finite number or null",
    "random_return": "a finite number or null",
    "expert_return": "a finite number or null",
}
"""What of task.json is read."""
FINDINGS = {
    "last_return": "a finite number or null",
    "best_return": "a finite number or null",
    "normalised_score": "a finite number or null",
    "data": "an object",
}
"""What of summary.json is read, and of its data:"""
RETURNS = dict.fromkeys(("return_mean", "return_std", "return_min", "return_max"), "a finite number")


class RunFolder:
    """A run on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def random_data(self) -> Path:
        """The random episodes that a run without data began with."""
        return self.path / "trajectories" / "start.safetensors"

    @property
    def offline_data(self) -> Path:
        """Offline data that no task names."""
        return self.path / "trajectories" / "offline.safetensors"

    @property
    def is_run(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "config.json").is_file()

    @property
    def has_begun(self) -> bool:
        """Whether there is anything to go on from."""
        metrics = self.path / "metrics.jsonl"
        return bool(list(self.path.glob("checkpoint/*/state.json"))) or (
            metrics.exists() and metrics.stat().st_size > 0
        )

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "summary.json").exists()

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Only one process may write a run."""
        return locked(self.path)

    def write_config(self, config: TrainConfig, command: list[str]) -> None:
        """Say what this run is; a folder with another run in it is refused, unless that one never began."""
        if self.is_run and self.has_begun:
            self.check_config(config)
            return
        content = {"config": config.to_dict(), "command": command, **surroundings()}
        with self.locked():
            write_atomically(self.path / "config.json", (json.dumps(content, indent=2) + "\n").encode())

    def check_config(self, config: TrainConfig) -> None:
        """Refuse a configuration that is not the one in the folder."""
        theirs = self.read_config()
        if theirs != config:
            changed = [k for k, v in config.to_dict().items() if theirs.to_dict()[k] != v]
            raise UsageError(
                f"{self.path} holds a run with another configuration (different: {', '.join(changed)}); "
                "choose another folder, or delete it"
            )

    def read_config(self) -> TrainConfig:
        """The configuration of the run."""
        return read_config_file(self.path / "config.json")

    def write_task(self, facts: Mapping[str, Any]) -> None:
        """What the task of this run came to."""
        write_atomically(self.path / "task.json", (json.dumps(facts, indent=2) + "\n").encode())

    def read_task(self) -> dict[str, Any]:
        """Back from `write_task`."""
        path = self.path / "task.json"
        if not path.exists():
            raise UsageError(f"{self.path} has not begun to train yet: task.json is missing")
        facts = _read_fields(path, FACTS)
        if facts["expert_return"] is not None and facts["expert_return"] == facts["random_return"]:
            raise UsageError(f"{path} cannot be read: expert_return is random_return, so that no score can be made")
        if facts["expert_return"] is not None and facts["random_return"] is None:
            raise UsageError(f"{path} cannot be read: random_return must be a finite number beside expert_return")
        return facts

    def target_return(self) -> float | None:
        """The return to ask for: as configured, the task's, or the one that the last evaluation asked for."""
        name = "evaluation/target_return"
        lines = [line for line in self.read_metrics() if name in line]
        where = str(self.path / "metrics.jsonl")
        asked = [_checked(line, {name: "a finite number or null"}, where)[name] for line in lines[-1:]]
        known = (self.read_config().target_return, self.read_task()["target_return"], *asked)
        return next((value for value in known if value is not None), None)

    def keep_metrics(self, lines: int) -> None:
        """Forget what was logged after the checkpoint that the run goes on from."""
        path = self.path / "metrics.jsonl"
        try:
            kept = read_lines(path)[:lines] if path.exists() else []
        except (ValueError, OSError) as error:
            raise UsageError(str(error)) from error
        if len(kept) < lines:
            raise UsageError(f"{path} has {len(kept)} whole lines, but the checkpoint was written after {lines}")
        write_atomically(path, "".join(kept).encode())

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        """One more line."""
        path = self.path / "metrics.jsonl"
        try:
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise named(error, path) from error

    def read_metrics(self) -> list[dict[str, Any]]:
        """All whole lines so far; a last one cut short by a crash is left out."""
        path = self.path / "metrics.jsonl"
        try:
            return read_json_lines(path) if path.exists() else []
        except (ValueError, OSError) as error:
            raise UsageError(str(error)) from error

    def last_evaluation(self) -> dict[str, Any]:
        """The last line of metrics.jsonl that tells of one; nothing where none does."""
        score, mean = "evaluation/normalised_score", "evaluation/return_mean_gm"
        lines = [{score: None, **line} for line in self.read_metrics() if mean in line]
        kinds = {mean: "a finite number", score: "a finite number or null"}
        return _checked(lines[-1], kinds, str(self.path / "metrics.jsonl")) if lines else {}

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """The end of the run."""
        write_atomically(self.path / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())

    def read_summary(self) -> dict[str, Any]:
        """Back from `write_summary`."""
        path = self.path / "summary.json"
        found = _read_fields(path, FINDINGS)
        _checked(found["data"], RETURNS, f"{path}, data")
        if found["last_return"] is not None and found["best_return"] is None:
            raise UsageError(f"{path} cannot be read: best_return must be a finite number beside last_return")
        return found


def read_config_file(path: Path) -> TrainConfig:
    """The configuration in a run's config.json, or in a file like it."""
    if not path.exists():
        there = runs_within(path.parent)
        raise UsageError(
            f"{path.parent} is not a run, but {there}"
            if there
            else f"{path.parent} holds no run: {path.name} is missing"
        )
    values = _read_fields(path, {"config": "an object"})["config"]
    try:
        if isinstance(values, Mapping) and isinstance(values.get("model"), Mapping):
            values = {**values, "model": fill_in_model(values["model"])}
        return TrainConfig.from_dict(values)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _read_fields(path: Path, kinds: Mapping[str, str]) -> dict[str, Any]:
    """A JSON object that has at least these fields, of these kinds."""
    try:
        return check_fields(read_json(path), kinds, str(path))
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error


def _checked(table: object, kinds: Mapping[str, str], where: str) -> dict[str, Any]:
    try:
        return check_fields(table, kinds, where)
    except ValueError as error:
        raise UsageError(str(error)) from error


def surroundings() -> dict[str, Any]:
    """Versions, hardware and the git commit that made a result."""
    import torch  # here alone: to read what a folder holds takes no PyTorch

    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    hardware = {"machine": platform.machine(), "system": platform.system(), "cpus": os.cpu_count(), "cpu": _cpu()}
    if torch.cuda.is_available():
        hardware["gpu"] = torch.cuda.get_device_name()
    return {"versions": versions, "hardware": hardware, "git_commit": _git_commit()}


def _cpu() -> str:
    """The processor's name, where the system tells."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _git_commit() -> str | None:
    """The commit of the package's own checkout, where it is one; with `-dirty` where files differ from it."""

    def git(*arguments: str) -> str:
        here = Path(__file__).parent
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, timeout=5, check=True)
        return done.stdout.strip()

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        git("ls-files", "--error-unmatch", Path(__file__).name)  # not a package inside somebody else's repository
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", ".") else "")
    return None
