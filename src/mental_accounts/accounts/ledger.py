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

    def __init__(
        self,
        num_codes: int,
        batch_shape: tuple[int, ...],
        retention: float,
        entered: Callable[[Tensor], Tensor],
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
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

    @torch.no_grad()
    def post(
        self, codes: Tensor, rewards: Tensor, active: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Decay every account, enter each actor's reward in the account of its code, and return that account.

        codes, rewards: batch_shape -> batch_shape. With several codes per action (a product codebook) codes have one
        more dimension, and so has the result. Where `active` (batch_shape, bool) is False nothing happens: an actor
        whose episode has ended neither decays nor earns, and its result is 0. `weights` (the shape of codes) split the
        reward among several codes; by default each code gets all of it.
        """
        index, payoffs = self._checked(codes, rewards, active)
        if active is None:
            self.attractions.mul_(self.retention)
        else:
            retained = torch.where(active, self.attractions.new_full((), self.retention), 1.0)
            self.attractions.mul_(retained.unsqueeze(-1))
        self.attractions.scatter_add_(-1, index, self._posts(payoffs, index, weights))
        return self._balances(index, active, codes.shape)

    @torch.no_grad()
    def reset(self, actors: Tensor | None = None) -> None:
        """Back to zero for all actors, or for those where `actors` (batch_shape, bool) is True."""
        if actors is None:
            self.attractions.zero_()
        else:
            self._check_mask("actors", actors)
            self.attractions.masked_fill_(actors.unsqueeze(-1), 0.0)

    @torch.no_grad()
    def sort(self, actors: Tensor) -> None:
        """Reorder: index i gets the accounts of actor `actors[i]`, as in beam search; for one dimension of actors."""
        self.attractions.copy_(self.attractions[actors])

    def extra_repr(self) -> str:
        return f"num_codes={self.num_codes}, batch_shape={self.batch_shape}"

    def _posts(self, payoffs: Tensor, index: Tensor, weights: Tensor | None) -> Tensor:
        """The amount added under each code, the shape of index."""
        weights = None if weights is None else weights.to(payoffs.dtype).reshape(index.shape)
        return shares(self._entered(payoffs), index, weights)

    def _balances(self, index: Tensor, active: Tensor | None, shape: torch.Size) -> Tensor:
        balances = self.attractions.gather(-1, index)
        if active is not None:
            balances = balances.masked_fill(~active.unsqueeze(-1), 0.0)
        return balances.reshape(shape)

    def _checked(self, codes: Tensor, rewards: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor]:
        """Codes as (*batch_shape, codes per action) and rewards as payoffs of the ledger's type, 0 where not active."""
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
        if looking_is_free(payoffs):
            check_finite("rewards", payoffs)
            check_codes(index, self.num_codes)
        return index, payoffs

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
    ) -> None:
        super().__init__(num_codes, batch_shape, retention, entered, device, dtype)
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
    ) -> Tensor:
        """As `Ledger.post`; `foregone` (*batch_shape, num_codes) holds the payoffs of all actions.

        The payoff of the chosen action is its reward; its entry in `foregone` is ignored.
        """
        index, payoffs = self._checked(codes, rewards, active)
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
