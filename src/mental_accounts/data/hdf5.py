"""HDF5 files of strangers, D4RL's and Minari's: what a key declares is looked at before any memory is taken, and no
other file is read.

HDF5 lets a small file declare a huge array, lead into other files, or hold compressed blocks that unfold to another
size than they should. libhdf5 follows all three. Here they are refused, with one line that names the file and the key.
"""

import contextlib
import itertools
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.data.data_checks import check_unfolding, damaged, shown_names
from mental_accounts.data.storage import check_memory
from mental_accounts.errors import DataError, NoRoomError
from mental_accounts.extras import how_to_install

MAX_LINKS = 64
"""Links followed from a key to its data set; more are taken for a circle."""

DEFLATE, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000
"""The filters that are admitted: what others unfold to cannot be known before."""

CHUNK_ENTRY_BYTES, UNLISTED_CHUNKS = 8, 4096
"""The least that a file spends on a chunk that it holds, and how many it may declare and not hold."""

REPACK = "rewrite it with HDF5's own tool: h5repack -f NONE"


@dataclass(frozen=True)
class Column:
    """A data set that may be read: all that it declares has been checked."""

    where: str
    """The file and the key, for errors."""
    data: Any
    """The h5py.Dataset."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None
    filters: tuple[int, ...]
    """As they were applied when it was written."""

    @property
    def chunk_bytes(self) -> int:
        return math.prod(self.chunks or ()) * int(self.dtype.itemsize)

    @property
    def number_bytes(self) -> int:
        """Of one element while it is read and converted to the store's types, which have 4 or more."""
        return max(4, int(self.dtype.base.itemsize)) * math.prod(self.dtype.shape)

    @property
    def chunk_count(self) -> int:
        return 0 if self.chunks is None else self.unfolded // math.prod(self.chunks)

    @property
    def unfolded(self) -> int:
        """Elements that reading goes through: whole chunks, also where the data set uses a corner of them."""
        if self.chunks is None:
            return math.prod(self.shape)
        return math.prod(-(-n // chunk) * chunk for n, chunk in zip(self.shape, self.chunks, strict=True))


def check_keys(path: Path, required: Sequence[str], shown: Path) -> None:
    """Refuse a file that is missing, no HDF5, cut short, or without the keys; `shown` is its name in errors."""
    with _opened(path, str(shown)) as file:
        _columns(file, required, (), str(shown))


def read_arrays(path: Path, required: Sequence[str], optional: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read these keys, (steps, ...) each, and the optional ones that are there."""
    with _opened(path, str(path)) as file:
        columns = _columns(file, required, optional, str(path))
        counts = {name: column.shape[0] for name, column in columns.items()}
        if len(set(counts.values())) != 1:
            raise DataError(f"{path}: all keys must have the same number of steps, got {counts}")
        _check_sizes([columns], path, str(path))
        return {name: _read(column) for name, column in columns.items()}


def read_groups(
    path: Path, groups: Sequence[str], keys: Sequence[str], shown: str
) -> Iterator[dict[str, NDArray[Any]]]:
    """Read these keys of one group after the other, of any lengths; `shown` names the file in errors.

    What all of them declare is checked before the first one is read.
    """
    with _opened(path, shown) as file:
        root = h5py_module().h5g.open(file.id, b"/")
        tables = [{key: _checked(root, f"{group}/{key}", shown) for key in keys} for group in groups]
        _check_sizes(tables, path, shown)
        for columns in tables:
            yield {key: _read(column) for key, column in columns.items()}


def h5py_module() -> Any:
    """h5py, or an error that says what to install."""
    try:
        import h5py  # type: ignore[import-untyped]
    except ImportError:
        raise ImportError(f"reading HDF5 files needs h5py: {how_to_install('d4rl')}") from None
    return h5py


@contextlib.contextmanager
def _opened(path: Path, shown: str) -> Iterator[Any]:
    h5py = h5py_module()
    if not path.is_file():
        raise FileNotFoundError(f"{shown}: no such file")
    with damaged(f"{shown}: not a whole HDF5 file", "get it again"), h5py.File(path, "r") as file:
        yield file


def _columns(file: Any, required: Sequence[str], optional: Sequence[str], shown: str) -> dict[str, Column]:
    h5py = h5py_module()
    root = h5py.h5g.open(file.id, b"/")
    missing = [name for name in required if not root.links.exists(name.encode())]
    if missing:
        there = shown_names(name.decode(errors="replace") for name in root)
        raise DataError(f"{shown}: has no data set {', '.join(missing)}; D4RL's files have them, this one has {there}")
    names = [*required, *(name for name in optional if root.links.exists(name.encode()))]
    return {name: _checked(root, name, shown) for name in names}


def _checked(root: Any, name: str, shown: str) -> Column:
    """The data set of that name, `group/key` where it lies in a group."""
    where = f"{shown}: {name}"
    with damaged(f"{where} cannot be read, the file is damaged"):
        return _column(_followed(root, name, where), where)


def _followed(root: Any, name: str, where: str) -> Any:
    """The object that a key leads to, by links within the file."""
    h5py = h5py_module()
    place, ahead, is_link = root, name.encode().split(b"/")[::-1], False
    for _ in range(MAX_LINKS):
        if not ahead:
            return place
        part = ahead.pop()
        if part in (b"", b"."):
            continue
        if not isinstance(place, h5py.h5g.GroupID) or not place.links.exists(part):
            wrong = "is a broken link, nothing lies where it leads to" if is_link else "is missing"
            raise DataError(f"{where} {wrong}; get the file again")
        kind = place.links.get_info(part).type
        if kind == h5py.h5l.TYPE_HARD:
            place = h5py.h5o.open(place, part)
        elif kind == h5py.h5l.TYPE_SOFT:
            target, is_link = place.links.get_val(part), True
            place = root if target.startswith(b"/") else place
            ahead += reversed(target.split(b"/"))
        else:
            raise DataError(f"{where} is a link into another file, which is not read; copy the data into this one")
    raise DataError(f"{where} is a link that leads in a circle; get the file again")


def _column(place: Any, where: str) -> Column:
    h5py = h5py_module()
    if not isinstance(place, h5py.h5d.DatasetID):
        kind = "a group" if isinstance(place, h5py.h5g.GroupID) else "a type"
        raise DataError(f"{where} must be a data set, got {kind}")
    made = place.get_create_plist()
    if made.get_layout() == h5py.h5d.VIRTUAL or made.get_external_count():  # before its shape: that would open them
        raise DataError(f"{where} lies in other files, which are not read; copy the data into this one")
    data = h5py.Dataset(place)
    dtype, shape = data.dtype, data.shape
    if dtype.base.kind not in "biuf":
        raise DataError(f"{where} must be numbers, got an array of {shown_names([str(dtype)])}")
    if not shape:  # a single value, or none at all
        raise DataError(f"{where} must have one row per step, got {'nothing' if shape is None else 'one value'}")
    stages = [made.get_filter(i) for i in range(made.get_nfilters())]
    filters = tuple(int(stage[0]) for stage in stages)
    column = Column(where, data, tuple(shape), dtype, data.chunks, filters)
    unknown = set(filters) - {DEFLATE, SHUFFLE, FLETCHER32, LZF}
    lies = any(code == LZF and tuple(values[2:3]) != (column.chunk_bytes,) for code, _, values, _ in stages)
    if unknown or lies or len(set(filters)) != len(filters) or {DEFLATE, LZF} <= set(filters):
        raise DataError(
            f"{where} is stored through the HDF5 filters {list(filters)}; only gzip or lzf, shuffle and fletcher32 are "
            f"read, each once; {REPACK}"
        )
    return column


def _check_sizes(tables: Sequence[dict[str, Column]], path: Path, shown: str) -> None:
    """Refuse what the file cannot hold, and what does not fit into memory, by what is declared alone."""
    size, steps, chunks = path.stat().st_size, 0, 0
    declared = dict.fromkeys(tables[0], 0)
    for columns in tables:
        steps += next(iter(columns.values())).shape[0]
        for name, column in columns.items():
            declared[name] += column.unfolded * column.number_bytes
            chunks += column.chunk_count
    check_unfolding(declared, steps, size, shown, REPACK)
    if chunks > UNLISTED_CHUNKS + size // CHUNK_ENTRY_BYTES:
        raise DataError(
            f"{shown}: {', '.join(declared)} declare {chunks:,} chunks, more than a file of {size:,} bytes can list; "
            "get it again"
        )
    try:
        check_memory(2 * sum(declared.values()), "cpu")  # as it is read, and as the store keeps it
    except NoRoomError as error:
        raise NoRoomError(f"{shown}: {error}") from None


def _read(column: Column) -> NDArray[Any]:
    with damaged(f"{column.where} cannot be read, the file is damaged"):
        if column.chunks is None or 0 in column.shape:
            return np.asarray(column.data[()])
        h5py = h5py_module()
        exact = column.data.id.get_type().equal(h5py.h5t.py_create(column.dtype, logical=True))
        if exact and not column.dtype.shape and column.filters in ((), (SHUFFLE,), (DEFLATE,), (SHUFFLE, DEFLATE)):
            return _unfolded(column)
        for offset in _offsets(column):  # libhdf5 does the rest: it knows lzf, checksums and rare types
            _chunk(column, offset)
        return np.asarray(column.data[()])


def _offsets(column: Column) -> Iterator[tuple[int, ...]]:
    """Where the chunks begin, (row, ...). Asked for one by one: libhdf5's own list crashes where it is a circle."""
    grid = zip(column.shape, column.chunks or (), strict=True)
    return itertools.product(*(range(0, n, chunk) for n, chunk in grid))


def _chunk(column: Column, offset: tuple[int, ...]) -> bytes | None:
    """One chunk as it was before its filters; None where it was never written.

    libhdf5 itself does not look whether a chunk has its size, and returns other memory where it is too short.
    """
    try:
        mask, block = column.data.id.read_direct_chunk(offset)
    except RuntimeError as error:
        if "not allocated" in str(error):
            return None
        raise
    active = [code for place, code in enumerate(column.filters) if not mask >> place & 1]
    whole = column.chunk_bytes
    fits = len(block) <= whole + whole // 100 + 64  # what does not compress grows a little
    if fits and FLETCHER32 in active:
        block = block[:-4]
    if fits and DEFLATE in active:
        block = zlib.decompressobj().decompress(block, whole + 1)
    length = _lzf_length(block, whole) if fits and LZF in active else len(block)
    if not fits or length != whole:
        raise DataError(
            f"{column.where} cannot be read, the file is damaged: the chunk at {offset} does not unfold to its {whole} "
            "bytes; get the file again"
        )
    if SHUFFLE in active and LZF not in active:
        return np.frombuffer(block, np.uint8).reshape(column.dtype.itemsize, -1).T.tobytes()
    return bytes(block)


def _lzf_length(block: bytes, most: int) -> int:
    """Bytes that an lzf block unfolds to, or some number above `most`: pieces of the block, and of what came before."""
    place = length = 0
    while place < len(block) and length <= most:
        control = block[place]
        if control < 32:
            length += control + 1
            place += control + 2
        elif control < 224:
            length += (control >> 5) + 2
            place += 2
        else:
            length += block[place + 1] + 9
            place += 3
    return length


def _unfolded(column: Column) -> NDArray[Any]:
    """All of a data set that is stored plainly or through gzip, with or without shuffle."""
    assert column.chunks is not None
    flag = column.dtype.kind == "b"  # whose bytes may be anything in a damaged file
    kind = np.dtype(np.uint8) if flag else column.dtype
    whole = np.zeros(column.shape, kind)
    if column.data.fillvalue:
        whole[...] = column.data.fillvalue
    for offset in _offsets(column):
        block = _chunk(column, offset)
        if block is None:
            continue
        ends = [min(begin + n, end) for begin, n, end in zip(offset, column.chunks, column.shape, strict=True)]
        place = tuple(slice(begin, end) for begin, end in zip(offset, ends, strict=True))
        inside = tuple(slice(end - begin) for begin, end in zip(offset, ends, strict=True))
        whole[place] = np.frombuffer(block, kind).reshape(column.chunks)[inside]
    return whole.astype(bool) if flag else whole
