"""Configurations of plain values, and the types of their fields; for frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

Config = TypeVar("Config")


def config_from_dict(cls: type[Config], values: Mapping[str, Any], path: str = "") -> Config:
    """Build a (nested) config dataclass from plain values; errors name the field."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{path.rstrip('.') or cls.__name__} must be a table of fields, got {type(values).__name__}")
    assert is_dataclass(cls)
    known = {item.name for item in fields(cls)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {path}{unknown[0]}; it has {', '.join(sorted(known))}")
    hints = get_type_hints(cls)
    arguments = {name: _typed(hints[name], value, f"{path}{name}") for name, value in values.items()}
    try:
        return cls(**arguments)
    except TypeError as error:
        raise ValueError(f"{cls.__name__} cannot be made from {sorted(values)}: {error}") from error


def _typed(hint: Any, value: Any, path: str) -> Any:
    """A JSON value as the type of its field."""
    if isinstance(hint, type) and is_dataclass(hint):
        return config_from_dict(hint, value, f"{path}.")
    if get_origin(hint) is UnionType:
        if value is None and NoneType in get_args(hint):
            return None
        return _typed(next(part for part in get_args(hint) if part is not NoneType), value, path)
    if get_origin(hint) is tuple:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{path} must be a list, got {value!r}")
        return tuple(_typed(get_args(hint)[0], item, path) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if get_origin(hint) is not Literal and (
        not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)
    ):
        raise TypeError(f"{path} must be {hint.__name__}, got {value!r}")
    return value


def settle_types(config: object) -> None:
    """Refuse flags that are no bool, and make fields that are configurations themselves of plain values."""
    for name, hint in get_type_hints(type(config)).items():
        allowed = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        if any(part is bool or is_dataclass(part) for part in allowed):
            value = getattr(config, name)
            if isinstance(value, Mapping) and isinstance(hint, type) and is_dataclass(hint):
                object.__setattr__(config, name, config_from_dict(hint, value, f"{name}."))
            elif not isinstance(value, allowed):
                wanted = " or ".join(part.__name__ for part in allowed)
                raise TypeError(f"{name} must be {wanted}, got {value!r} ({type(value).__name__})")


def check_choice(config: object, name: str) -> None:
    """Refuse a value that the field's Literal does not list."""
    allowed = get_args(get_type_hints(type(config))[name])
    if getattr(config, name) not in allowed:
        raise ValueError(f"{name} must be one of {list(allowed)}, got {getattr(config, name)!r}")
