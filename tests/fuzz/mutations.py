"""Damaged files: bytes of a good one changed at random, and JSON whose values are of other kinds. All by seed."""

import json
import random
from collections.abc import Callable
from typing import Any

STRANGE = [
    None, True, "", "x", "𝄞", -1, 0, 1e308, -0.5, 2**63, 10**30, [], {}, [[]], {"a": 1}, [1, "a"],
    "[x](javascript:alert(1))", "../../etc/passwd", "$\\frac{$", "\u0000",
]  # fmt: skip
"""Values that may stand where others belong."""


def flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        data[rng.randrange(len(data))] = rng.randrange(256)


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def drop(data: bytearray, rng: random.Random) -> None:
    first = rng.randrange(len(data))
    del data[first : first + rng.choice([1, 4, 64])]


def insert(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data))
    data[place:place] = rng.randbytes(rng.choice([1, 8, 64]))


def repeat(data: bytearray, rng: random.Random) -> None:
    first = rng.randrange(len(data))
    data[first:first] = data[first : first + rng.choice([4, 32, 256])] * rng.choice([1, 3, 50])


def enlarge(data: bytearray, rng: random.Random) -> None:
    """A small whole number in the file becomes a very large one, as a lying size would."""
    place = rng.randrange(max(1, len(data) - 8))
    width = rng.choice([2, 4, 8])
    data[place : place + width] = (2 ** (8 * width - rng.choice([1, 2, 12]))).to_bytes(
        width, rng.choice(["little", "big"])
    )


BYTES: list[Callable[[bytearray, random.Random], None]] = [flip, flip, flip, cut, drop, insert, repeat, enlarge]


def mutated_bytes(good: bytes, rng: random.Random) -> bytes:
    """One to three changes of bytes."""
    data = bytearray(good)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if data:
            rng.choice(BYTES)(data, rng)
    return bytes(data)


def mutated_json(good: bytes, rng: random.Random) -> bytes:
    """One value of another kind, a field that is missing or new, or nesting without end; in one line of many."""
    if rng.random() < 0.3:
        return mutated_bytes(good, rng)
    lines = good.decode().strip().split("\n")
    is_lines = len(lines) > 1 and all(line.startswith("{") and line.endswith("}") for line in lines)
    place = rng.randrange(len(lines)) if is_lines else 0
    value = json.loads(lines[place] if is_lines else good)
    if rng.random() < 0.05:
        text = "[" * 100_000 + "]" * 100_000
    elif rng.random() < 0.05:
        text = json.dumps(rng.choice(STRANGE))
    else:
        text = json.dumps(_changed(value, rng))
        if rng.random() < 0.05:
            text = text.replace("0", "9" * 5_000, 1)
    return "\n".join([*lines[:place], text, *lines[place + 1 :], ""]).encode() if is_lines else text.encode()


def _changed(value: Any, rng: random.Random) -> Any:
    """A copy with one thing changed somewhere inside."""
    inner = [key for key, part in _parts(value) if isinstance(part, (dict, list)) and part]
    if inner and rng.random() < 0.6:
        key = rng.choice(inner)
        copy = dict(value) if isinstance(value, dict) else list(value)
        copy[key] = _changed(copy[key], rng)
        return copy
    parts = _parts(value)
    if not parts:
        return rng.choice(STRANGE)
    copy, (key, _) = dict(value) if isinstance(value, dict) else list(value), rng.choice(parts)
    if rng.random() < 0.2:
        del copy[key]
    elif rng.random() < 0.1 and isinstance(copy, dict):
        copy["surprise"] = rng.choice(STRANGE)
    else:
        copy[key] = rng.choice(STRANGE)
    return copy


def _parts(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []
