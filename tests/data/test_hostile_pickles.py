"""Pickles of strangers: memory and work are bounded by the bytes that the file has."""

import pickle
import random
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mental_accounts.cli import main
from mental_accounts.data import DataError, read_pickle
from mental_accounts.data.pickle_machine import MAX_INSTRUCTIONS
from tests.data.limits import assert_refused_within_a_gigabyte, assert_success_or_one_line
from tests.data.slow_windows import episodes
from tests.data.writers import pickled_paths, write_pickle
from tests.fuzz.mutations import mutated_bytes

PARTS = episodes(3, shortest=5, longest=5)
ONE = pickle.dumps(pickled_paths(episodes(1, shortest=3000, longest=3000))[0], protocol=2)[2:-1]
"""The instructions that leave one trajectory on the stack, of 100 kB."""

STEP = pickle.dumps(pickled_paths(episodes(1, shortest=1, longest=1))[0], protocol=2)[2:-1]
HUGE = struct.pack("<Q", 2**40)
SQUARE = b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) + b"0" for i in range(60))
"""Pairs of pairs of pairs: 2^60 values, if anybody counts them."""

BOMBS = {
    "a memo of gigabytes": (b"Nr\xff\xff\xff\x1f.", "expected a list of trajectories"),
    "a memo by text": (b"Np99999999999999999999\n.", "a number that is none"),
    "bytes": (b"\x8e" + HUGE + b".", "1099511627776 bytes are declared"),
    "text": (b"\x8d" + HUGE + b".", "1099511627776 bytes are declared"),
    "a bytearray": (b"\x96" + HUGE + b".", "1099511627776 bytes are declared"),
    "short text": (b"X\xff\xff\xff\x7f.", "2147483647 bytes are declared"),
    "a frame": (b"\x80\x04\x95" + HUGE + b"N.", "a frame of 1099511627776 bytes"),
    "an integer": (b"\x8b\xff\xff\xff\x7f.", "an integer of 2147483647 bytes"),
    "digits": (b"L" + b"9" * 100_000 + b"L\n.", "not a whole pickle"),
    "one trajectory named often": (b"](" + ONE + b"r\xff\x00\x00\x00" + b"j\xff\x00\x00\x00" * 30_000 + b"e.", "once"),
    "one trajectory doubled": (b"](" + ONE + b"2" * 30_000 + b"e.", "write it with each trajectory once"),
    "one step named often": (b"](" + STEP + b"2" * 4_000_000 + b"e.", "write it with each trajectory once"),
    "empty bytes": (b"(" + b"B\0\0\0\0" * 4_000_000 + b"l.", "trajectory 0: expected a dict of arrays, got bytes"),
    "empty dicts": (b"(" + b"}" * 4_000_000 + b"l.", "trajectory 0: has no observations, only"),
    "depth": (b"]" * 1_000_000 + b"a" * 999_999 + b".", "trajectory 0: expected a dict of arrays, got list"),
    "deep tuples": (b")" + b"\x85" * 1_000_000 + b".", "trajectory 0: expected a dict of arrays, got tuple"),
    "marks": (b"(" * 1_000_000 + b".", "not a whole pickle"),
    "a list of itself": (b"]q\x00h\x00ah\x00a.", "trajectory 0: expected a dict of arrays, got list"),
    "a key that takes for ever": (b"}Nq\x000" + SQUARE + b"h\x3cNs.", "keys of a dict must be strings or numbers"),
    "keys that collide": (
        b"}(" + b"".join(b"\x8a\x10" + (k * (2**61 - 1)).to_bytes(16, "little") + b"N" for k in range(2**14)) + b"u.",
        "keys of a dict must be strings or numbers",
    ),
    "arguments": (
        b"(" + b"N" * 100_000 + b"tq\x000" + b"cnumpy.core.multiarray\n_reconstruct\nh\x00R0" * 1000 + b"N.",
        "a way that NumPy does not pickle",
    ),
    "text encoded often": (
        b"X" + struct.pack("<I", 10**6) + b"x" * 10**6 + b"q\x00X\x06\x00\x00\x00latin1q\x01"
        b"](" + b"c_codecs\nencode\nh\x00h\x01\x86R" * 10_000 + b"e.",
        "trajectory 0: expected a dict of arrays, got str",
    ),
    "too many instructions": (b"(" + b"N" * (MAX_INSTRUCTIONS + 1) + b"l.", "more than 5,000,000 instructions"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs(tmp_path: Path, bomb: str) -> None:
    program, message = BOMBS[bomb]
    path = tmp_path / "x.pkl"
    path.write_bytes(program)
    begun = time.process_time()
    with pytest.raises(DataError, match=rf"x\.pkl: .*{message}") as caught:
        read_pickle(path)
    assert len(str(caught.value)) < 500
    assert time.process_time() - begun < 10


def test_bombs_stay_within_a_gigabyte(tmp_path: Path) -> None:
    paths = []
    for i, (program, _) in enumerate(BOMBS.values()):
        paths.append(tmp_path / f"{i}.pkl")
        paths[-1].write_bytes(program)
    assert_refused_within_a_gigabyte(paths, "read_pickle")


def test_a_trajectory_may_be_named_a_few_times(tmp_path: Path) -> None:
    store = read_pickle(write_pickle(tmp_path / "x.pkl", pickled_paths(PARTS) * 10))
    assert store.lengths.tolist() == [5] * 30


WRONG: list[tuple[str, Any, str]] = [
    ("rewards", np.float32(1), r"must have shape \(steps,\), got \(\)"),
    ("rewards", 1.0, "expected an array of numbers, got float"),
    ("rewards", None, "expected an array of numbers, got NoneType"),
    ("rewards", "text", "expected an array of numbers, got str"),
    ("rewards", np.zeros((5, 2)), r"must have shape \(steps,\), got \(5, 2\)"),
    ("rewards", [[0.0]] * 5, "expected an array of numbers, got list"),
    ("rewards", ["a"] * 5, "expected an array of numbers, got list"),
    ("rewards", [10**100] * 5, "numbers of 64 bits at most"),
    ("rewards", np.array([None] * 5), "plain numbers, got one of type 'O8'"),
    ("rewards", np.zeros(5, complex), "plain numbers, got one of type 'c16'"),
    ("rewards", np.zeros(5, "M8[s]"), "plain numbers, got one of type 'M8'"),
    ("terminals", np.zeros((5, 2), bool), r"must have shape \(steps,\), got \(5, 2\)"),
    ("terminals", True, "expected an array of numbers, got bool"),
    ("terminals", np.True_, r"must have shape \(steps,\), got \(\)"),
    ("terminals", None, "expected an array of numbers, got NoneType"),
    ("observations", np.zeros(5), r"must have shape \(steps, obs\), got \(5,\)"),
    ("observations", np.zeros((5, 2, 2)), r"must have shape \(steps, obs\), got \(5, 2, 2\)"),
    ("observations", {"a": 1}, "expected an array of numbers, got dict"),
    ("observations", np.float64(3), r"must have shape \(steps, obs\), got \(\)"),
    ("actions", np.zeros((5, 2, 2)), r"must have shape \(steps, act\) or \(steps,\), got \(5, 2, 2\)"),
    ("actions", np.array(["a"] * 5), "plain numbers, got one of type 'U1'"),
    ("actions", (), r"all keys must have the same number of steps"),
]


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize(("key", "value", "message"), WRONG)
def test_wrong_kinds_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: Any, message: str, protocol: int
) -> None:
    paths: list[dict[str, Any]] = pickled_paths(PARTS)
    paths[1][key] = value
    path = write_pickle(tmp_path / "x.pkl", paths, protocol)
    with pytest.raises(DataError, match=rf"x\.pkl: trajectory 1: .*{message}") as caught:
        read_pickle(path)
    assert key in str(caught.value)
    assert main(["data", "import", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_records_are_refused(tmp_path: Path) -> None:
    paths: list[dict[str, Any]] = pickled_paths(PARTS)
    paths[1]["rewards"] = np.zeros(5, [("a", "f4")])
    with pytest.raises(DataError, match="records, where plain numbers belong"):
        read_pickle(write_pickle(tmp_path / "x.pkl", paths))


@pytest.mark.parametrize("shape", [b"J\xfb\xff\xff\xff", b"\x8a\x09" + b"\xff" * 8 + b"\x00", b"N", b"G" + bytes(8)])
def test_shapes_that_are_none(tmp_path: Path, shape: bytes) -> None:
    paths = pickled_paths(PARTS)
    paths[1]["rewards"] = np.zeros(77, np.float32)
    data = pickle.dumps(paths, protocol=2)
    lie = data.replace(b"K\x4d\x85", shape + b"\x85")
    assert lie != data
    (tmp_path / "x.pkl").write_bytes(lie)
    with pytest.raises(DataError, match="trajectory 1: rewards: the array has a shape that is none"):
        read_pickle(tmp_path / "x.pkl")


def test_mixed_types_and_numbers_too_large(tmp_path: Path) -> None:
    paths: list[dict[str, Any]] = pickled_paths(PARTS)
    paths[0]["observations"] = paths[0]["observations"].astype(np.int8)
    paths[1]["rewards"] = [2**63, *range(4)]
    store = read_pickle(write_pickle(tmp_path / "x.pkl", paths))
    assert store.rewards[5:10].tolist() == [2.0**63, 0, 1, 2, 3]
    paths[1]["rewards"] = np.full(5, 1e300)
    with pytest.raises(DataError, match=r"rewards must be finite, but rewards\[5\] is inf"):
        read_pickle(write_pickle(tmp_path / "x.pkl", paths))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_damaged_at_random(tmp_path: Path, protocol: int) -> None:
    good = pickle.dumps(pickled_paths(PARTS), protocol)
    path, rng = tmp_path / "x.pkl", random.Random(protocol)
    for _ in range(200):
        path.write_bytes(mutated_bytes(good, rng))
        assert_success_or_one_line(read_pickle, path)
