import builtins
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from mental_accounts.action_spec import ActionSpec
from mental_accounts.data import DataError, d4rl, download, load_task, read_d4rl, read_pickle
from tests.data.slow_windows import Episode, assert_same, episodes
from tests.data.writers import d4rl_arrays, pickled_paths, write_hdf5, write_pickle


def with_tail(parts: list[Episode]) -> list[Episode]:
    last = parts[-1]
    return [*parts[:-1], Episode(last.observations, last.actions, last.rewards, False, False)]


def as_read(parts: list[Episode]) -> list[Episode]:
    """A tail without an end is truncated."""
    return [Episode(p.observations, p.actions, p.rewards, p.terminated, p.truncated or not p.terminated) for p in parts]


@pytest.mark.parametrize("tail", [False, True])
def test_a_file_reads_back_to_the_same_trajectories(tmp_path: Path, tail: bool) -> None:
    parts = with_tail(episodes(20)) if tail else episodes(20)
    store = read_d4rl(write_hdf5(tmp_path / "hopper_medium-v2.hdf5", d4rl_arrays(parts)))
    assert_same(store, as_read(parts))
    assert store.info == {"source": "d4rl", "file": "hopper_medium-v2.hdf5"}


def test_one_trajectory_without_any_end(tmp_path: Path) -> None:
    parts = with_tail(episodes(1, shortest=7))
    assert_same(read_d4rl(write_hdf5(tmp_path / "x.hdf5", d4rl_arrays(parts))), as_read(parts))


def test_a_step_can_be_terminal_and_out_of_time(tmp_path: Path) -> None:
    both = [Episode(p.observations, p.actions, p.rewards, True, True) for p in episodes(2)]
    assert_same(read_d4rl(write_hdf5(tmp_path / "x.hdf5", d4rl_arrays(both))), both)


def test_files_without_timeouts(tmp_path: Path) -> None:
    arrays = d4rl_arrays(episodes(1, shortest=25, longest=25))
    del arrays["timeouts"]
    arrays["terminals"][:] = False
    arrays["terminals"][12] = True
    path = write_hdf5(tmp_path / "old.hdf5", arrays)
    assert read_d4rl(path).lengths.tolist() == [13, 12]
    limited = read_d4rl(path, time_limit=5)
    assert limited.lengths.tolist() == [5, 5, 3, 5, 5, 2]
    assert limited.terminated.tolist() == [False, False, True, False, False, False]
    assert limited.truncated.tolist() == [True, True, False, True, True, True]
    for limit in (0, -4):
        with pytest.raises(DataError, match=f"at least 1 step, got {limit}"):
            read_d4rl(path, time_limit=limit)
    whole = write_hdf5(tmp_path / "new.hdf5", d4rl_arrays(episodes(1)))
    with pytest.raises(DataError, match="leave the time limit out"):
        read_d4rl(whole, time_limit=5)


def test_hdf5_and_pickle_of_the_same_data_agree(tmp_path: Path) -> None:
    parts = episodes(15)
    one = read_d4rl(write_hdf5(tmp_path / "x.hdf5", d4rl_arrays(parts)))
    two = read_pickle(write_pickle(tmp_path / "x.pkl", pickled_paths(parts)))
    for store in (one, two):
        assert_same(store, parts)
    assert np.array_equal(one.returns_to_go, two.returns_to_go)


GOOD = d4rl_arrays(episodes(3, shortest=5, longest=5))


def changed(name: str, index: Any, value: float) -> dict[str, np.ndarray]:
    array = GOOD[name].copy()
    array[index] = value
    return {**GOOD, name: array}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {k: v for k, v in GOOD.items() if k not in ("rewards", "actions")},
            "has no data set actions, rewards; .*obs",
        ),
        (changed("rewards", 3, np.nan), r"rewards must be finite, but rewards\[3\] is nan"),
        (changed("observations", (4, 1), np.inf), r"observations\[4, 1\] is inf"),
        (changed("actions", (9, 1), 1.2), r"actions\[9, 1\] is 1.2, outside of the action bounds \[-1, 1\]"),
        ({**GOOD, "rewards": GOOD["rewards"][:-2]}, "same number of steps, got .*'rewards': 13"),
        ({**GOOD, "timeouts": GOOD["timeouts"][:-2]}, "same number of steps, got .*'timeouts': 13"),
        ({**GOOD, "terminals": np.full(15, 0.5)}, "terminals must be one 0 or 1 per step"),
        ({name: array[:0] for name, array in GOOD.items()}, "rewards is empty"),
        ({**GOOD, "rewards": np.float32(1)}, "rewards must have one row per step"),
        ({**GOOD, "observations": np.array([b"text"] * 15)}, "observations must be numbers"),
    ],
)
def test_wrong_files_are_refused_with_file_and_key(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    path = tmp_path / "bad.hdf5"
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    with pytest.raises(DataError, match=f"bad.hdf5: .*{message}"):
        read_d4rl(path, action_spec=ActionSpec("box", 2, (-1.0, -1.0), (1.0, 1.0)))


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_files_cut_short_are_refused(tmp_path: Path, size: int) -> None:
    path = write_hdf5(tmp_path / "cut.hdf5", d4rl_arrays(episodes(40)))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=r"cut\.hdf5: not a whole HDF5 file"):
        read_d4rl(path)


def test_damage_inside_is_found(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "x.hdf5", d4rl_arrays(episodes(40)))
    with h5py.File(path) as file:
        begin = file["actions"].id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[begin : begin + 50] = bytes(50)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"x\.hdf5: actions cannot be read, the file is damaged"):
        read_d4rl(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path in (tmp_path / "none.hdf5", tmp_path):
        with pytest.raises(FileNotFoundError, match="no such file"):
            read_d4rl(path)


def test_without_h5py_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "h5py":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'mental-accounts\[d4rl\]'"):
        read_d4rl(tmp_path / "x.hdf5")


class StandIn:
    """A web server on this machine that serves one file, well or badly."""

    def __init__(self, content: bytes) -> None:
        self.content, self.mode, self.asked = content, "whole", 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                if outer.mode == "missing" or not self.path.endswith("/hopper_medium-v2.hdf5"):
                    self.send_error(404)
                    return
                self.send_response(200)
                if outer.mode != "no length":
                    self.send_header("Content-Length", str(len(outer.content)))
                self.end_headers()
                half = outer.mode == "broken off" or outer.mode == "no length, broken off"
                self.wfile.write(outer.content[: len(outer.content) // 2] if half else outer.content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/offline_rl"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


HOPPER = episodes(12, obs=11, act=3)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    server = StandIn(write_hdf5(tmp_path / "there.hdf5", d4rl_arrays(HOPPER)).read_bytes())
    monkeypatch.setattr(d4rl, "URL", server.url)
    yield server
    server.close()


@pytest.mark.parametrize("mode", ["whole", "no length"])
def test_a_task_is_downloaded_once(stand_in: StandIn, cache: Path, mode: str) -> None:
    stand_in.mode = mode
    task, store = load_task("d4rl/hopper-medium-v2")
    assert_same(store, HOPPER)
    assert (task.env_id, store.action_spec.size, store.info["env_id"]) == ("Hopper-v4", 3, "Hopper-v4")
    assert [file.name for file in (cache / "d4rl").iterdir()] == ["hopper_medium-v2.hdf5"]
    load_task("d4rl/hopper-medium-v2")
    assert stand_in.asked == 1


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("missing", "could not be downloaded .*Not Found.*mental-accounts data import FILE"),
        ("broken off", "hopper_medium-v2.hdf5 (broke off after|could not be downloaded)"),
        ("no length, broken off", "hopper_medium-v2.hdf5.* (not a whole HDF5 file|broke off)"),
    ],
)
def test_failed_downloads_leave_nothing_and_can_be_repeated(
    stand_in: StandIn, cache: Path, mode: str, message: str
) -> None:
    stand_in.mode = mode
    with pytest.raises((OSError, DataError), match=message):
        load_task("d4rl/hopper-medium-v2")
    assert not list(cache.rglob("*.*"))
    stand_in.mode = "whole"
    assert_same(load_task("d4rl/hopper-medium-v2")[1], HOPPER)


def test_a_file_of_another_kind_is_not_kept(stand_in: StandIn, cache: Path) -> None:
    stand_in.content = b"<html>moved</html>"
    with pytest.raises(DataError, match=r"hopper_medium-v2\.hdf5: not a whole HDF5 file"):
        load_task("d4rl/hopper-medium-v2")
    assert not list(cache.rglob("*.*"))


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d4rl, "URL", "http://127.0.0.1:9/nothing")
    with pytest.raises(OSError, match=r"could not be downloaded .*Connection refused"):
        load_task("d4rl/hopper-medium-v2")


def test_a_full_disk_says_so_before_the_download(
    stand_in: StandIn, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 10

    monkeypatch.setattr(download.shutil, "disk_usage", lambda folder: Usage)
    with pytest.raises(OSError, match=r"only 0 MB are free in .*; make room"):
        load_task("d4rl/hopper-medium-v2")
    assert not list(cache.rglob("*.*"))
