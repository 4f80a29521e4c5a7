"""A policy's mental accounts: the books, and the scale at which they bias its attention."""

import torch
from torch import Tensor, nn

from mental_accounts.account_options import AccountsConfig
from mental_accounts.accounts import (
    CODEBOOKS,
    EWA,
    BiasScale,
    Books,
    CanonicalEWA,
    Codebook,
    DiscreteCodebook,
    RewardTransform,
    StateBaseline,
    StateCodes,
    StateValue,
    UpdateRule,
    ValuesCodebook,
    column_bias,
    now_bias,
)
from mental_accounts.action_spec import ActionSpec
from mental_accounts.policy.window import Window
from mental_accounts.policy_options import PolicyConfig


class PolicyAccounts(nn.Module):
    """Turns actions and rewards into balances, and those into the bias on later attention, if the method has one."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.config: AccountsConfig = config.accounts
        self.books = make_books(config)
        self.window = config.account_window
        self.scale, self.token_scale, per = None, None, self.config.beta_per
        if config.has_bias:
            self.scale = BiasScale(
                self.config.beta,
                learned=self.config.beta_learned,
                layers=config.layers if "layer" in per else None,
                heads=config.heads if "head" in per else None,
            )
        if config.has_bias and per == "token":
            self.token_scale = nn.Linear(config.hidden, 1, bias=False)
            nn.init.zeros_(self.token_scale.weight)  # every token starts with β

    def bias(self, window: Window, tokens: Tensor) -> Tensor | None:
        """The bias on the S tokens (B, S, hidden) of a window, (B, 1 or heads, 1 or S, S), or one per layer.

        None if the method has no bias. An action with several codes has the mean of their attractions, weighted if
        there are weights.
        """
        if self.scale is None:
            return None
        self._check(window)
        assert window.attractions is not None
        beta, clip = (self.scale(), self.config.bias_clip) if self.token_scale is None else (1.0, None)
        if self.config.read == "then":
            shown = self.books.one_per_action(window.attractions, window.weights)  # (B, K)
            bias = column_bias(shown, beta, clip)[..., :-1]
        else:
            assert window.codes is not None
            now = self.books.read_now(window.codes, window.attractions, self._first_step(window))  # (B, K, K)
            bias = now_bias(now, beta, clip)[..., :-1, :-1]
        return bias if self.token_scale is None else self._per_token(bias, tokens)

    def _per_token(self, plain: Tensor, tokens: Tensor) -> Tensor:
        """β of each query token times the attractions: (B, 1, 1 or S, S), (B, S, hidden) -> (B, 1, S, S)."""
        assert self.scale is not None
        assert self.token_scale is not None
        with torch.autocast(tokens.device.type, enabled=False):
            beta = self.scale() + self.token_scale(tokens.to(self.token_scale.weight.dtype))  # (B, S, 1)
            bias: Tensor = beta.unsqueeze(1) * plain
        clip = self.config.bias_clip
        return bias if clip is None else bias.clamp(-clip, clip)

    def _first_step(self, window: Window) -> Tensor:
        """The number of posts before each window's first column, (B,); negative if it begins with padding."""
        K = window.timesteps.shape[1]
        posts = window.timesteps[:, -1] + 1
        if self.config.account_scope == "trajectory":
            return posts - K
        if window.mask is not None:  # a window that is not full begins with its accounts
            present = window.mask.sum(dim=1)
            posts = torch.where(present < K, present, posts)
        return posts.clamp(max=max(self.window, K)) - K

    def _check(self, window: Window) -> None:
        """Refuse a window without the fields that these accounts read."""
        shape = (*window.timesteps.shape, *self.books.code_shape)
        needed = {"attractions": window.attractions}
        if self.config.read == "now" or window.codes is not None:
            needed["codes"] = window.codes
        if self.books.is_soft:
            needed["weights"] = window.weights
        for name, value in needed.items():
            if value is None or value.shape != shape:
                got = None if value is None else tuple(value.shape)
                why = {"codes": " to read accounts `now`", "weights": " for soft routing"}.get(name, "")
                raise ValueError(f"the window must have {name} of shape {shape}{why}, got {got}")


BASELINES: dict[str, type[StateBaseline] | type[StateValue]] = {"advantage": StateBaseline, "td": StateValue}
"""What rewards are compared with, by the kind of credit."""


def make_books(config: PolicyConfig) -> Books:
    """The books that the configuration describes."""
    accounts = config.accounts
    if accounts.soft_codes > 1 and config.action.is_discrete:
        raise ValueError("accounts.soft_codes must be 1 for discrete actions: there is no distance between them")
    return Books(
        make_codebook(accounts, config.action),
        make_rule(accounts),
        RewardTransform(accounts.reward_transform, clip=accounts.reward_clip),
        soft_codes=accounts.soft_codes,
        soft_width=accounts.soft_width,
        state_codes=StateCodes(accounts.state_codes, config.state_dim) if accounts.state_codes > 1 else None,
        baseline=None if accounts.credit == "reward" else BASELINES[accounts.credit](config.state_dim),
        channels=accounts.ledger_channels,
        reward_delay=accounts.reward_delay,
        foregone=accounts.foregone,
    )


def make_rule(config: AccountsConfig) -> UpdateRule:
    """The update rule that the configuration names."""
    if config.rule == "canonical":
        return CanonicalEWA(config.phi, config.rho, config.delta)
    return EWA(config.phi, config.delta)


def codebook_kind(config: AccountsConfig, action: ActionSpec) -> type[Codebook]:
    """The kind of codebook that the configuration names; discrete actions are their own codes."""
    if action.is_discrete:
        return ValuesCodebook if action.values else DiscreteCodebook
    return CODEBOOKS[config.codebook]


def make_codebook(config: AccountsConfig, action: ActionSpec) -> Codebook:
    """The codebook itself; fitted parts are filled in by `Books.fit` or from a saved file."""
    if action.values:
        return ValuesCodebook(action.values)
    return codebook_kind(config, action).from_options(action.size, config)
