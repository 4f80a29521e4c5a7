"""Episodes that a time limit cuts off: what was seen last is recorded, saved, and valued."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import mental_accounts as ma
from mental_accounts.config import TrainConfig
from mental_accounts.data.episode_windows import sampler_for
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.learning.capture import RepeatedUpdate
from mental_accounts.learning.episodes import as_episodes, as_trajectories
from mental_accounts.learning.events import UpdateDone
from mental_accounts.learning.make_env import EnvironmentSource, make_environment
from mental_accounts.learning.parallel_envs import Environments
from mental_accounts.learning.replay import Replay
from mental_accounts.learning.rollout import play, play_randomly
from mental_accounts.learning.seeds import derive
from mental_accounts.learning.update import Updater
from mental_accounts.policy import Actor
from mental_accounts.value_options import ValueConfig
from tests.policy.helpers import BOX, make_policy, tiny

from .live_and_offline import policy_for
from .spaces_envs import STEPS, Doors, DoorsByMethod, OpenDoors
from .tiny_env import Aim
from .walk_env import DISCRETE_ID, ENV_ID

DOORS, BY_METHOD, OPEN = (f"tests.learning.spaces_envs:{kind.__name__}" for kind in (Doors, DoorsByMethod, OpenDoors))


@pytest.mark.parametrize("env_id", [ENV_ID, DISCRETE_ID])
def test_random_episodes_have_what_was_seen_last(env_id: str) -> None:
    """The same actions from the same seed lead there again."""
    envs = Environments(EnvironmentSource(env_id), 12)
    episodes, env = play_randomly(envs, 3), make_environment(env_id)
    assert {episode.terminated for episode in episodes} == {True, False}
    for i, episode in enumerate(episodes):
        assert (episode.final_observation is None) == episode.terminated
        observation, _ = env.reset(seed=derive(3, "environment", i))
        for seen, action in zip(episode.observations, episode.actions, strict=True):
            assert np.array_equal(np.asarray(observation, np.float32), seen)
            observation = env.step(action)[0]
        if episode.final_observation is not None:
            assert np.array_equal(np.asarray(observation, np.float32), episode.final_observation)
    envs.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_the_actions_allowed_then_are_known_or_nothing_is(workers: int) -> None:
    for env_id in (OPEN, DOORS, BY_METHOD):
        envs = Environments(EnvironmentSource(env_id), 6, workers, masks=True)
        actor = Actor(policy_for(make_environment(env_id)), 6, sample=True)
        episodes = [episode for seed in range(2) for episode in play(actor, envs, 4.0, seed)]
        envs.close()
        if env_id != OPEN:  # nothing is allowed at their end
            assert all(episode.final_observation is None for episode in episodes)
            continue
        assert {episode.terminated for episode in episodes} == {True, False}
        for episode in episodes:
            assert (episode.final_observation is None) == (episode.final_mask is None) == episode.terminated
            if episode.final_mask is not None:
                assert len(episode) == STEPS
                assert episode.final_mask.tolist() == [True, False, True, False]
        store = as_trajectories(episodes)
        assert torch.equal(store.has_final, store.truncated)
        for one, other in zip(as_episodes(store), episodes, strict=True):
            for name in ("final_observation", "final_mask"):
                assert np.array_equal(getattr(one, name), getattr(other, name))


def test_a_replay_buffer_has_room_for_all_of_them() -> None:
    """Also if the offline data had none: memory that a captured graph reads cannot come later."""
    envs = Environments(EnvironmentSource(ENV_ID), 20)
    episodes = [episode for seed in range(4) for episode in play_randomly(envs, seed)]
    envs.close()
    offline = as_trajectories([replace(episode, final_observation=None) for episode in episodes[:10]])
    assert offline.endings is None
    replay = Replay(offline, 10, 20)
    replay.store.pin_addresses()
    replay.add(episodes)
    assert len(replay) == 10
    assert torch.equal(replay.store.has_final, replay.store.truncated)
    assert replay.store.has_final.any()
    assert offline.endings is None


def endless_episodes(action: ma.ActionSpec, longest: int = 1, count: int = 64) -> Trajectories:
    """Reward 1, cut off after 1, 2, ... steps up to the longest: the task would go on for ever."""
    rng = np.random.default_rng(0)
    lengths = [1 + i % longest for i in range(count)]
    steps = sum(lengths)
    return Trajectories.from_steps(
        rng.normal(size=(steps, 3)).astype(np.float32), rng.uniform(action.low, action.high, (steps, action.size)),
        np.ones(steps), lengths=lengths, terminated=[False] * count, truncated=[True] * count,
        final_observations=rng.normal(size=(count, 3)).astype(np.float32), action_spec=action,
    )  # fmt: skip


@pytest.mark.parametrize("method", ["dt", "bc", "gru", "ledger-odt"])
def test_values_are_those_of_a_task_without_an_end(method: str, device: str) -> None:
    """V = 1 + γ V, so values approach 1 / (1 - γ), though no episode has a second step; on a GPU in a graph.

    Critics of gru remember the episode so far, so what follows must be something that they learn from in others.
    """
    accounts = {"ledger_input": "state"} if method == "ledger-odt" else {}
    policy = make_policy(tiny(accounts, method=method, action=BOX, dropout=0.0)).to(device)
    store = endless_episodes(BOX, longest=8 if method == "gru" else 1).to(device)
    if policy.accounts is not None:
        store.annotate_by(policy.accounts.books, policy.action_scale.to_unit, balances=policy.config.reads_ledger)
    values = ValueConfig(discount=0.8, tau=0.2, critic_lr=3e-3, critic_hidden=32)
    config = TrainConfig(task=None, env_id="none", method=method, optimizer="adamw", improve="td3", batch_size=64,
                         precision="float32", values=values, device=device)  # fmt: skip
    torch.manual_seed(0)
    updater = Updater(policy, config)
    assert updater.values is not None
    updater.values.begin("online", 1.0)
    sampler = sampler_for(policy.config, store, 64, torch.Generator(device).manual_seed(0))
    assert sampler.transitions().known[:, -1].all()
    said: list[str] = []
    repeated = RepeatedUpdate(updater, sampler, said.append)
    for _ in range(300):
        repeated.step()
    assert (repeated.graph is not None) == (device == "cuda"), said
    window = sampler()
    found = updater.values.of_data(window)[window.mask]
    assert found.mean().item() == pytest.approx(1 / (1 - 0.8), rel=0.1)


def small(**changes: Any) -> dict[str, Any]:
    found = {
        "model": {"hidden": 16, "layers": 1, "context_length": 4}, "batch_size": 8, "online_iterations": 2,
        "updates_per_iteration": 3, "eval_episodes": 2, "eval_every": 1, "random_episodes": 4, "device": "cpu",
        "precision": "float32", "preset": "online",
    }  # fmt: skip
    return found | changes


def test_a_run_of_single_steps_learns_and_keeps_them(tmp_path: Path) -> None:
    """Such episodes taught critics nothing before, and were refused."""

    def single() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.TimeLimit(Aim(), 1)

    run = ma.train(single, run=tmp_path / "run", **small())
    assert all(line["values/td_error"] > 0 for line in run.metrics)
    files = sorted((tmp_path / "run" / "trajectories").iterdir())
    assert [path.stem for path in files] == ["00000", "start"]
    stores = [Trajectories.load(path) for path in files]
    assert all(store.has_final.all() and (store.lengths == 1).all() for store in stores)


@pytest.mark.parametrize("method", ["odt", "gru"])
def test_runs_with_masks_are_stopped_and_resumed_exactly(method: str, tmp_path: Path) -> None:
    def stop(event: ma.Event) -> object:
        return ma.STOP if isinstance(event, UpdateDone) and event.update == 4 else None

    options = small(method=method, online_iterations=3)
    whole = ma.train(OPEN, run=tmp_path / "whole", **options)
    cut = ma.resume(ma.train(OPEN, run=tmp_path / "cut", callbacks=stop, **options))
    assert [line["values/loss"] for line in cut.metrics] == [line["values/loss"] for line in whole.metrics]
    for (name, one), other in zip(whole.policy.state_dict().items(), cut.policy.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
