"""Two critics: what an action is worth in a state, by two networks that are learned side by side.

For discrete actions a critic gives the value of every action; for box actions, of one.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mental_accounts.policy import DecisionTransformer

CRITICS = 2


class Critics(nn.Module):
    """Q₁ and Q₂: MLPs with two hidden layers each, as stacked weights, so that one product computes both.

    The initial weights are PyTorch's for linear layers.
    """

    def __init__(self, inputs: int, outputs: int, hidden: int, *, layer_norm: bool = False) -> None:
        super().__init__()
        self.layer_norm = layer_norm
        sizes = [inputs, hidden, hidden, outputs]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for wide, narrow in pairwise(sizes):
            bound = 1 / math.sqrt(wide)
            self.weights.append(nn.Parameter(torch.empty(CRITICS, wide, narrow).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(CRITICS, 1, narrow).uniform_(-bound, bound)))

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., inputs) -> (2, ..., outputs)."""
        x = inputs.reshape(1, -1, inputs.shape[-1]).expand(CRITICS, -1, -1)
        return self._through(x, list(self.weights), list(self.biases)).view(CRITICS, *inputs.shape[:-1], -1)

    def of_actions(self, features: Tensor, actions: Tensor) -> Tensor:
        """Q₁ and Q₂ of actions in the policy's units: (..., features), (..., dim) or (...) int64 -> (2, ...)."""
        if actions.is_floating_point():
            found: Tensor = self(torch.cat([features, actions], dim=-1))
        else:
            found = self(features).gather(-1, actions.expand(CRITICS, *actions.shape).unsqueeze(-1))
        return found.squeeze(-1)

    def first(self, inputs: Tensor) -> Tensor:
        """Q₁ alone, (..., inputs) -> (..., outputs); the gradient is that of the inputs, not of the critic."""
        weights, biases = ([value[:1].detach() for value in values] for values in (self.weights, self.biases))
        x = inputs.reshape(1, -1, inputs.shape[-1])
        return self._through(x, weights, biases).view(*inputs.shape[:-1], -1)

    def _through(self, x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
        """(n, N, inputs) -> (n, N, outputs)."""
        for place, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if place < len(weights) - 1:
                x = F.relu(F.layer_norm(x, x.shape[-1:]) if self.layer_norm else x)
        return x


def critics_of(policy: DecisionTransformer, hidden: int, *, layer_norm: bool = False) -> Critics:
    """New critics that read what a policy reads of a step, and box actions."""
    action = policy.config.action
    inputs = policy.num_features + (0 if action.is_discrete else action.size)
    return Critics(inputs, action.size if action.is_discrete else 1, hidden, layer_norm=layer_norm)
