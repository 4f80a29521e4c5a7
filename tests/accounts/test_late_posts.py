"""Rewards that come late are posted to the step they belong to: live, in traces, and by a slow version alike."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import mental_accounts as ma

RULES = st.sampled_from(
    [ma.EWA(0.1, 0.7), ma.EWA(0.6, 1.0), ma.CanonicalEWA(0.2, 0.1, 0.4), ma.CanonicalEWA(0.1, 1.0, 0.0, 0.0)]
)


def slow(rule: ma.EWA | ma.CanonicalEWA, codes: list[int], rewards: list[float], delays: list[int], M: int) -> list:
    """All balances after every step, from the list of rewards that have arrived by then."""
    found = []
    for t in range(len(codes)):
        sums = [0.0] * M
        for arrived in range(t + 1):
            if delays[arrived] >= 0:
                taken = arrived - delays[arrived]
                sums[codes[taken]] += rewards[arrived] * (1 - rule.phi) ** (t - taken)
        if isinstance(rule, ma.EWA):
            found.append([rule.delta * value for value in sums])
        else:
            N = rule.initial_experience
            for _ in range(t + 1):
                N = (1 - rule.rho) * N + 1
            found.append([value / N for value in sums])
    return found


def made(T: int, M: int, seed: int, most: int) -> tuple[Tensor, Tensor, Tensor]:
    chance = torch.Generator().manual_seed(seed)
    codes = torch.randint(M, (2, T), generator=chance)
    rewards = torch.randn(2, T, generator=chance, dtype=torch.float64)
    delays = torch.randint(-1, most + 1, (2, T), generator=chance).minimum(torch.arange(T))
    return codes, rewards, delays


@settings(deadline=None)
@given(
    rule=RULES, T=st.sampled_from([1, 2, 5, 32, 33, 70]), seed=st.integers(0, 99), most=st.sampled_from([0, 1, 5, 60])
)
def test_traces_and_ledgers_of_late_rewards(rule: ma.EWA | ma.CanonicalEWA, T: int, seed: int, most: int) -> None:
    M = 4
    codes, rewards, delays = made(T, M, seed, most)
    literal = [
        slow(rule, c, r, d, M) for c, r, d in zip(codes.tolist(), rewards.tolist(), delays.tolist(), strict=True)
    ]
    after = torch.tensor(literal, dtype=torch.float64)  # (2, T, M)
    own = after.gather(-1, codes.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(rule.trace(codes, rewards, delays=delays), own, rtol=0, atol=1e-10)
    torch.testing.assert_close(rule.trace(codes, rewards, delays=delays, num_codes=M), own, rtol=0, atol=1e-10)
    ledger = rule.ledger(M, (2,), dtype=torch.float64)
    for t in range(T):
        belongs = (t - delays[:, t].clamp(min=0)).unsqueeze(-1)
        ledger.post(codes.gather(1, belongs).squeeze(-1), rewards[:, t], age=delays[:, t])
        torch.testing.assert_close(ledger.attractions, after[:, t], rtol=0, atol=1e-10)
        torch.testing.assert_close(ledger.read(codes[:, t]), own[:, t], rtol=0, atol=1e-10)


@settings(deadline=None)
@given(rule=RULES, seed=st.integers(0, 99), k=st.integers(1, 9))
def test_when_all_have_come_it_is_as_if_none_had_been_late(rule: ma.EWA | ma.CanonicalEWA, seed: int, k: int) -> None:
    codes, rewards, _ = made(20, 4, seed, 0)
    on_time = rule.ledger(4, (2,), dtype=torch.float64, visits=True)
    late = rule.ledger(4, (2,), dtype=torch.float64, visits=True)
    nothing, zero = torch.full((2,), -1), torch.zeros(2, dtype=torch.float64)
    for t in range(20 + k):
        if t < 20:
            on_time.post(codes[:, t], rewards[:, t])
        else:
            on_time.post(codes[:, 0], zero, age=nothing)
        if t < k:
            late.post(codes[:, 0], zero, age=nothing)
        else:
            late.post(codes[:, t - k], rewards[:, t - k], age=torch.full((2,), k))
    for name in ("attractions", "counts", "paid"):
        torch.testing.assert_close(getattr(late, name), getattr(on_time, name), rtol=0, atol=1e-10)


def test_padding_and_weights() -> None:
    rule, k = ma.EWA(0.3, 0.9), 2
    codes, rewards, _ = made(12, 4, 0, 0)
    codes = torch.stack([codes, (codes + 1) % 4], dim=-1)  # two codes per action
    weights = torch.tensor([0.7, 0.3], dtype=torch.float64).expand(2, 12, 2).contiguous()
    delays = torch.where(torch.arange(12) >= k, k, -1).expand(2, 12)
    plain = rule.trace(codes, rewards, delays=delays, weights=weights)
    pad = 5
    mask = (torch.arange(12 + pad) >= pad).expand(2, -1)
    padded = rule.trace(
        torch.nn.functional.pad(codes, (0, 0, pad, 0), value=3),
        torch.nn.functional.pad(rewards, (pad, 0), value=9.0),
        delays=torch.nn.functional.pad(delays, (pad, 0), value=0),
        weights=torch.nn.functional.pad(weights, (0, 0, pad, 0), value=1.0),
        mask=mask,
    )
    assert (padded[:, :pad] == 0).all()
    torch.testing.assert_close(padded[:, pad:], plain, rtol=0, atol=1e-12)
    swapped = rule.trace(codes.flip(-1), rewards, delays=delays, weights=weights.flip(-1))
    torch.testing.assert_close(swapped.flip(-1), plain, rtol=0, atol=1e-12)


def test_later_rewards_are_not_read_early() -> None:
    rule = ma.EWA(0.1, 0.8)
    codes, rewards, delays = made(30, 4, 3, 6)
    changed = rewards.clone()
    changed[:, 17:] += 100.0
    before, after = (rule.trace(codes, values, delays=delays) for values in (rewards, changed))
    assert torch.equal(before[:, :17], after[:, :17])


def test_refused_in_words() -> None:
    codes, rewards = torch.zeros(1, 4, dtype=torch.int64), torch.ones(1, 4)
    rule = ma.EWA()
    with pytest.raises(ValueError, match="reward of step 1 of trajectory 0 is said to be 2 steps late"):
        rule.trace(codes, rewards, delays=torch.tensor([[0, 2, 0, 0]]))
    with pytest.raises(ValueError, match="-2 steps late"):
        rule.trace(codes, rewards, delays=torch.tensor([[0, -2, 0, 0]]))
    with pytest.raises(ValueError, match="delays must be integers"):
        rule.trace(codes, rewards, delays=torch.zeros(1, 4))
    with pytest.raises(ValueError, match="delays must be integers"):
        rule.trace(codes, rewards, delays=torch.zeros(4, 1, dtype=torch.int64))
    ledger = rule.ledger(3, (2,))
    with pytest.raises(ValueError, match="age must be -1"):
        ledger.post(torch.zeros(2, dtype=torch.int64), torch.ones(2), age=torch.tensor([0, -2]))
    with pytest.raises(ValueError, match="age must be integers of shape"):
        ledger.post(torch.zeros(2, dtype=torch.int64), torch.ones(2), age=torch.zeros(2))
    canonical = ma.CanonicalEWA(0.1, 0.1, 0.5)
    with pytest.raises(ValueError, match="not both"):
        canonical.trace(codes, rewards, delays=torch.zeros_like(codes), foregone=torch.zeros(1, 4, 3))
    with pytest.raises(ValueError, match="not both"):
        canonical.ledger(3, (2,)).post(
            torch.zeros(2, dtype=torch.int64), torch.ones(2), foregone=torch.zeros(2, 3), age=torch.zeros(2).long()
        )
    with pytest.raises(ValueError, match="finite"):
        ledger.post(torch.zeros(2, dtype=torch.int64), torch.tensor([1.0, float("nan")]), age=torch.zeros(2).long())
    ledger.post(torch.tensor([0, 99]), torch.tensor([1.0, float("nan")]), age=torch.tensor([0, -1]))  # none came
    assert ledger.attractions.tolist() == [[pytest.approx(0.8), 0, 0], [0, 0, 0]]
