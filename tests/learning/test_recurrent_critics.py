"""Critics of method gru read its episodes by a recurrent network of their own."""

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
from mental_accounts.errors import CheckpointError
from mental_accounts.learning.critic_files import FILE, PolicyCritics, read_critics, write_critics
from mental_accounts.learning.critics import Critics, action_values, critics_of, features_of
from mental_accounts.learning.update import Updater
from mental_accounts.policy import Window
from tests.policy.helpers import BOX, DISCRETE, make_policy, tiny

from .cut_runs import start
from .test_values import CONFIG, store_for


@pytest.mark.parametrize("length", [1000, 4], ids=["whole", "pieces"])
@pytest.mark.parametrize("action", [BOX, DISCRETE], ids=["box", "discrete"])
def test_critics_read_the_episode_so_far_and_no_further(action: Any, length: int) -> None:
    """Values depend on rewards and actions before a step, not on its own reward, later steps or padding."""
    policy = make_policy(tiny(method="gru", action=action, dropout=0.0, episode_length=length))
    torch.manual_seed(0)
    critics, store = critics_of(policy, 16), store_for(policy)
    window = sampler_for(policy.config, store, 16, torch.Generator().manual_seed(1))()
    assert window.mask is not None
    assert window.previous_rewards is not None

    def values(seen: Window) -> torch.Tensor:
        features = features_of(policy, critics, seen)
        return action_values(policy, critics, features, policy.unit_actions(seen)).detach()  # (2, B, K)

    found, K = values(window), window.mask.shape[1]
    row = int(window.mask.sum(dim=1).argmax())
    step = K - int(window.mask[row].sum()) // 2  # in the middle of its longest episode
    changed = window.previous_rewards.clone()
    changed[row, step] += 3.0  # what the step before was paid
    moved = (values(replace(window, previous_rewards=changed)) - found).abs().amax(dim=0) > 1e-6
    assert not moved[row, :step].any()
    assert moved[row, step:].all()
    assert not moved[torch.arange(len(moved)) != row].any()
    blank = replace(window, previous_rewards=window.previous_rewards.masked_fill(~window.mask, 9.0))
    assert torch.equal(values(blank)[:, window.mask], found[:, window.mask])


def test_the_critics_network_learns_from_their_loss_alone() -> None:
    policy = make_policy(tiny(method="gru", dropout=0.0))
    updater, store = Updater(policy, replace(CONFIG, method="gru")), store_for(policy)
    values = updater.values
    assert values is not None
    values.begin("online", 1.0)
    sampler = sampler_for(policy.config, store, 8, torch.Generator().manual_seed(1))
    networks = (values.critics, values.followed, values.average_critics, values.average_policy, policy)
    weights = [network.recurrent.layers[0].weight_hh_l0 for network in networks]  # type: ignore[union-attr]
    before = [weight.detach().clone() for weight in weights]
    values.learn(sampler.transitions())
    assert [torch.equal(a, b) for a, b in zip(before, weights, strict=True)] == [False, True, True, True, True]
    updater.update(sampler())  # of the policy
    assert all(parameter.grad is None for parameter in values.followed.parameters())
    learned = weights[0].detach().clone()
    values.follow(torch.zeros(()))
    assert torch.equal(weights[0], learned)
    assert torch.equal(weights[1], learned)
    torch.testing.assert_close(weights[2], before[2].lerp(learned, values.options.tau))


def test_they_are_kept_in_checkpoints_alone(aim: TrainConfig, tmp_path: Path) -> None:
    """Nothing shows their values. A file of an earlier version's critics, of single steps, is not read."""
    config = replace(aim.for_method("gru"), improve="td3", checkpoint_seconds=0.0)
    trainer = start(config, tmp_path / "run")
    trainer.run()
    assert not (tmp_path / "run" / FILE).exists()
    write_critics(tmp_path / "run", PolicyCritics(Critics(4, 1, 8), 0.9, 2.5))
    assert read_critics(tmp_path / "run", trainer.policy) is None


def test_a_run_with_critics_of_single_steps_is_not_resumed(
    aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(aim.for_method("gru"), improve="td3", checkpoint_seconds=0.0)
    tensors = Updater.tensors

    def earlier(updater: Updater) -> dict[str, torch.Tensor]:
        return {name: value for name, value in tensors(updater).items() if "critics.recurrent." not in name}

    with monkeypatch.context() as changed:
        changed.setattr(Updater, "tensors", earlier)
        start(config, tmp_path / "run").run()
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(CheckpointError, match=r"critics see single steps.* start another run$"):
        start(config, tmp_path / "run").run()


class HiddenDoor(gymnasium.Env[Any, Any]):
    """One of four doors pays in all 12 steps of an episode; only rewards tell which."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.good, self.steps = int(self.np_random.integers(4)), 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(1, np.float32), float(action == self.good), False, self.steps == 12, {}


@pytest.mark.learning
def test_a_recurrent_policy_learns_from_scratch_where_only_rewards_tell_what_pays(tmp_path: Path) -> None:
    """Critics that remember nothing value all doors alike: with them it ended between 3 and 5.4. At best 10.5."""
    run = ma.train(
        HiddenDoor, preset="online", method="gru", run=tmp_path / "run", device="cpu", env_workers=0, hidden=32,
        critic_hidden=64, discount=0.0, batch_size=32, random_episodes=64, online_iterations=12,
        updates_per_iteration=60, episodes_per_iteration=16, eval_episodes=50, eval_every=12,
    )  # fmt: skip
    assert run.returns[-1] > 8
