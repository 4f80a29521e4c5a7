"""Decayed sums over whole trajectories: the building blocks of the update rules.

A trajectory is traced in chunks: inside a chunk every step is compared with every other by closed form, between chunks
only the balances are carried. Memory is O(steps), never O(steps × codes); nothing synchronises a GPU; everything can be
captured in a CUDA graph.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mental_accounts.accounts.entry import shares
from mental_accounts.accounts.ledger import Ledger
from mental_accounts.accounts.precision import full_precision
from mental_accounts.checks import check_codes, check_finite, looking_is_free

CHUNK_STEPS = 32
"""Steps compared with each other at once. A context of up to this length is traced without a loop."""


class Steps(NamedTuple):
    """Checked trajectories, with flattened batch dimensions. n counts the real steps so far, each step included."""

    codes: Tensor  # (B, T, G) int64; G codes per action, 0 where padded
    payoffs: Tensor  # (B, T); 0 where padded
    present: Tensor | None  # (B, T) bool
    n: Tensor  # (B, T) or (1, T)
    weights: Tensor | None = (
        None  # (B, T, G): the share of a payoff that each of the step's codes gets; None: all of it
    )

    def posts(self, payoffs: Tensor) -> Tensor:
        """The amount entered under each code, (B, T, G), for payoffs (B, T)."""
        return shares(payoffs, self.codes, self.weights)

    def unflatten(self, values: Tensor, like: Tensor) -> Tensor:
        """(B, T, G) -> the shape of the caller's codes, zero where padded."""
        if self.present is not None:
            values = values.masked_fill(~self.present.unsqueeze(-1), 0.0)
        return values.reshape(like.shape)


def checked_steps(
    codes: Tensor,
    rewards: Tensor,
    mask: Tensor | None,
    lengths: Tensor | None,
    num_codes: int | None,
    weights: Tensor | None = None,
) -> Steps:
    """Refuse invalid input; flatten the batch; neutralise padding."""
    if not isinstance(rewards, Tensor):
        raise TypeError(f"rewards must be a tensor (..., T), got {type(rewards).__name__}")
    if rewards.ndim == 0 or codes.shape[: rewards.ndim] != rewards.shape or codes.ndim > rewards.ndim + 1:
        raise ValueError(
            "codes and rewards must both have shape (..., T), or codes (..., T, codes per action), "
            f"got {tuple(codes.shape)} and {tuple(rewards.shape)}"
        )
    if codes.is_floating_point() or codes.dtype == torch.bool:
        raise TypeError(f"codes must be integers, got {codes.dtype}; route the actions first")
    T = rewards.shape[-1]
    if T == 0 or codes.shape[-1] == 0:
        raise ValueError(f"trajectories must have at least one step, got codes of shape {tuple(codes.shape)}")
    B = math.prod(rewards.shape[:-1])
    payoffs = full_precision(rewards).reshape(B, T)
    flat = codes.long().reshape(B, T, 1 if codes.ndim == rewards.ndim else codes.shape[-1])
    present = _presence(rewards, mask, lengths)
    if present is None:
        n = torch.arange(1, T + 1, device=rewards.device).unsqueeze(0)
    else:
        n = present.cumsum(dim=-1)
        flat = flat.masked_fill(~present.unsqueeze(-1), 0)
        payoffs = payoffs.masked_fill(~present, 0.0)
    if looking_is_free(payoffs):
        check_finite("rewards", payoffs.reshape(rewards.shape))
        most = num_codes if num_codes is not None else torch.iinfo(torch.int64).max
        check_codes(flat.reshape(codes.shape), most)
    if weights is not None:
        if weights.shape != codes.shape:
            raise ValueError(f"weights must have the shape of codes, {tuple(codes.shape)}, got {tuple(weights.shape)}")
        weights = weights.to(payoffs.dtype).reshape(flat.shape)
    return Steps(flat, payoffs, present, n.to(payoffs.dtype), weights)


def _presence(rewards: Tensor, mask: Tensor | None, lengths: Tensor | None) -> Tensor | None:
    """Which steps are real, (B, T), or None for all."""
    T = rewards.shape[-1]
    if mask is not None and lengths is not None:
        raise ValueError("give mask or lengths, not both")
    if lengths is not None:
        if lengths.shape != rewards.shape[:-1]:
            raise ValueError(f"lengths must have shape {tuple(rewards.shape[:-1])}, got {tuple(lengths.shape)}")
        if looking_is_free(lengths) and not bool(((lengths >= 1) & (lengths <= T)).all()):
            raise ValueError(f"lengths must be between 1 and T = {T}, got {lengths.tolist()}")
        return (torch.arange(T, device=rewards.device) < lengths.unsqueeze(-1)).reshape(math.prod(lengths.shape), T)
    if mask is None:
        return None
    if mask.dtype != torch.bool or mask.shape != rewards.shape:
        raise ValueError(f"mask must be bool of shape {tuple(rewards.shape)}, got {mask.dtype} {tuple(mask.shape)}")
    present = mask.reshape(math.prod(mask.shape[:-1]), T)
    if looking_is_free(present):
        runs = present[:, :1].long().sum(-1) + (present[:, 1:] & ~present[:, :-1]).sum(-1)
        if not bool((runs == 1).all()):
            row = int((runs != 1).nonzero()[0])
            raise ValueError(
                f"mask must be one run of True in every trajectory, but trajectory {row} has {int(runs[row])}"
            )
    return present


def start_balances(start: Ledger | Tensor | None, steps: Steps, num_codes: int | None) -> Tensor | None:
    """The initial balances, (B, num_codes)."""
    if start is None:
        return None
    balances = start.attractions if isinstance(start, Ledger) else start
    if num_codes is not None and balances.shape[-1] != num_codes:
        raise ValueError(f"start must have num_codes = {num_codes} balances per trajectory, got {balances.shape[-1]}")
    flat = balances.to(steps.payoffs.dtype).reshape(math.prod(balances.shape[:-1]), balances.shape[-1])
    if flat.shape[0] != steps.payoffs.shape[0]:
        raise ValueError(f"start must hold one ledger per trajectory, {steps.payoffs.shape[0]}, got {flat.shape[0]}")
    if looking_is_free(steps.codes):
        check_codes(steps.codes, flat.shape[-1])
        check_finite("start", balances)
    return flat


def read_start(balances: Tensor, steps: Steps, phi: float) -> Tensor:
    """The remainder, at each step, of the initial balance of its codes, (B, T, G)."""
    at_start = balances.gather(-1, steps.codes.flatten(1)).reshape(steps.codes.shape)
    return at_start * ((1.0 - phi) ** steps.n).unsqueeze(-1)


def lateness(delays: Tensor, n: Tensor, phi: float) -> tuple[Tensor, Tensor]:
    """Which step a late reward belongs to, and the share of it that is left: (B, T) int64, (B, T).

    delays (B, T): how many steps ago the action was taken that the reward of step t belongs to; -1: no reward came.
    n (B, T), floating: the real steps so far, each included; 0 before them. The share is 0 for a step never taken.
    """
    came = (delays >= 0) & (delays < n)
    step = torch.arange(delays.shape[1], device=delays.device)
    kept = delays.clamp(min=0)
    share = torch.where(came, (1.0 - phi) ** kept.to(n.dtype), 0.0)
    return torch.where(came, step - kept, 0), share


def late_steps(steps: Steps, delays: Tensor | None, phi: float) -> Steps:
    """The steps as they are posted: with the codes of the actions that rewards belong to, and what is left of them."""
    if delays is None:
        return steps
    B, T, G = steps.codes.shape
    if delays.is_floating_point() or delays.dtype == torch.bool or delays.numel() != B * T or delays.shape[-1] != T:
        raise ValueError(f"delays must be integers in the shape of rewards, got {delays.dtype} {tuple(delays.shape)}")
    flat, n = delays.long().reshape(B, T), steps.n.expand(B, T)
    if steps.present is not None:
        flat = flat.masked_fill(~steps.present, -1)
    if looking_is_free(flat) and bool(((flat >= n) | (flat < -1)).any()):
        row, step = ((flat >= n) | (flat < -1)).nonzero()[0].tolist()
        raise ValueError(
            f"the reward of step {step} of trajectory {row} is said to be {int(flat[row, step])} steps late, but only "
            f"{int(n[row, step])} steps were taken by then; -1 says that no reward came"
        )
    source, share = lateness(flat, n, phi)
    index = source.unsqueeze(-1).expand(B, T, G)
    weights = None if steps.weights is None else steps.weights.gather(1, index)
    return steps._replace(codes=steps.codes.gather(1, index), payoffs=steps.payoffs * share, weights=weights)


def trace_posts(steps: Steps, posts: Tensor, phi: float, num_codes: int | None, posted: Tensor | None = None) -> Tensor:
    """Decayed sums of the posts to each step's own codes: posts (B, T, G) -> (B, T, G).

    posted (B, T, G): the codes that posts are entered under, if they are not the step's own.
    """
    B, T, G = steps.codes.shape
    size = min(CHUNK_STEPS, T)
    decay = _decay(size, phi, posts).repeat_interleave(G, 0).repeat_interleave(G, 1)  # (C·G, C·G)
    carry: Tensor | None = None
    accounts, payoffs = steps.codes.reshape(B, T * G), posts.reshape(B, T * G)
    credited = accounts if posted is None else posted.reshape(B, T * G)
    if size < T:
        if num_codes is None and looking_is_free(accounts) and B:
            num_codes = int(accounts.max()) + 1
        if num_codes is None or num_codes > T * G:  # no more accounts than posts: memory stays O(steps)
            if posted is None:
                accounts = credited = _renumbered(accounts)
                num_codes = T * G
            else:
                accounts, credited = _renumbered(torch.cat([accounts, credited], dim=1)).split(T * G, dim=1)
                num_codes = 2 * T * G
        carry = payoffs.new_zeros(B, num_codes)
    traced = []
    for first in range(0, T * G, size * G):
        code = accounts[:, first : first + size * G]  # (B, n)
        entered = credited[:, first : first + size * G]
        payoff = payoffs[:, first : first + size * G]
        n = code.shape[1]
        same = code.unsqueeze(-1) == entered.unsqueeze(-2)  # (B, n, n)
        sums = torch.where(same, decay[:n, :n] * payoff.unsqueeze(-2), 0.0).sum(-1)
        if carry is not None:
            before = decay[:n, 0] * (1.0 - phi)
            sums = sums + carry.gather(-1, code) * before
            carry = (carry * (1.0 - phi) ** (n // G)).scatter_add(-1, entered, payoff * decay[n - 1, :n])
        traced.append(sums)
    return torch.cat(traced, dim=-1).reshape(B, T, G)


def trace_credits(steps: Steps, credits: Tensor, phi: float) -> Tensor:
    """As `trace_posts`, where every account is credited at every step: credits (B, T, num_codes)."""
    size = min(CHUNK_STEPS, credits.shape[1])
    decay = _decay(size, phi, credits)
    carry = torch.zeros_like(credits[:, 0])
    traced = []
    for credit, code in zip(credits.split(size, 1), steps.codes.split(size, 1), strict=True):
        n = credit.shape[1]
        sums = decay[:n, :n] @ credit + carry.unsqueeze(1) * (decay[:n, :1] * (1.0 - phi))  # (B, n, num_codes)
        traced.append(sums.gather(-1, code))
        carry = sums[:, -1]
    return torch.cat(traced, dim=1)


def final_sums(steps: Steps, posts: Tensor, phi: float, num_codes: int) -> Tensor:
    """Decayed sums of all posts, (B, T, G), to every account, after the last step: (B, num_codes)."""
    aged = posts * ((1.0 - phi) ** (steps.n[:, -1:] - steps.n)).unsqueeze(-1)
    sums = posts.new_zeros(posts.shape[0], num_codes)
    return sums.scatter_add(-1, steps.codes.flatten(1), aged.flatten(1))


def sums_before(start: Tensor, codes: Tensor, posts: Tensor, place: Tensor, phi: float) -> Tensor:
    """All decayed sums before some steps of a run of L steps: (B, K, num_codes).

    start (B, num_codes): the sums before the run. codes, posts (B, L, G), posts 0 at padding. place (B, K): how many
    steps of the run precede each of the K steps.
    """
    L = codes.shape[1]
    age = place.unsqueeze(-1) - 1 - torch.arange(L, device=codes.device)  # (B, K, L)
    weights = torch.where(age >= 0, (1.0 - phi) ** age.clamp(min=0).to(start.dtype), 0.0)
    entered = start.new_zeros(*codes.shape[:2], start.shape[-1]).scatter_add(-1, codes, posts)  # (B, L, num_codes)
    kept = (1.0 - phi) ** place.to(start.dtype)
    return weights @ entered + start.unsqueeze(1) * kept.unsqueeze(-1)


def block_sums(codes: Tensor, posts: Tensor, phi: float, num_codes: int, block: int) -> Tensor:
    """All decayed sums before every `block`-th step: codes, posts (B, T, G) -> (B, T / block, num_codes).

    T is a multiple of `block`. The first entry is zero.
    """
    B, T, _ = codes.shape
    age = torch.arange(block - 1, -1, -1, device=codes.device, dtype=posts.dtype)
    aged = posts * ((1.0 - phi) ** age).repeat(T // block).view(1, T, 1)
    sums = [posts.new_zeros(B, num_codes)]
    for code, post in zip(codes.split(block, 1), aged.split(block, 1), strict=True):
        sums.append((sums[-1] * (1.0 - phi) ** block).scatter_add(-1, code.flatten(1), post.flatten(1)))
    return torch.stack(sums[:-1], dim=1)


def _decay(size: int, phi: float, like: Tensor) -> Tensor:
    """(1 - φ)^(t-τ) where τ <= t, else 0: (size, size)."""
    step = torch.arange(size, device=like.device, dtype=like.dtype)
    age = step.unsqueeze(-1) - step
    return torch.where(age >= 0, (1.0 - phi) ** age.clamp(min=0), 0.0)


def last_post(codes: Tensor) -> Tensor:
    """(..., K) -> (..., row, column): the last step <= row with the code of column <= row, else -1."""
    K = codes.shape[-1]
    step = torch.arange(K, device=codes.device)
    same = codes.unsqueeze(-1) == codes.unsqueeze(-2)  # (..., step, column)
    last = torch.where(same, step.unsqueeze(-1), -1).cummax(dim=-2).values
    return torch.where(step.unsqueeze(-1) >= step, last, -1)


def _renumbered(codes: Tensor) -> Tensor:
    """Each code replaced by its first index in sorted order, so that numbers stay below n: (B, n) -> (B, n)."""
    ordered, order = codes.sort(dim=-1, stable=True)
    place = torch.arange(codes.shape[-1], device=codes.device).expand_as(codes)
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(codes).scatter(-1, order, torch.where(begins, place, 0).cummax(dim=-1).values)
