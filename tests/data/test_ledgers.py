"""Windows know all balances of the whole trajectory before each of their steps, though the store keeps few of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mental_accounts.accounts import (
    EWA,
    Books,
    CanonicalEWA,
    GridCodebook,
    HierarchicalCodebook,
    RewardTransform,
    StateBaseline,
    StateCodes,
)
from mental_accounts.data.annotation import SNAPSHOT_STEPS
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.data.windows import WindowSampler


def make_store(lengths: list[int], seed: int = 0, capacity: int | None = None) -> Trajectories:
    rng = np.random.default_rng(seed)
    N = sum(lengths)
    return Trajectories.from_steps(
        rng.normal(size=(N, 2)).astype("f4"), rng.uniform(-1, 1, size=(N, 2)).astype("f4"),
        rng.normal(size=N).astype("f4"), lengths=lengths, terminated=[True] * len(lengths),
        truncated=[False] * len(lengths), capacity=capacity,
    )  # fmt: skip


def make_books(kind: str) -> Books:
    torch.manual_seed(0)
    states, rewards = torch.randn(100, 2), torch.randn(100)
    transform = RewardTransform("standardised", 0.1, 1.5, clip=1.0)
    if kind == "soft":
        return Books(GridCodebook(2, 3), EWA(0.1, 0.7), transform, soft_codes=3)
    if kind == "hierarchical":
        return Books(HierarchicalCodebook(2, (2, 5)), EWA(0.1, 0.7), transform)
    if kind == "states":
        clusters, baseline = StateCodes(3, 2), StateBaseline(2)
        clusters.fit(states)
        baseline.fit(states, rewards)
        return Books(GridCodebook(2, 3), EWA(0.1, 0.7), transform, state_codes=clusters, baseline=baseline)
    if kind == "canonical":
        return Books(GridCodebook(2, 3), CanonicalEWA(0.1, 0.2, 0.5), transform)
    return Books(GridCodebook(2, 3), EWA(0.1, 0.7), transform)


def by_posting(store: Trajectories, books: Books) -> torch.Tensor:
    """All balances before every step of the store, one post after the other: (N, num_codes)."""
    found = []
    for trajectory in store:
        ledger = books.ledger(1, torch.device("cpu"))
        for t in range(len(trajectory)):
            found.append(ledger.attractions[0].clone())
            part = slice(t, t + 1)
            entry = books.route_step(trajectory.actions[part], trajectory.observations[part])
            books.post(ledger, entry, books.payoffs(trajectory.rewards[part], trajectory.observations[part]))
    return torch.stack(found)


@pytest.mark.parametrize("kind", ["plain", "soft", "hierarchical", "states", "canonical"])
def test_ledgers_of_windows_are_those_of_the_trajectory(kind: str) -> None:
    store, books = make_store([1, 15, 16, 17, 31, 33, 70, 5]), make_books(kind)
    store.annotate_by(books, balances=True)
    expected = by_posting(store, books)
    sampler = WindowSampler(store, 1, 6, torch.Generator())
    remaining = store.storage.rows("remaining")
    for row in range(store.steps):
        window = sampler.at(torch.tensor([row]))
        steps = min(6, int(remaining[row]))
        assert window.balances is not None
        torch.testing.assert_close(window.balances[0, 6 - steps :], expected[row : row + steps], rtol=1e-4, atol=1e-5)
        assert (window.balances[0, : 6 - steps] == 0).all()


@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 3 * SNAPSHOT_STEPS), min_size=1, max_size=5),
    K=st.integers(1, 8),
    scope=st.sampled_from(["trajectory", "window"]),
    seed=st.integers(0, 9),
)
def test_for_any_lengths_and_both_scopes(lengths: list[int], K: int, scope: str, seed: int) -> None:
    store, books = make_store(lengths, seed), make_books("plain")
    store.annotate_by(books, balances=True)
    whole = by_posting(store, books)
    windows = WindowSampler(store, 16, K, torch.Generator().manual_seed(seed), scope)
    first = torch.randint(store.steps, (16,), generator=torch.Generator().manual_seed(seed))
    found = windows.at(first)
    assert found.balances is not None
    for n, row in enumerate(first.tolist()):
        steps = int(found.mask[n].sum())
        if scope == "trajectory":
            expected = whole[row : row + steps]
        else:
            ledger, before = books.ledger(1, torch.device("cpu")), []
            for t in range(row, row + steps):
                before.append(ledger.attractions[0].clone())
                books.post(ledger, books.route_step(store.actions[t : t + 1]), books.payoffs(store.rewards[t : t + 1]))
            expected = torch.stack(before)
        torch.testing.assert_close(found.balances[n, K - steps :], expected, rtol=1e-4, atol=1e-5)


def test_snapshots_move_with_their_steps_and_new_trajectories_have_them() -> None:
    store, books = make_store([40, 20, 50], capacity=150), make_books("plain")
    store.annotate_by(books, balances=True)
    store.evict(1)
    fresh = make_store([45, 33], seed=5)
    for trajectory in fresh:
        store.append(trajectory.observations, trajectory.actions, trajectory.rewards, terminated=True)
    store.evict(1)
    chosen = store.select(torch.tensor([2, 0]))
    for held in (store, chosen):
        expected = by_posting(held, books)
        sampler = WindowSampler(held, held.steps, 1, torch.Generator())
        found = sampler.at(torch.arange(held.steps) + held.storage.first)
        torch.testing.assert_close(found.balances[:, 0], expected, rtol=1e-4, atol=1e-5)


def test_without_ledgers_nothing_is_kept_for_them() -> None:
    store, books = make_store([40]), make_books("plain")
    store.annotate_by(books)
    assert "snapshots" not in store.storage.columns
    assert WindowSampler(store, 2, 4, torch.Generator())().balances is None
    kept = make_store([4000])
    kept.annotate_by(Books(GridCodebook(2, 27), EWA()), balances=True)
    column = kept.storage.columns["snapshots"]
    assert column.shape[1] == -(-(27**2) // SNAPSHOT_STEPS)  # not 729 numbers a step
