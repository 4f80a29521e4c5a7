"""Windows know what the whole trajectory's ledger tells before each step, though little of it is stored."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mental_accounts.accounts import (
    EWA,
    Books,
    CanonicalEWA,
    DiscreteCodebook,
    GridCodebook,
    HierarchicalCodebook,
    RewardTransform,
    StateBaseline,
    StateCodes,
)
from mental_accounts.channels import CHANNELS
from mental_accounts.data.annotation import SNAPSHOT_STEPS
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.data.trajectory import Trajectory
from mental_accounts.data.windows import WindowSampler
from mental_accounts.errors import DataError


def make_store(lengths: list[int], seed: int = 0, capacity: int | None = None, arms: int | None = None) -> Trajectories:
    """Random trajectories; with `arms`, of discrete actions whose foregone rewards are known."""
    rng = np.random.default_rng(seed)
    N = sum(lengths)
    actions = rng.uniform(-1, 1, size=(N, 2)).astype("f4") if arms is None else rng.integers(arms, size=N)
    return Trajectories.from_steps(
        rng.normal(size=(N, 2)).astype("f4"), actions,
        rng.normal(size=N).astype("f4"), lengths=lengths, terminated=[True] * len(lengths),
        truncated=[False] * len(lengths), capacity=capacity,
        foregone=None if arms is None else rng.normal(size=(N, arms)),
    )  # fmt: skip


def make_books(kind: str) -> Books:
    torch.manual_seed(0)
    states, rewards = torch.randn(100, 2), torch.randn(100)
    transform = RewardTransform("standardised", 0.1, 1.5, clip=1.0)
    if kind == "soft":
        return Books(GridCodebook(2, 3), EWA(0.1, 0.7), transform, soft_codes=3)
    if kind == "counts":
        return Books(GridCodebook(2, 3), EWA(0.1, 0.7), transform, channels=("count", "mean"))
    if kind == "late":
        return Books(GridCodebook(2, 3), EWA(0.1, 0.7), transform, channels=CHANNELS, reward_delay=3)
    if kind == "late soft":
        rule = CanonicalEWA(0.1, 0.2, 0.5)
        return Books(GridCodebook(2, 3), rule, transform, soft_codes=3, channels=("mean", "balance"), reward_delay=20)
    if kind == "foregone":
        rule = CanonicalEWA(0.1, 0.2, 0.5)
        return Books(DiscreteCodebook(4), rule, transform, channels=CHANNELS, foregone=True)
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


def post_steps(
    books: Books, held: Trajectories | Trajectory, begin: int, end: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Steps posted one after the other: what the ledger told before each, and the attractions of its codes after."""
    ledger, before, after = books.ledger(1, torch.device("cpu")), [], []
    for t in range(begin, end):
        before.append(books.told_by(ledger)[0].clone())
        part, late = slice(t, t + 1), slice(t - books.reward_delay, t - books.reward_delay + 1)
        payoffs = books.payoffs(held.rewards[part], held.observations[part])
        own = entry = books.route_step(held.actions[part], held.observations[part])
        age = foregone = None
        if books.reward_delay:
            came = late.start >= begin
            entry = books.route_step(held.actions[late], held.observations[late]) if came else own
            age = torch.tensor([books.reward_delay if came else -1])
        if books.foregone:
            assert held.foregone is not None
            foregone = books.foregone_payoffs(held.foregone[part])
        books.post(ledger, entry, payoffs, age=age, foregone=foregone)
        after.append(ledger.read(own.codes)[0].clone())
    return before, after


def by_posting(store: Trajectories, books: Books) -> tuple[Tensor, Tensor]:
    """What ledgers tell before every step of the store, (N, ledger_size), and attractions right after it."""
    found = [post_steps(books, trajectory, 0, len(trajectory)) for trajectory in store]
    return (
        torch.stack([told for before, _ in found for told in before]),
        torch.stack([held for _, after in found for held in after]),
    )


KINDS = ["plain", "soft", "hierarchical", "states", "canonical", "counts", "late", "late soft", "foregone"]


@pytest.mark.parametrize("kind", KINDS)
def test_ledgers_of_windows_are_those_of_the_trajectory(kind: str) -> None:
    store, books = make_store([1, 15, 16, 17, 31, 33, 70, 5], arms=4 if kind == "foregone" else None), make_books(kind)
    store.annotate_by(books, balances=True)
    expected, attractions = by_posting(store, books)
    assert store.attractions is not None
    torch.testing.assert_close(store.attractions, attractions, rtol=1e-4, atol=1e-5)
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
    kind=st.sampled_from(["plain", "late", "foregone"]),
)
def test_for_any_lengths_and_both_scopes(lengths: list[int], K: int, scope: str, seed: int, kind: str) -> None:
    store, books = make_store(lengths, seed, arms=4 if kind == "foregone" else None), make_books(kind)
    store.annotate_by(books, balances=True)
    whole, attractions = by_posting(store, books)
    windows = WindowSampler(store, 16, K, torch.Generator().manual_seed(seed), scope)
    first = torch.randint(store.steps, (16,), generator=torch.Generator().manual_seed(seed))
    found = windows.at(first)
    assert found.balances is not None
    for n, row in enumerate(first.tolist()):
        steps = int(found.mask[n].sum())
        expected, after = whole[row : row + steps], attractions[row : row + steps]
        if scope == "window":
            expected, after = (torch.stack(held) for held in post_steps(books, store, row, row + steps))
        torch.testing.assert_close(found.balances[n, K - steps :], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.attractions[n, K - steps :], after, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "late", "foregone"])
def test_snapshots_move_with_their_steps_and_new_trajectories_have_them(kind: str) -> None:
    arms = 4 if kind == "foregone" else None
    store, books = make_store([40, 20, 50], capacity=150, arms=arms), make_books(kind)
    store.annotate_by(books, balances=True)
    store.evict(1)
    fresh = make_store([45, 33], seed=5, arms=arms)
    for trajectory in fresh:
        seen, taken, paid = trajectory.observations, trajectory.actions, trajectory.rewards
        store.append(seen, taken, paid, terminated=True, foregone=trajectory.foregone)
    store.evict(1)
    chosen = store.select(torch.tensor([2, 0]))
    for held in (store, chosen):
        expected, _ = by_posting(held, books)
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


def test_foregone_rewards_are_kept_with_their_steps(tmp_path: Path) -> None:
    store = make_store([3, 4, 5], arms=4)
    assert store.foregone is not None
    store.save(tmp_path / "store.safetensors")
    again = Trajectories.load(tmp_path / "store.safetensors")
    assert again.foregone is not None
    assert torch.equal(again.foregone, store.foregone)
    chosen = store.select(torch.tensor([1])).slice(0)
    assert chosen.foregone is not None
    assert torch.equal(chosen.foregone, store.foregone[3:7])


def test_foregone_rewards_that_do_not_fit() -> None:
    plain, known = make_store([5]), make_store([5], arms=4)
    with pytest.raises(DataError, match="the data have none"):
        plain.annotate_by(make_books("foregone"))
    with pytest.raises(DataError, match="foregone rewards are missing"):
        known.append(known.observations, known.actions, known.rewards, terminated=True)
    with pytest.raises(DataError, match="foregone must be"):
        known.append(known.observations, known.actions, known.rewards, terminated=True, foregone=np.zeros((5, 3)))
    given = {"lengths": [5], "terminated": [True], "truncated": [False]}
    with pytest.raises(DataError, match="actions are vectors"):
        Trajectories.from_steps(plain.observations, plain.actions, plain.rewards, **given, foregone=np.zeros((5, 4)))
    for wrong in (np.zeros(5), np.zeros((4, 4)), np.zeros((5, 4, 1))):
        with pytest.raises(DataError, match="foregone must have shape"):
            Trajectories.from_steps(known.observations, known.actions, known.rewards, **given, foregone=wrong)
    with pytest.raises(DataError, match="foregone"):
        Trajectories.from_steps(
            known.observations, known.actions, known.rewards, **given, foregone=np.full((5, 4), np.nan)
        )
