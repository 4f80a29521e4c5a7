"""Configurations of runs as they were recorded: completed, and compared."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mental_accounts.config import TrainConfig

OWN = ("seed", "data_seed")
"""Settings in which the runs of a task and a method differ."""


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded configuration, with defaults for fields that did not exist when it was written."""
    return _filled(config, TrainConfig().to_dict())


def _filled(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    found = {**defaults, **config}
    for key, value in defaults.items():
        if isinstance(value, Mapping) and isinstance(found[key], Mapping):
            found[key] = _filled(found[key], value)
    return found


def differences(one: Mapping[str, Any], other: Mapping[str, Any], but: Sequence[str] = (), path: str = "") -> list[str]:
    """The paths of fields whose values differ."""
    found = []
    for key in sorted({*one, *other} - set(but)):
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, (), f"{path}{key}.")
        elif _plain(a) != _plain(b):
            found.append(f"{path}{key}")
    return found


def settings_key(config: Mapping[str, Any]) -> str:
    """What the runs of a task and a method have in common, as text that can be counted."""
    return json.dumps({key: value for key, value in config.items() if key not in OWN}, sort_keys=True)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
