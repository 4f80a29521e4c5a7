"""Codes + rewards -> attractions: the update rules, over whole trajectories at once (`trace`) or live (`ledger`).

Both rules are linear recurrences, S_j(t) = (1 - φ) S_j(t-1) + the entry in account j at step t; the paper's
attraction is S itself, the canonical one is S / N.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mental_accounts.accounts.ledger import CanonicalLedger, Ledger, foregone_payoffs
from mental_accounts.accounts.precision import full_precision, without_autocast
from mental_accounts.accounts.scan import (
    Steps,
    checked_steps,
    final_sums,
    last_post,
    late_steps,
    read_start,
    start_balances,
    trace_credits,
    trace_posts,
)
from mental_accounts.checks import check_number


@dataclass(frozen=True)
class EWA:
    """The paper's update (Eq. 9): A_j(t) = (1 - φ) A_j(t-1) + δ r̃_t 1{j = j_t}.

    phi is the share forgotten at every step and delta the weight of the chosen action's reward: the paper's letters.
    In Camerer and Ho, φ is the share retained, and δ weighs the foregone payoffs.
    """

    phi: float = 0.05
    delta: float = 0.8

    def __post_init__(self) -> None:
        check_number("phi", self.phi, 0.0, 1.0, closed=False)
        check_number("delta", self.delta, 0.0, 1.0, closed=True)

    takes_foregone: ClassVar[bool] = False
    """Whether payoffs of actions not taken can be entered."""

    @property
    def forgetting(self) -> float:
        """φ by its meaning."""
        return self.phi

    @property
    def chosen_weight(self) -> float:
        """δ by its meaning."""
        return self.delta

    def entered(self, payoffs: Tensor) -> Tensor:
        """What a payoff adds to the decayed sum of its account: δ r̃."""
        return payoffs * self.delta

    def balances_of(self, sums: Tensor, n: Tensor) -> Tensor:
        """Attractions of decayed sums (..., num_codes) after n (...,) steps: the sums themselves."""
        return sums

    @property
    def unit(self) -> float:
        """The largest attraction where payoffs reach 1, δ/φ: attractions over it are averages of recent payoffs."""
        return self.delta / self.phi if self.delta else 1.0

    @without_autocast
    def trace(
        self,
        codes: Tensor,
        rewards: Tensor,
        *,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        start: Ledger | Tensor | None = None,
        num_codes: int | None = None,
        weights: Tensor | None = None,
        delays: Tensor | None = None,
    ) -> Tensor:
        """The attraction of each step's own code, right after its reward was posted (Algorithm 1).

        codes, rewards: (..., T), (..., T) -> (..., T). With several codes per action (a product codebook):
        (..., T, G), (..., T) -> (..., T, G). Ragged trajectories are padded: on either side with `mask` (..., T), True
        at real steps, or at the end with `lengths` (...,). Padded steps neither decay nor earn, and return 0.
        `start` holds the balances before the first step, (..., num_codes). `num_codes` merely saves a pass over codes.
        `weights` (the shape of codes) split the reward among several codes; by default each code gets all of it.

        Late rewards: `delays` (..., T, int) says how many steps before t the action was taken that the reward of step t
        belongs to; it is posted under that action, with the weight it would have had by then. -1: no reward came.
        """
        steps = checked_steps(codes, rewards, mask, lengths, num_codes, weights)
        posted = late_steps(steps, delays, self.phi)
        posts, others = posted.posts(self.entered(posted.payoffs)), None if delays is None else posted.codes
        attractions = trace_posts(steps, posts, self.phi, num_codes, others)
        balances = start_balances(start, steps, num_codes)
        if balances is not None:
            attractions = attractions + read_start(balances, steps, self.phi)
        return steps.unflatten(attractions, codes)

    def ledger(
        self,
        num_codes: int,
        batch_shape: tuple[int, ...] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        *,
        visits: bool = False,
    ) -> Ledger:
        """Live accounts for actors that act in parallel, initially zero; with `visits`, they count those too."""
        return Ledger(num_codes, batch_shape, 1.0 - self.phi, self.entered, device, dtype, visits)

    @without_autocast
    def closed_form(
        self,
        codes: Tensor,
        rewards: Tensor,
        num_codes: int,
        *,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        start: Ledger | Tensor | None = None,
    ) -> Tensor:
        """All balances after the last step, (..., num_codes), by Proposition 1.

        A_j(t) = (1 - φ)^t A_j(0) + δ Σ_τ (1 - φ)^(t-τ) r̃_τ 1{j = j_τ}.
        """
        steps = checked_steps(codes, rewards, mask, lengths, num_codes)
        sums = final_sums(steps, steps.posts(self.entered(steps.payoffs)), self.phi, num_codes)
        balances = start_balances(start, steps, num_codes)
        if balances is not None:
            sums = sums + balances * (1.0 - self.phi) ** steps.n[:, -1:]
        return sums.reshape(*rewards.shape[:-1], num_codes)

    @without_autocast
    def read_now(self, codes: Tensor, trace: Tensor, first_step: Tensor | int = 0) -> Tensor:
        """The accounts of a window's actions at every later step: (..., K), (..., K) -> (..., K, K).

        Row t, column i <= t: the balance of column i's code after step t was posted; 0 above the diagonal. The trace is
        enough to compute it, since an account only decays between two of its posts. `first_step`, where the window
        begins in its trajectory, matters only to the canonical rule.
        """
        last = last_post(codes)  # (..., row, column): the last step <= row that posted column's code
        rows = torch.arange(codes.shape[-1], device=codes.device).unsqueeze(-1)
        balance = full_precision(trace).unsqueeze(-2).expand(last.shape).gather(-1, last.clamp(min=0))
        return torch.where(last >= 0, balance * (1.0 - self.phi) ** (rows - last).to(balance.dtype), 0.0)

    def bound(self, reward_bound: float) -> float:
        """|A_j(t)| <= δR/φ for |r̃| <= R and zero initial balances (Proposition 1)."""
        return self.delta * reward_bound / self.phi

    def steady_state(self, probability: float, mean_reward: float) -> float:
        """Lim E[A_j(t)] = δ p_j μ_j / φ under stationarity (Proposition 1)."""
        return self.delta * probability * mean_reward / self.phi


@dataclass(frozen=True)
class CanonicalEWA:
    """The rule of Camerer and Ho (1999), in the paper's letters (Eq. 8).

    N(t) = (1 - ρ) N(t-1) + 1 and A_j(t) = ((1 - φ) N(t-1) A_j(t-1) + (δ + (1 - δ) 1{j = j_t}) π_j(t)) / N(t).

    The chosen action's payoff π is the reward; `foregone` holds those of the others, which weigh δ. Without `foregone`
    they count as 0. N(0) is `initial_experience`. ρ = 1 gives cumulative reinforcement, ρ = φ averages; δ = 1 with
    ρ = φ is weighted fictitious play.
    """

    phi: float
    rho: float
    delta: float
    initial_experience: float = 1.0
    takes_foregone: ClassVar[bool] = True
    """Whether payoffs of actions not taken can be entered."""

    def __post_init__(self) -> None:
        check_number("phi", self.phi, 0.0, 1.0, closed=False)
        check_number("rho", self.rho, 0.0, 1.0, closed=True)
        check_number("delta", self.delta, 0.0, 1.0, closed=True)
        check_number("initial_experience", self.initial_experience, 0.0, 1e9, closed=True)

    @without_autocast
    def trace(
        self,
        codes: Tensor,
        rewards: Tensor,
        *,
        foregone: Tensor | None = None,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        start: Ledger | Tensor | None = None,
        num_codes: int | None = None,
        weights: Tensor | None = None,
        delays: Tensor | None = None,
    ) -> Tensor:
        """As `EWA.trace`; `foregone` (..., T, num_codes) are the payoffs of all actions at every step."""
        num_codes = num_codes if foregone is None else foregone.shape[-1]
        if foregone is not None and (weights is not None or delays is not None):
            raise ValueError("give foregone payoffs, or weights of codes or delays of rewards, not both")
        steps = checked_steps(codes, rewards, mask, lengths, num_codes, weights)
        if foregone is None:
            posted = late_steps(steps, delays, self.phi)
            posts, others = posted.posts(self.entered(posted.payoffs)), None if delays is None else posted.codes
            sums = trace_posts(steps, posts, self.phi, num_codes, others)
        else:
            sums = trace_credits(steps, self._credits(steps, foregone, rewards), self.phi)
        balances, initial = self._start(start, steps, num_codes)
        if balances is not None:
            sums = sums + read_start(balances * initial, steps, self.phi)
        return steps.unflatten(sums / self._experience(steps.n, initial).unsqueeze(-1), codes)

    def ledger(
        self,
        num_codes: int,
        batch_shape: tuple[int, ...] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        *,
        visits: bool = False,
    ) -> CanonicalLedger:
        """Live accounts for actors that act in parallel, initially zero; with `visits`, they count those too."""
        return CanonicalLedger(
            num_codes, batch_shape, 1.0 - self.phi, self.entered, self.delta, 1.0 - self.rho, self.initial_experience,
            device, dtype, visits,
        )  # fmt: skip

    @without_autocast
    def closed_form(
        self,
        codes: Tensor,
        rewards: Tensor,
        num_codes: int,
        *,
        foregone: Tensor | None = None,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        start: Ledger | Tensor | None = None,
    ) -> Tensor:
        """All balances after the last step, (..., num_codes): decayed sums of all entries, over N."""
        steps = checked_steps(codes, rewards, mask, lengths, num_codes)
        if foregone is None:
            sums = final_sums(steps, steps.posts(self.entered(steps.payoffs)), self.phi, num_codes)
        else:
            age = (steps.n[:, -1:] - steps.n).unsqueeze(-1)
            sums = (self._credits(steps, foregone, rewards) * (1.0 - self.phi) ** age).sum(dim=1)
        balances, initial = self._start(start, steps, num_codes)
        if balances is not None:
            sums = sums + balances * initial * (1.0 - self.phi) ** steps.n[:, -1:]
        return (sums / self._experience(steps.n[:, -1:], initial)).reshape(*rewards.shape[:-1], num_codes)

    @without_autocast
    def read_now(self, codes: Tensor, trace: Tensor, first_step: Tensor | int = 0) -> Tensor:
        """As `EWA.read_now`, without foregone payoffs.

        `first_step` (...,) is the index of each window's first step in its trajectory; negative if the window begins
        with padding.
        """
        K = codes.shape[-1]
        first = torch.as_tensor(first_step, device=codes.device).unsqueeze(-1)
        n = (first + torch.arange(1, K + 1, device=codes.device)).clamp(min=1).to(full_precision(trace).dtype)
        experience = self._experience(n, self.initial_experience).expand(codes.shape)
        decaying = EWA(self.phi).read_now(codes, full_precision(trace) * experience)
        return decaying / experience.unsqueeze(-1)

    def entered(self, payoffs: Tensor) -> Tensor:
        """What a payoff adds to the decayed sum of its account: all of it."""
        return payoffs

    def balances_of(self, sums: Tensor, n: Tensor) -> Tensor:
        """Attractions of decayed sums (..., num_codes) after n (...,) steps: the sums over N(n); 0 where N is 0."""
        experience = self._experience(n.to(sums.dtype), self.initial_experience).unsqueeze(-1)
        return torch.where(experience > 0, sums / experience, 0.0)

    @property
    def unit(self) -> float:
        """1: with ρ = φ the canonical rule is already an average."""
        return 1.0

    def _experience(self, n: Tensor, initial: Tensor | float) -> Tensor:
        """N after n steps, in closed form."""
        if self.rho < 1e-12:  # no depreciation, to machine precision
            return initial + n
        log_retained = n * (math.log1p(-self.rho) if self.rho < 1.0 else -math.inf)
        return initial * torch.exp(log_retained) - torch.expm1(log_retained) / self.rho

    def credits(self, codes: Tensor, payoffs: Tensor, foregone: Tensor) -> Tensor:
        """What is entered in every account: codes (..., 1), payoffs (...), foregone (..., num_codes) -> the last's."""
        return (foregone * self.delta).scatter(-1, codes, self.entered(payoffs).unsqueeze(-1))

    def _credits(self, steps: Steps, foregone: Tensor, rewards: Tensor) -> Tensor:
        """What is entered in every account at every step, (B, T, num_codes)."""
        shape = torch.Size((*rewards.shape, foregone.shape[-1]))
        padded = None if steps.present is None else ~steps.present.reshape(*rewards.shape, 1)
        entered = foregone_payoffs(foregone, shape, steps.payoffs.dtype, padded)
        entered = entered.reshape(*steps.payoffs.shape, -1) * self.delta
        chosen = self.entered(steps.payoffs).unsqueeze(-1).expand(steps.codes.shape)
        entered = entered.scatter(-1, steps.codes, chosen)
        return entered if steps.present is None else entered * steps.present.unsqueeze(-1)

    def _start(
        self, start: Ledger | Tensor | None, steps: Steps, num_codes: int | None
    ) -> tuple[Tensor | None, Tensor | float]:
        """Initial balances (B, num_codes) and experience (B, 1)."""
        balances = start_balances(start, steps, num_codes)
        if isinstance(start, CanonicalLedger):
            return balances, start.experience.to(steps.payoffs.dtype).reshape(-1, 1)
        return balances, self.initial_experience


UpdateRule = EWA | CanonicalEWA
"""The rules by which accounts change."""


def check_rule(rule: UpdateRule) -> None:
    """Refuse anything but an update rule."""
    if not isinstance(rule, UpdateRule):
        raise TypeError(f"rule must be EWA(...) or CanonicalEWA(...), got {type(rule).__name__}")
