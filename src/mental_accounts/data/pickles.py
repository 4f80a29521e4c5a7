"""The `.pkl` files of the Decision Transformer scripts: lists of dicts of arrays.

A pickle is a program, and loading one may call any function. `pickle_machine` runs nothing of it; here its arrays are
made of the bytes that the file holds, no more than it holds.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.action_spec import ActionSpec
from mental_accounts.data.data_checks import check_unfolding, shown_names
from mental_accounts.data.pickle_machine import Array, Kind, run_pickle
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import DataError

PLAIN_TYPE = re.compile(r"[<>=|]?([?]|b1|[iu][1248]|f[248])")
"""Type codes of plain numbers, all that is admitted."""

MAX_DIMENSIONS = 32
"""Of an array, as in NumPy 1."""

SHAPES = {"observations": ((2,), "(steps, obs)"), "actions": ((1, 2), "(steps, act) or (steps,)")}
"""How many dimensions these have, and in words; all others have one."""

ARRAY_BYTES = 256
"""Of an array beside its numbers: bounds how often a trajectory of one step can be named."""


def read_pickle(
    path: Path | str, *, action_spec: ActionSpec | None = None, info: Mapping[str, Any] | None = None
) -> Trajectories:
    """Read a list of trajectories, each a dict of arrays: observations, actions, rewards and terminals (or dones).

    The scripts that write such files keep trajectories that ended or ran out of time: one that did not end is
    truncated.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    content = run_pickle(path)
    if not isinstance(content, (list, tuple)) or not content:
        raise DataError(f"{path}: expected a list of trajectories, got {_kind(content)}")
    parts = _trajectories(content, path.stat().st_size, path)
    terminated = np.array([bool(part["terminals"][-1]) for part in parts])
    for name in ("observations", "actions"):
        shapes = {part[name].shape[1:] for part in parts}
        if len(shapes) != 1:
            raise DataError(f"{path}: {name} must have the same shape in all trajectories, got {sorted(shapes)[:20]}")
    return Trajectories.from_steps(
        *(_joined([part[name] for part in parts], name) for name in ("observations", "actions", "rewards")),
        lengths=[len(part["rewards"]) for part in parts],
        terminated=terminated,
        truncated=~terminated,
        action_spec=action_spec,
        info={"source": "pickle", "file": path.name, **(info or {})},
        where=str(path),
    )


def _trajectories(content: Sequence[object], size: int, path: Path) -> list[dict[str, NDArray[Any]]]:
    """Every trajectory; one that is named often may be, as long as all of them are no more than the file could hold."""
    parts: list[dict[str, NDArray[Any]]] = []
    known: dict[int, dict[str, NDArray[Any]]] = {}  # by identity: `content` keeps them alive
    steps = held = 0
    declared = dict.fromkeys(("observations", "actions", "rewards", "terminals"), 0)
    for i, item in enumerate(content):
        part = known.get(id(item))
        if part is None:
            part = known[id(item)] = _trajectory(item, f"{path}: trajectory {i}")
        parts.append(part)
        steps += len(part["rewards"])
        for name, array in part.items():
            held += array.nbytes
            declared[name] += array.size * max(4, array.itemsize) + ARRAY_BYTES
        if held > size:  # something is named more than once
            where = f"{path}: trajectory {i}"
            check_unfolding(declared, steps, size, where, "write it with each trajectory once", share=1)
    return parts


def _trajectory(item: object, where: str) -> dict[str, NDArray[Any]]:
    if not isinstance(item, dict):
        raise DataError(f"{where}: expected a dict of arrays, got {_kind(item)}")
    ends = "terminals" if "terminals" in item or "dones" not in item else "dones"
    arrays = {}
    for name in ("observations", "actions", "rewards", ends):
        if name not in item:
            raise DataError(f"{where}: has no {name}, only {shown_names(sorted(map(str, item)))}")
        array = arrays[name] = _array(item[name], f"{where}: {name}")
        ranks, expected = SHAPES.get(name, ((1,), "(steps,)"))
        if array.ndim in ranks:
            continue
        if name in ("rewards", ends) and array.ndim == 2 and array.shape[1] == 1:  # as some files have them
            arrays[name] = array[:, 0]
        elif array.ndim == 0 or len(array):
            raise DataError(f"{where}: {name} must have shape {expected}, got {array.shape}")
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or not counts["rewards"]:
        raise DataError(f"{where}: all keys must have the same number of steps, at least one, got {counts}")
    flags = arrays.pop(ends).astype(bool, copy=False)
    if np.count_nonzero(flags[:-1]):
        raise DataError(f"{where}: {ends}[{int(flags.argmax())}] is set before the last step, {len(flags) - 1}")
    return arrays | {"terminals": flags}


def _array(value: object, where: str) -> NDArray[Any]:
    if isinstance(value, Array):
        if value.made is None:
            value.made = _made(value, where)
        return value.made
    if isinstance(value, (list, tuple)) and all(type(number) in (bool, int, float) for number in value):
        array = np.asarray(value)
        if array.dtype.kind in "biuf":
            return array
        raise DataError(f"{where}: expected numbers of 64 bits at most, got larger ones")
    raise DataError(f"{where}: expected an array of numbers, got {_kind(value)}")


def _made(value: Array, where: str) -> NDArray[Any]:
    """The array that the pickle describes, on the bytes that it names."""
    kind = _dtype(value.kind, where)
    shape = value.shape if isinstance(value.shape, tuple) else (value.shape,)
    for n in shape:
        if type(n) is not int or not 0 <= n < 2**63 or len(shape) > MAX_DIMENSIONS:
            raise DataError(
                f"{where}: the array has a shape that is none; expected up to {MAX_DIMENSIONS} whole numbers"
            )
    if not isinstance(value.data, (bytes, memoryview, str)):
        raise DataError(f"{where}: expected the bytes of an array, got {_kind(value.data)}")
    needed = math.prod(shape) * kind.itemsize
    if needed != len(value.data):
        raise DataError(f"{where}: shape {shape} of {kind} needs {needed} bytes, got {len(value.data)}")
    try:
        data = value.data.encode("latin1") if isinstance(value.data, str) else value.data
    except UnicodeEncodeError:
        raise DataError(f"{where}: expected the bytes of an array, got text") from None
    array = np.frombuffer(data, np.uint8 if kind.kind == "b" else kind)
    array = array.astype(bool) if kind.kind == "b" else array  # whose bytes may be anything
    return array.reshape(shape, order="F" if value.columns_first else "C")


def _dtype(kind: object, where: str) -> np.dtype[Any]:
    """The type that the pickle describes; most often all arrays of a file share a few."""
    if not isinstance(kind, Kind):
        raise DataError(f"{where}: expected an array of plain numbers, got one of type {_kind(kind)}")
    if kind.made is None:
        code, order = kind.code, kind.order
        if not isinstance(code, str) or not PLAIN_TYPE.fullmatch(code) or order not in ("<", ">", "=", "|"):
            named = shown_names([code])[1:-1] if isinstance(code, str) else _kind(code)
            raise DataError(f"{where}: expected an array of plain numbers, got one of type {named}")
        made = np.dtype(code)
        kind.made = made.newbyteorder("<") if order == "<" else made.newbyteorder(">") if order == ">" else made
    return kind.made


def _joined(parts: list[NDArray[Any]], name: str) -> NDArray[Any]:
    """All steps of a key in the store's type; whole numbers stay whole where they may be discrete actions."""
    if name == "actions" and all(part.dtype.kind in "biu" for part in parts):
        return np.concatenate(parts)
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is infinite, and refused as such
        return np.concatenate(parts, dtype=np.float32, casting="unsafe")


def _kind(value: object) -> str:
    if isinstance(value, Array):
        return "an array"
    return f"an empty {type(value).__name__}" if value in ([], ()) else type(value).__name__
