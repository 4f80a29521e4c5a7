"""The `.pkl` files of the Decision Transformer scripts, read without running anything that they hold.

A pickle is a program: loading one may call any function. This reader admits arrays, lists, tuples, dicts, strings and
numbers. The names under which NumPy pickles its arrays lead to stand-ins that only keep what they are given; every
other name is refused before anything is made of it. No function of NumPy's own is called by the pickle.
"""

import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.config import ActionSpec
from mental_accounts.data.checks import DataError
from mental_accounts.data.trajectories import Trajectories

PLAIN_TYPE = re.compile(r"[<>=|]?([?]|b1|[iu][1248]|f[248])")
"""Type codes of plain numbers, all that is admitted."""


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
    with path.open("rb") as file:
        content = _Reader(file, path).load_safely()
    if not isinstance(content, (list, tuple)) or not content:
        raise DataError(f"{path}: expected a list of trajectories, got {_kind(content)}")
    parts = [_trajectory(item, f"{path}: trajectory {i}") for i, item in enumerate(content)]
    terminated = np.array([bool(part["terminals"][-1]) for part in parts])
    for name in ("observations", "actions"):
        shapes = {part[name].shape[1:] for part in parts}
        if len(shapes) != 1:
            raise DataError(f"{path}: {name} must have the same shape in all trajectories, got {sorted(shapes)}")
    return Trajectories.from_steps(
        *(np.concatenate([part[name] for part in parts]) for name in ("observations", "actions", "rewards")),
        lengths=[len(part["rewards"]) for part in parts],
        terminated=terminated,
        truncated=~terminated,
        action_spec=action_spec,
        info={"source": "pickle", "file": path.name, **(info or {})},
        where=str(path),
    )


def _trajectory(item: object, where: str) -> dict[str, NDArray[Any]]:
    if not isinstance(item, dict):
        raise DataError(f"{where}: expected a dict of arrays, got {_kind(item)}")
    ends = "terminals" if "terminals" in item or "dones" not in item else "dones"
    arrays = {}
    for name in ("observations", "actions", "rewards", ends):
        if name not in item:
            raise DataError(f"{where}: has no {name}, only {sorted(map(str, item))}")
        arrays[name] = _array(item[name], f"{where}: {name}")
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or not counts["rewards"]:
        raise DataError(f"{where}: all keys must have the same number of steps, at least one, got {counts}")
    flags = arrays.pop(ends).reshape(counts["rewards"], -1)
    if flags.shape[1] != 1 or flags[:-1].any():
        early = int(np.flatnonzero(flags.any(axis=1))[0])
        raise DataError(f"{where}: {ends}[{early}] is set before the last step, {counts['rewards'] - 1}")
    return arrays | {"terminals": flags[:, 0].astype(bool), "rewards": arrays["rewards"].reshape(len(flags))}


def _array(value: object, where: str) -> NDArray[Any]:
    if isinstance(value, _Kept):
        return value.array(where)
    if isinstance(value, (list, tuple)) and all(type(number) in (bool, int, float) for number in value):
        return np.asarray(value)
    raise DataError(f"{where}: expected an array of numbers, got {_kind(value)}")


class _Reader(pickle.Unpickler):
    """Gives every load stand-ins of its own, so that nothing a pickle does to them outlives it."""

    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="latin1")
        self.path = path
        self.admitted = _stand_ins()

    def find_class(self, module: str, name: str) -> Any:
        place = module.replace("numpy._core", "numpy.core")  # NumPy 2 and 1
        if (place, name) not in self.admitted:
            raise DataError(
                f"{self.path}: refused, the pickle asks for {module}.{name}; only NumPy arrays, lists, tuples, dicts, "
                "strings and numbers are admitted, and nothing was executed"
            )
        return self.admitted[place, name]

    def load_safely(self) -> object:
        try:
            return self.load()
        except DataError:
            raise
        except Exception as error:  # a damaged pickle can fail in any way; it can do nothing else
            raise DataError(f"{self.path}: not a whole pickle of arrays ({type(error).__name__}: {error})") from None


class _Kept:
    """What the pickle says an array, or a single number, consists of."""

    def __init__(self) -> None:
        self.shape: object = None
        self.kind: object = None
        self.columns_first: object = False
        self.data: object = None

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _, self.shape, self.kind, self.columns_first, self.data = state

    def array(self, where: str) -> NDArray[Any]:
        code = getattr(self.kind, "code", None)
        order = getattr(self.kind, "order", None)
        if not isinstance(code, str) or not PLAIN_TYPE.fullmatch(code) or order not in ("<", ">", "=", "|"):
            raise DataError(f"{where}: expected an array of plain numbers, got one of type {code!r}")
        kind = np.dtype(code).newbyteorder(order if order in ("<", ">") else "=")
        data = self.data.encode("latin1") if isinstance(self.data, str) else self.data
        shape = self.shape if isinstance(self.shape, tuple) else (self.shape,)
        if not isinstance(data, (bytes, bytearray)) or not all(type(n) is int and n >= 0 for n in shape):
            raise DataError(f"{where}: expected the bytes of an array, got {_kind(self.data)}")
        count = int(np.prod([*shape, 1], dtype=object))
        if count * kind.itemsize != len(data):
            raise DataError(f"{where}: shape {shape} of {code} needs {count * kind.itemsize} bytes, got {len(data)}")
        flat = np.frombuffer(data, kind, count)
        return flat.reshape(shape, order="F" if self.columns_first else "C")


def _stand_ins() -> dict[tuple[str, str], Callable[..., object]]:
    """The names that NumPy 1 and 2 pickle arrays and numbers under, and what stands for them here."""

    class Kept(_Kept):
        pass

    class Kind:
        """A dtype: its code, and the byte order that follows in its state."""

        def __init__(self, code: object, *_: object) -> None:
            self.code, self.order = code, "="

        def __setstate__(self, state: tuple[object, ...]) -> None:
            self.order = str(state[1])

    class NoArray:
        """`numpy.ndarray` itself, which is only named, never called."""

        def __init__(self, *_: object) -> None:
            raise ValueError("an array was made in a way that NumPy does not pickle")

    def reconstruct(*_: object) -> Kept:
        return Kept()

    def from_buffer(data: object, kind: object, shape: object, order: object, *_: object) -> Kept:
        kept = Kept()
        kept.data, kept.kind, kept.shape, kept.columns_first = data, kind, shape, order == "F"
        return kept

    def scalar(kind: object, data: object = None) -> Kept:
        kept = Kept()
        kept.data, kept.kind, kept.shape = data, kind, ()
        return kept

    def encode(text: object, encoding: object = "latin1") -> bytes:
        if not isinstance(text, str) or encoding != "latin1":
            raise ValueError(f"bytes were encoded as {encoding!r}, NumPy's are latin1")
        return text.encode("latin1")

    return {
        ("numpy", "ndarray"): NoArray,
        ("numpy", "dtype"): Kind,
        ("numpy.core.multiarray", "_reconstruct"): reconstruct,
        ("numpy.core.multiarray", "scalar"): scalar,
        ("numpy.core.numeric", "_frombuffer"): from_buffer,
        ("_codecs", "encode"): encode,
    }


def _kind(value: object) -> str:
    return f"an empty {type(value).__name__}" if value in ([], ()) else type(value).__name__
