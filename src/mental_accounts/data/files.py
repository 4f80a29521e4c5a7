"""Files that appear whole or not at all: written under a temporary name, then renamed; checked when they are read."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mental_accounts.data.checks import DataError
from mental_accounts.files import whole_file

FORMAT = "mental-accounts trajectories 1"


def cache_folder() -> Path:
    """Where data are kept: $MENTAL_ACCOUNTS_CACHE, or mental-accounts in the platform's folder for caches."""
    chosen = os.environ.get("MENTAL_ACCOUNTS_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mental-accounts"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """One safetensors file with a checksum and `facts` (plain JSON values) in its header."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(dict(facts))
    header = {"format": FORMAT, "facts": text, "checksum": checksum(held, text)}
    with whole_file(path) as temporary:
        try:
            save_file(held, temporary, metadata=header)
        except SafetensorError as error:  # its own type, even for a full disk
            raise OSError(f"{path} could not be written: {error}") from error


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone, without reading or checking the data; none where the file is not whole or something else."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
    except (SafetensorError, OSError):
        return {}
    facts: dict[str, Any] = json.loads(header["facts"]) if header.get("format") == FORMAT else {}
    return facts


def read_tensors(path: Path, required: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write_tensors` wrote, or an error that says what is wrong with the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise DataError(f"{path}: expected a file of format {FORMAT!r}, got {header.get('format')!r}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except SafetensorError as error:
        raise DataError(f"{path}: not a whole safetensors file ({error}); delete it and make it again") from None
    missing = [name for name in required if name not in tensors]
    if missing:
        raise DataError(f"{path}: has no {missing}, only {sorted(tensors)}")
    if checksum(tensors, header.get("facts", "")) != header.get("checksum"):
        raise DataError(f"{path}: the checksum differs, the file was damaged or changed; delete it and make it again")
    facts: dict[str, Any] = json.loads(header["facts"])
    return tensors, facts


def checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """Of names, types, shapes and bytes, in order of names, and of a text."""
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
