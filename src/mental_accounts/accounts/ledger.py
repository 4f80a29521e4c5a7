"""Live accounts: the balances of many actors that act in parallel, updated in place as rewards come in.

Posting is a few in-place kernels on fixed memory: no synchronisation, and it can be captured in a CUDA graph.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mental_accounts.accounts.entry import shares
from mental_accounts.accounts.precision import FullPrecisionModule
from mental_accounts.checks import check_codes, check_count, check_finite, looking_is_free


class Ledger(FullPrecisionModule):
    """All accounts of each actor. Created by `rule.ledger(...)`; starts at zero."""

    attractions: Tensor
    """The balances A_j, (*batch_shape, num_codes)."""
    counts: Tensor | None
    """Decayed visits C_j, (*batch_shape, num_codes); None unless they are counted."""
    paid: Tensor | None
    """Decayed sums S_j of the payoffs of those visits."""

    def __init__(
        self,
        num_codes: int,
        batch_shape: tuple[int, ...],
        retention: float,
        entered: Callable[[Tensor], Tensor],
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        visits: bool = False,
    ) -> None:
        check_count("num_codes", num_codes, 1)
        for size in batch_shape:
            check_count("batch_shape", size, 1)
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        super().__init__()
        self.batch_shape = tuple(batch_shape)
        self.num_codes = num_codes
        self.retention, self._entered = retention, entered
        self.register_buffer("attractions", torch.zeros(*batch_shape, num_codes, device=device, dtype=dtype))
        for name in ("counts", "paid"):
            self.register_buffer(name, torch.zeros_like(self.attractions) if visits else None)

    @torch.no_grad()
    def post(
        self,
        codes: Tensor,
        rewards: Tensor,
        active: Tensor | None = None,
        weights: Tensor | None = None,
        *,
        age: Tensor | None = None,
    ) -> Tensor:
        """Decay every account, enter each actor's reward in the account of its code, and return that account.

        codes, rewards: batch_shape -> batch_shape. With several codes per action (a product codebook) codes have one
        more dimension, and so has the result. Where `active` (batch_shape, bool) is False nothing happens: an actor
        whose episode has ended neither decays nor earns, and its result is 0. `weights` (the shape of codes) split the
        reward among several codes; by default each code gets all of it. For rewards that come late, `age` (batch_shape,
        int) says how many steps ago the action was taken whose codes and reward these are; the reward is entered with
        the weight it would have had by now. -1: no reward came, and codes are not read; time passes.
        """
        index, payoffs, share = self._checked(codes, rewards, active, age)
        self._decay(self.attractions, active)
        self.attractions.scatter_add_(-1, index, self._posts(payoffs, index, weights))
        self._visit(index, payoffs, active, weights, share)
        return self._balances(index, active, codes.shape)

    def read(self, codes: Tensor) -> Tensor:
        """The balances of these codes: batch_shape, or with one more dimension for several codes per action."""
        index = codes.long().reshape(*self.batch_shape, -1)
        if looking_is_free(index):
            check_codes(index, self.num_codes)
        return self._balances(index, None, codes.shape)

    @torch.no_grad()
    def reset(self, actors: Tensor | None = None) -> None:
        """Back to zero for all actors, or for those where `actors` (batch_shape, bool) is True."""
        if actors is not None:
            self._check_mask("actors", actors)
        for table in self._tables():
            if actors is None:
                table.zero_()
            else:
                table.masked_fill_(actors.unsqueeze(-1), 0.0)

    @torch.no_grad()
    def sort(self, actors: Tensor) -> None:
        """Reorder: index i gets the accounts of actor `actors[i]`, as in beam search; for one dimension of actors."""
        for table in self._tables():
            table.copy_(table[actors])

    def extra_repr(self) -> str:
        return f"num_codes={self.num_codes}, batch_shape={self.batch_shape}"

    def _tables(self) -> list[Tensor]:
        return [table for table in (self.attractions, self.counts, self.paid) if table is not None]

    def _decay(self, table: Tensor, active: Tensor | None) -> None:
        """Time passes, for all actors or the active ones."""
        if active is None:
            table.mul_(self.retention)
        else:
            retained = torch.where(active, table.new_full((), self.retention), 1.0)
            table.mul_(retained.unsqueeze(-1))

    def _visit(
        self, index: Tensor, payoffs: Tensor, active: Tensor | None, weights: Tensor | None, share: Tensor | None
    ) -> None:
        """Count a visit of each active actor's codes, and what it paid; with a share of it if it is late."""
        if self.counts is None or self.paid is None:
            return
        visits = torch.ones_like(payoffs) if share is None else share
        visits = visits if active is None else visits.masked_fill(~active, 0.0)
        weights = None if weights is None else weights.to(payoffs.dtype).reshape(index.shape)
        for table, amounts in ((self.counts, visits), (self.paid, payoffs)):
            self._decay(table, active)
            table.scatter_add_(-1, index, shares(amounts, index, weights))

    def _posts(self, payoffs: Tensor, index: Tensor, weights: Tensor | None) -> Tensor:
        """The amount added under each code, the shape of index."""
        weights = None if weights is None else weights.to(payoffs.dtype).reshape(index.shape)
        return shares(self._entered(payoffs), index, weights)

    def _balances(self, index: Tensor, active: Tensor | None, shape: torch.Size) -> Tensor:
        balances = self.attractions.gather(-1, index)
        if active is not None:
            balances = balances.masked_fill(~active.unsqueeze(-1), 0.0)
        return balances.reshape(shape)

    def _checked(
        self, codes: Tensor, rewards: Tensor, active: Tensor | None, age: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Codes as (*batch_shape, codes per action), rewards as payoffs of the ledger's type, and the share of them.

        Payoffs are 0 where not active or none came, and lowered where late. The share is None where none is late.
        """
        if tuple(rewards.shape) != self.batch_shape:
            raise ValueError(
                f"rewards must have the ledger's batch shape {self.batch_shape}, got {tuple(rewards.shape)}"
            )
        if tuple(codes.shape[: len(self.batch_shape)]) != self.batch_shape or codes.ndim > len(self.batch_shape) + 1:
            raise ValueError(
                f"codes must have the ledger's batch shape {self.batch_shape} "
                f"(and one more dimension for several codes per action), got {tuple(codes.shape)}"
            )
        if codes.is_floating_point() or codes.dtype == torch.bool:
            raise TypeError(f"codes must be integers, got {codes.dtype}")
        index = codes.long().reshape(*self.batch_shape, -1)
        payoffs = rewards.to(self.attractions.dtype)
        if active is not None:
            self._check_mask("active", active)
            index = index.masked_fill(~active.unsqueeze(-1), 0)
            payoffs = payoffs.masked_fill(~active, 0.0)
        share = None if age is None else self._share(age)
        if age is not None:
            index = index.masked_fill((age < 0).unsqueeze(-1), 0)
            payoffs = payoffs.masked_fill(age < 0, 0.0)
        if looking_is_free(payoffs):
            check_finite("rewards", payoffs)
            check_codes(index, self.num_codes)
        return index, payoffs if share is None else payoffs * share, share

    def _share(self, age: Tensor) -> Tensor:
        """What is left of a payoff after `age` steps, batch_shape; 0 where none came."""
        if age.is_floating_point() or age.dtype == torch.bool or tuple(age.shape) != self.batch_shape:
            raise ValueError(f"age must be integers of shape {self.batch_shape}, got {age.dtype} {tuple(age.shape)}")
        if looking_is_free(age) and bool((age < -1).any()):
            raise ValueError(f"age must be -1 (no reward came), 0, or a number of steps, got {int(age.min())}")
        return torch.where(age >= 0, self.retention ** age.clamp(min=0).to(self.attractions.dtype), 0.0)

    def _check_mask(self, name: str, mask: Tensor) -> None:
        if mask.dtype != torch.bool or tuple(mask.shape) != self.batch_shape:
            raise ValueError(f"{name} must be bool of shape {self.batch_shape}, got {mask.dtype} {tuple(mask.shape)}")


class CanonicalLedger(Ledger):
    """Accounts of the 1999 rule, with each actor's experience weight N(t)."""

    experience: Tensor
    """N(t), batch_shape."""

    def __init__(
        self,
        num_codes: int,
        batch_shape: tuple[int, ...],
        retention: float,
        entered: Callable[[Tensor], Tensor],
        foregone_weight: float,
        experience_retention: float,
        initial_experience: float,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        visits: bool = False,
    ) -> None:
        super().__init__(num_codes, batch_shape, retention, entered, device, dtype, visits)
        self.foregone_weight = foregone_weight
        self.experience_retention, self.initial_experience = experience_retention, initial_experience
        self.register_buffer("experience", torch.full(batch_shape, initial_experience, device=device, dtype=dtype))

    @torch.no_grad()
    def post(
        self,
        codes: Tensor,
        rewards: Tensor,
        active: Tensor | None = None,
        weights: Tensor | None = None,
        foregone: Tensor | None = None,
        *,
        age: Tensor | None = None,
    ) -> Tensor:
        """As `Ledger.post`; `foregone` (*batch_shape, num_codes) holds the payoffs of all actions.

        The payoff of the chosen action is its reward; its entry in `foregone` is ignored. Visits count, and their mean
        is of, payoffs received.
        """
        if foregone is not None and age is not None:
            raise ValueError("give foregone payoffs or the age of a late reward, not both")
        index, payoffs, share = self._checked(codes, rewards, active, age)
        self._visit(index, payoffs, active, weights, share)
        payoffs = self._posts(payoffs, index, weights)
        if foregone is None:
            credit = torch.zeros_like(self.attractions).scatter_add(-1, index, payoffs)
        else:
            inactive = None if active is None else ~active.unsqueeze(-1)
            credit = foregone_payoffs(foregone, self.attractions.shape, self.attractions.dtype, inactive)
            credit = (credit * self.foregone_weight).scatter(-1, index, payoffs)
        experience = self.experience * self.experience_retention + 1.0
        weighted = self.attractions * (self.experience * self.retention).unsqueeze(-1) + credit
        attractions = weighted / experience.unsqueeze(-1)
        if active is not None:
            attractions = torch.where(active.unsqueeze(-1), attractions, self.attractions)
            experience = torch.where(active, experience, self.experience)
        self.attractions.copy_(attractions)
        self.experience.copy_(experience)
        return self._balances(index, active, codes.shape)

    @torch.no_grad()
    def reset(self, actors: Tensor | None = None) -> None:
        """As `Ledger.reset`; experience returns to N(0)."""
        super().reset(actors)
        if actors is None:
            self.experience.fill_(self.initial_experience)
        else:
            self.experience.masked_fill_(actors, self.initial_experience)

    @torch.no_grad()
    def sort(self, actors: Tensor) -> None:
        """As `Ledger.sort`, with the experience."""
        super().sort(actors)
        self.experience.copy_(self.experience[actors])


def foregone_payoffs(foregone: Tensor, shape: torch.Size, dtype: torch.dtype, absent: Tensor | None) -> Tensor:
    """The payoffs of all actions, checked; 0 where `absent`."""
    if foregone.shape != shape:
        raise ValueError(
            f"foregone must have the payoff of every code, shape {tuple(shape)}, got {tuple(foregone.shape)}"
        )
    payoffs = foregone.to(dtype) if absent is None else foregone.to(dtype).masked_fill(absent, 0.0)
    if looking_is_free(payoffs):
        check_finite("foregone", payoffs)
    return payoffs
