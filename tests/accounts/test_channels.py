"""What a ledger tells beside balances: visits and mean payoffs, live and in windows, and as in NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mental_accounts as ma
from mental_accounts.accounts import Books, DiscreteCodebook, GridCodebook, RewardTransform, StateBaseline, StateCodes
from mental_accounts.channels import CHANNELS, check_channels
from mental_accounts.errors import UsageError
from mental_accounts.integrations.numpy_ledger import NumpyLedger, RuleNumbers

RULES = [ma.EWA(0.1, 0.7), ma.EWA(0.2, 0.0), ma.CanonicalEWA(0.1, 0.3, 0.5)]


@settings(deadline=None, max_examples=40)
@given(
    rule=st.sampled_from(RULES),
    channels=st.permutations(CHANNELS).flatmap(lambda all: st.integers(1, 3).map(lambda n: tuple(all[:n]))),
    T=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_a_ledger_of_torch_tells_what_that_of_numpy_does(
    rule: ma.EWA | ma.CanonicalEWA, channels: tuple[str, ...], T: int, seed: int
) -> None:
    M, chance = 5, np.random.default_rng(seed)
    codes, payoffs = chance.integers(M, size=(T, 2)), chance.normal(size=(T, 2)).astype("f4")
    books = Books(DiscreteCodebook(M), rule, RewardTransform("raw"), channels=channels)
    numbers = RuleNumbers(rule.phi, rule.delta, getattr(rule, "rho", None))
    live, other = books.ledger(2), NumpyLedger(M, 2, numbers)
    entry, paid = books.route_step(torch.from_numpy(codes.T)), torch.from_numpy(payoffs.T)  # (2, T)
    in_windows = books.told_in_windows(entry, paid, torch.ones(2, T, dtype=torch.bool))
    for t in range(T):
        parts = [other.read(channel) * (rule.unit if channel == "balance" else 1.0) for channel in channels]
        expected = np.concatenate(parts, axis=-1)
        np.testing.assert_allclose(books.told_by(live).numpy(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(in_windows[:, t].numpy(), expected, rtol=1e-5, atol=1e-6)
        books.post(live, books.route_step(torch.from_numpy(codes[t])), torch.from_numpy(payoffs[t]))
        other.post(codes[t][:, None], payoffs[t].astype(float))


def test_what_they_say() -> None:
    books = Books(DiscreteCodebook(3), ma.EWA(0.5, 1.0), channels=("count", "mean"))
    assert books.ledger_size == 6
    ledger = books.ledger(1)
    for code, payoff in ((1, 2.0), (1, 4.0), (2, -1.0)):
        books.post(ledger, books.route_step(torch.tensor([code])), torch.tensor([payoff]))
    counts = [0.0, 0.75, 1.0]
    means = [0.0, (0.25 * 2 + 0.5 * 4) / 0.75, -1.0]
    assert books.told_by(ledger)[0].tolist() == pytest.approx([1 - (1 + c) ** -0.5 for c in counts] + means)
    ledger.reset()
    assert (books.told_by(ledger) == 0).all()


def test_a_plain_ledger_counts_nothing() -> None:
    ledger = ma.EWA().ledger(4, (2,))
    assert ledger.counts is None
    assert ledger.paid is None
    assert list(dict(ledger.named_buffers())) == ["attractions"]


def test_inactive_actors_and_weights() -> None:
    ledger = ma.EWA(0.5, 1.0).ledger(3, (2,), visits=True)
    codes, weights = torch.tensor([[0, 1], [1, 2]]), torch.tensor([[0.75, 0.25], [0.5, 0.5]])
    ledger.post(codes, torch.tensor([4.0, 8.0]), weights=weights)
    ledger.post(codes, torch.tensor([4.0, 8.0]), torch.tensor([True, False]), weights)
    assert ledger.counts is not None
    assert ledger.paid is not None
    assert ledger.counts.tolist() == [[1.125, 0.375, 0.0], [0.0, 0.5, 0.5]]
    assert ledger.paid.tolist() == [[4.5, 1.5, 0.0], [0.0, 4.0, 4.0]]
    ledger.sort(torch.tensor([1, 1]))
    assert ledger.counts.tolist() == [[0.0, 0.5, 0.5]] * 2


def test_a_mean_is_of_payoffs_received_not_of_foregone_ones() -> None:
    rule = ma.CanonicalEWA(0.5, 0.5, 1.0)
    books = Books(DiscreteCodebook(2), rule, channels=CHANNELS, foregone=True)
    ledger = books.ledger(1)
    books.post(ledger, books.route_step(torch.tensor([0])), torch.tensor([1.0]), foregone=torch.tensor([[9.0, -3.0]]))
    balance, count, mean = books.told_by(ledger)[0].split(2)
    N = 0.5 * 1 + 1
    assert balance.tolist() == pytest.approx([1 / N, -3 / N])
    assert count.tolist() == pytest.approx([1 - 2**-0.5, 0])
    assert mean.tolist() == [1.0, 0.0]


def test_refused_in_words() -> None:
    for wrong in ((), ("balance", "balance"), ("mode",), "mean", (["mean"],)):
        with pytest.raises(UsageError, match="channels must be"):
            check_channels(wrong)  # type: ignore[arg-type]
    canonical = ma.CanonicalEWA(0.1, 0.1, 0.5)
    for books in (
        {"codebook": DiscreteCodebook(3), "rule": ma.EWA(), "foregone": True},
        {"codebook": ma.ProductCodebook(2, 2, 3), "rule": canonical, "foregone": True},
        {"codebook": DiscreteCodebook(3), "rule": canonical, "foregone": True, "reward_delay": 2},
        {"codebook": DiscreteCodebook(3), "rule": canonical, "foregone": True, "state_codes": StateCodes(2, 2)},
    ):
        with pytest.raises(ValueError, match="foregone payoffs need"):
            Books(**books)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs rewards on time"):
        Books(GridCodebook(2, 3), ma.EWA(), baseline=StateBaseline(2), reward_delay=1)
    with pytest.raises(ValueError, match="reward_delay"):
        Books(GridCodebook(2, 3), ma.EWA(), reward_delay=-1)
