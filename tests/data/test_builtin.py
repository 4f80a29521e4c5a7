import errno
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from mental_accounts.data import DataError, Trajectories, builtin, load_task, shards, tensor_files
from mental_accounts.data.behaviour_worker import Actor, Shard, play
from mental_accounts.errors import NoRoomError


def write_actor(path: Path, obs: int, act: int, seed: int, width: int = 8) -> None:
    rng = np.random.default_rng(seed)
    shapes = {"hidden.0": (width, obs), "hidden.1": (width, width), "mean": (act, width), "log_std": (act, width)}
    tensors = {}
    for layer, shape in shapes.items():
        tensors[f"{layer}.weight"] = rng.normal(0, 0.5, shape).astype(np.float16)
        tensors[f"{layer}.bias"] = rng.normal(0, 0.1, shape[0]).astype(np.float16)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"behaviour": "{}"})


def behaviours(folder: Path, env_id: str = "Pendulum-v1", obs: int = 3, act: int = 1, met: bool = True) -> Path:
    """A manifest as studies/behaviour_choice.py writes it, with tiny random actors."""
    for i, name in enumerate(("medium", "expert", "replay-01")):
        write_actor(folder / "robot" / f"{name}.safetensors", obs, act, seed=i)
    sha256 = hashlib.sha256((folder / "robot" / "medium.safetensors").read_bytes()).hexdigest()
    replay = [
        {"file": None, "weight": 0.25},
        {"file": "robot/replay-01.safetensors", "weight": 0.5},
        {"file": "robot/medium.safetensors", "weight": 0.25},
    ]
    entry = {
        "env_id": env_id,
        "medium": {"file": "robot/medium.safetensors", "met": True, "sha256": sha256},
        "expert": {"file": "robot/expert.safetensors", "met": met},
        "replay": replay,
    }
    manifest = {"log_std_range": [-20.0, 2.0], "tasks": {"robot": entry}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(builtin, "SHARD_STEPS", 400)  # two episodes of Pendulum
    return behaviours(tmp_path / "behaviours")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ((), [], "it holds no JSON object"),
        (("tasks",), [], "tasks must be an object"),
        (("tasks", "robot"), 3, "robot, cannot be read: it holds no JSON object"),
        (("tasks", "robot", "env_id"), 3, "env_id must be text"),
        (("tasks", "robot", "medium"), None, "medium must be an object"),
        (("tasks", "robot", "medium", "file"), 3, "file must be text or null"),
        (("tasks", "robot", "medium", "file"), "/etc/passwd", "file must lie beside it"),
        (("tasks", "robot", "medium", "file"), "../secret", "file must lie beside it"),
        (("tasks", "robot", "medium", "sha256"), 3, "sha256 must be text or null"),
        (("tasks", "robot", "expert"), [], "expert, cannot be read: it holds no JSON object"),
        (("tasks", "robot", "replay"), [], "it names no policy"),
        (("tasks", "robot", "replay", 0), 3, "it holds no JSON object"),
        (("tasks", "robot", "replay", 0, "weight"), "1", "weight must be a finite number"),
        (("tasks", "robot", "replay", 0, "weight"), -1, "weight must be above 0"),
        (("log_std_range",), [1], "high is missing"),
        (("log_std_range",), ["a", 1], "low must be a finite number"),
    ],
)
def test_a_manifest_that_is_wrong(folder: Path, place: tuple[Any, ...], value: Any, words: str) -> None:
    manifest = {"whole": json.loads((folder / "manifest.json").read_text())}
    *outer, last = "whole", *place
    table: Any = manifest
    for key in outer:
        table = table[key]
    table[last] = value
    (folder / "manifest.json").write_text(json.dumps(manifest["whole"]))
    with pytest.raises(ValueError, match=rf"manifest\.json.*{words}"):
        [builtin.recipe_of("robot", kind, folder) for kind in builtin.TRAINED]


def same(one: Trajectories, two: Trajectories) -> bool:
    names = ("observations", "actions", "rewards", "lengths", "terminated", "truncated")
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in names)


def in_cache(cache: Path) -> list[str]:
    return sorted(str(file.relative_to(cache)) for file in cache.rglob("*") if file.is_file())


def test_the_actor_is_the_squashed_gaussian_that_was_trained(tmp_path: Path) -> None:
    write_actor(tmp_path / "a.safetensors", obs=5, act=2, seed=3, width=16)
    actor = Actor.read(str(tmp_path / "a.safetensors"), (-1.0, 0.5))
    w = {name: torch.from_numpy(array).double() for name, array in actor.weights.items()}
    rng, again = np.random.default_rng(0), np.random.default_rng(0)
    for observation in np.random.default_rng(1).standard_normal((20, 5)):
        h = torch.from_numpy(observation)
        for layer in ("hidden.0", "hidden.1"):
            h = torch.relu(torch.nn.functional.linear(h, w[f"{layer}.weight"], w[f"{layer}.bias"]))
        mean, log_std = (torch.nn.functional.linear(h, w[f"{x}.weight"], w[f"{x}.bias"]) for x in ("mean", "log_std"))
        noise = torch.from_numpy(again.standard_normal(2, dtype=np.float32)).double()
        expected = torch.tanh(mean + log_std.clamp(-1.0, 0.5).exp() * noise)
        np.testing.assert_allclose(actor.act(observation, rng), expected, atol=1e-5)


def test_rollouts_are_what_the_environment_gives_back(tmp_path: Path) -> None:
    """Replaying the recorded actions from the same seeds gives the same observations and rewards."""
    shard = Shard("Pendulum-v1", None, (-20, 2), steps=250, entropy=(7,))
    reported: list[int] = []
    arrays = play(shard, reported.append)
    assert arrays["lengths"].tolist() == [200, 200]
    assert arrays["truncated"].all()
    assert not arrays["terminated"].any()
    rng, env = np.random.default_rng((7,)), gymnasium.make("Pendulum-v1")
    for begin in (0, 200):
        observation, _ = env.reset(seed=int(rng.integers(2**31)))
        for t in range(begin, begin + 200):
            assert np.array_equal(observation, arrays["observations"][t])
            action = (rng.uniform(-1, 1, 1).astype(np.float32) * np.float32(2)).astype(np.float32)
            assert np.array_equal(action, arrays["actions"][t])
            observation, reward, *_ = env.step(arrays["actions"][t])
            assert np.float32(reward) == arrays["rewards"][t]
        assert np.array_equal(observation, arrays["final_observations"][begin // 200])


def test_the_same_whatever_the_number_of_processes(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = builtin.make_builtin("robot", "medium-replay", 2000, seed=1, workers=1, folder=folder)
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(cache / "other"))
    three = builtin.make_builtin("robot", "medium-replay", 2000, seed=1, workers=3, folder=folder)
    assert same(one, three)
    assert not same(one, builtin.make_builtin("robot", "medium-replay", 2000, seed=2, workers=3, folder=folder))


def test_made_once_then_read_from_the_cache(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = builtin.make_builtin("robot", "medium", 700, folder=folder)
    assert len(in_cache(cache)) == 1
    assert made.steps == 800  # whole episodes
    assert made.info["name"] == "robot-medium"
    assert set(made.info["versions"]) == {"gymnasium", "mujoco", "numpy"}
    assert made.action_spec.high == (2.0,)

    def no(*_: object) -> None:
        raise AssertionError("played again")

    monkeypatch.setattr(builtin, "play_shards", no)
    assert same(made, builtin.make_builtin("robot", "medium", 700, folder=folder))


def test_processes_that_want_the_same_data_take_turns(folder: Path, cache: Path) -> None:
    """Two runs that begin together: one plays, the other waits and reads."""
    code = "from pathlib import Path\nfrom mental_accounts.data.builtin import make_builtin\n"
    code += f"store = make_builtin('robot', 'medium', 6_000, folder=Path({str(folder)!r}))\n"
    code += "print(len(store.rewards), float(store.rewards.sum()))"
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1] != ""
    assert len(in_cache(cache)) == 1


def test_every_shard_has_episodes_of_its_own(folder: Path) -> None:
    store = builtin.make_builtin("robot", "medium-expert", 1600, folder=folder)
    assert len({tuple(part.observations[0].tolist()) for part in store}) == len(store) == 8


def test_shares_are_those_of_the_manifest() -> None:
    recipe = builtin.Recipe("E", (0, 1), tuple(builtin.Share(None, w) for w in (0.05, 0.6, 0.35)), "x")
    plan = builtin._plan("n", recipe, 100_000, 0)
    steps = [sum(shard.steps for shard, _ in plan if shard.entropy[2] == i) for i in range(3)]
    assert steps == [5_000, 60_000, 35_000]
    assert plan[-1][1] == 100_000
    assert max(shard.steps for shard, _ in plan) == builtin.SHARD_STEPS
    assert len({shard.entropy for shard, _ in plan}) == len(plan)


def test_whole_episodes_until_enough() -> None:
    def shard(*lengths: int) -> dict[str, np.ndarray]:
        n = sum(lengths)
        ends = {"lengths": np.array(lengths), "terminated": np.ones(len(lengths)), "truncated": np.zeros(len(lengths))}
        return {"observations": np.zeros((n, 1)), "actions": np.zeros((n, 1)), "rewards": np.zeros(n), **ends}

    played = [shard(40, 50, 30), shard(60, 60), shard(90, 30)]
    kept = builtin._whole_episodes(played, [100, 200, 300])
    assert kept["lengths"].tolist() == [40, 50, 30, 60, 60, 90]
    assert len(kept["rewards"]) == kept["lengths"].sum()
    for number, part in enumerate(played[1:]):
        part["final_observations"] = np.full((len(part["lengths"]), 1), float(number))
    assert "final_observations" not in builtin._whole_episodes(played, [100, 200, 300])  # an older shard has none
    played[0]["final_observations"] = np.full((3, 1), 7.0)
    kept = builtin._whole_episodes(played, [100, 200, 300])
    assert kept["final_observations"].tolist() == [[7.0]] * 3 + [[0.0]] * 2 + [[1.0]]


def test_a_damaged_cache_is_made_again(folder: Path, cache: Path) -> None:
    made = builtin.make_builtin("robot", "medium", 400, folder=folder)
    file = cache / in_cache(cache)[0]
    data = bytearray(file.read_bytes())
    data[-9] ^= 1
    file.write_bytes(data)
    with pytest.warns(UserWarning, match="checksum differs.* made again now"):
        assert same(made, builtin.make_builtin("robot", "medium", 400, folder=folder))


TROUBLE = """
    import os, sys, errno
    from pathlib import Path
    import gymnasium
    from gymnasium.envs.classic_control import PendulumEnv

    class Trouble(PendulumEnv):
        '''Pendulum, until the file that TROUBLE names is there: then as its text says.'''
        def step(self, action):
            file = Path(os.environ["TROUBLE"])
            how = file.read_text() if file.exists() and "behaviour_worker" in sys.argv[0] else ""
            if how == "raise":
                raise ValueError("the motor broke")
            if how == "die":
                print("out of memory, say", file=sys.stderr, flush=True)
                os._exit(7)
            if how == "full disk":
                def full(tensors, path):
                    Path(path).write_bytes(b"half")
                    raise OSError(errno.ENOSPC, "No space left on device")
                sys.modules["__main__"].save_file = full
            return super().step(action)

    gymnasium.register("Trouble-v0", entry_point=Trouble, max_episode_steps=200)
"""


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            "raise",
            r"a rollout of trouble_env:Trouble-v0 failed \(ValueError: the motor broke\); finished shards are kept",
        ),
        ("die", r"a process that played trouble_env:Trouble-v0 died \(exit code 7: out of memory, say\)"),
        ("full disk", r"failed \(OSError: \[Errno 28\] No space left on device\)"),
    ],
)
def test_a_crash_keeps_what_is_finished_and_the_next_run_goes_on(
    tmp_path: Path, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, how: str, message: str
) -> None:
    (tmp_path / "trouble_env.py").write_text(textwrap.dedent(TROUBLE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TROUBLE", str(tmp_path / "trouble"))
    behaviours(folder, env_id="trouble_env:Trouble-v0")
    make = {"robot": "robot", "kind": "medium", "size": 2400, "folder": folder}

    def trouble_after(finished: int) -> Any:
        real = shards.Worker.play

        def play_then(self: Any, shard: Shard, path: Path, advance: Any) -> None:
            if len(list(path.parent.glob("[!.]*.safetensors"))) >= finished:
                (tmp_path / "trouble").write_text(how)
            real(self, shard, path, advance)

        return play_then

    with monkeypatch.context() as patch:
        patch.setattr(shards.Worker, "play", trouble_after(2))
        with pytest.raises(DataError, match=message):
            builtin.make_builtin(**make, workers=1)
    assert [name.rpartition("/")[2] for name in in_cache(cache)] == [f"shard-0000{i}.safetensors" for i in (0, 1)]
    (tmp_path / "trouble").unlink()
    times = {file: file.stat().st_mtime_ns for file in cache.rglob("shard-*")}
    played: list[Shard] = []
    real = shards.Worker.play

    def counted(self: Any, shard: Shard, path: Path, advance: Any) -> None:
        played.append(shard)
        assert all(file.stat().st_mtime_ns == time for file, time in times.items())
        real(self, shard, path, advance)

    with monkeypatch.context() as patch:
        patch.setattr(shards.Worker, "play", counted)
        resumed = builtin.make_builtin(**make, workers=2)
    assert len(played) == 4
    assert len(in_cache(cache)) == 1  # the shards are gone, the data set is there
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(cache / "other"))
    assert same(resumed, builtin.make_builtin(**make, workers=2))


def test_half_a_shard_is_played_again(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = builtin.make_builtin("robot", "medium", 800, folder=folder)
    shards = (cache / in_cache(cache)[0]).with_suffix(".shards")
    (cache / in_cache(cache)[0]).unlink()
    shards.mkdir()
    (shards / "shard-00001.safetensors").write_bytes(b"half")
    assert same(made, builtin.make_builtin("robot", "medium", 800, folder=folder))


def test_a_full_disk_at_the_very_end(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_tensors: object, path: Path, metadata: object) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(tensor_files, "save_file", full)
        with pytest.raises(OSError, match="No space left"):
            builtin.make_builtin("robot", "medium", 800, folder=folder)
    assert all("shard-" in name for name in in_cache(cache))
    builtin.make_builtin("robot", "medium", 800, folder=folder)


def test_what_cannot_fit_is_refused_before_anything_is_played(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoRoomError, match=r"the data need \d+.* GB on cpu, but only"):
        builtin.make_builtin("robot", "medium", 10**13, folder=folder)

    class Usage:
        free = 10

    monkeypatch.setattr(builtin.shutil, "disk_usage", lambda path: Usage)
    with pytest.raises(OSError, match=r"GB are needed there, but only 0\.00 GB are free; ask for fewer steps"):
        builtin.make_builtin("robot", "medium", 400, folder=folder)


def test_bad_requests(folder: Path, tmp_path: Path) -> None:
    for arguments, kind, message in [
        (("ant", "medium", 400), DataError, r"built-in data exist for \['robot'\]"),
        (("robot", "large", 400), DataError, "built-in data exist for"),
        (("ant", "random", 400), DataError, r"built-in data exist for \['robot'\]"),
        (("robot", "medium", 0), DataError, "steps must be at least 1"),
        (("robot", "medium", 400, -1), DataError, "seed must be at least 0, got -1"),
    ]:
        with pytest.raises(kind, match=message):
            builtin.make_builtin(*arguments, folder=folder)
    with pytest.raises(DataError, match="workers must be at least 1, got -2"):
        builtin.make_builtin("robot", "medium", 400, workers=-2, folder=folder)
    behaviours(folder, met=False)
    with pytest.raises(DataError, match="robot-medium-expert: no expert was reached"):
        builtin.make_builtin("robot", "medium-expert", 400, folder=folder)
    write_actor(folder / "robot" / "medium.safetensors", 3, 1, seed=9)
    with pytest.raises(DataError, match=r"medium\.safetensors: the file is not the one that .*manifest"):
        builtin.make_builtin("robot", "medium", 400, folder=folder)
    (folder / "robot" / "medium.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"medium\.safetensors: no such file, though .*manifest\.json names it"):
        builtin.make_builtin("robot", "medium", 400, folder=folder)
    with pytest.raises(FileNotFoundError, match="installed without its behaviour policies"):
        builtin.make_builtin("robot", "medium", 400, folder=tmp_path / "nowhere")


def test_what_is_shipped_is_small() -> None:
    sizes = [file.stat().st_size for file in builtin.BEHAVIOURS.rglob("*.safetensors")]
    assert max(sizes) <= 200_000
    assert sum(sizes) <= 8_000_000
    for robot in ("hopper", "walker2d", "halfcheetah"):
        assert len(builtin.recipe_of(robot, "medium-replay").shares) >= 10


def test_random_data_need_no_policies(tmp_path: Path, cache: Path) -> None:
    nowhere = tmp_path / "nowhere"
    made = builtin.make_builtin("hopper", "random", 500, seed=2, workers=1, folder=nowhere)
    assert (made.info["name"], made.info["env_id"]) == ("hopper-random", "Hopper-v5")
    assert made.steps >= 500
    assert made.terminated.any()
    nowhere.mkdir()
    (nowhere / "manifest.json").write_text("broken")
    again = builtin.make_builtin("hopper", "random", 500, seed=2, folder=nowhere)
    assert same(made, again)
    builtin.make_builtin("hopper", "random", 500, seed=3, workers=1)
    builtin.make_builtin("hopper", "random", 600, seed=2, workers=1)
    names = [name.rpartition("/")[2].rpartition("-")[0] for name in in_cache(cache)]
    assert names == ["500-steps-seed-2", "500-steps-seed-3", "600-steps-seed-2"]


def test_random_actions_are_uniform() -> None:
    actions = load_task("walker2d-random", size=5_000)[1].actions.numpy()
    shares = np.stack([np.histogram(column, bins=4, range=(-1, 1))[0] for column in actions.T]) / len(actions)
    assert np.abs(actions).max() <= 1
    np.testing.assert_allclose(shares, 0.25, atol=0.03)  # five standard deviations


@pytest.mark.parametrize(
    ("task", "mean"), [("hopper-random", 17.5), ("walker2d-random", 1.9), ("halfcheetah-random", -282)]
)
def test_random_data_have_the_return_of_random_actions(task: str, mean: float) -> None:
    returns = load_task(task, size=10_000)[1].returns.double()
    assert abs(float(returns.mean()) - mean) < 5 * float(returns.std()) / len(returns) ** 0.5


@pytest.mark.parametrize(
    ("task", "low", "high"), [("hopper-medium", 1000, 2000), ("walker2d-medium-replay", 300, 1500)]
)
def test_built_in_data_are_like_d4rls(task: str, low: float, high: float) -> None:
    found = load_task(task, size=30_000)[1].statistics()
    print(task, found)
    assert low < found.return_mean < high
    assert found.return_std > 0.1 * found.return_mean
