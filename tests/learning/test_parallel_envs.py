"""Environments in several processes: the same episodes as in one, and nothing left behind, whatever happens."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from mental_accounts.config import TrainConfig
from mental_accounts.errors import BrokenEnvironmentError
from mental_accounts.learning import parallel_envs as module
from mental_accounts.learning.episodes import Episode
from mental_accounts.learning.make_env import make_environment
from mental_accounts.learning.parallel_envs import Environments, Worker, useful_workers
from mental_accounts.learning.rollout import play, play_randomly
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.trainer import Trainer
from mental_accounts.policy import Actor, DecisionTransformer
from mental_accounts.policy_options import PolicyConfig
from mental_accounts.spaces import action_spec_of, state_dim_of

from .walk_env import DISCRETE_ID, ENV_ID, Walk

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every process that a test starts has ended and was waited for."""
    started: list[Worker] = []

    class Watched(Worker):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            started.append(self)

    monkeypatch.setattr(module, "Worker", Watched)
    yield
    assert all(worker._process.returncode is not None for worker in started)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def make_policy(env_id: str, method: str = "ewa-vq-odt") -> DecisionTransformer:
    env = make_environment(env_id)
    config = PolicyConfig(
        state_dim=state_dim_of(env.observation_space), action=action_spec_of(env.action_space), method=method,
        hidden=16, layers=1, heads=1, context_length=4, max_timestep=50,
    )  # fmt: skip
    torch.manual_seed(0)
    return DecisionTransformer(config)


def steps(envs: Environments, count: int) -> None:
    for t in range(count):
        envs.step(np.zeros((len(envs), 2)), np.ones(len(envs), dtype=bool), t)


STEPS = ("observations", "actions", "rewards")


def equal(one: list[Episode], other: list[Episode]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(getattr(a, name), getattr(b, name)) and getattr(a, name).dtype == getattr(b, name).dtype
        for a, b in zip(one, other, strict=True)
        for name in (*STEPS, *(["final_observation"] if b.final_observation is not None else []))
    ) and [_end(e) for e in one] == [_end(e) for e in other]  # fmt: skip


def _end(episode: Episode) -> tuple[bool, bool, bool]:
    return episode.terminated, episode.truncated, episode.final_observation is not None


def slowly(env_id: str, policy: DecisionTransformer, n: int, seed: int) -> list[Episode]:
    """The same episodes by a loop of its own: plain environments, the policy and its context."""
    from mental_accounts.learning.seeds import derive

    envs = [make_environment(env_id) for _ in range(n)]
    observations = np.stack([env.reset(seed=derive(seed, "environment", i))[0] for i, env in enumerate(envs)])
    observations = observations.astype(np.float32)
    context, generator = policy.context(n, 5.0), torch.Generator().manual_seed(derive(seed, "actions"))
    logs: list[list[tuple]] = [[] for _ in range(n)]
    over = np.zeros(n, dtype=bool)
    while not over.all():
        actions = policy.act(observations, context, sample=True, generator=generator)
        rewards, ended = np.zeros(n, np.float32), over.copy()
        for i in np.flatnonzero(~over):
            space = envs[i].action_space
            is_box = isinstance(space, gymnasium.spaces.Box)
            action = np.clip(actions[i].astype(space.dtype), space.low, space.high) if is_box else actions[i]
            seen, rewards[i], terminated, truncated, info = envs[i].step(action)
            actions[i] = info.get("action_taken", action)
            logs[i].append((observations[i].copy(), actions[i].copy(), rewards[i], terminated, truncated))
            observations[i], ended[i] = seen, terminated or truncated
        context.record(rewards, ended, actions)
        over |= ended
    return [
        Episode(np.stack(o), np.stack(a), np.array(r, np.float32), te[-1], tr[-1] and not te[-1],
                final_observation=None if te[-1] else observations[i])
        for i, (o, a, r, te, tr) in enumerate(zip(*log, strict=True) for log in logs)
    ]  # fmt: skip


@pytest.mark.parametrize("env_id", [ENV_ID, DISCRETE_ID])
def test_the_episodes_do_not_depend_on_the_number_of_processes(env_id: str) -> None:
    policy = make_policy(env_id)
    actor = Actor(policy, 7, sample=True)
    expected = [slowly(env_id, policy, 7, seed) for seed in (8, 11)]
    assert len({len(episode) for episode in expected[0]}) > 2
    assert {episode.terminated for episodes in expected for episode in episodes} == {True, False}
    for workers in (0, 1, 2, 9):
        envs = Environments(functools.partial(make_environment, env_id), 7, workers, pytest.fail)
        assert len(envs.workers) == min(workers, 6)
        for seed, episodes in zip((8, 11), expected, strict=True):
            assert equal(play(actor, envs, 5.0, seed), episodes)
        envs.close()


def test_random_episodes_are_those_of_the_spaces() -> None:
    envs = Environments(lambda: make_environment(ENV_ID), 3)
    episodes = play_randomly(envs, 1)
    assert equal(play_randomly(envs, 1), episodes)
    assert not equal(play_randomly(envs, 2), episodes)
    assert all(episode.actions.dtype == np.float64 for episode in episodes)
    envs.close()


def test_a_policy_in_training_plays_without_dropout_and_goes_on_training() -> None:
    policy, envs = make_policy(ENV_ID), Environments(functools.partial(make_environment, ENV_ID), 3)
    assert policy.config.dropout > 0

    def stop() -> None:
        assert not policy.training
        raise KeyboardInterrupt

    played = [play(Actor(policy.train(mode), 3, sample=False), envs, 4.0, 0) for mode in (False, True)]
    assert equal(*played)
    with pytest.raises(KeyboardInterrupt):
        play(Actor(policy, 3, sample=False), envs, 4.0, 0, on_step=stop)
    assert all(part.training for part in policy.modules())
    envs.close()


def test_a_log_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(ENV_ID)
    envs = Environments(lambda: make_environment(ENV_ID), 3)
    whole = play(Actor(policy, 3, sample=True), envs, 5.0, 0)
    monkeypatch.setattr("mental_accounts.learning.rollout.FIRST_ROOM", 1)
    assert equal(play(Actor(policy, 3, sample=True), envs, 5.0, 0), whole)
    envs.close()


def test_a_whole_run_is_the_same(aim: TrainConfig, tmp_path: Path) -> None:
    lines = []
    for workers in (0, 2):
        config = replace(aim, env_workers=workers, online_iterations=1, updates_per_pretrain_iteration=2)
        folder = RunFolder(tmp_path / str(workers))
        folder.write_config(config, ["test"])
        Trainer(config, folder).run()
        lines.append([{k: v for k, v in line.items() if "time/" not in k} for line in folder.read_metrics()])
    assert lines[0] == lines[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_environment_is_named_with_its_traceback(workers: int) -> None:
    envs = Environments(lambda: gymnasium.make(ENV_ID, fault="raise"), 4, workers, pytest.fail)
    envs.reset([0, 1, 3, 2])
    with pytest.raises(BrokenEnvironmentError, match=r"environment 1 raised in step 4 .*motor is on fire") as caught:
        steps(envs, 5)
    told = "".join(getattr(caught.value, "__notes__", [repr(caught.value.__cause__)]))
    assert "motor is on fire" in told
    assert "walk_env.py" in told or workers == 0
    envs.reset([0, 2, 4, 6])  # nobody waits for an answer that nobody gives
    steps(envs, 5)
    envs.close()


@pytest.mark.parametrize("when", ["in a step", "between steps"])
def test_a_process_that_dies_is_named_and_nothing_hangs(when: str) -> None:
    envs = Environments(lambda: gymnasium.make(ENV_ID, fault="die"), 4, 2, pytest.fail)
    envs.reset([0, 0, int(when == "in a step"), 0])
    if when == "between steps":
        os.kill(envs.workers[1]._process.pid, signal.SIGKILL)
    with pytest.raises(BrokenEnvironmentError, match=r"the process that stepped environments 2 to 2 .* SIGKILL"):
        steps(envs, 5)
    envs.close()


def test_ctrl_c_in_a_step_ends_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSING_SECONDS", 0.2)
    envs = Environments(lambda: gymnasium.make(ENV_ID, fault="sleep"), 2, 1, pytest.fail)
    envs.reset([1, 0])
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        steps(envs, 5)
    assert not envs.workers
    envs.close()  # again does no harm


SCRIPT = """
import os, signal, numpy, gymnasium
from mental_accounts.learning.parallel_envs import Environments
envs = Environments(lambda: gymnasium.make("tests.learning.walk_env:Walk-v0"), 3, 2, print)
envs.reset([0, 0, 0])
print(*(worker._process.pid for worker in envs.workers), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_closed_environments_say_so() -> None:
    environments = Environments(lambda: make_environment("CartPole-v1"), 2)
    environments.close()
    with pytest.raises(RuntimeError, match="closed"):
        environments.reset([0, 1])
    with pytest.raises(RuntimeError, match="closed"):
        environments.step(np.zeros(2, int), np.ones(2, bool), 0)


def test_processes_and_memory_go_with_a_caller_that_is_killed() -> None:
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)) + os.pathsep + str(ROOT)}
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=os.environ | paths, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(word) for word in done.stdout.split()]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(map(is_there, pids)):
        time.sleep(0.02)
    assert len(pids) == 2
    assert not any(map(is_there, pids))
    if before:
        assert set(os.listdir("/dev/shm")) <= before


def test_environments_that_cannot_be_sent_are_stepped_here() -> None:
    said: list[str] = []
    lock = threading.Lock()  # cannot be pickled
    gymnasium.register("Locked-v0", entry_point=lambda: (lock, Walk())[1])
    gymnasium.register("Elsewhere-v0", entry_point="no_such_module_there:Walk")
    sys.modules["no_such_module_there"] = module_there = type(sys)("no_such_module_there")
    module_there.Walk = Walk
    for name, why in (("Locked-v0", "cannot be pickled"), ("Elsewhere-v0", "No module named")):
        envs = Environments(functools.partial(gymnasium.make, name), 4, 2, said.append)
        played = play(Actor(make_policy(ENV_ID), 4, sample=True), envs, 5.0, 0)
        assert len(played) == 4
        assert not envs.workers
        assert all(why in text and "stepped in this one" in text for text in said), said
        assert said
        said.clear()
        envs.close()
        del gymnasium.registry[name]
    del sys.modules["no_such_module_there"]


def test_processes_are_used_where_they_pay() -> None:
    assert useful_workers(1, 1.0, 16, 1e-4) == 0
    assert useful_workers(10, 1.0, 1, 1e-4) == 0  # one core
    assert useful_workers(10, 1e-6, 16, 1e-4) == 0  # a step is over before another process hears of it
    assert useful_workers(10, 1e-3, 2, 1e-4) == 1
    assert useful_workers(10, 1e-3, 16, 1e-4) == 9
    assert useful_workers(10, 50e-6, 16, 1e-4) == 4  # telling more of them would take longer
    assert useful_workers(10, 1e-3, 9, 1e-4) == 4  # two each: more processes would not be faster


def test_the_number_of_processes_follows_the_threads_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 4)
    monkeypatch.setattr(module, "_step_seconds", lambda make: 1.0)
    for threads, workers in ((1, 0), (2, 1), (8, 3)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        envs = Environments(lambda: make_environment(ENV_ID), 8, None, pytest.fail)
        assert len(envs.workers) == workers
        envs.close()


def test_the_time_of_a_step_is_measured() -> None:
    assert 0 < module._step_seconds(lambda: make_environment(ENV_ID)) < 0.1

    def broken() -> Walk:
        env = Walk()
        env.step = None
        return env

    assert module._step_seconds(broken) == 0.0


def test_bad_numbers_of_processes_are_refused() -> None:
    with pytest.raises(ValueError, match="env_workers must be at least 0"):
        TrainConfig(env_workers=-1)
    with pytest.raises(TypeError, match="env_workers must be"):
        TrainConfig(env_workers=1.5)
