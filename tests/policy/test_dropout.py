"""Dropout with cheap masks: the right share, unbiased, repeatable, and attention with it is what attention is."""

import math

import pytest
import torch

from mental_accounts.action_spec import ActionSpec
from mental_accounts.policy import transformer
from mental_accounts.policy.dropout import drop, kept
from mental_accounts.policy.transformer import Attention
from mental_accounts.policy_options import PolicyConfig


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_right_share_is_dropped_and_the_mean_stays(dtype: torch.dtype, share: float) -> None:
    torch.manual_seed(0)
    N = 400_003  # no multiple of four
    y = drop(torch.ones(N, dtype=dtype), share)
    assert y.dtype == dtype
    assert y.unique().numel() == 2
    error = math.sqrt(share * (1 - share) / N)
    assert (y == 0).double().mean().item() == pytest.approx(share, abs=4 * error + 1e-5)
    rounding = 0.004 if dtype == torch.bfloat16 else 0.0
    assert y.double().mean().item() == pytest.approx(1.0, abs=4 * error / (1 - share) + rounding)


def test_entries_are_dropped_independently() -> None:
    torch.manual_seed(1)
    y = (kept(torch.empty(1, 200_000), 0.3) == 0).double().flatten()
    for gap in (1, 2, 3, 4, 8, 512):
        together = (y[gap:] * y[:-gap]).mean().item()
        assert together == pytest.approx(0.09, abs=0.004), gap


def test_masks_follow_the_seed_and_reach_the_gradient() -> None:
    x = torch.randn(7, 11, requires_grad=True)
    torch.manual_seed(3)
    y = drop(x, 0.4)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x.detach(), y.detach())
    torch.manual_seed(3)
    assert torch.equal(drop(x, 0.4), y)
    assert not torch.equal(drop(x, 0.4), y)


def test_the_borders() -> None:
    x = torch.randn(3, 5)
    assert drop(x, 0.0) is x
    assert not drop(x, 1.0).any()
    assert drop(torch.empty(0, 4), 0.5).shape == (0, 4)


def test_attention_with_dropout_is_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    box = ActionSpec("box", 2, (-1.0, -1.0), (1.0, 1.0))
    attention = Attention(PolicyConfig(state_dim=3, action=box, method="odt", hidden=32, heads=4, dropout=0.3))
    tokens, mask = torch.randn(2, 9, 32), torch.randn(2, 1, 9, 9).masked_fill(torch.ones(9, 9).triu(1) > 0, -math.inf)
    expected = attention.eval()(tokens, tokens, mask, torch.zeros(()))
    monkeypatch.setattr(transformer, "drop", lambda x, share: x)
    torch.testing.assert_close(attention.train()(tokens, tokens, mask, torch.zeros(())), expected)


def test_learning_in_bf16_without_dropout_is_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own path on a CPU: the same values and gradients as the fused one's, to the rounding of bf16."""
    box = ActionSpec("box", 2, (-1.0, -1.0), (1.0, 1.0))
    torch.manual_seed(0)
    attention = Attention(PolicyConfig(state_dim=3, action=box, method="odt", hidden=32, heads=4, dropout=0.0))
    mask = torch.randn(4, 1, 9, 9).masked_fill(torch.ones(9, 9).triu(1) > 0, -math.inf)
    found = []
    for own in (True, False):
        if not own:
            monkeypatch.setattr(transformer, "draws_fast", lambda q: False)
        tokens = torch.randn(4, 9, 32, generator=torch.Generator().manual_seed(1)).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            mixed = attention(tokens, tokens, mask, torch.zeros(()))
        mixed.float().square().sum().backward()
        assert tokens.grad is not None
        found.append((mixed.float().detach(), tokens.grad))
    for one, other in zip(*found, strict=True):
        assert not torch.equal(one, other)
        assert (one - other).norm() <= 0.02 * other.norm()
