"""Trajectories -> codes and attractions: each trajectory is routed and traced once, in padded groups of similar length.

If windows need all balances (steps × codes numbers, far too many to store), a snapshot of them is stored at the
beginning of every block of steps, a part of it with each step of the block, so that it moves with its steps. A window's
balances are computed from the last whole snapshot before it and the steps since (windows.py).
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mental_accounts.accounts import Books, Entry
from mental_accounts.accounts.scan import block_sums
from mental_accounts.action_spec import ActionSpec
from mental_accounts.checks import looking_is_free
from mental_accounts.data.data_checks import check_actions
from mental_accounts.data.endings import SeenAfter
from mental_accounts.data.storage import Column
from mental_accounts.errors import DataError

GROUP_STEPS = 2**18
"""Padded steps traced at once, and actions routed at once: bounds the memory."""

SNAPSHOT_STEPS = 16
"""Steps per block: a snapshot costs codes / 16 numbers per step, a window the sums over up to 31 steps before it."""

PAD_STEPS = 32
"""Lengths are padded to multiples of this, so that a trajectory's sums are added in the same order, and are bitwise
equal, whichever group it is traced in."""


@dataclass(frozen=True, eq=False)
class Annotation:
    """Turns steps into codes and attractions. Holds its own copies, which nothing else moves or refits."""

    books: Books
    to_unit: Callable[[Tensor], Tensor] | None
    """Actions in the environment's units -> [-1, 1], the codebook's range; None if they are in that range already."""
    keeps_balances: bool = False
    """Whether windows need all balances: snapshots of them are then stored."""

    def to(self, device: torch.device | str) -> "Annotation":
        return Annotation(copy.deepcopy(self.books).to(device), self.to_unit, self.keeps_balances)

    @property
    def code_dtype(self) -> torch.dtype:
        """The smallest type that holds every code."""
        small = (torch.int16, torch.int32)
        return next((kind for kind in small if self.books.num_codes <= torch.iinfo(kind).max), torch.int64)

    @property
    def columns(self) -> dict[str, Column]:
        """The columns stored per step."""
        shape = self.books.code_shape
        found = {"codes": Column(shape, self.code_dtype), "attractions": Column(shape, torch.float32)}
        found["payoffs"] = Column((), torch.float32)
        if self.books.is_soft:
            found["weights"] = Column(shape, torch.float32)
        if self.keeps_balances:
            sums = len(self.books.tables) * self.books.num_codes
            found["snapshots"] = Column((-(-sums // SNAPSHOT_STEPS),), torch.float32)
            if self.books.reward_delay:
                found |= {f"posted_{name}": found[name] for name in ("codes", "weights") if name in found}
                found["share"] = Column((), torch.float32)
        return found

    def annotate(
        self,
        observations: Tensor,
        actions: Tensor,
        rewards: Tensor,
        lengths: Tensor,
        foregone: Tensor | None = None,
        allowed: Tensor | None = None,
        after: SeenAfter | None = None,
    ) -> dict[str, Tensor]:
        """The columns of N steps: (N, obs), (N, act) or (N,), (N,); trajectories of `lengths` (on the CPU) in turn.

        foregone (N, actions): rewards of all actions, where the books enter them; allowed (N, actions): action masks.
        after: what was seen after last steps, where that is known.
        """
        if self.to_unit is None and actions.is_floating_point() and looking_is_free(actions):
            _check_unit(actions)
        codes, weights = [], []
        for state, action in zip(observations.split(GROUP_STEPS), actions.split(GROUP_STEPS), strict=True):
            entry = self.books.route_step(action if self.to_unit is None else self.to_unit(action), state)
            codes.append(entry.codes.to(self.code_dtype))
            weights.append(entry.weights)
        amounts = self.amounts(observations, rewards, lengths, after)
        found = {"codes": torch.cat(codes), "payoffs": self.books.transform(amounts).float()}
        known = [value for value in weights if value is not None]
        if known:
            found["weights"] = torch.cat(known)
        if self.books.foregone and foregone is not None:
            return found | self._trace(found, lengths, self.books.foregone_payoffs(foregone, allowed))
        return found | self._trace(found, lengths, None)

    def amounts(self, observations: Tensor, rewards: Tensor, lengths: Tensor, after: SeenAfter | None = None) -> Tensor:
        """What is credited to N steps before the reward transform: (N, obs), (N,) -> (N,).

        Where it depends on what follows, and nothing is known to follow a last step, its own state stands for that.
        """
        last = torch.zeros(len(rewards), dtype=torch.bool, device=rewards.device)
        last[(lengths.cumsum(0) - 1).to(rewards.device)] = True
        found = []
        for begin in range(0, len(rewards), GROUP_STEPS):
            part = slice(begin, begin + GROUP_STEPS + self.books.looks_ahead)  # with the first step of the next part
            amounts = self.books.amounts_of_runs(rewards[part], observations[part], last[part])
            found.append(amounts[:GROUP_STEPS])
        credited = torch.cat(found)
        if self.books.looks_ahead and after is not None:
            rows = after.rows
            credited[rows] = self.books.amounts(rewards[rows], observations[rows], after.observations)
        return credited

    def _trace(self, found: dict[str, Tensor], lengths: Tensor, foregone: Tensor | None) -> dict[str, Tensor]:
        """Attractions of each step's own codes, and snapshots of all balances, for whole trajectories.

        foregone (N, actions): payoffs of all actions.
        """
        payoffs = found["payoffs"]
        N, device, shape = len(payoffs), payoffs.device, self.books.code_shape
        traced = {"attractions": torch.zeros(N + 1, *shape, device=device)}  # the last row takes padding
        for name in ("snapshots", "posted_codes", "posted_weights", "share"):
            if name in self.columns:
                column = self.columns[name]
                traced[name] = torch.zeros(N + 1, *column.shape, device=device, dtype=column.dtype)
        starts = lengths.cumsum(0) - lengths
        for members in _groups(lengths):
            T = -(-int(lengths[members].max()) // PAD_STEPS) * PAD_STEPS
            step = torch.arange(T, device=device)
            start, length = (values[members].to(device).unsqueeze(-1) for values in (starts, lengths))
            mask = step < length  # (B, T)
            row = torch.where(mask, start + step, 0)
            entry = Entry(found["codes"][row].long(), found["weights"][row] if "weights" in found else None)
            rows = torch.where(mask, row, N).flatten()
            payoff = payoffs[row]
            others = None if foregone is None else foregone[row]
            attractions = self.books.trace(entry, payoff, mask, others)
            traced["attractions"].index_copy_(0, rows, attractions.reshape(-1, *shape))
            if self.keeps_balances:
                posted, share = self.books.arrivals(entry, mask)
                parts = self._snapshots(posted, payoff, share, others)
                traced["snapshots"].index_copy_(0, rows, parts.flatten(0, 1))
                if self.books.reward_delay:
                    late = {"posted_codes": posted.codes, "posted_weights": posted.weights, "share": share}
                    for name, values in late.items():
                        if values is not None:
                            traced[name].index_copy_(0, rows, values.flatten(0, 1).to(traced[name].dtype))
        return {name: value[:-1] for name, value in traced.items()}

    def _snapshots(self, posted: Entry, payoffs: Tensor, share: Tensor, foregone: Tensor | None) -> Tensor:
        """The sums before every block of steps, each spread over its block's steps: (B, T, part)."""
        codes, posts = self.books.posts(posted, payoffs, share, foregone)
        held = len(self.books.tables) * self.books.num_codes
        sums = block_sums(codes, posts, self.books.rule.phi, held, SNAPSHOT_STEPS)  # (B, blocks, held)
        part = self.columns["snapshots"].shape[0]
        padded = torch.nn.functional.pad(sums, (0, part * SNAPSHOT_STEPS - sums.shape[-1]))
        return padded.reshape(len(sums), -1, part)  # (B, blocks · SNAPSHOT_STEPS, part)


def _check_unit(actions: Tensor) -> None:
    """Refuse actions (N, dim) outside [-1, 1], which a codebook would clamp to the border."""
    dim = actions.shape[-1]
    try:
        check_actions(actions, ActionSpec("box", dim, (-1.0,) * dim, (1.0,) * dim), "accounts")
    except DataError as error:
        raise DataError(
            f"{error}; give the store its action_spec, or annotate a function to_unit that brings actions into [-1, 1]"
        ) from None


def _groups(lengths: Tensor) -> Iterator[Tensor]:
    """Indices of trajectories to trace together: similar in length, within the memory bound."""
    order = lengths.argsort(descending=True, stable=True)
    begin = 0
    while begin < len(order):
        most = max(1, GROUP_STEPS // (int(lengths[order[begin]]) + PAD_STEPS))
        yield order[begin : begin + most]
        begin += most
