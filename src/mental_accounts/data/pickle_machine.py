"""A machine for pickles that can make plain values only, in memory bounded by the size of the file.

It admits lists, tuples, dicts, strings, bytes and numbers. The names under which NumPy pickles its arrays lead to
stand-ins that only keep what they are given; every other name is refused, and nothing is called. Each instruction
takes constant memory, or as much as the bytes behind it: Python's own loader takes gigabytes for a number in the file.
"""

import codecs
import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.data.data_checks import damaged, shown_names
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


MARK, TUPLE, TUPLE1, TUPLE2, TUPLE3, STOP = b"(t\x85\x86\x87."
PROTOCOL = 0x80
"""The first byte of every pickle since protocol 2; all of them end with STOP."""
BININT1, BININT2, NEWFALSE, BINGET, LONG_BINPUT, MEMOIZE = b"KM\x89hr\x94"
"""The instructions that most of a file of arrays consists of, by the names that Python has for them."""


class Array:
    """What a pickle says an array, or a single number, consists of."""

    data: object = None
    kind: object = None
    shape: object = None
    columns_first = False
    made: NDArray[np.generic] | None = None

    @classmethod
    def of(cls, data: object, kind: object, shape: object, order: object = "C") -> "Array":
        found = cls()
        found.data, found.kind, found.shape, found.columns_first = data, kind, shape, order == "F"
        return found

    def set_state(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise ValueError("an array was made in a way that NumPy does not pickle")
        _, self.shape, self.kind, columns_first, self.data = state
        self.columns_first = columns_first is True or columns_first == 1


class Kind:
    """A dtype: its code, and the byte order that follows in its state."""

    made: np.dtype[Any] | None = None

    def __init__(self, code: object) -> None:
        self.code, self.order = code, "="

    def set_state(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or not isinstance(state[1], str):
            raise ValueError("a type was made in a way that NumPy does not pickle")
        if any(part is not None for part in state[2:5]):
            raise ValueError("an array of records, where plain numbers belong")
        self.order, self.made = state[1], None


def _encode(text: object, encoding: object = "latin1") -> str:
    """Bytes come as text in old protocols; they stay so, since a copy of each naming would take memory."""
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("bytes were encoded in a way that NumPy does not pickle")
    return text


STAND_INS: dict[tuple[str, str], Callable[..., object] | None] = {
    ("numpy", "ndarray"): None,  # only named, never called
    ("numpy", "dtype"): lambda code, *_: Kind(code),
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: Array(),
    ("numpy.core.multiarray", "scalar"): lambda kind, data=None: Array.of(data, kind, ()),
    ("numpy.core.numeric", "_frombuffer"): lambda data, kind, shape, order, *_: Array.of(data, kind, shape, order),
    ("_codecs", "encode"): _encode,
}
"""The names that NumPy 1 and 2 pickle arrays and numbers under, and what stands for them here."""


class _Named:
    """A name of the table above; an object of its own, so that no pickle can touch the table."""

    def __init__(self, function: Callable[..., object] | None) -> None:
        self.function = function


def run_pickle(path: Path) -> object:
    """The value that the pickle describes, of the types named above; its bytes stay in the file until they are read."""
    with damaged(f"{path}: not a whole pickle of arrays"), path.open("rb") as file:
        program = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if program[0] != PROTOCOL and program[-1] != STOP:
            raise DataError(f"{path}: this is not a pickle")
        return _Machine(program, path).run()


class _Machine:
    def __init__(self, program: mmap.mmap, path: Path) -> None:
        self.program, self.view, self.path = program, memoryview(program), path
        self.place = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []  # how high the stack was
        self.memo: dict[int, Any] = {}

    def run(self) -> object:
        """Instruction by instruction. Those that an array takes most of are right here: a call each is too slow."""
        program, steps, stack, marks, memo = self.program, _INSTRUCTIONS, self.stack, self.marks, self.memo
        place = 0
        for _ in range(MAX_INSTRUCTIONS):
            code = program[place]
            place += 1
            step = steps[code]
            if step is not None:
                self.place = place
                step(self)
                place = self.place
            elif code == MEMOIZE:
                memo[len(memo)] = stack[-1]
            elif code == BINGET:
                stack.append(memo[program[place]])
                place += 1
            elif code == LONG_BINPUT:
                memo[int.from_bytes(program[place : place + 4], "little")] = stack[-1]
                place += 4
            elif code == BININT1:
                stack.append(program[place])
                place += 1
            elif code == BININT2:
                stack.append(int.from_bytes(program[place : place + 2], "little"))
                place += 2
            elif code == TUPLE1:
                stack[-1] = (stack[-1],)
            elif code == TUPLE2:
                last = stack.pop()
                stack[-1] = (stack[-1], last)
            elif code == TUPLE3:
                middle, last = stack[-2:]
                del stack[-2:]
                stack[-1] = (stack[-1], middle, last)
            elif code == MARK:
                marks.append(len(stack))
            elif code == TUPLE:
                height = marks.pop()
                stack[height:] = [tuple(stack[height:])]
            elif code == NEWFALSE:
                stack.append(False)
            elif code == STOP:
                return stack.pop()
            else:
                raise DataError(
                    f"{self.path}: refused, the pickle has the instruction {code:#04x} at byte {place - 1}, which "
                    "plain values do not need; nothing was executed"
                )
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

    def pop_mark(self) -> list[Any]:
        height = self.marks.pop()
        items = self.stack[height:]
        del self.stack[height:]
        return items

    def pop(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()

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
    b"0": _Machine.pop,
    b"1": lambda m: (m.pop_mark(), None)[1],
    b"2": lambda m: m.push(m.stack[-1]),
    # Plain values.
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"I": lambda m: m.push(_integer(m.line())),
    b"J": lambda m: m.push(int.from_bytes(m.take_view(4), "little", signed=True)),
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
    b"}": lambda m: m.push({}),
    b"d": lambda m: m.new_dict(m.pop_mark()),
    b"s": lambda m: m.set_items([m.stack.pop(-2), m.stack.pop()]),
    b"u": lambda m: m.set_items(m.pop_mark()),
    # What was remembered.
    b"p": lambda m: m.remember(int(m.line())),
    b"q": lambda m: m.remember(m.byte()),
    b"g": lambda m: m.push(m.memo[int(m.line())]),
    b"j": lambda m: m.push(m.memo[m.number(4)]),
    # NumPy's names.
    b"c": lambda m: m.name(m.line().decode(), m.line().decode()),
    b"\x93": lambda m: m.name(m.stack.pop(-2), m.stack.pop()),
    b"R": _Machine.reduce,
    b"b": _Machine.build,
}

_INSTRUCTIONS = [_STEPS.get(bytes([code])) for code in range(256)]
"""By their byte; None where plain values do not need it, and for those that `run` follows itself."""
