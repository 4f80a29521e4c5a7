"""HDF5 files of strangers: what they declare is refused before memory is taken, and no other file is read."""

import random
import re
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from mental_accounts.cli import main
from mental_accounts.data import DataError, read_d4rl, storage
from mental_accounts.errors import NoRoomError
from tests.data.limits import assert_refused_within_a_gigabyte, assert_success_or_one_line
from tests.data.slow_windows import assert_same, episodes
from tests.data.writers import d4rl_arrays, write_hdf5
from tests.fuzz.mutations import mutated_bytes

PARTS = episodes(3, shortest=5, longest=5)
GOOD = d4rl_arrays(PARTS)


def hostile(path: Path, spoil: Callable[[h5py.File], object], **options: object) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in GOOD.items():
            file.create_dataset(name, data=array, **options)
        spoil(file)
    return path


def instead(name: str, make: Callable[[h5py.File, str], object]) -> Callable[[h5py.File], None]:
    def spoil(file: h5py.File) -> None:
        del file[name]
        make(file, name)

    return spoil


def link(target: object) -> Callable[[h5py.File, str], object]:
    return lambda file, name: file.__setitem__(name, target)


def dataset(**options: object) -> Callable[[h5py.File, str], object]:
    return lambda file, name: file.create_dataset(name, **options)


def through_another(file: h5py.File, name: str) -> None:
    file["outside"] = h5py.ExternalLink("secret.hdf5", "/")
    file[name] = h5py.SoftLink("/outside/rewards")


def in_a_circle(file: h5py.File, name: str) -> None:
    file[name] = h5py.SoftLink("/there")
    file["there"] = h5py.SoftLink(f"/{name}")


def virtual(file: h5py.File, name: str) -> None:
    layout = h5py.VirtualLayout((15,), "f4")
    layout[:] = h5py.VirtualSource("secret.hdf5", "rewards", (15,))
    file.create_virtual_dataset(name, layout)


def two_compressors(file: h5py.File, name: str) -> None:
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((15,))
    for _ in range(2):
        made.set_deflate(4)
    space = h5py.h5s.create_simple((15,))
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.IEEE_F32LE, space, made)


def stored(block: bytes, rows: int = 15, compression: str = "gzip") -> Callable[[h5py.File, str], None]:
    """A chunk of `rows` float32 that holds these bytes in the file."""

    def make(file: h5py.File, name: str) -> None:
        shape = {"shape": (15,), "maxshape": (None,), "chunks": (rows,), "dtype": "f4"}
        data = file.create_dataset(name, **shape, compression=compression)
        data.id.write_direct_chunk((0,), block)

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (link(h5py.SoftLink("/nowhere")), "is a broken link"),
        (link(h5py.SoftLink("/actions/deeper")), "is a broken link"),
        (in_a_circle, "leads in a circle"),
        (link(h5py.ExternalLink("secret.hdf5", "/rewards")), "is a link into another file, which is not read"),
        (through_another, "is a link into another file, which is not read"),
        (virtual, "lies in other files, which are not read"),
        (dataset(shape=(15,), dtype="f4", external=[("secret.raw", 0, 60)]), "lies in other files"),
        (lambda file, name: file.create_group(name), "must be a data set, got a group"),
        (link(np.dtype("f4")), "must be a data set, got a type"),
        (dataset(data=["text"] * 15), "must be numbers, got an array of"),
        (dataset(data=np.zeros(15, [("a", "f4"), ("b", "i4")])), "must be numbers, got an array of"),
        (dataset(shape=(15,), dtype=h5py.vlen_dtype(np.float32)), "must be numbers, got an array of"),
        (dataset(data=np.zeros(15, complex)), "must be numbers, got an array of"),
        (dataset(data=1.0), "must have one row per step, got one value"),
        (dataset(data=h5py.Empty("f4")), "must have one row per step, got nothing"),
        (dataset(data=np.zeros((15, 2, 2), "f4")), r"\(15, 2, 2\)"),
        (dataset(shape=(15,), dtype="f4", scaleoffset=2), r"through the HDF5 filters \[6\].*h5repack"),
        (two_compressors, r"through the HDF5 filters \[1, 1\]"),
        (stored(zlib.compress(bytes(10))), "does not unfold to its 60 bytes"),
        (stored(zlib.compress(bytes(10**6))), "does not unfold to its 60 bytes"),
        (stored(zlib.compress(bytes(10**6)), rows=500), "does not unfold to its 2000 bytes"),
        (stored(b"no gzip at all"), "cannot be read, the file is damaged"),
        (stored(zlib.compress(bytes(60))[:-8]), "does not unfold to its 60 bytes"),
        (stored(b"\x00\x00", compression="lzf"), "does not unfold to its 60 bytes"),
        (stored(b"\x00\x00\xe0\x31\x00", compression="lzf"), "does not unfold to its 60 bytes"),
        (stored(b"\x00\x00\xe0\xff\x00", compression="lzf"), "does not unfold to its 60 bytes"),
        (stored(b"\x00\x00\xe0", compression="lzf"), "cannot be read, the file is damaged"),
        (stored(b"\xe0\x33\x00", compression="lzf"), "cannot be read, the file is damaged"),
    ],
)
def test_a_key_that_is_something_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[h5py.File, str], object],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_hdf5(tmp_path / "secret.hdf5", GOOD)
    (tmp_path / "secret.raw").write_bytes(bytes(60))
    path = hostile(tmp_path / "x.hdf5", instead("rewards", make))
    before = path.read_bytes()
    with pytest.raises(DataError, match=rf"x\.hdf5: .*{message}") as caught:
        read_d4rl(path)
    assert "rewards" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert main(["data", "import", "x.hdf5"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert path.read_bytes() == before
    assert not (tmp_path / "cache").exists()


def test_a_chunk_of_lzf(tmp_path: Path) -> None:
    """One zero, and 59 times the byte before."""
    block = stored(b"\x00\x00\xe0\x32\x00", compression="lzf")
    assert not read_d4rl(hostile(tmp_path / "x.hdf5", instead("rewards", block))).rewards.any()


def test_timeouts_that_are_a_group(tmp_path: Path) -> None:
    path = hostile(tmp_path / "x.hdf5", instead("timeouts", lambda file, name: file.create_group(name)))
    with pytest.raises(DataError, match=r"x\.hdf5: timeouts must be a data set, got a group"):
        read_d4rl(path)


def test_names_of_a_strange_file_are_cut(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        for i in range(300):
            file.create_group(f"line\n{i}" + "x" * 300)
    with pytest.raises(DataError, match=r"has no data set observations.* and more") as caught:
        read_d4rl(tmp_path / "x.hdf5")
    assert len(str(caught.value)) < 3000
    assert "\n" not in str(caught.value)


def test_a_list_of_chunks_that_is_a_circle(tmp_path: Path) -> None:
    """libhdf5 ends the whole process where it is asked for the list."""
    rows = 2000
    with h5py.File(tmp_path / "x.hdf5", "w", libver="earliest") as file:
        for name in ("observations", "actions", "rewards", "terminals"):
            file.create_dataset(name, data=np.zeros((rows, 1), "f4"), chunks=(10, 1), compression="gzip")
    data = bytearray((tmp_path / "x.hdf5").read_bytes())
    tops = [m.start() for m in re.finditer(b"TREE\x01\x01", data)]  # nodes above others in the list of chunks
    assert len(tops) == 4
    for top in tops:
        child = top + 24 + 8 + 3 * 8
        assert data[int.from_bytes(data[child : child + 8], "little") :].startswith(b"TREE")
        data[child : child + 8] = top.to_bytes(8, "little")
    (tmp_path / "x.hdf5").write_bytes(data)
    with pytest.raises(DataError, match=r"x\.hdf5: observations cannot be read, the file is damaged"):
        read_d4rl(tmp_path / "x.hdf5")


LAYOUTS: dict[str, dict[str, object]] = {
    "contiguous": {},
    "chunks": {"chunks": True},
    "gzip": {"compression": "gzip"},
    "gzip and shuffle": {"compression": "gzip", "shuffle": True},
    "gzip and checksum": {"compression": "gzip", "fletcher32": True, "shuffle": True},
    "lzf": {"compression": "lzf", "shuffle": True},
    "checksum": {"fletcher32": True},
}


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_reads_back(tmp_path: Path, layout: str, libver: str) -> None:
    parts = episodes(20)
    with h5py.File(tmp_path / "x.hdf5", "w", libver=libver) as file:
        inside = file.create_group("inside")
        for name, array in d4rl_arrays(parts).items():
            wide = array.astype(">f8") if array.dtype.kind == "f" else array
            inside.create_dataset(name, data=wide, **LAYOUTS[layout])
            file[name] = h5py.SoftLink(f"inside/{name}")
    assert_same(read_d4rl(tmp_path / "x.hdf5"), parts)


def test_odd_chunks_fill_values_and_rows_of_arrays(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file.create_dataset("observations", data=GOOD["observations"], chunks=(4, 3), compression="gzip", shuffle=True)
        pairs = file.create_dataset("actions", (15,), np.dtype(("<f4", (2,))))
        pairs[...] = GOOD["actions"]
        rewards = file.create_dataset(
            "rewards", (15,), "f4", maxshape=(None,), chunks=(4,), fillvalue=2.5, compression="gzip"
        )
        rewards[:8] = GOOD["rewards"][:8]
        file["terminals"] = GOOD["terminals"].astype("i1")
    store = read_d4rl(tmp_path / "x.hdf5")
    assert np.array_equal(store.observations, GOOD["observations"])
    assert np.array_equal(store.actions, GOOD["actions"])
    assert store.rewards.tolist() == [*GOOD["rewards"][:8].tolist(), *[2.5] * 7]


def declared(rows: int, **options: object) -> Callable[[h5py.File], None]:
    """All keys of so many rows, never written."""

    def spoil(file: h5py.File) -> None:
        for name in list(file):
            del file[name]
        for name in ("observations", "actions", "rewards", "terminals"):
            file.create_dataset(name, (rows,), "i1", **options)

    return spoil


def gzipped_zeros(file: h5py.File) -> None:
    """10 GB in a small file: one block that every chunk repeats."""
    for name in list(file):
        del file[name]
    rows = 2_500_000_000
    file.create_dataset("observations", (rows, 1), "f4", chunks=(2**22, 1), compression="gzip")
    block = zlib.compress(bytes(2**24), 9)
    for first in range(0, rows, 2**22):
        file["observations"].id.write_direct_chunk((first, 0), block)
    for name in ("actions", "rewards", "terminals"):
        file.create_dataset(name, (rows,), "i1", chunks=(2**20,))


def wide_chunks(file: h5py.File) -> None:
    """Few rows, each in a chunk of its own that is a thousand times as wide."""
    del file["observations"]
    file.create_dataset("observations", (15, 4), "f4", maxshape=(None, None), chunks=(2**20, 2**8))


def one_evil_chunk(file: h5py.File) -> None:
    """10 MB that unfold to 10 GB, where 10 MB are declared."""
    stream = zlib.compressobj(9)
    head, more = (stream.compress(bytes(2**24)) + stream.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    block = head + more * 600
    del file["rewards"]
    data = file.create_dataset("rewards", (15,), "f4", maxshape=(None,), chunks=(len(block) // 4,), compression="gzip")
    data.id.write_direct_chunk((0,), block)


BOMBS = {
    "rows": (declared(10**12, chunks=True), "declare 1,000,000,000,000 steps"),
    "rows without chunks": (declared(10**10), "declare 10,000,000,000 steps"),
    "10 GB of zeros": (gzipped_zeros, "unfold to"),
    "wide chunks": (wide_chunks, "observations and the other keys declare 15 steps"),
    "one evil chunk": (one_evil_chunk, "rewards cannot be read, the file is damaged"),
    "tiny chunks": (declared(10**6, chunks=(1,)), "declare 4,000,000 chunks"),
    "lengths": (instead("rewards", dataset(shape=(10**12,), dtype="f4", chunks=True)), "same number of steps"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused_by_what_they_declare(tmp_path: Path, bomb: str) -> None:
    spoil, message = BOMBS[bomb]
    path = hostile(tmp_path / "x.hdf5", spoil)
    begun = time.process_time()
    with pytest.raises(DataError, match=rf"x\.hdf5: .*{message}"):
        read_d4rl(path)
    assert time.process_time() - begun < 10


def test_a_file_too_large_for_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hostile(tmp_path / "large.hdf5", lambda file: None)
    monkeypatch.setattr(storage, "_free_memory", lambda device: 100)
    with pytest.raises(NoRoomError, match=r"large\.hdf5: the data need .* GB on cpu, but only 0\.00 GB are free there"):
        read_d4rl(path)


def test_bombs_stay_within_a_gigabyte(tmp_path: Path) -> None:
    paths = [hostile(tmp_path / f"{i}.hdf5", spoil) for i, (spoil, _) in enumerate(BOMBS.values())]
    assert_refused_within_a_gigabyte(paths, "read_d4rl")


@pytest.mark.parametrize("layout", ["contiguous", "gzip", "lzf"])
def test_damaged_at_random(tmp_path: Path, layout: str) -> None:
    good = hostile(tmp_path / "good.hdf5", lambda file: None, **LAYOUTS[layout]).read_bytes()
    path, rng = tmp_path / "x.hdf5", random.Random(layout)
    for _ in range(200):
        path.write_bytes(mutated_bytes(good, rng))
        assert_success_or_one_line(read_d4rl, path)
