"""Two critics: what an action is worth in a state, by two networks that are learned side by side.

For discrete actions a critic gives the value of every action; for actions of several numbers, of every value of each,
and Q(x, a) = Σ_d Q_d(x, a_d). For box actions it gives that of one. With a ledger, it also reads what the ledger tells
of that action's surroundings. Critics of a recurrent policy read its episodes by a recurrent network of their own: a
single step does not say what the policy remembers.
"""

import math
from dataclasses import replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mental_accounts.accounts import Books
from mental_accounts.policy import DecisionTransformer, Window
from mental_accounts.policy.recurrent import Recurrent

CRITICS = 2


class Critics(nn.Module):
    """Q₁ and Q₂: MLPs with two hidden layers each, as stacked weights, so that one product computes both.

    The initial weights are PyTorch's for linear layers. `recurrent` is the network that both share, if they have one.
    """

    def __init__(
        self, inputs: int, outputs: int, hidden: int, *, layer_norm: bool = False, recurrent: Recurrent | None = None
    ) -> None:
        super().__init__()
        self.layer_norm, self.recurrent = layer_norm, recurrent
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
            x = torch.bmm(x, weight) + bias  # baddbmm would copy the bias to every row first
            if place < len(weights) - 1:
                x = F.relu(F.layer_norm(x, x.shape[-1:]) if self.layer_norm else x)
        return x


def critics_of(policy: DecisionTransformer, hidden: int, *, layer_norm: bool = False) -> Critics:
    """New critics of a policy's steps."""
    config, books, features, recurrent = policy.config, books_near(policy), policy.num_features, None
    action = config.action
    if config.is_recurrent:
        recurrent = Recurrent(replace(config, return_input=None, dropout=0.0), features)
        features += config.hidden
    if action.is_discrete:
        return Critics(features, action.size, hidden, layer_norm=layer_norm, recurrent=recurrent)
    inputs = features + action.size + (0 if books is None else len(books.channels))
    return Critics(inputs, 1, hidden, layer_norm=layer_norm, recurrent=recurrent)


def features_of(policy: DecisionTransformer, critics: Critics, window: Window, steps: Tensor | None = None) -> Tensor:
    """What critics read of each step beside its action: (B, K, features).

    What the policy reads of it (`steps`, if that is known already), without a gradient; if the policy is recurrent,
    also the state of the critics' own network, which has one.
    """
    if steps is None:
        with torch.no_grad():
            steps = policy.step_features(window)
    if critics.recurrent is None:
        return steps
    before, timesteps = policy.previous_unit_actions(window), window.timesteps
    states = critics.recurrent(steps, before, window.returns_to_go, timesteps, window.mask)[0]
    return torch.cat([steps, states], dim=-1)


def action_values(policy: DecisionTransformer, critics: Critics, features: Tensor, actions: Tensor) -> Tensor:
    """Q₁ and Q₂ of actions in the policy's units: (..., features), (..., *action.shape) -> (2, ...)."""
    if policy.config.action.is_discrete:
        places = policy.action_scale.places(actions)  # (..., numbers)
        found: Tensor = critics(features).gather(-1, places.expand(CRITICS, *places.shape))
        return found.sum(dim=-1)
    found = critics(inputs_of(policy, features, actions))
    return found.squeeze(-1)


def inputs_of(policy: DecisionTransformer, features: Tensor, actions: Tensor) -> Tensor:
    """What critics read of box actions, (..., dim): with a ledger, also what it tells of their surroundings."""
    found, books = [features, actions], books_near(policy)
    if books is not None:
        begin = policy.config.state_features  # where `step_features` has what the ledger tells
        found.append(told_near(books, features[..., begin : begin + books.ledger_size], actions))
    return torch.cat(found, dim=-1)


def books_near(policy: DecisionTransformer) -> Books | None:
    """The books whose ledger critics read near box actions: it is read, and its codes have centres of actions alone."""
    if policy.accounts is None or not policy.config.reads_ledger or policy.config.action.is_discrete:
        return None
    books = policy.accounts.books
    return books if books.codebook.centers is not None and books.state_codes is None else None


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
