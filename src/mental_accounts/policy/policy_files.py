"""A policy on disk: `policy.json` (config, checksum, which weights) and `weights-<checksum>.safetensors`. No pickle.

The weights are written first, under a unique name; then `policy.json` is renamed into place. If the machine stops at
any time, the folder holds either the old policy or the new one, complete.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mental_accounts.fields import check_fields, shown
from mental_accounts.files import read_json, write_atomically
from mental_accounts.machine import available_memory, in_words, roughly
from mental_accounts.old_configs import fill_in_model, rename_weights
from mental_accounts.policy.size import account_bytes, count_parameters
from mental_accounts.policy_options import PolicyConfig

FORMAT = 1
HEADER = "policy.json"
SPARE = 10**7
"""A config may have this many parameters more than the weights file: missing ones are named later, in a comparison."""


def save_policy(folder: str | Path, config: PolicyConfig, tensors: dict[str, Tensor]) -> None:
    """Write a policy; an existing one is replaced atomically."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plain = json.dumps(config.to_dict())  # if this fails, nothing has been written
    data = save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
    checksum = hashlib.sha256(data).hexdigest()
    weights = f"weights-{checksum[:12]}.safetensors"
    header = {"format": FORMAT, "config": json.loads(plain), "weights": weights, "sha256": checksum}
    write_atomically(folder / weights, data)
    write_atomically(folder / HEADER, (json.dumps(header, indent=2) + "\n").encode())
    for old in folder.glob("weights-*.safetensors"):
        if old.name != weights:
            old.unlink()


def load_policy(folder: str | Path) -> tuple[PolicyConfig, dict[str, Tensor]]:
    """Read config and tensors, checked against the checksum."""
    header = _read_header(Path(folder))
    config = _config_of(header, Path(folder))
    path = Path(folder) / Path(header["weights"]).name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: the folder was not copied completely")
    data = path.read_bytes()
    checksum = hashlib.sha256(data).hexdigest()
    if checksum != header["sha256"]:
        raise ValueError(
            f"{path} is damaged: sha256 should be {header['sha256'][:64]}, is {checksum} ({len(data)} bytes)"
        )
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from error
    _check_size(config, sum(value.numel() for value in tensors.values()), Path(folder) / HEADER)
    return config, rename_weights(tensors)


def read_policy_config(folder: str | Path) -> PolicyConfig:
    """The config of a saved policy, without its weights."""
    return _config_of(_read_header(Path(folder)), Path(folder))


def _config_of(header: dict[str, Any], folder: Path) -> PolicyConfig:
    try:
        return PolicyConfig.from_dict(fill_in_model(header["config"]))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / HEADER}: config: {error}") from error


def _check_size(config: PolicyConfig, held: int, path: Path) -> None:
    """Refuse a config of a policy far larger than its weights, before allocating it."""
    asked, books, there = count_parameters(config), account_bytes(config), available_memory()
    if asked > 2 * held + SPARE:
        raise ValueError(
            f"{path}: config asks for a network of {roughly(asked)} parameters, but the weights have "
            f"{roughly(held)}; one of them belongs to another policy"
        )
    if books > there:
        raise ValueError(
            f"{path}: config asks for a codebook of {in_words(books)}, but {in_words(there)} of memory are free; look "
            "at its action.size, accounts.bins and accounts.num_codes"
        )


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no policy: {HEADER} is missing (policy.save(folder) writes it)")
    kinds = {"format": "a whole number", "config": "an object", "weights": "text", "sha256": "text"}
    header = check_fields(read_json(path), kinds, str(path))
    if header["format"] != FORMAT:
        raise ValueError(f"{path} has format {shown(header['format'])}, this version reads format {FORMAT}")
    return header
