"""The whole state of a run on disk, as safetensors + JSON: written atomically, the last two kept.

checkpoint/00012/tensors.safetensors   weights, optimiser states, λ, generators
checkpoint/00012/state.json            counters and sums; the tensors' checksum; written last
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch.optim import Optimizer

from mental_accounts.errors import CheckpointError
from mental_accounts.fields import check_fields, shown
from mental_accounts.files import read_json, write_atomically
from mental_accounts.machine import is_out_of_memory

FORMAT = 1
KEPT = 2


@dataclass
class Checkpoint:
    """Everything a run needs to continue exactly where it stopped."""

    tensors: dict[str, Tensor]
    state: dict[str, Any] = field(default_factory=dict)


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; once it is complete, all but the last two are deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    number = max((int(path.name) for path in _numbered(folder)), default=0) + 1
    target = folder / f"{number:05d}"
    target.mkdir()
    try:
        data = save({name: value.detach().cpu().contiguous() for name, value in checkpoint.tensors.items()})
        header = {"format": FORMAT, "sha256": hashlib.sha256(data).hexdigest(), "state": checkpoint.state}
        write_atomically(target / "tensors.safetensors", data)
        write_atomically(target / "state.json", json.dumps(header).encode())
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    whole = [path for path in _numbered(folder) if (path / "state.json").exists()]
    for old in set(_numbered(folder)) - set(whole[-KEPT:]):  # older ones, and those a killed process left incomplete
        shutil.rmtree(old, ignore_errors=True)


def read_checkpoint(
    folder: Path, say: Callable[[str], None], look: Callable[[Checkpoint], object] = lambda _: None
) -> Checkpoint | None:
    """The newest usable checkpoint, or None if there is none; reports which ones it skipped, and why.

    `look` checks other files of a checkpoint, and raises if it cannot be used. Skipped checkpoints are removed once a
    usable one is found.
    """
    found = _numbered(folder) if folder.is_dir() else []
    problems, passed = [], []
    for path in reversed(found):
        try:
            checkpoint = _read(path)
            look(checkpoint)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            if is_out_of_memory(error):
                raise  # it may be whole, and read later
            problems.append(f"checkpoint {path} cannot be used: {error}")
            passed.append(path)
            say(f"{problems[-1]}; trying the one before")
        else:
            for damaged in passed:
                shutil.rmtree(damaged, ignore_errors=True)
            return checkpoint
    if any((path / "state.json").exists() for path in found):
        raise CheckpointError("; ".join(problems) + f"; delete {folder} to start the run again")
    return None


def _read(path: Path) -> Checkpoint:
    kinds = {"format": "a whole number", "sha256": "text", "state": "an object"}
    header = check_fields(read_json(path / "state.json"), kinds, "state.json")
    if header["format"] != FORMAT:
        raise ValueError(f"it has format {shown(header['format'])}, this version reads format {FORMAT}")
    data = (path / "tensors.safetensors").read_bytes()
    if hashlib.sha256(data).hexdigest() != header["sha256"]:
        raise ValueError(f"tensors.safetensors is damaged or truncated ({len(data)} bytes)")
    return Checkpoint(load(data), header["state"])


def _numbered(folder: Path) -> list[Path]:
    return sorted(
        (path for path in folder.iterdir() if path.is_dir() and path.name.isdigit()), key=lambda p: int(p.name)
    )


def optimizer_tensors(prefix: str, optimizer: Optimizer) -> dict[str, Tensor]:
    """Every tensor of an optimiser's state, by name; plain numbers are configuration, not state."""
    state = optimizer.state_dict()
    found = {
        f"{prefix}.state.{index}.{name}": value
        for index, values in state["state"].items()
        for name, value in values.items()
    }
    for number, group in enumerate(state["param_groups"]):
        found |= {f"{prefix}.group.{number}.{name}": v for name, v in group.items() if isinstance(v, Tensor)}
    return found


def load_optimizer_tensors(prefix: str, optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    state = optimizer.state_dict()
    state["state"] = {}
    for name, value in tensors.items():
        if name.startswith(f"{prefix}.state."):
            index, key = name.removeprefix(f"{prefix}.state.").split(".", 1)
            state["state"].setdefault(int(index), {})[key] = value
        elif name.startswith(f"{prefix}.group."):
            number, key = name.removeprefix(f"{prefix}.group.").split(".", 1)
            device = optimizer.param_groups[int(number)]["params"][0].device  # PyTorch moves states, but not groups
            state["param_groups"][int(number)][key] = value.to(device)
    optimizer.load_state_dict(state)


def part_of(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
