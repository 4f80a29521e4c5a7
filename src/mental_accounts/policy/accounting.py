"""A policy's mental accounts: codebook, reward transform, update rule and bias scale, as one part of the model."""

import torch
from torch import Tensor, nn

from mental_accounts.accounts import (
    EWA,
    BiasScale,
    CanonicalEWA,
    Codebook,
    DiscreteCodebook,
    GridCodebook,
    KMeansCodebook,
    Ledger,
    ProductCodebook,
    RewardTransform,
    UpdateRule,
    column_bias,
    now_bias,
)
from mental_accounts.config import AccountsConfig, ActionSpec, PolicyConfig


class Accounting(nn.Module):
    """Everything between an action with its reward and the bias on attention."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.config: AccountsConfig = config.accounts
        self.codebook = make_codebook(config.accounts, config.action)
        self.transform = RewardTransform(config.accounts.reward_transform, clip=config.accounts.reward_clip)
        self.rule = make_rule(config.accounts)
        per = config.accounts.beta_per
        self.scale = BiasScale(
            config.accounts.beta,
            learned=config.accounts.beta_learned,
            layers=config.layers if "layer" in per else None,
            heads=config.heads if "head" in per else None,
        )

    def fit(self, actions: Tensor, rewards: Tensor, seed: int = 0) -> None:
        """Take from data what is fitted on data: payoffs' mean and deviation, k-means centres. Actions in [-1, 1]."""
        fitted = RewardTransform.fit(rewards, self.config.reward_transform, self.config.reward_clip)
        self.transform.load_state_dict(fitted.state_dict())
        if isinstance(self.codebook, KMeansCodebook):
            centers = KMeansCodebook.fit(actions, self.codebook.num_codes, seed)
            self.codebook.load_state_dict(centers.state_dict())

    def trace(self, codes: Tensor, rewards: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attraction of each step's own code, from raw rewards: (B, T[, groups]), (B, T) -> (B, T[, groups])."""
        return self.rule.trace(codes, self.transform(rewards), mask=mask, num_codes=self.codebook.num_codes)

    def ledger(self, num_actors: int, device: torch.device) -> Ledger:
        """Live accounts for actors in parallel."""
        return self.rule.ledger(self.codebook.num_codes, (num_actors,), device=device)

    def bias(self, attractions: Tensor, codes: Tensor | None, timesteps: Tensor, mask: Tensor | None) -> Tensor:
        """Attractions (B, K[, groups]) -> the bias on 3K - 1 tokens, (B, 1 or heads, 1 or S, S), or one per layer.

        An action with accounts in several groups shows their mean. Reading `now` needs the codes too.
        """
        grouped = attractions.ndim == 3
        if self.config.read == "then":
            bias = column_bias(
                attractions.mean(dim=-1) if grouped else attractions, self.scale(), self.config.bias_clip
            )
            return bias[..., :-1]
        if codes is None:
            raise ValueError("codes are needed to read accounts now; give codes, or set accounts.read to 'then'")
        first_step = self._first_step(timesteps, mask)
        if grouped:
            now = torch.stack(
                [self._read_now(codes[..., g], attractions[..., g], first_step) for g in range(codes.shape[-1])]
            ).mean(dim=0)
        else:
            now = self._read_now(codes, attractions, first_step)
        return now_bias(now, self.scale(), self.config.bias_clip)[..., :-1, :-1]

    def _first_step(self, timesteps: Tensor, mask: Tensor | None) -> Tensor:
        """How many posts came before each window's first column, (B,); below 0 where it begins with padding."""
        K = timesteps.shape[1]
        if self.config.account_scope == "trajectory":
            return timesteps[:, -1] - (K - 1)
        return torch.zeros_like(timesteps[:, 0]) if mask is None else mask.sum(dim=1) - K

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
    if config.codebook == "grid":
        cells = config.bins**action.size
        wanted = config.num_codes if config.num_codes is not None and config.num_codes < cells else None
        return GridCodebook(action.size, config.bins, wanted)
    assert config.num_codes is not None  # AccountsConfig sees to it
    if config.codebook == "algorithm2":
        return GridCodebook.algorithm2(action.size, config.num_codes)
    return KMeansCodebook.unfitted(config.num_codes, action.size)
