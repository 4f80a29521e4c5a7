import builtins
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer
from minari.storage import hosting

from mental_accounts.action_spec import ActionSpec
from mental_accounts.data import DataError, load_task, read_minari
from mental_accounts.data.data_checks import check_unfolding
from tests.data.slow_windows import Episode, assert_same

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")


def record(env_id: str, dataset_id: str, episodes: int = 3, wrap: Any = None) -> list[Episode]:
    """Play a real environment at random; keep what happened in memory, and have Minari write it."""
    env = gymnasium.make(env_id, max_episode_steps=40)
    env = env if wrap is None else wrap(env)
    env.action_space.seed(0)
    kept, buffers = [], []
    for i in range(episodes):
        seen, rows = [env.reset(seed=i)[0]], []
        terminated = truncated = False
        while not (terminated or truncated):
            action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(action)
            seen.append(observation)
            rows.append((action, reward, terminated, truncated))
        actions, rewards, *ends = (list(column) for column in zip(*rows, strict=True))
        columns = {k: [one[k] for one in seen] for k in seen[0]} if isinstance(seen[0], dict) else seen
        buffers.append(EpisodeBuffer(None, i, None, columns, actions, rewards, *ends))
        numbers = np.array(rewards, np.float32)
        final = None if terminated else np.array(seen[-1])
        kept.append(Episode(np.array(seen[:-1]), np.array(actions), numbers, terminated, truncated, final))
    minari.create_dataset_from_buffers(dataset_id, buffers, env=env)
    env.close()
    return kept


def as_floats(parts: list[Episode]) -> list[Episode]:
    return [replace(p, observations=p.observations.astype(np.float32)) for p in parts]


def test_a_recording_reads_the_same_as_from_memory() -> None:
    parts = record("Pendulum-v1", "test/pendulum-v0")
    store = read_minari("test/pendulum-v0")
    assert_same(store, as_floats(parts))
    assert store.action_spec == ActionSpec("box", 1, (-2.0,), (2.0,))
    assert store.info == {"source": "minari", "dataset": "test/pendulum-v0", "env_id": "Pendulum-v1"}
    assert store.truncated.all()


def test_discrete_actions_and_terminations() -> None:
    parts = record("CartPole-v1", "test/cartpole-v0", episodes=6)
    task, store = load_task("minari/test/cartpole-v0")
    assert_same(store, as_floats(parts))
    assert store.action_spec == ActionSpec("discrete", 2)
    assert bool(store.terminated.any())
    top, middle = np.quantile(store.returns.numpy(), [0.95, 0.5], method="lower")
    assert (task.env_id, task.target_return) == ("CartPole-v1", pytest.approx(top))
    assert task.exploration_return == pytest.approx(min(2 * top - middle, float(store.returns.max())))


class Split(gymnasium.ObservationWrapper):
    """Observations as a dict."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        box = env.observation_space
        parts = {"angle": slice(0, 2), "speed": slice(2, 3)}
        self.parts = parts
        self.observation_space = gymnasium.spaces.Dict(
            {k: gymnasium.spaces.Box(box.low[s], box.high[s]) for k, s in parts.items()}
        )

    def observation(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        return {k: observation[s] for k, s in self.parts.items()}


def test_dicts_are_flattened_as_gymnasium_does() -> None:
    parts = record("Pendulum-v1", "test/split-v0", wrap=Split)
    space = Split(gymnasium.make("Pendulum-v1")).observation_space
    for part in parts:
        part.observations = np.stack([gymnasium.spaces.flatten(space, seen) for seen in part.observations])
        part.final = gymnasium.spaces.flatten(space, part.final.item())
    assert_same(read_minari("test/split-v0"), as_floats(parts))


def test_whole_numbers_become_one_hot_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = record("FrozenLake-v1", "test/lake-v0")
    for part in parts:
        part.observations = np.eye(16)[part.observations]
        part.final = None if part.final is None else np.eye(16)[part.final]
    assert_same(read_minari("test/lake-v0"), as_floats(parts))
    monkeypatch.setattr("mental_accounts.data.data_checks.UNFOLDED_BYTES", 0)
    monkeypatch.setattr("mental_accounts.data.minari.check_unfolding", partial(check_unfolding, share=0))
    with pytest.raises(DataError, match=r"minari/test/lake-v0: observations and the other keys declare \d+ steps"):
        read_minari("test/lake-v0")


def test_what_is_not_there(tmp_path: Path) -> None:
    record("Pendulum-v1", "test/pendulum-v0", episodes=1)
    with pytest.raises(DataError, match=r"nothing-v0: .*not found locally.*installed here: test/pendulum-v0"):
        read_minari("test/nothing-v0", download=False)
    with pytest.raises(DataError, match=r"minari/no version: .*Malformed dataset ID"):
        read_minari("no version")


def test_a_damaged_recording(tmp_path: Path) -> None:
    record("Pendulum-v1", "test/pendulum-v0", episodes=1)
    file = next((tmp_path / "minari").rglob("main_data.hdf5"))
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"minari/test/pendulum-v0: .*truncated file"):
        read_minari("test/pendulum-v0")


def test_a_recording_with_a_broken_link(tmp_path: Path) -> None:
    record("Pendulum-v1", "test/pendulum-v0", episodes=1)
    with h5py.File(next((tmp_path / "minari").rglob("main_data.hdf5")), "r+") as file:
        del file["episode_0/rewards"]
        file["episode_0/rewards"] = h5py.SoftLink("/nowhere")
    with pytest.raises(
        DataError, match=r"minari/test/pendulum-v0: episode_0/rewards is a broken link.*get the file again"
    ):
        read_minari("test/pendulum-v0")


class Remote:
    """Stands in for Farama's server: a folder."""

    def __init__(self, folder: Path, breaks: bool) -> None:
        self.folder, self.breaks = folder, breaks

    def list_datasets(self, prefix: str | None = None) -> list[str]:
        return ["test/pendulum-v0"]

    def get_dataset_metadata(self, dataset_id: str) -> dict[str, Any]:
        return minari.dataset.minari_storage.MinariStorage.read_raw_metadata(self.folder / dataset_id / "data")

    def download_dataset(self, dataset_id: str, path: Path) -> None:
        shutil.copytree(self.folder / dataset_id, path / dataset_id)
        if self.breaks:
            (path / dataset_id / "data" / "main_data.hdf5").write_bytes(b"half")
            raise ConnectionError("the line went dead")


@pytest.mark.parametrize("breaks", [False, True])
def test_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, breaks: bool) -> None:
    parts = record("Pendulum-v1", "test/pendulum-v0")
    remote = Remote(tmp_path / "minari", breaks)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "fresh"))
    monkeypatch.setattr(hosting, "get_cloud_storage", lambda remote_path=None: remote)
    monkeypatch.setattr("minari.namespace.list_local_namespaces", lambda: ["test"])
    if breaks:
        with pytest.raises(DataError, match=r"minari/test/pendulum-v0: .*ConnectionError: the line went dead"):
            read_minari("test/pendulum-v0")
        assert not (tmp_path / "fresh" / "test" / "pendulum-v0").exists()
        remote.breaks = False
    assert_same(read_minari("test/pendulum-v0"), as_floats(parts))
    assert capsys.readouterr().out == ""


def test_without_minari_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("minari"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'mental-accounts\[minari\]'"):
        read_minari("test/pendulum-v0")
