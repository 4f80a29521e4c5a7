"""The ledger in NumPy is that of PyTorch: routing, balances, counts, means."""

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import mental_accounts as ma
from mental_accounts.errors import UsageError
from mental_accounts.integrations.action_numbers import codebook_for, numbers_of
from mental_accounts.integrations.numpy_codebooks import GridCodes, codes_from_spec, codes_of
from mental_accounts.integrations.numpy_ledger import NumpyLedger, RuleNumbers
from mental_accounts.integrations.observed_ledger import ObservedLedger, rule_numbers

seeds = st.integers(0, 2**32 - 1)
shares = st.floats(0.001, 0.999)


def books(dim: int) -> list[ma.GridCodebook | ma.ProductCodebook]:
    centers = torch.rand(7, dim, generator=torch.Generator().manual_seed(0)) * 2 - 1
    made = [
        ma.GridCodebook(dim=dim, bins=3),
        ma.GridCodebook(dim=dim, bins=4, num_codes=3),
        ma.GridCodebook.algorithm2(dim=dim, num_codes=27),
        ma.HierarchicalCodebook(dim=dim, levels=(2, 5)),
        ma.KMeansCodebook(centers),
    ]
    return [*made, *(ma.ProductCodebook(dim=dim, groups=groups, bins=5) for groups in range(1, dim + 1))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=20)
@given(seed=seeds, dim=st.integers(1, 4))
def test_routing(dtype: type, seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    ties = rng.integers(-8, 9, (50, dim)) / 8  # on borders, too
    actions = np.concatenate([rng.uniform(-1, 1, (50, dim)), ties]).astype(dtype)
    space = spaces.Box(-1, 1, (dim,), dtype)
    for book in books(dim):
        expected = book.route(torch.from_numpy(actions)).numpy().reshape(100, -1)
        codes = codebook_for(space, numbers_of(space), book)
        assert np.array_equal(codes.route(actions), expected), book
        assert np.array_equal(codes_of(codes.spec()).route(actions), expected), book
        observed = ObservedLedger(space, space, 1, book, None, "raw", ("balance",), None, None, None)
        assert [observed.route_one(action) for action in actions] == expected.tolist(), book


@given(seed=seeds)
def test_routing_scales_as_policies_do(seed: int) -> None:
    from mental_accounts.spaces import ActionScale, action_spec_of

    rng = np.random.default_rng(seed)
    low = rng.uniform(-9, 3, 3).astype(np.float32)
    space = spaces.Box(low, low + rng.uniform(0.1, 9, 3).astype(np.float32))
    space.seed(seed)
    actions = np.stack([space.sample() for _ in range(50)])
    book = ma.GridCodebook(dim=3)
    expected = book.route(ActionScale(action_spec_of(space)).to_unit(torch.from_numpy(actions))).numpy()
    observed = ObservedLedger(space, space, 50, None, None, "raw", ("balance",), None, None, None)
    assert np.array_equal(observed.route(actions)[:, 0], expected)


@pytest.mark.parametrize(("n", "groups"), [(1, 1), (1, 2), (3, 1), (3, 2)])
@settings(max_examples=30)
@given(
    seed=seeds,
    phi=shares,
    delta=st.just(0.0) | st.floats(0.01, 1),
    rho=st.none() | st.floats(0, 1),
    begin=st.floats(0, 3),
)
def test_posting(n: int, groups: int, seed: int, phi: float, delta: float, rho: float | None, begin: float) -> None:
    rng = np.random.default_rng(seed)
    rule = ma.EWA(phi, delta) if rho is None else ma.CanonicalEWA(phi, rho, delta, begin)
    numbers = rule_numbers(rule, None, None)
    ours, fast, single = NumpyLedger(6, n, numbers), NumpyLedger(6, n, numbers), rule.ledger(6, (n,))
    double = rule.ledger(6, (n,), dtype=torch.float64)
    sums, counts = np.zeros((n, 6)), np.zeros((n, 6))
    for _ in range(25):
        codes = np.stack([rng.permutation(6)[:groups] for _ in range(n)])  # (n, groups)
        payoffs, active = rng.uniform(-1, 1, n), rng.random(n) < 0.7
        ours.post(codes, payoffs, active)
        for ledger in (single, double):
            ledger.post(torch.from_numpy(codes), torch.from_numpy(payoffs), torch.from_numpy(active))
        if n == 1 and active[0]:
            fast.post_one(codes[0].tolist(), float(payoffs[0]))
        for i in np.flatnonzero(active):
            sums[i], counts[i] = sums[i] * (1 - phi), counts[i] * (1 - phi)
            for code in codes[i]:
                sums[i, code] += payoffs[i]
                counts[i, code] += 1
        over = rng.random(n) < 0.05
        ours.reset(over)
        fast.reset(over)
        for ledger in (single, double):
            ledger.reset(torch.from_numpy(over))
        sums[over], counts[over] = 0, 0
        assert np.allclose(ours.attractions, double.attractions.numpy(), rtol=1e-9, atol=1e-12)
        most = numbers.unit * max(1.0, numbers.bound("balance", 1.0)[1])
        assert np.abs(ours.attractions - single.attractions.numpy()).max() <= 1e-6 * most
        assert np.allclose(ours.read("count"), 1 - 1 / np.sqrt(1 + counts))
        assert np.allclose(ours.read("mean"), np.where(counts > 0, sums / np.maximum(counts, 1e-30), 0))
        assert np.allclose(ours.read("balance"), ours.attractions / rule.unit)
        if n == 1:
            assert np.allclose(fast.attractions, ours.attractions)
            assert np.allclose(fast.counts, ours.counts)


@settings(max_examples=40)
@given(seed=seeds, phi=st.floats(1e-9, 0.999), rho=st.none() | st.floats(0, 1), begin=st.floats(0, 3))
def test_bounds_are_true(seed: int, phi: float, rho: float | None, begin: float) -> None:
    rng = np.random.default_rng(seed)
    rule = RuleNumbers(phi, 0.8, rho, begin)
    ledger = NumpyLedger(3, 2, rule)
    likes_extremes = rng.random() < 0.5
    for _ in range(100):
        payoffs = np.array([0.3, -0.3]) if likes_extremes else rng.uniform(-0.3, 0.3, 2)
        ledger.post(rng.integers(0, 2, (2, 1)), payoffs)
        for channel in ("balance", "count", "mean"):
            low, high = rule.bound(channel, 0.3)
            values = ledger.read(channel, 0.3)
            assert values.min() >= low
            assert values.max() <= high


def test_the_bounds_are_reached() -> None:
    for rule in (RuleNumbers(0.1), RuleNumbers(0.1, 0.5, 0.1), RuleNumbers(0.1, 0.5, 0.8), RuleNumbers(0.2, 0.5, 0.05)):
        ledger = NumpyLedger(1, 1, rule)
        for _ in range(3000):
            ledger.post_one([0], 1.0)
        most = rule.bound("balance", 1.0)[1]
        assert ledger.read("balance")[0, 0] == pytest.approx(most if rule.rho != 0.05 else 0.05 / 0.2, rel=1e-3)


def test_accounts_that_nobody_touches_are_forgotten() -> None:
    ledger = NumpyLedger(2, 1, RuleNumbers(phi=0.5))
    ledger.post_one([0], 1.0)
    for _ in range(1000):
        ledger.post_one([1], 1.0)
    assert ledger.sums[0, 0] == ledger.counts[0, 0] == 0
    assert ledger.read("mean")[0].tolist() == [0, 1]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda ledger: pickle.loads(pickle.dumps(ledger))])
def test_copies_are_whole(copied: object) -> None:
    ledger = NumpyLedger(3, 2, RuleNumbers(0.1, 0.5, 0.2))
    for _ in range(3):
        ledger.post(np.array([[0], [2]]), np.array([1.0, -1.0]))
    other = copied(ledger)  # type: ignore[operator]
    for one in (ledger, other):
        one.post(np.array([[1], [2]]), np.array([1.0, 0.5]))
    assert np.array_equal(ledger.attractions, other.attractions)
    assert np.array_equal(ledger.counts, other.counts)


def test_codebooks_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="over 65536: take more groups"):
        GridCodes(dim=20)
    with pytest.raises(UsageError, match="is unknown; give the codebook itself"):
        codes_from_spec({"kind": "cube"})
    with pytest.raises(UsageError, match="not what a codebook's spec"):
        codes_from_spec({"kind": "product", "sides": 3})
    with pytest.raises(UsageError, match="fit them first"):
        codes_of(ma.KMeansCodebook.unfitted(3, 2))
    with pytest.raises(UsageError, match="codebook must be one such as"):
        codes_of("grid")
