"""A policy's mental accounts: codebook, reward transform, update rule and bias scale, as one part of the model."""

import torch
from torch import Tensor, nn

from mental_accounts.accounts import (
    EWA,
    BiasScale,
    Bookkeeping,
    CanonicalEWA,
    Codebook,
    DiscreteCodebook,
    Entry,
    GridCodebook,
    HierarchicalCodebook,
    KMeansCodebook,
    ProductCodebook,
    RewardTransform,
    StateBaseline,
    StateCodes,
    UpdateRule,
    column_bias,
    now_bias,
)
from mental_accounts.config import AccountsConfig, ActionSpec, PolicyConfig


class Accounting(Bookkeeping):
    """Everything between an action with its reward and what attention makes of it."""

    def __init__(self, config: PolicyConfig) -> None:
        accounts = config.accounts
        if accounts.soft_codes > 1 and config.action.is_discrete:
            raise ValueError("accounts.soft_codes must be 1 for discrete actions: they have no distance to each other")
        super().__init__(
            make_codebook(accounts, config.action),
            make_rule(accounts),
            RewardTransform(accounts.reward_transform, clip=accounts.reward_clip),
            soft_codes=accounts.soft_codes,
            soft_width=accounts.soft_width,
            state_codes=StateCodes(accounts.state_codes, config.state_dim) if accounts.state_codes > 1 else None,
            baseline=StateBaseline(config.state_dim) if accounts.credit == "advantage" else None,
        )
        self.config: AccountsConfig = accounts
        self.tokens_per_step = config.tokens_per_step
        self.window = config.account_window
        per = accounts.beta_per
        self.scale = BiasScale(
            accounts.beta,
            learned=accounts.beta_learned,
            layers=config.layers if "layer" in per else None,
            heads=config.heads if "head" in per else None,
        )
        self.token_scale = None
        if per == "token":
            self.token_scale = nn.Linear(config.hidden, 1, bias=False)
            nn.init.zeros_(self.token_scale.weight)  # every token begins with β

    def fit(self, actions: Tensor, rewards: Tensor, seed: int = 0, states: Tensor | None = None) -> None:
        """Take what is fitted on data from (N, dim) or (N,) actions in [-1, 1], (N,) rewards and (N, state) states."""
        if self.reads_states and states is None:
            raise ValueError("states are needed to fit accounts of states or a baseline, got none")
        if self.baseline is not None and states is not None:
            self.baseline.fit(states, rewards)
            rewards = rewards - self.baseline(states).to(rewards.dtype)
        fitted = RewardTransform.fit(rewards, self.config.reward_transform, self.config.reward_clip)
        self.transform.load_state_dict(fitted.state_dict())
        if isinstance(self.codebook, KMeansCodebook):
            centers = KMeansCodebook.fit(actions, self.codebook.num_codes, seed)
            self.codebook.load_state_dict(centers.state_dict())
        if self.state_codes is not None and states is not None:
            self.state_codes.fit(states, seed)

    def trace(self, codes: Tensor, rewards: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attraction of each step's own code, from raw rewards: (B, T[, groups]), (B, T) -> (B, T[, groups])."""
        return self.trace_entries(Entry(codes, None), self.payoffs(rewards), mask)

    @property
    def unit(self) -> float:
        """What attractions are divided by before they are read."""
        return self.rule.unit if self.config.normalised else 1.0

    def bias(
        self,
        attractions: Tensor,
        codes: Tensor | None,
        timesteps: Tensor,
        mask: Tensor | None,
        weights: Tensor | None = None,
        tokens: Tensor | None = None,
    ) -> Tensor:
        """Attractions (B, K[, groups]) -> the bias on the S tokens, (B, 1 or heads, 1 or S, S), or one per layer.

        An action with accounts in several groups shows their mean, by `weights` (of their shape) where it has some.
        Reading `now` needs the codes too, and β per token the tokens (B, S, hidden).
        """
        grouped = attractions.ndim == 3
        if self.unit != 1.0:
            attractions = attractions / self.unit
        if self.config.read == "then":
            if grouped:
                attractions = attractions.mean(-1) if weights is None else (attractions * weights).sum(-1)
            columns = self._action_columns(attractions.shape[1], attractions.device)
            if self.token_scale is None:
                return column_bias(attractions, self.scale(), self.config.bias_clip, columns)[..., :-1]
            plain = column_bias(attractions, 1.0, None, columns)[..., :-1]
            return self._per_token(plain, tokens)
        if codes is None:
            raise ValueError("codes are needed to read accounts now; give codes, or set accounts.read to 'then'")
        first_step = self._first_step(timesteps, mask)
        if grouped:
            now = torch.stack(
                [self._read_now(codes[..., g], attractions[..., g], first_step) for g in range(codes.shape[-1])]
            ).mean(dim=0)
        else:
            now = self._read_now(codes, attractions, first_step)
        if self.token_scale is None:
            return now_bias(now, self.scale(), self.config.bias_clip, self.tokens_per_step)[..., :-1, :-1]
        return self._per_token(now_bias(now, 1.0, None, self.tokens_per_step)[..., :-1, :-1], tokens)

    def _per_token(self, plain: Tensor, tokens: Tensor | None) -> Tensor:
        """β of each asking token times the attractions: (B, 1, 1 or S, S), (B, S, hidden) -> (B, 1, S, S)."""
        assert self.token_scale is not None
        if tokens is None:
            raise ValueError("β per token needs the tokens")
        with torch.autocast(tokens.device.type, enabled=False):
            beta = self.scale() + self.token_scale(tokens.to(self.token_scale.weight.dtype))  # (B, S, 1)
            bias: Tensor = beta.unsqueeze(1) * plain
        clip = self.config.bias_clip
        return bias if clip is None else bias.clamp(-clip, clip)

    def _action_columns(self, K: int, device: torch.device) -> Tensor | None:
        """Where actions are among the tokens, (tokens_per_step · K,); None for the usual layout."""
        if self.tokens_per_step == 3:
            return None
        return torch.arange(self.tokens_per_step * K, device=device) % self.tokens_per_step == self.tokens_per_step - 1

    def _first_step(self, timesteps: Tensor, mask: Tensor | None) -> Tensor:
        """How many posts came before each window's first column, (B,); below 0 where it begins with padding."""
        K = timesteps.shape[1]
        posts = timesteps[:, -1] + 1
        if self.config.account_scope == "trajectory":
            return posts - K
        if mask is not None:  # a window that is not full begins where its accounts do
            present = mask.sum(dim=1)
            posts = torch.where(present < K, present, posts)
        return posts.clamp(max=max(self.window, K)) - K

    def _read_now(self, codes: Tensor, attractions: Tensor, first_step: Tensor) -> Tensor:
        if isinstance(self.rule, CanonicalEWA):
            return self.rule.read_now(codes, attractions, first_step)
        return self.rule.read_now(codes, attractions)


def make_rule(config: AccountsConfig) -> UpdateRule:
    """The update rule that the configuration names."""
    if config.rule == "canonical":
        return CanonicalEWA(config.phi, config.rho, config.delta)
    return EWA(config.phi, config.delta)


def make_codebook(config: AccountsConfig, action: ActionSpec) -> Codebook:
    """The codebook that the configuration names; k-means centres wait for `Accounting.fit` or a saved file."""
    if action.is_discrete:
        return DiscreteCodebook(action.size)
    if config.codebook == "product":
        return ProductCodebook(action.size, min(config.groups, action.size), config.bins)
    if config.codebook == "hierarchical":
        return HierarchicalCodebook(action.size, (config.coarse_bins, config.bins))
    if config.codebook == "grid":
        cells = config.bins**action.size
        wanted = config.num_codes if config.num_codes is not None and config.num_codes < cells else None
        return GridCodebook(action.size, config.bins, wanted)
    assert config.num_codes is not None  # AccountsConfig sees to it
    if config.codebook == "algorithm2":
        return GridCodebook.algorithm2(action.size, config.num_codes)
    return KMeansCodebook.unfitted(config.num_codes, action.size)
