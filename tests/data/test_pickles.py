import builtins
import io
import os
import pickle
import pickletools
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mental_accounts.action_spec import ActionSpec
from mental_accounts.data import DataError, read_pickle
from tests.data.slow_windows import assert_same, episodes
from tests.data.writers import pickled_paths, write_pickle

PARTS = episodes(6)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(tmp_path: Path, protocol: int) -> None:
    assert_same(read_pickle(write_pickle(tmp_path / "x.pkl", pickled_paths(PARTS), protocol)), PARTS)


@pytest.mark.parametrize("protocol", [0, 2])
@pytest.mark.parametrize("module", [b"numpy.core", b"numpy._core"])
def test_written_by_numpy_1_and_2(tmp_path: Path, module: bytes, protocol: int) -> None:
    path = write_pickle(tmp_path / "x.pkl", pickled_paths(PARTS), protocol)
    data = re.sub(rb"cnumpy\._?core\.", b"c" + module + b".", path.read_bytes())
    assert (b"c" + module + b".multiarray") in data
    path.write_bytes(data)
    assert_same(read_pickle(path), PARTS)


def test_layouts_of_arrays(tmp_path: Path) -> None:
    """Columns first, other byte orders and types, numbers in lists, NumPy numbers, dones, flags of shape (T, 1)."""
    paths = pickled_paths(PARTS)
    paths[0] = {k: np.asfortranarray(v) for k, v in paths[0].items()}
    paths[1]["rewards"] = paths[1]["rewards"].astype(">f4")
    paths[2]["observations"] = paths[2]["observations"].astype(np.float64)
    paths[3]["rewards"] = paths[3]["rewards"].astype(float).tolist()
    paths[4]["dones"] = paths[4].pop("terminals").astype(np.uint8)
    paths[5]["terminals"] = paths[5]["terminals"].reshape(-1, 1)
    for protocol in (2, 5):
        assert_same(read_pickle(write_pickle(tmp_path / "x.pkl", paths, protocol)), PARTS)


def test_an_action_space_is_checked(tmp_path: Path) -> None:
    paths = pickled_paths(PARTS)
    paths[0]["actions"][0, 1] = 3.0
    path = write_pickle(tmp_path / "x.pkl", paths)
    with pytest.raises(DataError, match=r"x\.pkl: actions\[0, 1\] is 3, outside of the action bounds"):
        read_pickle(path, action_spec=ActionSpec("box", 2, (-1.0, -1.0), (1.0, 1.0)))


class Malicious:
    """What an attacker would put into a pickle."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("place", ["whole", "beside", "key", "in an array"])
@pytest.mark.parametrize("function", [os.system, builtins.exec, builtins.open, np.load, np.frombuffer])
def test_nothing_is_executed(tmp_path: Path, function: Any, place: str, protocol: int) -> None:
    marker = tmp_path / "executed"
    argument = {
        "system": f"touch {marker}",
        "exec": f"open({str(marker)!r}, 'w')",
        "open": str(marker),
        "load": str(marker),
        "frombuffer": b"1234",
    }[function.__name__]
    bomb = Malicious(function, argument, *(["w"] if function is builtins.open else []))
    content: Any = pickled_paths(PARTS)
    if place == "whole":
        content = bomb
    elif place == "beside":
        content.append(bomb)
    elif place == "key":
        content[2]["infos"] = {"deep": [(bomb,)]}
    else:
        content[1]["rewards"] = np.array([bomb, 1.0], dtype=object)
    path = write_pickle(tmp_path / "x.pkl", content, protocol)
    with pytest.raises(DataError, match=r"x\.pkl: refused, the pickle asks for .*nothing was executed"):
        read_pickle(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cos\nsystem\n(S'touch executed'\ntR.",
        b"(S'touch executed'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'touch executed'\no.",  # OBJ
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0etouch executed\x85R.",  # STACK_GLOBAL
        b"cnumpy\nndarray\n(tR.",
        b"cnumpy\nndarray.tofile\n.",
        b"c_codecs\nencode\n(S'x'\nS'zip'\ntR.",
        b"cnumpy\ndtype\n(S'O'\ntR(dS'x'\ncos\nsystem\nsb.",
        b"Ppersistent\n.",
        b"\x82\x01.",  # an extension code
    ],
)
def test_handwritten_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.pkl").write_bytes(code)
    with pytest.raises(DataError, match=r"x\.pkl: "):
        read_pickle(tmp_path / "x.pkl")
    assert not (tmp_path / "executed").exists()


def test_a_pickle_cannot_spoil_the_next_one(tmp_path: Path) -> None:
    """Attributes that it sets on the stand-ins are gone with it."""
    spoil = b"cnumpy.core.multiarray\n_reconstruct\n(NdS'__defaults__'\n(I1\ntstb."
    (tmp_path / "bad.pkl").write_bytes(spoil)
    with pytest.raises(DataError):
        read_pickle(tmp_path / "bad.pkl")
    (tmp_path / "worse.pkl").write_bytes(b"cnumpy\ndtype\n(NdS'__setstate__'\nI1\nstb.")
    with pytest.raises(DataError):
        read_pickle(tmp_path / "worse.pkl")
    assert_same(read_pickle(write_pickle(tmp_path / "x.pkl", pickled_paths(PARTS))), PARTS)


def test_the_real_loader_would_have_executed_it(tmp_path: Path) -> None:
    """The attack above is one: Python's own loader falls for it."""
    marker = tmp_path / "executed"
    data = pickle.dumps(Malicious(os.system, f"touch {marker}"))
    pickletools.dis(data, out=io.StringIO())
    pickle.loads(data)
    assert marker.exists()


def changed(**values: Any) -> list[dict[str, Any]]:
    paths: list[dict[str, Any]] = pickled_paths(episodes(3, shortest=5, longest=5))
    paths[1] |= values
    return paths


def without(key: str) -> list[dict[str, Any]]:
    paths = changed()
    del paths[2][key]
    return paths


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected a list of trajectories, got an empty list"),
        ({"observations": np.zeros(3)}, "expected a list of trajectories, got dict"),
        ([1, 2], "trajectory 0: expected a dict of arrays, got int"),
        (without("rewards"), "trajectory 2: has no rewards, only"),
        (without("terminals"), "trajectory 2: has no terminals"),
        (changed(rewards=np.zeros(4)), r"trajectory 1: all keys must have the same number of steps.*'rewards': 4"),
        (changed(rewards="text"), "trajectory 1: rewards: expected an array of numbers, got str"),
        (changed(rewards=np.array(["a"] * 5)), "trajectory 1: rewards: expected an array of plain numbers, got .*'U1'"),
        (changed(rewards=np.array([None] * 5)), "expected an array of plain numbers, got one of type 'O8'"),
        (changed(rewards=np.full(5, np.nan, np.float32)), r"rewards must be finite, but rewards\[5\] is nan"),
        (changed(observations=np.zeros((5, 9), np.float32)), "observations must have the same shape"),
        (changed(terminals=np.array([0, 1, 0, 0, 0])), r"trajectory 1: terminals\[1\] is set before the last step, 4"),
        (changed(**{k: np.zeros((0, 2)) for k in ("observations", "actions", "rewards", "terminals")}), "at least one"),
        (changed(rewards=OrderedDict(a=1)), "refused, the pickle asks for collections.OrderedDict"),
    ],
)
def test_wrong_contents_are_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(DataError, match=rf"x\.pkl: .*{message}"):
        read_pickle(write_pickle(tmp_path / "x.pkl", content))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_files_cut_short(tmp_path: Path, share: float) -> None:
    path = write_pickle(tmp_path / "x.pkl", pickled_paths(PARTS))
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(DataError, match=r"x\.pkl: not a whole pickle of arrays"):
        read_pickle(path)


def test_shapes_that_lie(tmp_path: Path) -> None:
    """An array that claims a terabyte is refused before any memory is taken."""
    data = pickle.dumps(changed(rewards=np.zeros(77, np.float32)), protocol=2)
    lie = data.replace(b"K\x4d\x85", b"\x8a\x06\x00\x00\x00\x00\x00\x01\x85")
    assert lie != data
    (tmp_path / "x.pkl").write_bytes(lie)
    with pytest.raises(DataError, match=r"shape \(1099511627776,\) of float32 needs 4398046511104 bytes, got 308"):
        read_pickle(tmp_path / "x.pkl")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.pkl: no such file"):
        read_pickle(tmp_path / "none.pkl")


def test_a_file_of_something_else_is_said_to_be_no_pickle(tmp_path: Path) -> None:
    (tmp_path / "x.pkl").write_text("hello, a log\n")
    with pytest.raises(DataError, match=r"x\.pkl: this is not a pickle$"):
        read_pickle(tmp_path / "x.pkl")
