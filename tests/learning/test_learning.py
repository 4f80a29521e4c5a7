"""Policies learn: one batch by heart, and a task in which the commanded return decides what to do."""

import numpy as np
import pytest
import torch

from mental_accounts.account_options import AccountsConfig
from mental_accounts.action_spec import ActionSpec
from mental_accounts.learning import Objective, WarmUp, clip_gradients, make_optimizer
from mental_accounts.policy import DecisionTransformer, Window
from mental_accounts.policy_options import PolicyConfig
from tests.policy.helpers import DISCRETE, make_window, tiny

UNIT_BOX = ActionSpec("box", 1, (-1.0,), (1.0,))


def train(policy: DecisionTransformer, windows: object, updates: int, lr: float) -> float:
    """Minimise on what `windows()` gives; the last nll."""
    objective = Objective(policy.config, target_entropy=-10.0)
    optimizer = make_optimizer("adamw", policy.parameters(), lr, 1e-4)
    warm_up = WarmUp(optimizer, 20)
    policy.train()
    for _ in range(updates):
        window = windows()
        losses = objective(policy(Window(**window)), policy.action_scale.to_unit(window["actions"]), window["mask"])
        optimizer.zero_grad()
        losses.loss.backward()
        clip_gradients(policy.parameters(), 1.0)
        optimizer.step()
        warm_up.advance()
    policy.eval()
    return losses.nll.item()


@pytest.mark.learning
@pytest.mark.parametrize(("method", "discrete", "updates"), [  # densities take longer than actions do
    ("dt", False, 400), ("odt", False, 1200), ("ewa-vq-odt", False, 1200), ("odt, squashed", False, 2000),
    ("ledger-odt", False, 1200),
    ("dt", True, 400), ("odt", True, 400), ("ewa-vq-odt", True, 400), ("ledger-odt", True, 400),
    ("odt, squashed", True, 400),
])  # fmt: skip
def test_one_batch_is_learned_by_heart(method: str, discrete: bool, updates: int) -> None:
    method, _, likelihood = method.partition(", ")
    config = tiny(
        method=method, likelihood=likelihood or "clipped", hidden=48, heads=4,
        **({"action": DISCRETE} if discrete else {}),
    )  # fmt: skip
    torch.manual_seed(0)
    policy = DecisionTransformer(config)
    window = make_window(policy, B=8, K=6, padding=[0, 3] + [0] * 6)
    nll = train(policy, lambda: window, updates, lr=3e-3)
    if method == "dt" or discrete:
        assert nll < 0.02
    else:  # a density: the standard deviation can shrink to exp(-5), where log p is about 4 per dimension
        assert nll < -4.0
    right = policy.action_scale.to_unit(window["actions"])
    shown = policy(Window(**window)).mode()
    error = (shown != right).float() if discrete else (shown - right).abs().mean(dim=-1)
    assert error[window["mask"]].mean().item() < 0.05


@pytest.mark.learning
@pytest.mark.parametrize("method", ["dt", "odt", "ewa-vq-odt"])
@pytest.mark.parametrize("pays", [(0.0, 1.0), (2.0, 10.0), (-10.0, -2.0)])
def test_the_commanded_return_decides(method: str, pays: tuple[float, float]) -> None:
    """Two ways to act, -0.7 and +0.7, each with its own pay a step, and nothing else to tell them by.

    The return to go says which one was meant, also where both have the same sign.
    """
    torch.manual_seed(1)
    K, (less, more) = 5, pays
    config = PolicyConfig(
        state_dim=2, action=UNIT_BOX, method=method, hidden=32, layers=2, heads=2, context_length=K,
        timestep_embedding=False, return_scale=0.2 / max(abs(less), abs(more)), dropout=0.0,
        accounts=AccountsConfig(reward_transform="raw"),
    )  # fmt: skip
    policy = DecisionTransformer(config)

    def windows() -> dict[str, torch.Tensor]:
        good = torch.rand(64, 1) < 0.5
        rewards = torch.where(good, more, less).expand(64, K)
        actions = torch.where(good, 0.7, -0.7).expand(64, K).unsqueeze(-1) + 0.05 * torch.randn(64, K, 1)
        window = {
            "observations": torch.randn(64, K, 2),
            "actions": actions,
            "returns_to_go": rewards.flip(1).cumsum(1).flip(1),
            "timesteps": torch.arange(K).expand(64, K),
            "mask": torch.ones(64, K, dtype=torch.bool),
        }
        if policy.accounts is not None:
            books = policy.accounts.books
            entry = books.route_step(actions)
            window["codes"], window["attractions"] = entry.codes, books.trace(entry, books.payoffs(rewards))
        return window

    train(policy, windows, updates=250, lr=2e-3)
    right = 0
    for meant in pays:
        context = policy.context(50, K * meant)
        for _ in range(K):
            actions = policy.act(torch.randn(50, 2), context)
            paid = np.where(actions[:, 0].numpy() > 0, more, less).astype("float32")
            right += int((paid == meant).sum())
            context.record(paid, torch.zeros(50, dtype=torch.bool))
    assert right / (2 * 50 * K) > 0.95
