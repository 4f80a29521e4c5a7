"""The accounts during an episode: codes, all balances after every step, and the routing error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mental_accounts.accounts import Books, Codebook, Entry
from mental_accounts.learning.episodes import Episode
from mental_accounts.policy import DecisionTransformer
from mental_accounts.spaces import ActionScale

Array = NDArray[Any]
MOST_CODES = 1024
"""Accounts kept from a larger codebook: the ones posted most. Accounts that are never posted stay at 0."""
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
    centers: Array  # (C, dim) or (C, 1) in the environment's units; NaN in undetermined dimensions
    cube: Array | None  # (bins, bins, bins) indices into `numbers` by third, second, first dimension, -1: none
    cube_dimensions: tuple[int, ...]  # the three dimensions of the cube, counted from 0


def unit_actions(policy: DecisionTransformer, episode: Episode) -> Tensor:
    """An episode's actions in [-1, 1], (T, dim), or counted from 0, (T,)."""
    return policy.action_scale.to_unit(torch.from_numpy(np.asarray(episode.actions)).to(policy.device))


def entry_of(policy: DecisionTransformer, books: Books, episode: Episode) -> tuple[Entry, Tensor, Tensor]:
    """The entries of an episode's T steps, their actions in [-1, 1], and their payoffs (T,)."""
    actions = unit_actions(policy, episode)
    states = torch.from_numpy(episode.observations).to(policy.device)
    last = torch.arange(len(episode), device=policy.device) == len(episode) - 1
    rewards = torch.from_numpy(episode.rewards).to(policy.device)
    payoffs = books.transform(books.amounts_of_runs(rewards, states, last))
    return books.route_step(actions, states), actions, payoffs


def posted_codes(policy: DecisionTransformer, books: Books, episode: Episode) -> Tensor:
    """The codes of T steps, (T, groups) int64."""
    return books.grouped(entry_of(policy, books, episode)[0].codes)


def keep_codes(scale: ActionScale, books: Books, posted: Sequence[Array]) -> Codes:
    """All codes of a small codebook; for a large one, those that the episodes, (T, groups) each, posted most."""
    book, total = books.codebook, books.num_codes
    numbers = np.arange(min(total, MOST_CODES))
    if total > MOST_CODES:
        found, counts = np.unique(np.concatenate([codes.ravel() for codes in posted]), return_counts=True)
        numbers = np.sort(found[np.argsort(-counts, kind="stable")[:MOST_CODES]])
    cube, dimensions = _cube(book, numbers) if books.state_codes is None else (None, ())
    centers = _centers(book, scale, numbers % book.num_codes)  # the same for every cluster of states
    return Codes(book.kind, total, numbers, centers, cube, dimensions)


def accounts_of(policy: DecisionTransformer, books: Books, episode: Episode, balances: Array) -> EpisodeAccounts:
    """The accounts of an episode, given its balances (T, C)."""
    entry, actions, payoffs = entry_of(policy, books, episode)
    codes = books.grouped(entry.codes)
    error = books.routing_error(actions, entry).float()
    return EpisodeAccounts(codes.cpu().numpy(), payoffs.cpu().numpy(), balances, error.cpu().numpy())


def _centers(book: Codebook, scale: ActionScale, numbers: Array) -> Array:
    """The actions that codes stand for, in the environment's units, (C, dim), or (C, 1) if actions are discrete."""
    if scale.spec.is_discrete:
        offsets, first = scale.offsets.cpu().numpy(), scale.first.reshape(-1).cpu().numpy()
        which = np.searchsorted(offsets, numbers, side="right") - 1  # the number of the action that has this value
        found = np.full((len(numbers), len(offsets)), np.nan)
        found[np.arange(len(numbers)), which] = numbers - offsets[which] + first[which]
        return found
    codes = torch.from_numpy(numbers).to(scale.low.device)
    centers: Array = scale.from_unit(book.center_of(codes)).double().cpu().numpy()
    return np.where(book.determines(codes).cpu().numpy(), centers, np.nan)


def _cube(book: Codebook, numbers: Array) -> tuple[Array | None, tuple[int, ...]]:
    """The codes of a grid as a cube of slices, if they differ in exactly three dimensions."""
    places = book.digits(torch.from_numpy(numbers))
    if places is None or len(numbers) < book.num_codes:
        return None, ()
    digits = places.cpu().numpy()
    varying = tuple(int(d) for d in np.flatnonzero(np.ptp(digits, axis=0)))
    if len(varying) != CUBE_DIMENSIONS:
        return None, ()
    bins = int(digits.max()) + 1
    cube = np.full((bins,) * CUBE_DIMENSIONS, -1)
    x, y, z = digits[:, varying].T
    cube[z[::-1], y[::-1], x[::-1]] = np.arange(len(numbers))[::-1]  # codes beyond the last cell repeat the first ones
    return cube, varying
