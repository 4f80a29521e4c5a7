"""The input of a policy: the last K steps of B trajectories."""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True, repr=False, eq=False)
class Window:
    """K steps of B trajectories, padded on the left: the one input of a policy, in training and while acting.

    Observations, actions, rewards and returns are in the environment's units. `attractions`, `codes`, `weights` and
    `balances` are set if the policy's accounts need them, `previous_rewards` if it reads rewards,
    `previous_observations` if it compares them with what a state lets expect, `previous_actions` and `memory` if it is
    recurrent.
    """

    observations: Tensor  # (B, K, state)
    actions: Tensor  # (B, K, dim), or (B, K) int64 where actions are discrete; the last is not read
    returns_to_go: Tensor  # (B, K)
    timesteps: Tensor  # (B, K) int64
    mask: Tensor | None = None  # (B, K) bool, True at real steps; None: everywhere
    attractions: Tensor | None = None  # (B, K, *code_shape): of each step's own codes, right after it
    codes: Tensor | None = None  # (B, K, *code_shape) int64; needed if accounts are read `now`
    weights: Tensor | None = None  # (B, K, *code_shape): the share of each code; for soft routing
    balances: Tensor | None = None  # (B, K, ledger_size): what the ledger tells before each step; for ledger input
    previous_rewards: Tensor | None = None  # (B, K): of the step before each; not read at an episode's first step
    previous_observations: Tensor | None = None  # (B, K, state): of the step before each, as the rewards
    previous_actions: Tensor | None = None  # as actions: of the step before each; not read at an episode's first step
    action_masks: Tensor | None = None  # (B, K, values) bool: the discrete actions allowed at each step, if it matters
    memory: Tensor | None = None  # (B, layers, hidden): the recurrent state before the first step; None: zeros
    rewards: Tensor | None = None  # (B, K): of each step; for training, the policy does not read them
    learned: Tensor | None = None  # (B, K) bool: the real steps to learn from; None: all of them

    def __repr__(self) -> str:
        shapes = [f"{name}={tuple(value.shape)}" for name, value in self.tensors().items()]
        return f"Window({', '.join(shapes)})"

    @property
    def counted(self) -> Tensor | None:
        """The steps over which losses are averaged, (B, K) bool; None: all."""
        return self.mask if self.learned is None else self.learned

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that are set, by name."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def to(self, device: torch.device | str) -> Self:
        """The same on another device."""
        return replace(self, **{name: value.to(device) for name, value in self.tensors().items()})

    def since(self, step: int) -> Self:
        """The last of the K steps, from number `step` on."""
        return replace(self, **{name: value[:, step:] for name, value in self.tensors().items() if name != "memory"})

    def __getitem__(self, rows: slice) -> Self:
        """Some of the B trajectories."""
        return replace(self, **{name: value[rows] for name, value in self.tensors().items()})
