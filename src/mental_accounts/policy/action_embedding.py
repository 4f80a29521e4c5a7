"""Actions -> vectors: a linear map of box actions, a table of discrete ones."""

import math

import torch
from torch import Tensor, nn

from mental_accounts.policy_options import PolicyConfig


class NumbersTable(nn.Embedding):
    """One table for actions of several whole numbers: the sum of their rows, as large as a single one."""

    offsets: Tensor

    def __init__(self, values: tuple[int, ...], hidden: int) -> None:
        super().__init__(sum(values), hidden)
        self.register_buffer("offsets", torch.tensor((0, *values[:-1])).cumsum(0), persistent=False)

    def forward(self, actions: Tensor) -> Tensor:
        """(..., numbers) from 0 -> (..., hidden)."""
        return super().forward(actions + self.offsets).sum(dim=-2) / math.sqrt(len(self.offsets))


def embed_actions(config: PolicyConfig, *, bias: bool) -> nn.Module:
    """The map of a policy's actions, in its units, to width `hidden`; a linear one may have a bias."""
    action = config.action
    if not action.is_discrete:
        return nn.Linear(action.size, config.hidden, bias=bias)
    if action.kind == "multi-discrete":
        return NumbersTable(action.values, config.hidden)
    return nn.Embedding(action.size, config.hidden)
