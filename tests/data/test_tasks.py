import re
from pathlib import Path

import numpy as np
import pytest
import torch

from mental_accounts.data import (
    TASKS,
    DataError,
    find_task,
    import_data,
    load_task,
    normalised_score,
    read_pickle,
    tasks,
)
from tests.data.slow_windows import assert_same, episodes
from tests.data.writers import d4rl_arrays, pickled_paths, write_hdf5, write_pickle


def test_the_table() -> None:
    for robot, env, target, act_context, embedded in [
        ("hopper", "Hopper", 3600, 20, True),
        ("walker2d", "Walker2d", 5000, 5, False),
        ("halfcheetah", "HalfCheetah", 6000, 5, False),
    ]:
        for kind in ("medium", "medium-replay", "medium-expert", "random"):
            ours, d4rls = TASKS[f"{robot}-{kind}"], TASKS[f"d4rl/{robot}-{kind}-v2"]
            assert (ours.source, ours.env_id) == ("builtin", f"{env}-v5")
            assert (d4rls.source, d4rls.env_id) == ("d4rl", f"{env}-v4")
            assert ours.published == d4rls.published
            assert (ours.published is None) == (kind == "random")
            for task in (ours, d4rls):
                assert (task.target_return, task.exploration_return) == (target, 2 * target)
                assert (task.context_length, task.eval_context_length) == (20, act_context)
                assert task.timestep_embedding == embedded
        minari = TASKS[f"minari/mujoco/{robot}/medium-v0"]
        assert (minari.source, minari.env_id, minari.target_return) == ("minari", f"{env}-v5", target)
    assert TASKS["hopper-medium"].published.trajectories == 2186
    assert TASKS["walker2d-medium-replay"].size == 302_000
    assert TASKS["walker2d-random"].size == 1_000_000


def test_a_file_is_no_task_but_becomes_one() -> None:
    with pytest.raises(DataError, match=r"'walks.safetensors' is a file.*data import walks.safetensors --name mine"):
        find_task("walks.safetensors")


def test_scores_are_d4rls() -> None:
    task = TASKS["hopper-medium"]
    scores = normalised_score(task, torch.tensor([-20.272305, 3234.3, 1422.06]))
    torch.testing.assert_close(scores, torch.tensor([0.0, 100.0, 44.317]).double(), atol=1e-3, rtol=0)
    assert float(normalised_score(TASKS["walker2d-medium"], 1.629008)) == pytest.approx(0)
    with pytest.raises(DataError, match="imported/x has no normalisation constants"):
        normalised_score(tasks.Task("imported/x", "imported", "x", None), 1.0)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("hoper-medium", "hopper-medium"),
        ("d4rl/walker2d-medium-v1", "d4rl/walker2d-medium-v2"),
        ("halfcheetah-replay", "halfcheetah-medium-replay"),
        ("imported/nothing", None),
        ("xyz", None),
    ],
)
def test_unknown_names_list_near_ones(name: str, near: str | None) -> None:
    expected = "" if near is None else f"did you mean .*{re.escape(near)}"
    with pytest.raises(DataError, match=f"there is no task {name!r}; {expected}"):
        find_task(name)


@pytest.mark.parametrize("kind", ["hdf5", "pkl", "safetensors"])
def test_imported_data_are_a_task(tmp_path: Path, cache: Path, kind: str) -> None:
    parts = episodes(20)
    path = tmp_path / f"my robot.{kind}"
    if kind == "hdf5":
        write_hdf5(path, d4rl_arrays(parts))
    else:
        write_pickle(path.with_suffix(".pkl"), pickled_paths(parts))
    if kind == "safetensors":
        read_pickle(path.with_suffix(".pkl")).save(path)
    name, stored = import_data(str(path), env_id="Reacher-v5")
    assert name == "imported/my-robot"
    assert_same(stored, parts)
    task, store = load_task(name)
    assert_same(store, parts)
    top, middle, best = np.quantile([float(p.rewards.sum()) for p in parts], [0.95, 0.5, 1.0], method="lower")
    asked = pytest.approx(top), pytest.approx(min(2 * top - middle, best))
    assert task.env_id == store.info["env_id"] == "Reacher-v5"
    assert (task.target_return, task.exploration_return) == asked
    with pytest.raises(DataError, match="did you mean imported/my-robot"):
        find_task("imported/my-robo")


def test_the_robot_is_recognised_by_the_files_name(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "hopper_medium-v2.hdf5", d4rl_arrays(episodes(3, obs=11, act=3)))
    task, _ = load_task(import_data(str(path), name="mine")[0])
    assert (task.name, task.env_id, task.target_return) == ("imported/mine", "Hopper-v4", 3600)


def test_a_part_is_whole_trajectories_drawn_by_seed(tmp_path: Path) -> None:
    parts = episodes(60)
    name, whole = import_data(str(write_pickle(tmp_path / "x.pkl", pickled_paths(parts))))
    _, one = load_task(name, size=300, seed=1)
    _, same = load_task(name, size=300, seed=1)
    _, other = load_task(name, size=300, seed=2)
    assert 300 <= one.steps < 360
    assert torch.equal(one.rewards, same.rewards)
    assert one.lengths.tolist() != other.lengths.tolist()
    known = {part.observations.tobytes() for part in parts}
    assert all(part.observations.numpy().tobytes() in known for part in one)
    assert load_task(name, size=10**9)[1].steps == whole.steps
    with pytest.raises(DataError, match="size must be at least 1 step, got 0"):
        load_task(name, size=0)


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (
            "x.txt",
            None,
            r"x\.txt: expected a file that ends in one of \.hdf5, \.h5, \.pkl.*, or a Minari id",
        ),
        ("none.pkl", None, "no such file"),
        ("none.hdf5", None, "no such file"),
        ("x.txt", "../up", r"a name must be made of letters, .* got '\.\./up'"),
        ("no/such/set-v0", None, "minari/no/such/set-v0: Minari could not open it"),
    ],
)
def test_bad_imports_leave_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str | None, message: str
) -> None:
    def nothing(*_: object, **__: object) -> None:
        raise ConnectionError("no network in tests")

    monkeypatch.setattr("minari.storage.hosting.get_cloud_storage", nothing)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("text")
    with pytest.raises((DataError, FileNotFoundError), match=message):
        import_data(source, name)
    assert not list(cache.rglob("*.*"))


@pytest.mark.parametrize("env_id", ["NoSuch-v0", "no_such_module:X-v0", ":CartPole-v1", ".x:Y-v0", "tests:NoSuch-v0"])
def test_an_environment_that_nobody_registers(tmp_path: Path, env_id: str) -> None:
    with pytest.raises(DataError, match=f"there is no environment {env_id}: "):
        import_data(str(tmp_path / "x.pkl"), env_id=env_id)


def test_tasks_with_a_hidden_context_are_played_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path))
    for name, discrete in (("hidden-arm", False), ("drifting-bandit", True), ("broken-halfcheetah", False)):
        task, store = load_task(name, 1000, seed=3)
        assert store.steps == 1000
        assert store.discrete == discrete
        assert task.random_return is not None
        _, again = load_task(name, 1000, seed=3)
        assert torch.equal(store.actions, again.actions)
        _, other = load_task(name, 1000, seed=4)
        assert not torch.equal(store.rewards, other.rewards)
    assert len(list((tmp_path / "hidden").iterdir())) == 6
    with pytest.raises(DataError, match="at least 1 step"):
        load_task("hidden-arm", 0)
