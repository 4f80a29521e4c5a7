"""The policy: a causal transformer over (return-to-go, state, action) that predicts actions at its state tokens.

One network for dt, odt, ewa-vq-odt and ledger-odt; `config.method` determines the head, and whether there are accounts
that bias the attention (ewa-vq-odt) or are read as an input (ledger-odt).
In place of the transformer, method bc has an MLP on the state, and method gru a recurrent network. Inputs are raw:
observations, actions, rewards and returns in the environment's units. Normalisation happens inside.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import torch
from torch import Tensor, nn

from mental_accounts.accounts import StateBaseline
from mental_accounts.checks import check_codes, check_finite, looking_is_free
from mental_accounts.policy.context import Context, Observations
from mental_accounts.policy.encoders import StateEncoder
from mental_accounts.policy.evaluation_mode import in_evaluation_mode
from mental_accounts.policy.heads import ActionDistribution, disturbed, make_head
from mental_accounts.policy.long_attention import column_mask, is_long
from mental_accounts.policy.policy_accounts import PolicyAccounts
from mental_accounts.policy.policy_files import load_policy, save_policy
from mental_accounts.policy.recurrent import Recurrent
from mental_accounts.policy.run_policy import policy_folder
from mental_accounts.policy.size import telling_shapes
from mental_accounts.policy.state_map import StateMap
from mental_accounts.policy.tokens import TokenEmbedding
from mental_accounts.policy.transformer import Transformer, attention_mask
from mental_accounts.policy.window import Window
from mental_accounts.policy.window_checks import check_window
from mental_accounts.policy_options import PolicyConfig
from mental_accounts.spaces import ActionScale
from mental_accounts.standardising import spread
from mental_accounts.zoo import zoo_folder

INITIAL_STD = 0.02


class DecisionTransformer(nn.Module):
    """bc, gru, dt, odt, ewa-vq-odt or ledger-odt, depending on `config.method`."""

    state_mean: Tensor
    state_std: Tensor
    return_scale: Tensor
    reward_mean: Tensor
    reward_std: Tensor

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("state_mean", torch.zeros(config.state_dim))
        self.register_buffer("state_std", torch.ones(config.state_dim))
        self.register_buffer("return_scale", torch.tensor(config.return_scale), persistent=False)
        self.action_scale = ActionScale(config.action)
        self.embedding = TokenEmbedding(config) if config.is_transformer else None
        self.transformer = Transformer(config) if config.is_transformer else None
        self.recurrent = Recurrent(config) if config.is_recurrent else None
        self.state_map = StateMap(config) if config.method == "bc" else None
        self.head = make_head(config)
        if self.transformer is not None:
            self.transformer.apply(_initialise)
        self.encoder = StateEncoder(config) if config.has_images else None
        self.accounts = PolicyAccounts(config) if config.has_accounts else None
        self.embed_ledger, self.embed_reward = None, None  # last, so that no other initial weight depends on them
        if self.accounts is not None and config.reads_ledger:
            self.embed_ledger = nn.Linear(self.accounts.books.ledger_size, config.hidden)
        if config.reads_rewards:
            self.embed_reward = nn.Linear(1, config.hidden, bias=False)
            self.register_buffer("reward_mean", torch.zeros(()))
            self.register_buffer("reward_std", torch.ones(()))
        self.reward_baseline = StateBaseline(config.state_dim) if config.reads_advantages else None

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.state_mean.device

    def fit_normalisation(self, observations: Tensor, actions: Tensor, rewards: Tensor, seed: int = 0) -> None:
        """Fit everything that depends on data to the offline data, (N, state), (N, action) and (N,)."""
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
            read = rewards.double()
            if self.reward_baseline is not None:
                self.reward_baseline.fit(observations, rewards)
                read = self.reward_baseline.excess(read, observations, observations)
            self.reward_mean.copy_(read.mean())
            self.reward_std.copy_(spread(read.unsqueeze(-1)).squeeze(0))
        if self.accounts is not None:
            self.accounts.books.fit(self.action_scale.to_unit(actions), rewards, seed, observations)

    def forward(self, window: Window, *, last_only: bool = False) -> ActionDistribution:
        """The distribution of the action at each of K steps, given all before it; or at the last step alone."""
        return self.predict(window, last_only=last_only)[0]

    def predict(self, window: Window, *, last_only: bool = False) -> tuple[ActionDistribution, Tensor | None]:
        """As `forward`; and the memory after the last step, (B, layers, hidden), if the policy is recurrent."""
        check_window(self.config, window)
        dtype, standardised, memory = self.state_mean.dtype, self._state_features(window), None
        # A number would be built into compiled code; a tensor is read, so that data of another scale can share it.
        scale = self.return_scale if torch.compiler.is_compiling() else self.config.return_scale
        returns, rewards = window.returns_to_go.to(dtype) * scale, self._embedded_rewards(window)
        if self.transformer is not None and self.embedding is not None:
            told, actions = self._embedded_balances(window), self.unit_actions(window)
            tokens = self.embedding(returns, standardised, actions, window.timesteps, window.mask, told, rewards)
            masks = self._attention_masks(window, tokens)
            states = self.transformer(tokens, masks, last_only=last_only)  # (B, K or 1, hidden)
        elif self.recurrent is not None:
            actions, timesteps = self.previous_unit_actions(window), window.timesteps
            read = self.recurrent(standardised, actions, returns, timesteps, window.mask, rewards, window.memory)
            states, memory = read[0][:, -1:] if last_only else read[0], read[1]
        else:
            assert self.state_map is not None
            states = self.state_map(standardised[:, -1:] if last_only else standardised)  # (B, K or 1, hidden)
        allowed = () if window.action_masks is None else (window.action_masks[:, -states.shape[1] :],)
        with torch.autocast(states.device.type, enabled=False):
            distribution: ActionDistribution = self.head(states.to(dtype), *allowed)
        return distribution, memory

    @property
    def num_features(self) -> int:
        """The size of `step_features`."""
        told = self.accounts.books.ledger_size if self.accounts is not None and self.config.reads_ledger else 0
        return self.config.state_features + told + self.config.reads_rewards

    def step_features(self, window: Window) -> Tensor:
        """All that the policy reads of a single step beside the return-to-go, as numbers: (B, K, num_features).

        The standardised state, its images encoded; what the ledger tells, where it is read; the previous reward, where
        it is read.
        """
        found = [self._state_features(window)]
        if self.embed_ledger is not None:
            assert window.balances is not None
            found.append(window.balances.to(found[0].dtype))
        if self.embed_reward is not None:
            found.append(self._standardised_rewards(window).unsqueeze(-1))
        return torch.cat(found, dim=-1)

    def unit_actions(self, window: Window) -> Tensor:
        """Actions as the policy reads them: (B, K, dim) in [-1, 1], or (B, K) or (B, K, numbers) from 0."""
        return self._in_units(window.actions, window.mask)

    def previous_unit_actions(self, window: Window) -> Tensor:
        """The actions before each step, as `unit_actions`; any where there was none."""
        previous = window.previous_actions
        if previous is None or previous.shape != window.actions.shape:
            got = None if previous is None else tuple(previous.shape)
            raise ValueError(
                f"the window must have previous_actions of shape {tuple(window.actions.shape)} for method "
                f"{self.config.method}, got {got}"
            )
        there = window.timesteps > 0
        return self._in_units(previous, there if window.mask is None else there & window.mask)

    def _in_units(self, actions: Tensor, there: Tensor | None) -> Tensor:
        """Actions in the policy's units; discrete ones where `there` (B, K) is False may be any number."""
        units = self.action_scale.to_unit(actions)
        if not self.config.action.is_discrete:
            return units.to(self.state_mean.dtype)
        if there is not None:
            units = units.masked_fill(~there.view(*there.shape, *[1] * (units.ndim - there.ndim)), 0)
        if looking_is_free(units):
            columns = units.reshape(*units.shape[:2], -1).unbind(dim=-1)
            for count, numbers in zip(self.config.action.choices, columns, strict=True):
                check_codes(numbers, count)
        return units

    def context(self, num_envs: int, target_return: float | Sequence[float] | np.ndarray) -> Context:
        """The state of `act` for `num_envs` parallel environments, with this target return."""
        return Context(self.config, self.accounts, self.action_scale, num_envs, target_return, self.device)

    @overload
    def act(
        self,
        observations: Tensor,
        context: Context,
        *,
        action_masks: Tensor | np.ndarray | None = None,
        sample: bool = False,
        noise: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Tensor: ...

    @overload
    def act(
        self,
        observations: np.ndarray | Mapping[str, Any] | Sequence[Any],
        context: Context,
        *,
        action_masks: Tensor | np.ndarray | None = None,
        sample: bool = False,
        noise: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> np.ndarray: ...

    @torch.no_grad()
    def act(
        self,
        observations: Observations,
        context: Context,
        *,
        action_masks: Tensor | np.ndarray | None = None,
        sample: bool = False,
        noise: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Tensor | np.ndarray:
        """One action for each environment, in its own units: (num_envs, state) -> (num_envs, dim) or (num_envs,).

        The mean action, or a sample; with noise, as `disturbed` adds it. Observations in NumPy give actions in NumPy,
        a tensor gives a tensor on its own device. Observations of other spaces than flat boxes are given as they are:
        what a vector environment returns, or a list with one for each environment. `action_masks` (num_envs, n) say
        which of n discrete actions are allowed, where the environment does (`info["action_mask"]`). Call
        `context.record(rewards, ended)` after stepping the environments.
        """
        chosen = self.choose(
            observations, context, action_masks=action_masks, sample=sample, noise=noise, generator=generator
        )
        if isinstance(observations, Tensor):
            return chosen.to(observations.device)
        actions: np.ndarray = chosen.cpu().numpy()
        return actions

    @torch.no_grad()
    def choose(
        self,
        observations: Observations,
        context: Context,
        *,
        action_masks: Tensor | np.ndarray | None = None,
        sample: bool = False,
        noise: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """As `act`, on the policy's device: no synchronisation, and it can be captured in a CUDA graph."""
        distribution = self.act_distribution(observations, context, action_masks)
        chosen = (distribution.sample(generator) if sample else distribution.mode())[:, -1]
        if noise:
            chosen = disturbed(chosen, noise, self.config.action, generator, allowed=context.allowed_now)
        return context.choose(chosen)

    @torch.no_grad()
    def act_distribution(
        self, observations: Observations, context: Context, action_masks: Tensor | np.ndarray | None = None
    ) -> ActionDistribution:
        """The distribution behind `act`, (num_envs, 1, ...)."""
        context.observe(observations, action_masks)
        with in_evaluation_mode(self):
            distribution, memory = self.predict(context.window(), last_only=True)
        if memory is not None:
            context.remember(memory)
        return distribution

    def save(self, folder: str | Path) -> None:
        """Write config and weights as JSON and safetensors; an existing policy is replaced atomically."""
        save_policy(folder, self.config, self.state_dict())

    @classmethod
    def from_run(cls, folder: str | Path, device: torch.device | str = "cpu") -> Self:
        """The policy of a run's last checkpoint."""
        return cls.load(policy_folder(folder), device)

    @classmethod
    def pretrained(cls, name: str, device: torch.device | str = "cpu") -> Self:
        """A policy that comes with this package: `mental-accounts zoo` lists them."""
        return cls.from_run(zoo_folder(name), device)

    @classmethod
    def load(cls, folder: str | Path, device: torch.device | str = "cpu") -> Self:
        """Read a policy written by `save`. Nothing is executed; a damaged file is refused with the reason."""
        config, tensors = load_policy(folder)

        def check_shape(name: str, shape: tuple[int, ...]) -> None:
            if name not in tensors or tuple(tensors[name].shape) != shape:
                got = tuple(tensors[name].shape) if name in tensors else "nothing"
                raise ValueError(f"{folder}: weights of {name} must have shape {shape}, got {got}")

        for name, shape in telling_shapes(config).items():  # before allocating a network of the wrong size
            check_shape(name, shape)
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

    def _embedded_balances(self, window: Window) -> Tensor | None:
        """What the ledger tells before each step, (B, K, ledger_size) -> (B, K, hidden)."""
        if self.embed_ledger is None or self.accounts is None:
            return None
        shape, balances = (*window.timesteps.shape, self.accounts.books.ledger_size), window.balances
        if balances is None or tuple(balances.shape) != shape:
            got = None if balances is None else tuple(balances.shape)
            raise ValueError(f"the window must have balances of shape {shape} for a policy that reads them, got {got}")
        with torch.autocast(balances.device.type, enabled=False):
            embedded: Tensor = self.embed_ledger(balances.to(self.embed_ledger.weight.dtype))
        return embedded

    def _embedded_rewards(self, window: Window) -> Tensor | None:
        """The reward before each step, standardised, (B, K) -> (B, K, hidden); zero at an episode's first step."""
        if self.embed_reward is None:
            return None
        with torch.autocast(window.timesteps.device.type, enabled=False):
            embedded: Tensor = self.embed_reward(self._standardised_rewards(window).unsqueeze(-1))
        return embedded

    def _state_features(self, window: Window) -> Tensor:
        """States as the network reads them, (B, K, state_features): standardised, and images encoded."""
        states = (window.observations.to(self.state_mean.dtype) - self.state_mean) / self.state_std
        return states if self.encoder is None else self.encoder(states)

    def _standardised_rewards(self, window: Window) -> Tensor:
        """The rewards before each step as the network reads them, (B, K); zero at an episode's first step."""
        shape, dtype = tuple(window.timesteps.shape), self.reward_mean.dtype
        previous = self._needed_for_rewards("previous_rewards", window.previous_rewards, shape).to(dtype)
        if self.reward_baseline is not None:
            whole = (*shape, self.config.state_dim)
            states = self._needed_for_rewards("previous_observations", window.previous_observations, whole)
            previous = self.reward_baseline.excess(previous, states.to(dtype), window.observations).to(dtype)
        return torch.where(window.timesteps > 0, (previous - self.reward_mean) / self.reward_std, 0.0)

    def _needed_for_rewards(self, name: str, found: Tensor | None, shape: tuple[int, ...]) -> Tensor:
        """A part of the window that the map of rewards reads; refused where it is missing or of another shape."""
        if found is None or tuple(found.shape) != shape:
            got = None if found is None else tuple(found.shape)
            raise ValueError(
                f"the window must have {name} of shape {shape} for reward_input {self.config.reward_input!r}, got {got}"
            )
        return found

    def _attention_masks(self, window: Window, tokens: Tensor) -> list[Tensor]:
        """One additive mask per layer; the same tensor for all unless β differs by layer."""
        K, mask, device = window.timesteps.shape[1], window.mask, tokens.device
        bias = None if self.accounts is None else self.accounts.bias(window, tokens)
        if is_long(tokens) and (bias is None or bias.shape[-2] == 1):
            masks = column_mask(bias, mask, tokens)
        else:
            masks = attention_mask(K, mask, device)
            masks = masks if bias is None else masks + bias
        return list(masks) if bias is not None and bias.ndim == 5 else [masks] * self.config.layers


def _initialise(module: nn.Module) -> None:
    """GPT-2's initial weights."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
