"""Plain JSON values and the types of their fields: configuration dataclasses, and plain tables."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

Config = TypeVar("Config")
SHOWN = 80
"""Characters of a value shown in an error."""


@cache
def type_hints(cls: type) -> Mapping[str, Any]:
    """The types of a class's fields; they are read for every configuration that is made."""
    return get_type_hints(cls)


def config_from_dict(cls: type[Config], values: Mapping[str, Any], path: str = "") -> Config:
    """Build a (nested) config dataclass from plain values; errors name the field."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{path.rstrip('.') or cls.__name__} must be a table of fields, got {type(values).__name__}")
    assert is_dataclass(cls)
    known = {item.name for item in fields(cls)}
    unknown = sorted(set(values) - known)
    if unknown:
        name = f"{path}{unknown[0]}"[:SHOWN]
        raise ValueError(f"{cls.__name__} has no field {name}; it has {', '.join(sorted(known))}")
    hints = type_hints(cls)
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
    if get_origin(hint) in (tuple, list):
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{path} must be a list, got {shown(value)}")
        items = [_typed(get_args(hint)[0], item, path) for item in value]
        return tuple(items) if get_origin(hint) is tuple else items
    if get_origin(hint) is dict:
        if not isinstance(value, Mapping):
            raise TypeError(f"{path} must be a table of fields, got {shown(value)}")
        return {key: _typed(get_args(hint)[1], item, f"{path}.{key}") for key, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{path} must be a number that a float can hold, got {shown(value)}") from None
    if get_origin(hint) is not Literal and (
        not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)
    ):
        raise TypeError(f"{path} must be {hint.__name__}, got {shown(value)}")
    return value


def shown(value: object) -> str:
    """A value for an error, short enough to read."""
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python converts to text
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(text, str) for text in value)


KINDS: dict[str, Callable[[object], bool]] = {
    "a finite number": _is_number,
    "a number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "a whole number": _is_count,
    "true or false": lambda value: isinstance(value, bool),
    "text": lambda value: isinstance(value, str),
    "an object": lambda value: isinstance(value, Mapping),
    "a list": lambda value: isinstance(value, list),
    "a list of texts": _are_texts,
}
"""The kinds of values in a plain table; with ` or null` appended, None is allowed too."""


def check_fields(table: object, kinds: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return the table if it has all these fields, each of the right kind; raise otherwise.

    kinds: the kind of each field, a key of KINDS. `where` names the table in errors, as in `run/task.json`.
    """
    if not isinstance(table, dict):
        raise ValueError(f"{where} cannot be read: it holds no JSON object")
    for name, kind in kinds.items():
        if name not in table:
            raise ValueError(f"{where} cannot be read: {name} is missing")
        value = table[name]
        if not (value is None and kind.endswith(" or null")) and not KINDS[kind.removesuffix(" or null")](value):
            raise ValueError(f"{where} cannot be read: {name} must be {kind}, got {shown(value)}")
    return table


def settle_types(config: Any) -> None:
    """Refuse flags that are not bool, and build nested configurations from plain values."""
    kind: type = type(config)
    for name, hint in type_hints(kind).items():
        allowed = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        if any(part is bool or is_dataclass(part) for part in allowed):
            value = getattr(config, name)
            if isinstance(value, Mapping) and isinstance(hint, type) and is_dataclass(hint):
                object.__setattr__(config, name, config_from_dict(hint, value, f"{name}."))
            elif not isinstance(value, allowed):
                wanted = " or ".join(part.__name__ for part in allowed)
                raise TypeError(f"{name} must be {wanted}, got {shown(value)} ({type(value).__name__})")


def check_choice(config: Any, name: str) -> None:
    """Refuse a value that the field's Literal does not list."""
    kind: type = type(config)
    allowed = get_args(type_hints(kind)[name])
    if getattr(config, name) not in allowed:
        raise ValueError(f"{name} must be one of {list(allowed)}, got {shown(getattr(config, name))}")
