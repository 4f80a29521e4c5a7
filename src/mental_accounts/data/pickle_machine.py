"""A machine for pickles that can make plain values only, in memory bounded by the size of the file.

It admits lists, tuples, dicts, strings, bytes and numbers. The names under which NumPy pickles its arrays lead to
stand-ins that only keep what they are given; every other name is refused, and nothing is called. Each instruction
takes constant memory, or as much as the bytes behind it: Python's own loader takes gigabytes for a number in the file.
"""

import codecs
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.data.data_checks import shown_names
from mental_accounts.errors import DataError

MAX_INSTRUCTIONS = 5_000_000
"""An array needs about 30, whatever its size."""

VIEW_BYTES = 255
"""What a view of bytes takes itself, about."""

MAX_INTEGER_BYTES = 255
MAX_KEY_BITS = 64
"""Larger integers as keys could be chosen so that they all collide."""

MAX_MEMO = 2**32
"""Above all numbers under which a pickle remembers a value."""


class Array:
    """What a pickle says an array, or a single number, consists of."""

    def __init__(self, data: object = None, kind: object = None, shape: object = None, order: object = "C") -> None:
        self.data, self.kind, self.shape, self.columns_first = data, kind, shape, order == "F"
        self.made: NDArray[np.generic] | None = None

    def set_state(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise ValueError("an array was made in a way that NumPy does not pickle")
        _, self.shape, self.kind, columns_first, self.data = state
        self.columns_first = columns_first is True or columns_first == 1


class Kind:
    """A dtype: its code, and the byte order that follows in its state."""

    def __init__(self, code: object) -> None:
        self.code, self.order = code, "="

    def set_state(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or not isinstance(state[1], str):
            raise ValueError("a type was made in a way that NumPy does not pickle")
        if any(part is not None for part in state[2:5]):
            raise ValueError("an array of records, where plain numbers belong")
        self.order = state[1]


def _encode(text: object, encoding: object = "latin1") -> str:
    """Bytes come as text in old protocols; they stay so, since a copy of each naming would take memory."""
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("bytes were encoded in a way that NumPy does not pickle")
    return text


STAND_INS: dict[tuple[str, str], Callable[..., object] | None] = {
    ("numpy", "ndarray"): None,  # only named, never called
    ("numpy", "dtype"): lambda code, *_: Kind(code),
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: Array(),
    ("numpy.core.multiarray", "scalar"): lambda kind, data=None: Array(data, kind, ()),
    ("numpy.core.numeric", "_frombuffer"): lambda data, kind, shape, order, *_: Array(data, kind, shape, order),
    ("_codecs", "encode"): _encode,
}
"""The names that NumPy 1 and 2 pickle arrays and numbers under, and what stands for them here."""


class _Named:
    """A name of the table above; an object of its own, so that no pickle can touch the table."""

    def __init__(self, function: Callable[..., object] | None) -> None:
        self.function = function


def run_pickle(program: bytes, path: Path) -> object:
    """The value that the pickle describes, of the types named above."""
    try:
        return _Machine(program, path).run()
    except DataError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way; it can do nothing else
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: not a whole pickle of arrays ({type(error).__name__}: {reason})") from None


class _Machine:
    def __init__(self, program: bytes, path: Path) -> None:
        self.program, self.view, self.path = program, memoryview(program), path
        self.place = 0
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks under each mark
        self.memo: dict[int, Any] = {}

    def run(self) -> object:
        program, steps, end = self.program, _INSTRUCTIONS, len(self.program)
        for _ in range(MAX_INSTRUCTIONS):
            if self.place >= end:
                raise EOFError("it ends before its end")
            code = program[self.place]
            self.place += 1
            if code == 0x2E:  # STOP
                return self.stack.pop()
            step = steps[code]
            if step is None:
                raise DataError(
                    f"{self.path}: refused, the pickle has the instruction {code:#04x} at byte {self.place - 1}, which "
                    "plain values do not need; nothing was executed"
                )
            step(self)
        raise DataError(
            f"{self.path}: the pickle has more than {MAX_INSTRUCTIONS:,} instructions; keep numbers in NumPy arrays, "
            "not in lists"
        )

    # What stands behind an instruction.

    def take_view(self, count: int) -> memoryview:
        begin, self.place = self.place, self.place + count
        if self.place > len(self.program):
            raise EOFError(f"{count} bytes are declared at byte {begin}, {len(self.program) - begin} are there")
        return self.view[begin : self.place]

    def byte(self) -> int:
        self.place += 1
        return self.program[self.place - 1]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take_view(width), "little")

    def line(self) -> bytes:
        end = self.program.find(b"\n", self.place)
        if end < 0:
            raise EOFError("it ends within a line")
        found = self.program[self.place : end]
        self.place = end + 1
        return found

    # Steps.

    def push(self, value: object) -> None:
        self.stack.append(value)

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def pop_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.pop_mark()

    def remember(self, number: int) -> None:
        if not 0 <= number < MAX_MEMO:
            raise ValueError("a value is remembered under a number that is none")
        self.memo[number] = self.stack[-1]

    def append(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise TypeError("items are added to something that is no list")
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise TypeError("keys are added to something that is no dict")
        for key in items[::2]:
            plain = type(key) in (str, bytes, float, bool) or key is None
            if not plain and not (type(key) is int and key.bit_length() <= MAX_KEY_BITS):
                raise TypeError(f"the keys of a dict must be strings or numbers, got {type(key).__name__}")
        target.update(zip(items[::2], items[1::2], strict=True))

    def new_dict(self, items: list[Any]) -> None:
        self.push({})
        self.set_items(items)

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError("a tuple of more values than there are")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def name(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name that is no text")
        place = (module.replace("numpy._core", "numpy.core"), name)  # NumPy 2 and 1
        if place not in STAND_INS:
            asked = f"{module}.{name}"
            raise DataError(
                f"{self.path}: refused, the pickle asks for "
                f"{asked if asked.isprintable() and len(asked) < 100 else shown_names([asked])}; only NumPy arrays, "
                "lists, tuples, dicts, strings and numbers are admitted, and nothing was executed"
            )
        self.push(_Named(STAND_INS[place]))

    def reduce(self) -> None:
        arguments = self.stack.pop()
        named = self.stack[-1]
        if type(named) is not _Named or named.function is None or type(arguments) is not tuple or len(arguments) > 8:
            raise TypeError("an array was made in a way that NumPy does not pickle")
        self.stack[-1] = named.function(*arguments)

    def build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], (Array, Kind)):
            raise TypeError("a state is given to something that has none")
        self.stack[-1].set_state(state)


def _integer(digits: bytes) -> object:
    if digits in (b"00", b"01"):  # how protocol 0 writes False and True
        return digits == b"01"
    return int(digits)


def _long(machine: _Machine, width: int) -> int:
    count = machine.number(width)
    if count > MAX_INTEGER_BYTES:
        raise ValueError(f"an integer of {count} bytes")
    return int.from_bytes(machine.take_view(count), "little", signed=True)


def _data(machine: _Machine, width: int) -> bytes | memoryview:
    """Bytes, where they lie: copies of the few for which that would take more."""
    found = machine.take_view(machine.number(width))
    return found if len(found) > VIEW_BYTES else bytes(found)


def _quoted(line: bytes) -> str:
    line = line.strip()
    if len(line) < 2 or line[0] != line[-1] or line[:1] not in (b"'", b'"'):
        raise ValueError("a string without its quotes")
    return codecs.escape_decode(line[1:-1])[0].decode("latin1")


def _protocol(machine: _Machine) -> None:
    if (version := machine.byte()) > 5:
        raise ValueError(f"pickle protocol {version}, which is not known")


def _frame(machine: _Machine) -> None:
    """Its length says nothing that its instructions do not."""
    if (count := machine.number(8)) > len(machine.program) - machine.place:
        raise EOFError(f"a frame of {count} bytes, more than there are")


_STEPS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _protocol,
    b"\x95": _frame,
    b"(": lambda m: m.mark(),
    b"0": lambda m: m.pop(),
    b"1": lambda m: (m.pop_mark(), None)[1],
    b"2": lambda m: m.push(m.stack[-1]),
    # Plain values.
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"I": lambda m: m.push(_integer(m.line())),
    b"J": lambda m: m.push(int.from_bytes(m.take_view(4), "little", signed=True)),
    b"K": lambda m: m.push(m.byte()),
    b"M": lambda m: m.push(m.number(2)),
    b"L": lambda m: m.push(int(m.line().removesuffix(b"L"))),
    b"\x8a": lambda m: m.push(_long(m, 1)),
    b"\x8b": lambda m: m.push(_long(m, 4)),
    b"F": lambda m: m.push(float(m.line())),
    b"G": lambda m: m.push(struct.unpack(">d", m.take_view(8))[0]),
    b"S": lambda m: m.push(_quoted(m.line())),
    b"T": lambda m: m.push(str(m.take_view(m.number(4)), "latin1")),
    b"U": lambda m: m.push(str(m.take_view(m.byte()), "latin1")),
    b"V": lambda m: m.push(m.line().decode("raw_unicode_escape")),
    b"\x8c": lambda m: m.push(str(m.take_view(m.byte()), "utf-8", "surrogatepass")),
    b"X": lambda m: m.push(str(m.take_view(m.number(4)), "utf-8", "surrogatepass")),
    b"\x8d": lambda m: m.push(str(m.take_view(m.number(8)), "utf-8", "surrogatepass")),
    b"C": lambda m: m.push(bytes(m.take_view(m.byte()))),
    b"B": lambda m: m.push(_data(m, 4)),
    b"\x8e": lambda m: m.push(_data(m, 8)),
    b"\x96": lambda m: m.push(_data(m, 8)),
    # Lists, tuples and dicts.
    b"]": lambda m: m.push([]),
    b"l": lambda m: m.push(m.pop_mark()),
    b"a": lambda m: m.append([m.stack.pop()]),
    b"e": lambda m: m.append(m.pop_mark()),
    b")": lambda m: m.push(()),
    b"t": lambda m: m.push(tuple(m.pop_mark())),
    b"\x85": lambda m: m.tuple_of(1),
    b"\x86": lambda m: m.tuple_of(2),
    b"\x87": lambda m: m.tuple_of(3),
    b"}": lambda m: m.push({}),
    b"d": lambda m: m.new_dict(m.pop_mark()),
    b"s": lambda m: m.set_items([m.stack.pop(-2), m.stack.pop()]),
    b"u": lambda m: m.set_items(m.pop_mark()),
    # What was remembered.
    b"p": lambda m: m.remember(int(m.line())),
    b"q": lambda m: m.remember(m.byte()),
    b"r": lambda m: m.remember(m.number(4)),
    b"\x94": lambda m: m.remember(len(m.memo)),
    b"g": lambda m: m.push(m.memo[int(m.line())]),
    b"h": lambda m: m.push(m.memo[m.byte()]),
    b"j": lambda m: m.push(m.memo[m.number(4)]),
    # NumPy's names.
    b"c": lambda m: m.name(m.line().decode(), m.line().decode()),
    b"\x93": lambda m: m.name(m.stack.pop(-2), m.stack.pop()),
    b"R": lambda m: m.reduce(),
    b"b": lambda m: m.build(),
}

_INSTRUCTIONS = [_STEPS.get(bytes([code])) for code in range(256)]
"""By their byte; None where plain values do not need it."""
