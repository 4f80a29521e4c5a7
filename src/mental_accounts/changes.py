"""Changes to a configuration by field name: `lr`, `model.hidden`, or just `hidden` where that is unambiguous."""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, get_type_hints

from mental_accounts.config import TrainConfig
from mental_accounts.errors import UsageError


def with_changes(config: TrainConfig, changes: Mapping[str, Any]) -> TrainConfig:
    """The configuration with these values; nested fields can be given partially, as in {"model": {"hidden": 64}}."""
    values = config.to_dict()
    for name, value in changes.items():
        whole = is_dataclass(value) and not isinstance(value, type)  # as in model=ModelConfig(...)
        _set(values, name, asdict(value) if whole else value)
    try:
        return TrainConfig.from_dict(values)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def field_path(name: str) -> str:
    """The full path of a field that may be given by its last name; an unknown field is an error with suggestions."""
    known = _paths(TrainConfig)
    found = [path for path in known if path == name or path.rpartition(".")[2] == name]
    if not found:
        names = [path.rpartition(".")[2] for path in known]
        close = difflib.get_close_matches(name, [*known, *names], n=3)
        hint = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(names)}"
        raise UsageError(f"there is no field {name!r} to set; {hint}")
    return min(found, key=len)


def _set(values: dict[str, Any], name: str, value: Any, prefix: str = "") -> None:
    if isinstance(value, Mapping):
        table = _table_path(f"{prefix}{name}")
        for inner, inner_value in value.items():
            _set(values, str(inner), inner_value, f"{table}.")
        return
    path = f"{prefix}{name}" if prefix else field_path(name)
    if path not in _paths(TrainConfig):
        field_path(path)  # raises, with suggestions
    *parents, last = path.split(".")
    place = values
    for parent in parents:
        place = place[parent]
    place[last] = value


def _table_path(name: str) -> str:
    """The path of a nested configuration: `model`, or `model.accounts`, also as `accounts`."""
    tables = {path.rpartition(".")[0] for path in _paths(TrainConfig)} - {""}
    found = next((table for table in sorted(tables) if table == name or table.rpartition(".")[2] == name), None)
    if found is None:
        raise UsageError(f"{field_path(name)} takes one value, not a table of fields")
    return found


def _paths(cls: type, prefix: str = "") -> list[str]:
    """The paths of all fields of a (nested) config."""
    hints, found = get_type_hints(cls), []
    for item in fields(cls):
        inner = hints[item.name]
        if isinstance(inner, type) and is_dataclass(inner):
            found += _paths(inner, f"{prefix}{item.name}.")
        else:
            found.append(f"{prefix}{item.name}")
    return found
