"""A policy on disk: `policy.json` (config, checksum, which weights) and `weights-<checksum>.safetensors`. No pickle.

The weights are written first, under a name of their own; then `policy.json` is renamed into place. Whenever the machine
stops, the folder holds the old policy or the new one, whole.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mental_accounts.config import PolicyConfig
from mental_accounts.files import write_atomically
from mental_accounts.old_configs import fill_in_model

FORMAT = 1
HEADER = "policy.json"


def save_policy(folder: str | Path, config: PolicyConfig, tensors: dict[str, Tensor]) -> None:
    """Write a policy; one that was there before is replaced at the last moment."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plain = json.dumps(config.to_dict())  # fails before anything is written, if it does
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
    try:
        config = PolicyConfig.from_dict(fill_in_model(header["config"]))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{Path(folder) / HEADER}: config: {error}") from error
    path = Path(folder) / Path(str(header["weights"])).name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: the folder was not copied whole")
    data = path.read_bytes()
    checksum = hashlib.sha256(data).hexdigest()
    if checksum != header["sha256"]:
        raise ValueError(f"{path} is damaged: sha256 should be {header['sha256']}, is {checksum} ({len(data)} bytes)")
    try:
        return config, load(data)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from error


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no policy: {HEADER} is missing (policy.save(folder) writes it)")
    try:
        header = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ValueError(f"{path} must hold a table of fields, got {type(header).__name__}")
    missing = [name for name in ("format", "config", "weights", "sha256") if name not in header]
    if missing:
        raise ValueError(f"{path} lacks the field {missing[0]}")
    if header["format"] != FORMAT:
        raise ValueError(f"{path} has format {header['format']}, this version reads format {FORMAT}")
    return header
