"""The books: codebook, reward transform and update rule; together they turn a step into an entry in an account.

The plain case is the paper's: one codebook, one code per action, the transformed reward. Each of these can be added:
weights over the nearest codes (soft routing), codes of state × action, and as payoff the reward minus a fitted state
baseline, or the TD error by a value function.

A ledger tells of every code what `channels` says (channels.py), from tables of decayed sums. Rewards may come late
(`reward_delay`), and payoffs of actions not taken may be entered too (`foregone`).
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mental_accounts.accounts.attraction import CanonicalEWA, UpdateRule
from mental_accounts.accounts.codebook import Codebook, check_codebook
from mental_accounts.accounts.entry import Entry, shares
from mental_accounts.accounts.ledger import CanonicalLedger, Ledger
from mental_accounts.accounts.precision import FullPrecisionModule, full_precision
from mental_accounts.accounts.rewards import RewardTransform
from mental_accounts.accounts.scan import lateness, sums_before
from mental_accounts.accounts.state_models import StateBaseline, StateCodes, StateValue
from mental_accounts.channels import UNTRIED, check_channels
from mental_accounts.checks import check_count, check_positive

TABLES = {"balance": ("attractions",), "count": ("counts",), "mean": ("counts", "paid")}
"""The decayed sums that a channel is made of."""


class Books(FullPrecisionModule):
    """How steps become balances: `route_step` gives the accounts, `payoffs` the amount; `post` and `trace` enter it."""

    def __init__(
        self,
        codebook: Codebook,
        rule: UpdateRule,
        transform: RewardTransform | None = None,
        *,
        soft_codes: int = 1,
        soft_width: float = 0.5,
        state_codes: StateCodes | None = None,
        baseline: StateBaseline | StateValue | None = None,
        channels: Sequence[str] = ("balance",),
        reward_delay: int = 0,
        foregone: bool = False,
    ) -> None:
        super().__init__()
        check_codebook(codebook)
        check_count("reward_delay", reward_delay, 0)
        check_count("soft_codes", soft_codes, 1)
        check_positive("soft_width", soft_width)
        if soft_codes > 1 and (codebook.centers is None or codebook.code_shape or soft_codes > codebook.num_codes):
            raise ValueError(
                f"soft routing over {soft_codes} codes needs a codebook with at least as many centres and one code per "
                f"action, got {codebook}"
            )
        self.codebook, self.rule = codebook, rule
        self.transform = RewardTransform() if transform is None else transform
        self.soft_codes, self.soft_width = soft_codes, soft_width
        self.state_codes, self.baseline = state_codes, baseline
        self.channels, self.reward_delay, self.foregone = check_channels(channels), reward_delay, foregone
        needed = {table for channel in self.channels for table in TABLES[channel]}
        self.tables = tuple(table for table in ("attractions", "counts", "paid") if table in needed)
        if reward_delay and baseline is not None:
            raise ValueError("a baseline of states needs rewards on time: it would subtract another state's; use 0")
        if foregone and (not rule.takes_foregone or self.code_shape or self.reads_states or reward_delay):
            raise ValueError(
                "foregone payoffs need the canonical rule, one code per action, accounts of actions alone and rewards "
                f"on time, got {rule}, codes of shape {self.code_shape}, reward_delay {reward_delay}"
                + (" and accounts of states" if self.reads_states else "")
            )

    @property
    def ledger_size(self) -> int:
        """How many numbers a ledger tells: one per channel and code."""
        return len(self.channels) * self.num_codes

    @property
    def num_codes(self) -> int:
        """Number of accounts per actor."""
        return self.codebook.num_codes * (1 if self.state_codes is None else len(self.state_codes.centers))

    @property
    def code_shape(self) -> tuple[int, ...]:
        """The shape of one step's codes."""
        return (self.soft_codes,) if self.soft_codes > 1 else self.codebook.code_shape

    @property
    def is_soft(self) -> bool:
        """Whether a step's codes have weights."""
        return self.soft_codes > 1

    @property
    def reads_states(self) -> bool:
        """Whether entering a step requires its state."""
        return self.state_codes is not None or self.baseline is not None

    @property
    def looks_ahead(self) -> bool:
        """Whether entering a step requires the state after it."""
        return self.baseline is not None and self.baseline.looks_ahead

    def fit(self, actions: Tensor, rewards: Tensor, seed: int = 0, states: Tensor | None = None) -> None:
        """Fit everything that depends on data: (N, dim) or (N,) actions in [-1, 1], (N,) rewards, (N, state) states."""
        if self.reads_states and states is None:
            raise ValueError("states are needed to fit accounts of states or a baseline, got none")
        if self.baseline is not None and states is not None:
            self.baseline.fit(states, rewards)
            rewards = rewards - self.baseline(states).to(rewards.dtype)
        self.fit_transform(rewards)
        self.codebook.refit(actions, seed)
        if self.state_codes is not None and states is not None:
            self.state_codes.fit(states, seed)

    def fit_transform(self, amounts: Tensor) -> None:
        """Fit the reward transform to amounts (N,) as they are before it."""
        fitted = RewardTransform.fit(amounts, self.transform.kind, self.transform.clip)
        self.transform.load_state_dict(fitted.state_dict())

    # A step becomes an entry and a payoff.

    def route_step(self, actions: Tensor, states: Tensor | None = None) -> Entry:
        """The codes of steps: actions (..., dim) in [-1, 1], or (...) if discrete; states (..., state_dim)."""
        weights = None
        if self.is_soft:
            codes, weights = self._nearest_codes(actions)
        else:
            codes = self.codebook.route(actions)
        if self.state_codes is not None:
            assert states is not None
            cluster = self.state_codes(states)  # (...)
            extra = cluster.view(*cluster.shape, *[1] * (codes.ndim - cluster.ndim))
            codes = codes + self.codebook.num_codes * extra
        return Entry(codes, weights)

    def payoffs(self, rewards: Tensor, states: Tensor | None = None, following: Tensor | None = None) -> Tensor:
        """The payoffs to enter: (...), (..., state_dim) -> (...).

        following (..., state_dim): the states after the steps, where the books look ahead; None: nobody knows.
        """
        payoffs: Tensor = self.transform(self.amounts(rewards, states, following))
        return payoffs

    def amounts(self, rewards: Tensor, states: Tensor | None = None, following: Tensor | None = None) -> Tensor:
        """What is credited before the reward transform: rewards, or how far they are above what was expected."""
        if self.baseline is None:
            return rewards
        assert states is not None
        return self.baseline.excess(rewards, states, states if following is None else following)

    def amounts_of_runs(self, rewards: Tensor, states: Tensor | None, last: Tensor) -> Tensor:
        """As `amounts`, of whole trajectories one after the other: (N,), (N, state_dim); last (N,): at their ends."""
        if not self.looks_ahead:
            return self.amounts(rewards, states)
        assert states is not None
        following = torch.where(last.unsqueeze(-1), states, states.roll(-1, dims=0))  # no later step reads the last one
        return self.amounts(rewards, states, following)

    def foregone_payoffs(self, foregone: Tensor, allowed: Tensor | None = None) -> Tensor:
        """The payoffs of all actions, of rewards in the environment's units: (..., num_codes).

        allowed (..., num_codes): an action that was forbidden could not have been paid, so its payoff is 0.
        """
        payoffs: Tensor = self.transform(foregone)
        return payoffs if allowed is None else payoffs.masked_fill(~allowed, 0.0)

    def routing_error(self, actions: Tensor, entry: Entry) -> Tensor:
        """How far actions (..., dim) are from what their codes stand for: (...)."""
        book, codes = self.codebook, entry.codes % self.codebook.num_codes
        if entry.weights is None:
            stands_for = book.stands_for(codes)
        else:
            stands_for = (book.center_of(codes) * entry.weights.unsqueeze(-1)).sum(dim=-2)
        return book.routing_error(actions, stands_for)

    # Balances of whole trajectories and of windows.

    def trace(
        self, entry: Entry, payoffs: Tensor, mask: Tensor | None = None, foregone: Tensor | None = None
    ) -> Tensor:
        """The attraction of each step's own codes, (..., T, *code_shape), of payoffs (..., T).

        foregone (..., T, num_codes): payoffs of all actions, if they are entered.
        """
        if self.foregone:
            assert isinstance(self.rule, CanonicalEWA)
            assert foregone is not None
            return self.rule.trace(entry.codes, payoffs, foregone=foregone, mask=mask)
        delays = None
        if self.reward_delay:
            delays = self._delays(torch.ones_like(payoffs, dtype=torch.bool) if mask is None else mask)
        return self.rule.trace(
            entry.codes, payoffs, mask=mask, num_codes=self.num_codes, weights=entry.weights, delays=delays
        )

    def grouped(self, codes: Tensor) -> Tensor:
        """Codes as (..., G), with G = 1 where an action has one code."""
        return codes if self.code_shape else codes.unsqueeze(-1)

    def arrivals(self, entry: Entry, mask: Tensor) -> tuple[Entry, Tensor]:
        """The entry that the reward of each step belongs to, and the share of it that is entered: (B, T).

        mask (B, T): real steps, in one run. The share is 1 for a reward on time, and 0 at padding.
        """
        if not self.reward_delay:
            return entry, mask.to(torch.float32)
        source, share = lateness(self._delays(mask), mask.cumsum(dim=1).to(torch.float32), self.rule.phi)
        index = source.view(*source.shape, *[1] * len(self.code_shape)).expand(entry.codes.shape)
        weights = None if entry.weights is None else entry.weights.gather(1, index)
        return Entry(entry.codes.gather(1, index), weights), share

    def posts(
        self,
        entry: Entry,
        payoffs: Tensor,
        share: Tensor,
        foregone: Tensor | None = None,
        tables: Sequence[str] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """What is entered in the tables, (B, T, G): codes and amounts; account j of table i is code i · num_codes + j.

        entry, share (B, T): as `arrivals` gives them. payoffs (B, T). foregone (B, T, num_codes), if entered.
        """
        own = self.grouped(entry.codes)  # (B, T, G)
        codes, amounts = [], []
        for place, table in enumerate(self.tables if tables is None else tables):
            into, amount = own, share if table == "counts" else payoffs * share
            if table == "attractions" and self.foregone:
                assert isinstance(self.rule, CanonicalEWA)
                assert foregone is not None
                into = torch.arange(self.num_codes, device=own.device).expand(*own.shape[:-1], -1)
                entered = self.rule.credits(own, amount, foregone * share.unsqueeze(-1))
            else:
                entered = shares(self.rule.entered(amount) if table == "attractions" else amount, own, entry.weights)
            codes.append(into + place * self.num_codes if place else into)
            amounts.append(entered)
        return torch.cat(codes, dim=-1), torch.cat(amounts, dim=-1)

    def told(self, sums: Tensor, n: Tensor) -> Tensor:
        """What a ledger tells after n (...,) steps: sums (..., tables · num_codes) -> (..., ledger_size)."""
        tables = dict(zip(self.tables, sums.split(self.num_codes, dim=-1), strict=True))
        if "attractions" in tables:
            tables["attractions"] = self.rule.balances_of(tables["attractions"], n)
        return self._told(tables)

    def told_before(
        self,
        start: Tensor,
        entry: Entry,
        payoffs: Tensor,
        share: Tensor,
        place: Tensor,
        steps_before: Tensor,
        foregone: Tensor | None = None,
    ) -> Tensor:
        """What a ledger tells before K steps of a run of L: (B, K, ledger_size).

        start (B, tables · num_codes): decayed sums before the run. entry, share: `arrivals` of its L steps; payoffs
        (B, L). place (B, K): how many steps of the run precede each of the K; steps_before (B, K): of the trajectory.
        """
        codes, posts = self.posts(entry, payoffs, share, foregone)
        return self.told(sums_before(start, codes, posts, place, self.rule.phi), steps_before)

    def told_in_windows(self, entry: Entry, payoffs: Tensor, mask: Tensor, foregone: Tensor | None = None) -> Tensor:
        """What a ledger tells before each step of windows that begin with empty accounts: (B, K, ledger_size).

        payoffs and mask (B, K), True at real steps; padding is on the left.
        """
        B, K = mask.shape
        start = torch.zeros(B, len(self.tables) * self.num_codes, device=mask.device)
        place = torch.arange(K, device=mask.device).expand(B, K)
        before = (mask.cumsum(dim=1) - 1).clamp(min=0)
        posted, share = self.arrivals(entry, mask)
        told = self.told_before(start, posted, payoffs, share, place, before, foregone)
        return told.masked_fill(~mask.unsqueeze(-1), 0.0)

    def balances_after_windows(
        self, entry: Entry, payoffs: Tensor, mask: Tensor, foregone: Tensor | None = None
    ) -> Tensor:
        """All balances after the last step of windows that begin with empty accounts: (B, num_codes)."""
        B, K = mask.shape
        start = torch.zeros(B, self.num_codes, device=mask.device)
        place = torch.full((B, 1), K, device=mask.device)
        posted, share = self.arrivals(entry, mask)
        codes, posts = self.posts(posted, payoffs, share, foregone, tables=("attractions",))
        sums = sums_before(start, codes, posts, place, self.rule.phi)
        return self.rule.balances_of(sums, mask.sum(dim=1, keepdim=True)).squeeze(1)

    def _delays(self, mask: Tensor) -> Tensor:
        """How late the reward of each step is, (B, T); -1 where it belongs to no step."""
        return torch.where(mask.cumsum(dim=-1) > self.reward_delay, self.reward_delay, -1)

    def _told(self, tables: Mapping[str, Tensor]) -> Tensor:
        """The channels, one after the other, from tables (..., num_codes) with attractions as balances."""
        told = []
        for channel in self.channels:
            if channel == "balance":
                told.append(tables["attractions"])
            elif channel == "count":
                told.append(1.0 - torch.rsqrt(1.0 + tables["counts"]))
            else:
                told.append(tables["paid"] / tables["counts"].clamp(min=UNTRIED))
        return told[0] if len(told) == 1 else torch.cat(told, dim=-1)

    # Live accounts.

    def ledger(self, num_actors: int, device: torch.device | str | None = None) -> Ledger:
        """Live accounts for actors in parallel."""
        visits = self.tables != ("attractions",)
        return self.rule.ledger(self.num_codes, (num_actors,), device=device, visits=visits)

    def post(
        self,
        ledger: Ledger,
        entry: Entry,
        payoffs: Tensor,
        *,
        age: Tensor | None = None,
        foregone: Tensor | None = None,
    ) -> Tensor:
        """Enter one step of parallel actors in their ledger: payoffs (n,). Returns the entry's balances.

        age (n,): how many steps ago the entry's action was taken; -1: no reward came. foregone (n, num_codes).
        """
        if self.foregone:
            assert isinstance(ledger, CanonicalLedger)
            assert foregone is not None
            return ledger.post(entry.codes, payoffs, foregone=foregone)
        return ledger.post(entry.codes, payoffs, weights=entry.weights, age=age)

    def told_by(self, ledger: Ledger) -> Tensor:
        """What a live ledger tells: (n, ledger_size)."""
        return self._told(dict(ledger.named_buffers()))

    # What attention reads.

    def one_per_action(self, attractions: Tensor, weights: Tensor | None = None) -> Tensor:
        """The attraction of an action, (..., *code_shape) -> (...): the (weighted) mean over its codes."""
        if not self.code_shape:
            return attractions
        return attractions.mean(-1) if weights is None else (attractions * weights).sum(-1)

    def read_now(self, codes: Tensor, attractions: Tensor, first_step: Tensor) -> Tensor:
        """As the rule's `read_now`, with the mean over an action's codes: (B, K, *code_shape), twice -> (B, K, K)."""
        if not self.code_shape:
            return self.rule.read_now(codes, attractions, first_step)
        groups = zip(codes.unbind(-1), attractions.unbind(-1), strict=True)
        return torch.stack([self.rule.read_now(code, value, first_step) for code, value in groups]).mean(dim=0)

    def _nearest_codes(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest codes and their weights, a Gaussian of the distance: (..., dim) -> (..., n), (..., n)."""
        centers = self.codebook.centers
        assert centers is not None
        points = full_precision(actions.detach()).clamp(-1, 1)
        apart = (points.unsqueeze(-2) - centers.to(points.dtype)).square().sum(-1)  # (..., num_codes)
        least, codes = apart.topk(self.soft_codes, dim=-1, largest=False, sorted=True)
        return codes, torch.softmax(-least / (2 * self.soft_width**2), dim=-1)
