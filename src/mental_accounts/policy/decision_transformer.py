"""The policy: a causal transformer over (return-to-go, state, action) that predicts actions at its state tokens.

One network for dt, odt and ewa-vq-odt; `config.method` decides on the head and on whether accounts bias the attention.
Method bc has an MLP on the state in its place. Inputs are raw: observations, actions, rewards and returns in the
environment's units. Normalisation is inside.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from mental_accounts.checks import check_codes, check_finite, looking_is_free
from mental_accounts.config import PolicyConfig
from mental_accounts.policy.accounting import Accounting
from mental_accounts.policy.context import Context
from mental_accounts.policy.heads import ActionDistribution, make_head
from mental_accounts.policy.long_attention import column_mask, is_long
from mental_accounts.policy.policy_files import load_policy, save_policy
from mental_accounts.policy.run_policy import policy_folder
from mental_accounts.policy.state_map import StateMap
from mental_accounts.policy.tokens import TokenEmbedding
from mental_accounts.policy.transformer import Transformer, attention_mask
from mental_accounts.spaces import ActionScale
from mental_accounts.standardising import spread

INITIAL_STD = 0.02


class DecisionTransformer(nn.Module):
    """bc, dt, odt or ewa-vq-odt, by `config.method`."""

    state_mean: Tensor
    state_std: Tensor
    reward_mean: Tensor
    reward_std: Tensor

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("state_mean", torch.zeros(config.state_dim))
        self.register_buffer("state_std", torch.ones(config.state_dim))
        self.actions = ActionScale(config.action)
        self.embedding = TokenEmbedding(config) if config.is_sequence_model else None
        self.transformer = Transformer(config) if config.is_sequence_model else None
        self.state_map = None if config.is_sequence_model else StateMap(config)
        self.head = make_head(config)
        if self.transformer is not None:
            self.transformer.apply(_initialise)
        self.accounts = Accounting(config) if config.has_accounts else None
        self.embed_ledger, self.embed_reward = None, None  # last: no other initial weight depends on them
        if self.accounts is not None and config.reads_ledger:
            self.embed_ledger = nn.Linear(self.accounts.num_codes, config.hidden)
            with torch.no_grad():  # as if of shares of the largest balance: beside a large one the bias would not count
                self.embed_ledger.weight.mul_(self.accounts.unit / self.accounts.rule.unit)
        if config.reads_rewards:
            self.embed_reward = nn.Linear(1, config.hidden, bias=False)
            self.register_buffer("reward_mean", torch.zeros(()))
            self.register_buffer("reward_std", torch.ones(()))

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.state_mean.device

    def fit_normalisation(self, observations: Tensor, actions: Tensor, rewards: Tensor, seed: int = 0) -> None:
        """Take from the offline data, (N, state), (N, action) and (N,), what is standardised or fitted by data."""
        N, size = len(observations), self.config.state_dim
        if N == 0 or tuple(observations.shape) != (N, size) or len(actions) != N or tuple(rewards.shape) != (N,):
            raise ValueError(
                f"observations (N, state_dim = {size}), actions (N, ...) and rewards (N,) of N >= 1 steps are needed, "
                f"got {tuple(observations.shape)}, {tuple(actions.shape)} and {tuple(rewards.shape)}"
            )
        check_finite("observations", observations)
        check_finite("rewards", rewards)
        states = observations.double()
        self.state_mean.copy_(states.mean(dim=0))
        self.state_std.copy_(spread(states))
        if self.config.reads_rewards:
            self.reward_mean.copy_(rewards.double().mean())
            self.reward_std.copy_(spread(rewards.double().unsqueeze(-1)).squeeze(0))
        if self.accounts is not None:
            self.accounts.fit(self.actions.to_unit(actions), rewards, seed, observations)

    def forward(
        self,
        observations: Tensor,
        actions: Tensor,
        returns_to_go: Tensor,
        timesteps: Tensor,
        mask: Tensor | None = None,
        attractions: Tensor | None = None,
        codes: Tensor | None = None,
        weights: Tensor | None = None,
        ledgers: Tensor | None = None,
        previous_rewards: Tensor | None = None,
    ) -> ActionDistribution:
        """The distribution of the action at each of K steps, given all before it.

        observations (B, K, state), actions (B, K, dim) or (B, K), returns_to_go, timesteps (B, K); mask (B, K), True
        where a step is there (padding belongs on the left). The last action is not read. With accounts: attractions
        (B, K[, groups]) of each step's own code right after it, codes of that shape where accounts are read `now`,
        weights of that shape where actions are routed softly, and ledgers (B, K, num_codes), all balances before each
        step, where they are an input. previous_rewards (B, K), the reward of the step before each, where they are one:
        what stands at an episode's first step is not read.
        """
        B, K = self._check_window(observations, actions, returns_to_go, timesteps, mask)
        dtype = self.state_mean.dtype
        standardised = (observations.to(dtype) - self.state_mean) / self.state_std
        if self.embedding is None or self.transformer is None:
            assert self.state_map is not None
            states = self.state_map(standardised)  # (B, K, hidden)
        else:
            tokens = self.embedding(
                returns_to_go.to(dtype) * self.config.return_scale,
                standardised,
                self._unit_actions(actions, mask),
                timesteps,
                mask,
                self._embedded_ledgers(B, K, ledgers),
                self._embedded_rewards(previous_rewards, timesteps),
            )
            masks = self._attention_masks(tokens, K, mask, timesteps, attractions, codes, weights)
            states = self.transformer(tokens, masks)  # (B, K, hidden)
        with torch.autocast(states.device.type, enabled=False):
            distribution: ActionDistribution = self.head(states.to(dtype))
        return distribution

    def context(self, num_envs: int, target_return: float | Sequence[float] | np.ndarray) -> Context:
        """What `act` remembers while it acts in `num_envs` environments at once, aiming at `target_return`."""
        return Context(self.config, self.accounts, self.actions, num_envs, target_return, self.device)

    @torch.no_grad()
    def act(
        self,
        observations: Tensor | np.ndarray,
        context: Context,
        *,
        sample: bool = False,
        generator: torch.Generator | None = None,
    ) -> np.ndarray:
        """One action for each environment, in its own units: (num_envs, state) -> (num_envs, dim) or (num_envs,).

        The mean action, or a sample. Follow it with `context.record(rewards, ended)` once the environments answered.
        """
        actions: np.ndarray = self.choose(observations, context, sample=sample, generator=generator).cpu().numpy()
        return actions

    @torch.no_grad()
    def choose(
        self,
        observations: Tensor | np.ndarray,
        context: Context,
        *,
        sample: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """As `act`, on the policy's device: nothing waits for it, and it can be captured in a CUDA graph."""
        distribution = self.act_distribution(observations, context)
        chosen = distribution.sample(generator) if sample else distribution.mode()
        return context.choose(chosen[:, -1])

    @torch.no_grad()
    def act_distribution(self, observations: Tensor | np.ndarray, context: Context) -> ActionDistribution:
        """The distribution behind `act`, (num_envs, steps seen, ...); the last step is the one to act in."""
        context.observe(observations)
        was_training = self.training
        try:
            self.eval()
            distribution: ActionDistribution = self(**context.window())
        finally:
            self.train(was_training)
        return distribution

    def save(self, folder: str | Path) -> None:
        """Write config and weights as JSON and safetensors, replacing what was there once all is written."""
        save_policy(folder, self.config, self.state_dict())

    @classmethod
    def from_run(cls, folder: str | Path, device: torch.device | str = "cpu") -> Self:
        """The policy of a run as its last checkpoint has it."""
        return cls.load(policy_folder(folder), device)

    @classmethod
    def load(cls, folder: str | Path, device: torch.device | str = "cpu") -> Self:
        """Read what `save` wrote. Nothing is executed; a damaged file is refused with what is wrong with it."""
        config, tensors = load_policy(folder)

        def check_shape(name: str, shape: tuple[int, ...]) -> None:
            if name not in tensors or tuple(tensors[name].shape) != shape:
                came = tuple(tensors[name].shape) if name in tensors else "nothing"
                raise ValueError(f"{folder}: weights of {name} must have shape {shape}, got {came}")

        check_shape("state_mean", (config.state_dim,))
        if config.is_sequence_model:  # before memory is taken for a wrong size
            check_shape("embedding.embed_return.weight", (config.hidden, 1))
        else:
            check_shape("state_map.layers.0.weight", (config.inner or 4 * config.hidden, config.state_dim))
        if config.is_sequence_model and config.timestep_embedding:
            check_shape("embedding.embed_timestep.weight", (config.max_timestep, config.hidden))
        policy = cls(config)
        expected = policy.state_dict()
        for name, value in expected.items():
            check_shape(name, tuple(value.shape))
            check_finite(f"{folder}: weights of {name}", tensors[name])
        surplus = sorted(set(tensors) - set(expected))
        if surplus:
            raise ValueError(
                f"{folder}: weights of {surplus[0]} are not part of a {config.method} policy of this config"
            )
        policy.load_state_dict(tensors)
        return policy.to(device)

    def _unit_actions(self, actions: Tensor, mask: Tensor | None) -> Tensor:
        """Actions as the policy reads them: (B, K, dim) in [-1, 1], or (B, K) numbers from 0."""
        units = self.actions.to_unit(actions)
        if not self.config.action.is_discrete:
            return units.to(self.state_mean.dtype)
        if mask is not None:
            units = units.masked_fill(~mask, 0)  # a padded step may hold any number
        if looking_is_free(units):
            check_codes(units, self.config.action.size)
        return units

    def _embedded_ledgers(self, B: int, K: int, ledgers: Tensor | None) -> Tensor | None:
        if self.embed_ledger is None or self.accounts is None:
            return None
        shape = (B, K, self.accounts.num_codes)
        if ledgers is None or tuple(ledgers.shape) != shape:
            came = None if ledgers is None else tuple(ledgers.shape)
            kind = self.config.accounts.ledger_input
            raise ValueError(f"ledgers must be given for accounts.ledger_input {kind!r}, shape {shape}, got {came}")
        with torch.autocast(ledgers.device.type, enabled=False):
            embedded: Tensor = self.embed_ledger((ledgers / self.accounts.unit).to(self.embed_ledger.weight.dtype))
        return embedded

    def _embedded_rewards(self, previous: Tensor | None, timesteps: Tensor) -> Tensor | None:
        """The reward before each step, standardised, (B, K) -> (B, K, hidden); nothing at an episode's first step."""
        if self.embed_reward is None:
            return None
        if previous is None or previous.shape != timesteps.shape:
            came = None if previous is None else tuple(previous.shape)
            raise ValueError(
                f"previous_rewards must be given for reward_input {self.config.reward_input!r}, shape "
                f"{tuple(timesteps.shape)}, got {came}"
            )
        with torch.autocast(previous.device.type, enabled=False):
            standardised = (previous.to(self.reward_mean.dtype) - self.reward_mean) / self.reward_std
            embedded: Tensor = self.embed_reward(torch.where(timesteps > 0, standardised, 0.0).unsqueeze(-1))
        return embedded

    def _attention_masks(
        self,
        tokens: Tensor,
        K: int,
        mask: Tensor | None,
        timesteps: Tensor,
        attractions: Tensor | None,
        codes: Tensor | None,
        weights: Tensor | None,
    ) -> list[Tensor]:
        """One additive mask per layer; the same tensor for all unless β differs by layer."""
        if self.accounts is None:
            if is_long(tokens):
                return [column_mask(None, mask, tokens, self.config.tokens_per_step)] * self.config.layers
            return [attention_mask(K, mask, timesteps.device, self.config.tokens_per_step)] * self.config.layers
        shape = (len(tokens), K, *self.accounts.code_shape)
        if attractions is None or attractions.shape != shape or (codes is not None and codes.shape != shape):
            came = tuple(None if value is None else tuple(value.shape) for value in (attractions, codes))
            raise ValueError(
                f"attractions (and codes) must be given for method {self.config.method}, shape {shape}, got {came}"
            )
        if self.accounts.soft_codes > 1 and (weights is None or weights.shape != shape):
            given = None if weights is None else tuple(weights.shape)
            raise ValueError(f"weights of the codes must be given for soft routing, shape {shape}, got {given}")
        bias = self.accounts.bias(attractions, codes, timesteps, mask, weights, tokens)
        if is_long(tokens) and bias.shape[-2] == 1:
            masks = column_mask(bias, mask, tokens, self.config.tokens_per_step)
        else:
            masks = attention_mask(K, mask, timesteps.device, self.config.tokens_per_step) + bias
        return list(masks) if bias.ndim == 5 else [masks] * self.config.layers

    def _check_window(
        self, observations: Tensor, actions: Tensor, returns: Tensor, timesteps: Tensor, mask: Tensor | None
    ) -> tuple[int, int]:
        state_dim = self.config.state_dim
        if observations.ndim != 3 or observations.shape[-1] != state_dim:
            raise ValueError(
                f"observations must have shape (B, K, state_dim = {state_dim}), got {tuple(observations.shape)}"
            )
        B, K = observations.shape[:2]
        if not 1 <= K <= self.config.context_length:
            raise ValueError(f"a window must have 1 to context_length = {self.config.context_length} steps, got {K}")
        shape = (B, K) if self.config.action.is_discrete else (B, K, self.config.action.size)
        if tuple(actions.shape) != shape:
            raise ValueError(
                f"actions must have shape {shape} (action.size = {self.config.action.size}), got {tuple(actions.shape)}"
            )
        for name, value in (("returns_to_go", returns), ("timesteps", timesteps)):
            if tuple(value.shape) != (B, K):
                raise ValueError(f"{name} must have shape {(B, K)}, got {tuple(value.shape)}")
        if timesteps.is_floating_point():
            raise TypeError(f"timesteps must be integers, got {timesteps.dtype}")
        if mask is not None:
            if mask.dtype != torch.bool or tuple(mask.shape) != (B, K):
                raise ValueError(f"mask must be bool of shape {(B, K)}, got {mask.dtype} {tuple(mask.shape)}")
            if looking_is_free(mask) and not bool((mask[:, 1:] >= mask[:, :-1]).all()):
                raise ValueError("mask must have its padding (False) on the left of every window")
        return B, K


def _initialise(module: nn.Module) -> None:
    """GPT-2's initial weights."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
