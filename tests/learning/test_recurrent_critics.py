"""Critics of method gru read its episodes by a recurrent network of their own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import mental_accounts as ma
from mental_accounts.data.episode_windows import sampler_for
from mental_accounts.learning.critic_files import PolicyCritics, read_critics, write_critics
from mental_accounts.learning.critics import action_values, critics_of, features_of
from mental_accounts.learning.update import Updater
from mental_accounts.policy import Window
from tests.policy.helpers import BOX, DISCRETE, make_policy, make_window, tiny

from .test_values import CONFIG, store_for

SEVERAL = ma.ActionSpec("multi-discrete", 9, values=(3, 2, 4), starts=(1, 0, -1))


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


@pytest.mark.parametrize("action", [BOX, DISCRETE, SEVERAL], ids=["box", "discrete", "several"])
def test_critics_with_a_network_of_their_own_are_saved_and_read(action: Any, tmp_path: Path) -> None:
    policy = make_policy(tiny(method="gru", action=action, gru_layers=2))
    held = PolicyCritics(critics_of(policy, 8), 0.9, 2.5)
    write_critics(tmp_path, held)
    torch.manual_seed(3)
    found, ahead = read_critics(tmp_path, policy), torch.rand(())
    torch.manual_seed(3)
    assert torch.equal(ahead, torch.rand(()))  # reading draws no random numbers
    assert found is not None
    assert not any(parameter.requires_grad for parameter in found.critics.parameters())
    held.critics.requires_grad_(False)  # weights that need gradients go through other kernels, and round differently
    window = Window(**make_window(policy, B=3, K=5))
    values = [
        action_values(policy, critics, features_of(policy, critics, window), policy.unit_actions(window))
        for critics in (found.critics, held.critics)
    ]
    assert torch.equal(*values)
    assert values[0].std() > 0
