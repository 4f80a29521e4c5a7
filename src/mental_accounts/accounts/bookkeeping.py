"""What is entered where: the codes of a step with their weights, and its payoff, by action, reward and state.

The plain case is the paper's: one codebook, one code an action, the transformed reward. Beyond it, each by itself or
together: weights over the nearest codes (soft routing), codes of state × action, and payoffs as what a reward is more
than a baseline expects in that state.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mental_accounts.accounts.attraction import UpdateRule
from mental_accounts.accounts.codebooks import Codebook, check_codebook, fit_centers, nearest_center
from mental_accounts.accounts.ledger import CanonicalLedger, Ledger
from mental_accounts.accounts.precision import FullPrecisionModule, full_precision
from mental_accounts.accounts.rewards import RewardTransform
from mental_accounts.accounts.scan import sums_before
from mental_accounts.checks import check_count, check_finite, check_positive, looking_is_free
from mental_accounts.standardising import spread

FIT_STATES = 50_000
"""States that clusters are fitted on; more do not move the centres."""


class Entry(NamedTuple):
    """Where a step is entered."""

    codes: Tensor  # (..., *code_shape) int64
    weights: Tensor | None  # (..., *code_shape): the share of the payoff that each code gets; None: all of it


class StateCodes(FullPrecisionModule):
    """Clusters of standardised states, fitted on data: which of them a state belongs to."""

    mean: Tensor
    std: Tensor
    centers: Tensor

    def __init__(self, num_clusters: int, state_dim: int) -> None:
        super().__init__()
        check_count("num_clusters", num_clusters, 1)
        self.register_buffer("mean", torch.zeros(state_dim))
        self.register_buffer("std", torch.ones(state_dim))
        self.register_buffer("centers", torch.full((num_clusters, state_dim), torch.nan))

    def fit(self, states: Tensor, seed: int = 0) -> None:
        """Take centres from states (N, state_dim)."""
        check_finite("states", states)
        chosen = states
        if len(states) > FIT_STATES:
            order = torch.randperm(len(states), generator=torch.Generator().manual_seed(seed))[:FIT_STATES]
            chosen = states[order.to(states.device)]
        values = chosen.detach().double()
        self.mean.copy_(values.mean(dim=0))
        self.std.copy_(spread(values))
        points = (values - self.mean.double().to(values.device)) / self.std.double().to(values.device)
        self.centers.copy_(fit_centers(points, len(self.centers), seed, "states"))

    def forward(self, states: Tensor) -> Tensor:
        """(..., state_dim) -> (...) int64."""
        if looking_is_free(self.centers) and not bool(torch.isfinite(self.centers[0, 0])):
            raise ValueError("these clusters of states have no centres yet: fit the accounts on data first")
        return nearest_center((full_precision(states) - self.mean) / self.std, self.centers)


class StateBaseline(FullPrecisionModule):
    """The reward to expect in a state: a ridge regression on the standardised state and its squares, fitted on data."""

    mean: Tensor
    std: Tensor
    coefficients: Tensor

    def __init__(self, state_dim: int, ridge: float = 1e-3) -> None:
        super().__init__()
        self.ridge = check_positive("ridge", ridge)
        self.register_buffer("mean", torch.zeros(state_dim))
        self.register_buffer("std", torch.ones(state_dim))
        self.register_buffer("coefficients", torch.zeros(2 * state_dim + 1))

    def fit(self, states: Tensor, rewards: Tensor) -> None:
        """Regress rewards (N,) on states (N, state_dim)."""
        values = states.detach().double()
        self.mean.copy_(values.mean(dim=0))
        self.std.copy_(spread(values))
        features = self._features(values)
        gram = features.T @ features / len(values)
        gram += self.ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        moment = features.T @ rewards.detach().double().to(values.device) / len(values)
        self.coefficients.copy_(torch.linalg.solve(gram, moment))

    def forward(self, states: Tensor) -> Tensor:
        """(..., state_dim) -> (...)."""
        return self._features(full_precision(states)) @ self.coefficients.to(full_precision(states).dtype)

    def _features(self, states: Tensor) -> Tensor:
        z = ((states - self.mean.to(states.dtype)) / self.std.to(states.dtype)).clamp(-10, 10)
        return torch.cat([torch.ones_like(z[..., :1]), z, z.square()], dim=-1)


class Bookkeeping(FullPrecisionModule):
    """Codebook, reward transform and update rule, and what may stand between them and a step."""

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
                f"soft routing over {soft_codes} codes needs a codebook with at least as many centres and one code an "
                f"action, got {codebook}"
            )
        self.codebook, self.rule = codebook, rule
        self.transform = RewardTransform() if transform is None else transform
        self.soft_codes, self.soft_width = soft_codes, soft_width
        self.state_codes, self.baseline = state_codes, baseline

    @property
    def num_codes(self) -> int:
        """Accounts of one actor."""
        return self.codebook.num_codes * (1 if self.state_codes is None else len(self.state_codes.centers))

    @property
    def code_shape(self) -> tuple[int, ...]:
        """The shape of one step's codes."""
        return (self.soft_codes,) if self.soft_codes > 1 else self.codebook.code_shape

    @property
    def reads_states(self) -> bool:
        """Whether states are needed to enter a step."""
        return self.state_codes is not None or self.baseline is not None

    def enter(self, actions: Tensor, states: Tensor | None = None) -> Entry:
        """Where steps are entered: actions (..., dim) in [-1, 1], or (...) where discrete; states (..., state_dim)."""
        weights = None
        if self.soft_codes > 1:
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
        """What is entered: (...), (..., state_dim) -> (...)."""
        if self.baseline is not None:
            assert states is not None
            rewards = full_precision(rewards) - self.baseline(states)
        entered: Tensor = self.transform(rewards)
        return entered

    def trace_entries(self, entry: Entry, payoffs: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attraction of each step's own codes, (..., T, *code_shape), of payoffs (..., T)."""
        return self.rule.trace(entry.codes, payoffs, mask=mask, num_codes=self.num_codes, weights=entry.weights)

    def posts(self, entry: Entry, payoffs: Tensor) -> tuple[Tensor, Tensor]:
        """Codes and what is added to the decayed sums under each: (..., T, G), (..., T, G)."""
        codes = entry.codes if self.code_shape else entry.codes.unsqueeze(-1)
        entered = self.rule.entered(payoffs).unsqueeze(-1).expand(codes.shape)
        return codes, entered if entry.weights is None else entered * entry.weights

    def ledgers_before(
        self, start: Tensor, entry: Entry, payoffs: Tensor, place: Tensor, steps_before: Tensor
    ) -> Tensor:
        """All balances before K steps of a run of L: (B, K, num_codes).

        start (B, num_codes): decayed sums before the run. entry, payoffs of its L steps, payoffs 0 where there is none.
        place (B, K): steps of the run before each asked one; steps_before (B, K): of the trajectory.
        """
        codes, posts = self.posts(entry, payoffs)
        sums = sums_before(start, codes, posts, place, self.rule.phi)
        return self.rule.balances_of(sums, steps_before)

    def ledgers_of_windows(self, entry: Entry, payoffs: Tensor, mask: Tensor) -> Tensor:
        """All balances before each step of windows that begin with empty accounts: (B, K, num_codes).

        payoffs and mask (B, K), True where a step is there; padding is on the left.
        """
        B, K = mask.shape
        start = torch.zeros(B, self.num_codes, device=mask.device)
        place = torch.arange(K, device=mask.device).expand(B, K)
        before = (mask.cumsum(dim=1) - 1).clamp(min=0)
        ledgers = self.ledgers_before(start, entry, payoffs.masked_fill(~mask, 0.0), place, before)
        return ledgers.masked_fill(~mask.unsqueeze(-1), 0.0)

    def post(self, ledger: Ledger | CanonicalLedger, entry: Entry, payoffs: Tensor) -> Tensor:
        """Enter one step of parallel actors in their ledger: the attractions of its codes, (n, *code_shape)."""
        return ledger.post(entry.codes, payoffs, weights=entry.weights)

    def ledger(self, num_actors: int, device: torch.device) -> Ledger:
        """Live accounts for actors in parallel."""
        return self.rule.ledger(self.num_codes, (num_actors,), device=device)

    def _nearest_codes(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest codes and their shares, by a Gaussian of the distance: (..., dim) -> (..., n), (..., n)."""
        centers = self.codebook.centers
        assert centers is not None
        points = full_precision(actions.detach()).clamp(-1, 1)
        apart = (points.unsqueeze(-2) - centers.to(points.dtype)).square().sum(-1)  # (..., num_codes)
        least, codes = apart.topk(self.soft_codes, dim=-1, largest=False, sorted=True)
        return codes, torch.softmax(-least / (2 * self.soft_width**2), dim=-1)
