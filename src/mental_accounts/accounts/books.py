"""The books: codebook, reward transform and update rule; together they turn a step into an entry in an account.

The plain case is the paper's: one codebook, one code per action, the transformed reward. Each of these can be added:
weights over the nearest codes (soft routing), codes of state × action, and as payoff the reward minus a fitted state
baseline.
"""

import torch
from torch import Tensor

from mental_accounts.accounts.attraction import UpdateRule
from mental_accounts.accounts.codebook import Codebook, check_codebook
from mental_accounts.accounts.entry import Entry, shares
from mental_accounts.accounts.ledger import Ledger
from mental_accounts.accounts.precision import FullPrecisionModule, full_precision
from mental_accounts.accounts.rewards import RewardTransform
from mental_accounts.accounts.scan import sums_before
from mental_accounts.accounts.state_models import StateBaseline, StateCodes
from mental_accounts.checks import check_count, check_positive


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
        baseline: StateBaseline | None = None,
    ) -> None:
        super().__init__()
        check_codebook(codebook)
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

    def fit(self, actions: Tensor, rewards: Tensor, seed: int = 0, states: Tensor | None = None) -> None:
        """Fit everything that depends on data: (N, dim) or (N,) actions in [-1, 1], (N,) rewards, (N, state) states."""
        if self.reads_states and states is None:
            raise ValueError("states are needed to fit accounts of states or a baseline, got none")
        if self.baseline is not None and states is not None:
            self.baseline.fit(states, rewards)
            rewards = rewards - self.baseline(states).to(rewards.dtype)
        fitted = RewardTransform.fit(rewards, self.transform.kind, self.transform.clip)
        self.transform.load_state_dict(fitted.state_dict())
        self.codebook.refit(actions, seed)
        if self.state_codes is not None and states is not None:
            self.state_codes.fit(states, seed)

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

    def payoffs(self, rewards: Tensor, states: Tensor | None = None) -> Tensor:
        """The payoffs to enter: (...), (..., state_dim) -> (...)."""
        if self.baseline is not None:
            assert states is not None
            rewards = full_precision(rewards) - self.baseline(states)
        payoffs: Tensor = self.transform(rewards)
        return payoffs

    def routing_error(self, actions: Tensor, entry: Entry) -> Tensor:
        """How far actions (..., dim) are from what their codes stand for: (...)."""
        book, codes = self.codebook, entry.codes % self.codebook.num_codes
        if entry.weights is None:
            stands_for = book.stands_for(codes)
        else:
            stands_for = (book.center_of(codes) * entry.weights.unsqueeze(-1)).sum(dim=-2)
        return book.routing_error(actions, stands_for)

    # Balances of whole trajectories and of windows.

    def trace(self, entry: Entry, payoffs: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attraction of each step's own codes, (..., T, *code_shape), of payoffs (..., T)."""
        return self.rule.trace(entry.codes, payoffs, mask=mask, num_codes=self.num_codes, weights=entry.weights)

    def posts(self, entry: Entry, payoffs: Tensor) -> tuple[Tensor, Tensor]:
        """Codes, and the amount added to the decayed sum of each: (..., T, G), (..., T, G)."""
        codes = entry.codes if self.code_shape else entry.codes.unsqueeze(-1)
        return codes, shares(self.rule.entered(payoffs), codes, entry.weights)

    def balances_before(
        self, start: Tensor, entry: Entry, payoffs: Tensor, place: Tensor, steps_before: Tensor
    ) -> Tensor:
        """All balances before K steps of a run of L: (B, K, num_codes).

        start (B, num_codes): decayed sums before the run. entry, payoffs: of its L steps, payoffs 0 at padding.
        place (B, K): how many steps of the run precede each of the K steps; steps_before (B, K): of the trajectory.
        """
        codes, posts = self.posts(entry, payoffs)
        sums = sums_before(start, codes, posts, place, self.rule.phi)
        return self.rule.balances_of(sums, steps_before)

    def balances_of_windows(self, entry: Entry, payoffs: Tensor, mask: Tensor) -> Tensor:
        """All balances before each step of windows that begin with empty accounts: (B, K, num_codes).

        payoffs and mask (B, K), True at real steps; padding is on the left.
        """
        B, K = mask.shape
        start = torch.zeros(B, self.num_codes, device=mask.device)
        place = torch.arange(K, device=mask.device).expand(B, K)
        before = (mask.cumsum(dim=1) - 1).clamp(min=0)
        balances = self.balances_before(start, entry, payoffs.masked_fill(~mask, 0.0), place, before)
        return balances.masked_fill(~mask.unsqueeze(-1), 0.0)

    def balances_after_windows(self, entry: Entry, payoffs: Tensor, mask: Tensor) -> Tensor:
        """All balances after the last step of windows that begin with empty accounts: (B, num_codes)."""
        B, K = mask.shape
        start = torch.zeros(B, self.num_codes, device=mask.device)
        place = torch.full((B, 1), K, device=mask.device)
        masked = payoffs.masked_fill(~mask, 0.0)
        return self.balances_before(start, entry, masked, place, mask.sum(dim=1, keepdim=True)).squeeze(1)

    # Live accounts.

    def ledger(self, num_actors: int, device: torch.device | str | None = None) -> Ledger:
        """Live accounts for actors in parallel."""
        return self.rule.ledger(self.num_codes, (num_actors,), device=device)

    def post(self, ledger: Ledger, entry: Entry, payoffs: Tensor) -> Tensor:
        """Enter one step of parallel actors in their ledger: the attractions of its codes, (n, *code_shape)."""
        return ledger.post(entry.codes, payoffs, weights=entry.weights)

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
