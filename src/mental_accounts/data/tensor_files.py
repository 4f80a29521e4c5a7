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

from mental_accounts.data.data_checks import reason_of, shown_names
from mental_accounts.errors import DataError
from mental_accounts.files import whole_file

FORMAT = "mental-accounts trajectories 2"
OLD_FORMAT = "mental-accounts trajectories 1"
"""Of version 0.1: without padding, and without what follows from other columns."""

DAMAGED = (SafetensorError, RuntimeError, ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""What reading a damaged file may raise; a full memory and a forbidden file are something else."""

MOST = 1e300
"""Above every number that describes data."""

FACTS: dict[str, dict[str, type]] = {
    "info": {"env_id": str, "name": str, "seed": int},
    "summary": dict.fromkeys(
        ("steps", "trajectories", "return_mean", "return_std", "return_min", "return_max", "length_mean"), float
    ),
}
"""Fields of the facts that lists of data show, where they are there."""


def cache_folder() -> Path:
    """Where data are kept: $MENTAL_ACCOUNTS_CACHE, or mental-accounts in the user's folder for caches."""
    chosen = os.environ.get("MENTAL_ACCOUNTS_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mental-accounts"


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], file_format: str = FORMAT
) -> None:
    """One safetensors file with a checksum and `facts` (plain JSON values) in its header."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(dict(facts))
    header = {"format": file_format, "facts": text, "checksum": checksum(held, text)}
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
        return _facts(header, path) if header.get("format") in (FORMAT, OLD_FORMAT) else {}
    except (*DAMAGED, OSError):
        return {}


def read_tensors(
    path: Path, required: Sequence[str], file_format: str = FORMAT, older: str | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write_tensors` wrote, or an error that says what is wrong with the file.

    Files of the `older` format are read too. Tensors are mapped from the file, not copied: processes that read the same
    file share its memory, and what one of them changes stays its own.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") not in (file_format, older):
                raise DataError(f"{path}: expected a file of format {file_format!r}, got {header.get('format')!r}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        found = checksum(tensors, header.get("facts", ""))
    except DataError:
        raise
    except DAMAGED as error:
        raise DataError(
            f"{path}: not a whole safetensors file ({reason_of(error)}); delete it and make it again"
        ) from None
    missing = [name for name in required if name not in tensors]
    if missing:
        raise DataError(f"{path}: has no {missing}, only {shown_names(sorted(tensors))}")
    if found != header.get("checksum"):
        raise DataError(f"{path}: the checksum differs, the file was damaged or changed; delete it and make it again")
    return tensors, _facts(header, path)


def _facts(header: Mapping[str, str], path: Path) -> dict[str, Any]:
    """The facts in the header, their kinds checked: a checksum says nothing about who wrote them."""
    try:
        facts = json.loads(header.get("facts", ""))
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise DataError(f"{path}: the facts in its header are no JSON object; delete it and make it again")
    for name, kinds in FACTS.items():
        table = facts.get(name)
        if table is None:
            facts.pop(name, None)
            continue
        wrong = not isinstance(table, dict)
        for key, kind in kinds.items():
            value = table.get(key) if isinstance(table, dict) else None
            number = isinstance(value, (int, float)) and -MOST <= value <= MOST
            wrong |= value is not None and not (number if kind is float else isinstance(value, kind))
        if wrong:
            raise DataError(f"{path}: {name} in its header has fields of wrong kinds; delete it and make it again")
    return facts


def checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """Of names, types, shapes and bytes, in order of names, and of a text."""
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
