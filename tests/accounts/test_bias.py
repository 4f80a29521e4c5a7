import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mental_accounts as ma
from mental_accounts.accounts import spread_columns

from . import slow_accounts


def test_column_bias_sits_on_action_columns_only() -> None:
    A = torch.randn(2, 4)
    bias = ma.column_bias(A, beta=0.05)
    assert bias.shape == (2, 1, 1, 12)
    torch.testing.assert_close(bias[:, 0, 0, 2::3], 0.05 * A)
    assert torch.equal(bias[..., 0::3], torch.zeros(2, 1, 1, 4))
    assert torch.equal(bias[..., 1::3], torch.zeros(2, 1, 1, 4))


def test_beta_per_head_per_layer_and_learned() -> None:
    A = torch.randn(2, 3)
    unit = ma.column_bias(A, beta=1.0)
    heads = torch.tensor([0.1, -0.2])
    torch.testing.assert_close(ma.column_bias(A, heads), unit * heads.view(1, 2, 1, 1))
    layers = torch.randn(5, 2)
    per_layer = ma.column_bias(A, layers)
    assert per_layer.shape == (5, 2, 2, 1, 9)
    torch.testing.assert_close(per_layer[3], ma.column_bias(A, layers[3]))
    for arguments, shape in [
        ({}, ()),
        ({"heads": 4}, (4,)),
        ({"layers": 3}, (3, 1)),
        ({"layers": 3, "heads": 4}, (3, 4)),
    ]:
        scale = ma.BiasScale(0.05, learned=True, **arguments)
        assert scale().shape == shape
        ma.column_bias(A, scale()).square().sum().backward()
        assert scale.beta.grad.abs().min() > 0
        fixed = ma.BiasScale(0.05, **arguments)
        assert not list(fixed.parameters())
        assert torch.equal(fixed(), scale().detach())


def test_clip_caps_the_bias_and_the_drift() -> None:
    A = torch.randn(4, 6) * 100
    bias = ma.column_bias(A, beta=0.5, clip=0.3)
    assert bias.abs().max() == pytest.approx(0.3)
    drift = ma.attention_drift(torch.randn(4, 2, 18, 18), bias)
    assert float(drift.max()) <= ma.drift_bound(0.3) + 1e-6


def test_any_token_layout_through_a_selector() -> None:
    A = torch.randn(2, 3)
    columns = torch.tensor([False, True, False, False, True, True, False])
    bias = ma.column_bias(A, beta=2.0, columns=columns)
    assert bias.shape == (2, 1, 1, 7)
    torch.testing.assert_close(bias[..., columns].squeeze(), 2 * A)
    assert bias[..., ~columns].abs().sum() == 0
    standard = torch.tensor([False, False, True]).repeat(3)
    assert torch.equal(ma.column_bias(A, columns=standard), ma.column_bias(A))


def test_now_bias_lets_a_row_read_only_what_was_posted_before_it() -> None:
    K, rule = 6, ma.EWA(0.1, 0.5)
    codes, rewards = torch.randint(3, (2, K)), torch.randn(2, K)
    A = rule.read_now(codes, rule.trace(codes, rewards))
    bias = ma.now_bias(A, beta=1.0)
    assert bias.shape == (2, 1, 3 * K, 3 * K)
    for t in range(K):
        changed = rewards.clone()
        changed[:, t] += 1.0
        other = ma.now_bias(rule.read_now(codes, rule.trace(codes, changed)), beta=1.0)
        assert torch.equal(other[:, :, : 3 * t + 2], bias[:, :, : 3 * t + 2])  # up to and with the state row of t
        assert not torch.equal(other[:, :, 3 * t + 2 :], bias[:, :, 3 * t + 2 :])
    # The action row of the last step sees what a bias read `then` has for the codes posted last.
    torch.testing.assert_close(bias[:, 0, -1, -1], rule.trace(codes, rewards)[:, -1])


def test_drift_against_softmax_by_hand_and_masked_rows() -> None:
    logits = torch.randn(3, 5, dtype=torch.float64)
    logits[0, 2] = -math.inf
    logits[1] = -math.inf
    bias = torch.randn(5, dtype=torch.float64)
    drift = ma.attention_drift(logits, bias)
    for row in (0, 2):
        p = slow_accounts.softmax(logits[row].tolist())
        q = slow_accounts.softmax((logits[row] + bias).tolist())
        assert drift[row].item() == pytest.approx(sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2, abs=1e-12)
    assert drift[1] == 0


@given(epsilon=st.floats(0.0, 20.0), n=st.integers(1, 30), spread=st.floats(0.0, 50.0), seed=st.integers(0, 10**6))
def test_the_lemma_and_the_sharp_bounds_hold(epsilon: float, n: int, spread: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(50, n, generator=generator, dtype=torch.float64) * spread
    bias = (torch.rand(50, n, generator=generator, dtype=torch.float64) * 2 - 1) * epsilon
    bias[:25] = bias[:25].sign() * epsilon  # the extreme points
    drift = ma.attention_drift(logits, bias)
    assert float(drift.max()) <= ma.drift_bound(epsilon) + 1e-12
    assert ma.drift_bound(epsilon) <= ma.paper_drift_bound(epsilon)
    assert bool((drift <= ma.range_drift_bound(bias) + 1e-12).all())


@pytest.mark.parametrize("epsilon", [1e-3, 0.05, 0.5, 1.5, 4.0])
def test_the_sharp_bound_is_attained(epsilon: float) -> None:
    """Two columns, b = ±ε, and the mass placed so that the two likelihood ratios balance."""
    up = 1 / (1 + math.exp(epsilon))
    logits = torch.tensor([math.log(up), math.log(1 - up)], dtype=torch.float64)
    drift = ma.attention_drift(logits, torch.tensor([epsilon, -epsilon], dtype=torch.float64))
    assert drift.item() == pytest.approx(ma.drift_bound(epsilon), abs=1e-6)
    assert drift.item() < ma.paper_drift_bound(epsilon)


def test_bounds_take_tensors() -> None:
    epsilon = torch.tensor([0.0, 0.1, 2.0])
    torch.testing.assert_close(ma.drift_bound(epsilon), torch.tensor([ma.drift_bound(e) for e in epsilon.tolist()]))
    torch.testing.assert_close(
        ma.paper_drift_bound(epsilon), torch.tensor([ma.paper_drift_bound(e) for e in epsilon.tolist()])
    )


def test_bad_input() -> None:
    A = torch.randn(2, 3)
    cases = [
        (lambda: ma.column_bias(A[0]), ValueError, r"A must have shape \(B, K\), got \(3,\)"),
        (lambda: ma.column_bias(A, beta=math.nan), ValueError, "beta must be in"),
        (lambda: ma.column_bias(A, beta="big"), TypeError, "beta must be a number"),
        (lambda: ma.column_bias(A, beta=torch.zeros(1, 1, 1)), ValueError, r"\(layers, heads\), got \(1, 1, 1\)"),
        (lambda: ma.column_bias(A, clip=0.0), ValueError, "clip must be in"),
        (lambda: ma.column_bias(A, columns=torch.ones(9, dtype=torch.bool)), ValueError, "attractions, 3, got 9"),
        (lambda: spread_columns(A, torch.ones(9)), ValueError, "columns must be a bool selector"),
        (lambda: ma.now_bias(A), ValueError, r"\(B, K, K\)"),
        (lambda: ma.drift_bound(-0.1), ValueError, "epsilon must be in"),
        (lambda: ma.BiasScale(math.inf), ValueError, "beta must be in"),
        (lambda: ma.BiasScale(0.1, heads=0), ValueError, "heads must be at least 1"),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=message):
            call()
