"""Two critics: what an action is worth in a state, by two networks that are learned side by side.

For discrete actions a critic gives the value of every action; for box actions, of one. With a ledger, it also reads
what the ledger tells of that action's surroundings.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mental_accounts.accounts import Books

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


def tells_near_actions(books: Books) -> bool:
    """Whether `told_near` is defined: codes have centres, and are of actions alone."""
    return books.codebook.centers is not None and books.state_codes is None


def told_near(books: Books, told: Tensor, actions: Tensor) -> Tensor:
    """What a ledger tells of the surroundings of box actions: (..., ledger_size), (..., dim) -> (..., channels).

    Of each channel, the mean over all codes, weighted by a Gaussian of the distance from the action to a code's centre.
    Unlike routing it is differentiable: its gradient leads to where balances are higher.
    """
    centers = books.codebook.centers
    assert centers is not None
    apart = (actions.unsqueeze(-2) - centers.to(actions.dtype)).square().sum(dim=-1)  # (..., num_codes)
    near = torch.softmax(-apart / (2 * books.soft_width**2), dim=-1)
    by_channel: Tensor = told.unflatten(-1, (len(books.channels), books.num_codes))
    return (by_channel * near.unsqueeze(-2)).sum(dim=-1)
