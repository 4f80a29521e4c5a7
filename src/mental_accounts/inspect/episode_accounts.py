"""What the accounts held during an episode: codes, all balances after every step, and how well codes fit actions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mental_accounts.accounts import (
    Codebook,
    DiscreteCodebook,
    Entry,
    GridCodebook,
    HierarchicalCodebook,
    ProductCodebook,
)
from mental_accounts.accounts.scan import sums_before
from mental_accounts.learning.episodes import Episode
from mental_accounts.policy import DecisionTransformer
from mental_accounts.policy.accounting import Accounting
from mental_accounts.spaces import ActionScale

Array = NDArray[Any]
MOST_CODES = 1024
"""Accounts that are kept of a larger codebook: the ones posted most. Accounts never posted stay at 0."""
CUBE_DIMENSIONS = 3


@dataclass(frozen=True)
class EpisodeAccounts:
    """The accounts of one episode of T steps; C accounts are kept, in the order of `Codes.numbers`."""

    codes: Array  # (T, groups) int64: the codes posted; one group unless the codebook is a product
    payoffs: Array  # (T,): the rewards as they were posted
    balances: Array  # (T, C): right after each step was posted
    routing_error: Array  # (T,): distance from the action to what its codes stand for, in [-1, 1] per dimension


@dataclass(frozen=True)
class Codes:
    """The codes that were kept, and what they stand for."""

    kind: str
    total: int
    numbers: Array  # (C,) int64, ascending; all codes, or those posted most
    centers: Array  # (C, dim) or (C, 1) in the environment's units; NaN in dimensions a code says nothing of
    cube: Array | None  # (bins, bins, bins) places in `numbers` by third, second, first dimension, -1: none; or None
    cube_dimensions: tuple[int, ...]  # the three dimensions of the cube, counted from 0


def entry_of(policy: DecisionTransformer, accounts: Accounting, episode: Episode) -> Entry:
    """Where the T steps of an episode are entered."""
    actions = torch.from_numpy(np.asarray(episode.actions)).to(policy.device)
    return accounts.enter(policy.actions.to_unit(actions), torch.from_numpy(episode.observations).to(policy.device))


def payoffs_of(policy: DecisionTransformer, accounts: Accounting, episode: Episode) -> Tensor:
    """What is entered, (T,)."""
    states = torch.from_numpy(episode.observations).to(policy.device)
    return accounts.payoffs(torch.from_numpy(episode.rewards).to(policy.device), states)


def posted_codes(accounts: Accounting, entry: Entry) -> Tensor:
    """The codes of T steps, (T, groups) int64."""
    return entry.codes if accounts.code_shape else entry.codes.unsqueeze(-1)


def keep_codes(policy: DecisionTransformer, accounts: Accounting, posted: Sequence[Array]) -> Codes:
    """All codes of a small codebook; of a large one those that the episodes, (T, groups) each, posted most."""
    book, total = accounts.codebook, accounts.num_codes
    numbers = np.arange(min(total, MOST_CODES))
    if total > MOST_CODES:
        found, counts = np.unique(np.concatenate([codes.ravel() for codes in posted]), return_counts=True)
        numbers = np.sort(found[np.argsort(-counts, kind="stable")[:MOST_CODES]])
    cube, dimensions = _cube(book, numbers) if accounts.state_codes is None else (None, ())
    centers = _centers(book, policy.actions, numbers % book.num_codes)  # of every cluster of states the same
    return Codes(book.kind, total, numbers, centers, cube, dimensions)


def accounts_of(policy: DecisionTransformer, accounts: Accounting, episode: Episode, numbers: Array) -> EpisodeAccounts:
    """Post an episode step by step."""
    entry = entry_of(policy, accounts, episode)
    codes, weights = posted_codes(accounts, entry), entry.weights
    payoffs = payoffs_of(policy, accounts, episode)
    used, places = torch.unique(codes, return_inverse=True)  # accounts never posted are 0 throughout
    if accounts.config.account_scope == "trajectory":
        ledger = accounts.rule.ledger(len(used), (), device=codes.device)
        balances = []
        for t, (place, payoff) in enumerate(zip(places, payoffs, strict=True)):
            ledger.post(place, payoff, weights=None if weights is None else weights[t])
            balances.append(ledger.attractions.clone())
        held = torch.stack(balances)
    else:
        held = _window_balances(accounts, Entry(places, weights), payoffs, policy.config.account_window - 1, len(used))
    kept = np.zeros((len(codes), len(numbers)), dtype=np.float32)
    there = np.isin(used.cpu().numpy(), numbers)
    kept[:, np.searchsorted(numbers, used.cpu().numpy()[there])] = held.cpu().numpy()[:, there]
    return EpisodeAccounts(
        codes.cpu().numpy(), payoffs.cpu().numpy(), kept, _routing_error(policy, accounts, episode, entry)
    )


def _window_balances(accounts: Accounting, entry: Entry, payoffs: Tensor, posts: int, num_codes: int) -> Tensor:
    """Balances after each step, (T, codes), where every window starts at zero and holds the last `posts` steps.

    The window that comes next has one step more, which has not been paid yet.
    """
    T = len(payoffs)
    if posts == 0:
        return torch.zeros(T, num_codes, device=payoffs.device)
    steps = torch.arange(T, device=payoffs.device).unsqueeze(1) + torch.arange(1 - posts, 1, device=payoffs.device)
    mask = steps >= 0  # (T, posts)
    steps = steps.clamp(min=0)
    weights = 1.0 if entry.weights is None else entry.weights[steps]
    paid = payoffs[steps].masked_fill(~mask, 0.0)
    entered = accounts.rule.entered(paid).unsqueeze(-1).expand(entry.codes[steps].shape) * weights
    start = torch.zeros(T, num_codes, device=payoffs.device)
    place = torch.full((T, 1), posts, device=payoffs.device)  # after all of them
    sums = sums_before(start, entry.codes[steps], entered, place, accounts.rule.phi)
    return accounts.rule.balances_of(sums, mask.sum(dim=1, keepdim=True)).squeeze(1)


def _routing_error(policy: DecisionTransformer, accounts: Accounting, episode: Episode, entry: Entry) -> Array:
    book = accounts.codebook
    if isinstance(book, DiscreteCodebook):
        return np.zeros(len(episode), dtype=np.float32)
    centers = _center_of(book, posted_codes(accounts, entry) % book.num_codes)  # (T, groups, dim)
    if entry.weights is not None:
        stands_for = (centers * entry.weights.unsqueeze(-1)).sum(dim=1)
    elif isinstance(book, HierarchicalCodebook):
        stands_for = centers[:, -1]  # the finest
    else:
        stands_for = centers.sum(dim=1)  # the centres of a product's codes add up
    actions = policy.actions.to_unit(torch.from_numpy(np.asarray(episode.actions)).to(policy.device))
    away = actions - stands_for.to(actions.device)
    distance: Array = torch.linalg.vector_norm(away, dim=-1).float().cpu().numpy()
    return distance


def _center_of(book: Codebook, codes: Tensor) -> Tensor:
    """The centres of codes in [-1, 1], (...) -> (..., dim)."""
    if isinstance(book, GridCodebook):
        return book.center_of(codes)
    assert book.centers is not None  # only a grid can be too large to list
    return book.centers[codes]


def _centers(book: Codebook, scale: ActionScale, numbers: Array) -> Array:
    if isinstance(book, DiscreteCodebook):
        return np.asarray(numbers[:, None] + scale.spec.start, dtype=np.float64)
    units = _center_of(book, torch.from_numpy(numbers).to(scale.low.device))
    centers: Array = scale.from_unit(units).double().cpu().numpy()
    if isinstance(book, ProductCodebook):
        first = 0
        for dimensions in np.array_split(np.arange(book.dim), book.groups):  # splits as the codebook does
            last = first + book.bins ** len(dimensions)
            others = np.setdiff1d(np.arange(book.dim), dimensions)
            centers[np.ix_((numbers >= first) & (numbers < last), others)] = np.nan
            first = last
    return centers


def _cube(book: Codebook, numbers: Array) -> tuple[Array | None, tuple[int, ...]]:
    """Where the codes of a grid differ in three dimensions: their places as a cube of slices."""
    if not isinstance(book, GridCodebook) or len(numbers) < book.num_codes:
        return None, ()
    centers = _center_of(book, torch.from_numpy(numbers)).cpu().numpy()
    digits = np.rint((centers + 1) * (book.bins - 1) / 2).astype(int)
    varying = tuple(int(d) for d in np.flatnonzero(np.ptp(digits, axis=0)))
    if len(varying) != CUBE_DIMENSIONS:
        return None, ()
    cube = np.full((book.bins,) * CUBE_DIMENSIONS, -1)
    x, y, z = digits[:, varying].T
    cube[z[::-1], y[::-1], x[::-1]] = np.arange(len(numbers))[::-1]  # codes beyond the last cell repeat the first ones
    return cube, varying
