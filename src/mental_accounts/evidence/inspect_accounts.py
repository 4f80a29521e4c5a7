"""What the accounts held during an episode: codes, all balances after every step, and how well codes fit actions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mental_accounts.accounts import Codebook, DiscreteCodebook, GridCodebook, ProductCodebook
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


def posted_codes(policy: DecisionTransformer, accounts: Accounting, actions: Tensor) -> Tensor:
    """Actions in the environment's units, (T, dim) or (T,) -> (T, groups) int64."""
    codes = accounts.codebook.route(policy.actions.to_unit(actions))
    return codes if codes.ndim == 2 else codes.unsqueeze(-1)


def keep_codes(policy: DecisionTransformer, accounts: Accounting, posted: Sequence[Array]) -> Codes:
    """All codes of a small codebook; of a large one those that the episodes, (T, groups) each, posted most."""
    book = accounts.codebook
    numbers = np.arange(min(book.num_codes, MOST_CODES))
    if book.num_codes > MOST_CODES:
        found, counts = np.unique(np.concatenate([codes.ravel() for codes in posted]), return_counts=True)
        numbers = np.sort(found[np.argsort(-counts, kind="stable")[:MOST_CODES]])
    cube, dimensions = _cube(book, numbers)
    return Codes(book.kind, book.num_codes, numbers, _centers(book, policy.actions, numbers), cube, dimensions)


def accounts_of(
    policy: DecisionTransformer, accounts: Accounting, actions: Tensor, rewards: Tensor, numbers: Array
) -> EpisodeAccounts:
    """Post an episode, (T, dim) or (T,), and (T,), step by step."""
    codes = posted_codes(policy, accounts, actions)
    payoffs = accounts.transform(rewards)
    used, places = torch.unique(codes, return_inverse=True)  # accounts never posted are 0 throughout
    if accounts.config.account_scope == "trajectory":
        ledger = accounts.rule.ledger(len(used), (), device=codes.device)
        balances = []
        for place, payoff in zip(places, payoffs, strict=True):
            ledger.post(place, payoff)
            balances.append(ledger.attractions.clone())
        held = torch.stack(balances)
    else:
        held = _window_balances(accounts, places, payoffs, policy.config.acting_context - 1, len(used))
    kept = np.zeros((len(codes), len(numbers)), dtype=np.float32)
    there = np.isin(used.cpu().numpy(), numbers)
    kept[:, np.searchsorted(numbers, used.cpu().numpy()[there])] = held.cpu().numpy()[:, there]
    return EpisodeAccounts(
        codes.cpu().numpy(), payoffs.cpu().numpy(), kept, _routing_error(policy, accounts, actions, codes)
    )


def _window_balances(accounts: Accounting, codes: Tensor, payoffs: Tensor, posts: int, num_codes: int) -> Tensor:
    """Balances after each step, (T, codes), where every window starts at zero and holds the last `posts` steps.

    The window that comes next has one step more, which has not been paid yet.
    """
    T = len(payoffs)
    if posts == 0:
        return torch.zeros(T, num_codes, device=payoffs.device)
    steps = torch.arange(T, device=payoffs.device).unsqueeze(1) + torch.arange(1 - posts, 1, device=payoffs.device)
    mask = steps >= 0  # (T, posts)
    steps = steps.clamp(min=0)
    # A product codebook has several codes a step, which the closed form takes as one more dimension.
    windows = codes[steps] if accounts.codebook.code_shape else codes[steps].squeeze(-1)
    return accounts.rule.closed_form(windows, payoffs[steps], num_codes, mask=mask)


def _routing_error(policy: DecisionTransformer, accounts: Accounting, actions: Tensor, codes: Tensor) -> Array:
    book = accounts.codebook
    if isinstance(book, DiscreteCodebook):
        return np.zeros(len(codes), dtype=np.float32)
    stands_for = _center_of(book, codes).sum(dim=1)  # the centres of a product's codes add up
    away = policy.actions.to_unit(actions) - stands_for.to(actions.device)
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
