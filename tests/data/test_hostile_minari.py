"""Minari's folders from strangers: nothing in them is executed, no other file is read, and sizes are checked first."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from mental_accounts.cli import main
from mental_accounts.data import DataError, read_minari
from tests.data.test_hostile_hdf5 import dataset, in_a_circle, link, through_another, virtual
from tests.data.test_minari import record

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    record("Pendulum-v1", "test/pendulum-v0", episodes=2)
    return tmp_path / "minari" / "test" / "pendulum-v0" / "data"


def refused(capsys: Captured, *words: str) -> None:
    """One line with these words and exit code 2, soon."""
    begun = time.process_time()
    assert main(["data", "info", "minari/test/pendulum-v0"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert time.process_time() - begun < 10
    assert len(line) < 1000
    for word in ("test/pendulum-v0", *words):
        assert word in line


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (link(h5py.ExternalLink("secret.hdf5", "/rewards")), "is a link into another file, which is not read"),
        (through_another, "is a link into another file, which is not read"),
        (dataset(shape=(40,), dtype="f8", external=[("secret.raw", 0, 320)]), "lies in other files"),
        (virtual, "lies in other files"),
        (in_a_circle, "leads in a circle"),
        (link(h5py.SoftLink("/nowhere")), "is a broken link"),
        (lambda file, name: None, "is missing"),
        (dataset(shape=(10**12,), dtype="f8", chunks=True), "steps, 8.0 TB in memory"),
        (dataset(shape=(10**6,), dtype="i1", chunks=(1,)), "chunks, more than a file of"),
        (dataset(data=["text"] * 40), "must be numbers"),
        (dataset(data=np.zeros(39)), "expected as many steps of each"),
    ],
)
def test_an_episode_that_is_something_else(
    make: Callable[[h5py.File, str], object], words: str, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(data)
    (data / "secret.raw").write_bytes(bytes(320))
    with h5py.File(data / "secret.hdf5", "w") as file:
        file["rewards"] = np.zeros(40)
    with h5py.File(data / "main_data.hdf5", "r+") as file:
        del file["episode_1/rewards"]
        make(file, "episode_1/rewards")
    refused(capsys, "rewards", words)


def test_an_episode_in_another_file(data: Path, capsys: Captured) -> None:
    (data / "main_data.hdf5").rename(data / "other.hdf5")
    with h5py.File(data / "main_data.hdf5", "w") as file:
        file["padding"] = np.zeros(1000)
        for i in range(2):
            file[f"episode_{i}"] = h5py.ExternalLink("other.hdf5", f"/episode_{i}")
    refused(capsys, "episode_0/observations is a link into another file, which is not read")


def test_one_episode_named_often(data: Path, capsys: Captured) -> None:
    with h5py.File(data / "main_data.hdf5", "r+") as file:
        for name in list(file["episode_0"]):
            del file[f"episode_0/{name}"]
        for name, width in {
            "observations": (3,),
            "actions": (1,),
            "rewards": (),
            "terminations": (),
            "truncations": (),
        }.items():
            rows = 100_001 if name == "observations" else 100_000
            file.create_dataset(
                f"episode_0/{name}", data=np.zeros((rows, *width), "f4"), compression="gzip", chunks=True
            )
        for i in range(2, 600):
            file[f"episode_{i}"] = file["episode_0"]
        file["padding"] = np.zeros(10**5)
    change(data, total_episodes=600)
    refused(capsys, "may unfold to")


def change(data: Path, **fields: Any) -> None:
    facts = json.loads((data / "metadata.json").read_text()) | fields
    (data / "metadata.json").write_text(json.dumps({name: value for name, value in facts.items() if value is not ...}))


BOX = {"type": "Box", "dtype": "float32", "shape": [3], "low": [-1.0] * 3, "high": [1.0] * 3}
IMAGE = BOX | {"shape": [1, 3], "low": [[-1.0] * 3], "high": [[1.0] * 3]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"total_episodes": 10**12}, "total_episodes is 1000000000000, but main_data.hdf5 of"),
        ({"total_episodes": -1}, "total_episodes is -1"),
        ({"total_episodes": "2"}, "total_episodes must be a whole number"),
        ({"total_episodes": 3}, "episode_2/observations is missing"),
        ({"total_episodes": 0}, "the data set has no episode"),
        ({"data_format": "arrow"}, "data_format must be hdf5"),
        ({"observation_space": 3}, "observation_space must be text"),
        ({"observation_space": "[" * 100_000}, "observation_space, cannot be read"),
        ({"observation_space": "[]"}, "observation_space, cannot be read: it holds no JSON object"),
        ({"observation_space": json.dumps(BOX | {"dtype": "S1000000000"})}, "dtype must be one of plain numbers"),
        ({"observation_space": json.dumps(BOX | {"shape": [10**12]})}, "Minari could not open it"),
        ({"observation_space": json.dumps(BOX | {"type": "Cloud"})}, "Minari could not open it"),
        ({"observation_space": json.dumps(IMAGE)}, "images that Minari has compressed are not read"),
        ({"action_space": json.dumps({"type": "Tuple", "subspaces": [BOX]})}, "actions must be of a flat Box"),
        ({"minari_version": "99"}, "does not support"),
        ({"env_spec": "{"}, "Minari could not open it"),
    ],
)  # fmt: skip
def test_metadata_that_is_wrong(fields: dict[str, Any], words: str, data: Path, capsys: Captured) -> None:
    change(data, **fields)
    refused(capsys, words)


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_no_environment_is_made(name: str, data: Path, tmp_path: Path, capsys: Captured) -> None:
    """Minari would make the one that is named, to ask for the space: any function with any arguments."""
    facts = json.loads((data / "metadata.json").read_text())
    spec = json.loads(facts["env_spec"]) | {"entry_point": "os:mkdir", "kwargs": {"path": str(tmp_path / "executed")}}
    change(data, env_spec=json.dumps(spec), **{name: ...})
    refused(capsys, f"{name} is missing")
    assert not (tmp_path / "executed").exists()


def test_other_folders_beside_it(data: Path, capsys: Captured) -> None:
    (data.parents[2] / "something" / "data").mkdir(parents=True)
    assert main(["data", "list"]) == 2
    assert "move what is none out of its folder" in capsys.readouterr().err
    read_minari("test/pendulum-v0")
    with pytest.raises(DataError, match="Minari cannot list its data sets"):
        read_minari("test/nothing-v0", download=False)
