"""State tokens -> a distribution over actions, in the precision of the weights even under autocast.

Actions are in the policy's units: [-1, 1] per dimension, or integers from 0. Log-probabilities and entropies are of
densities in those units, summed over dimensions.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mental_accounts.action_spec import ActionSpec
from mental_accounts.policy_options import PolicyConfig

LOG_STD_RANGE = (-5.0, 2.0)
BORDER = 1e-6
"""Actions are kept this far from ±1, where the inverse of tanh is infinite."""

MARGIN = 1e-3
"""A clipped Gaussian treats actions this close to ±1 as actions on the bound."""

FORBIDDEN = -1e9
"""The logit of an action that a mask forbids: its probability is 0, and so is its part of the entropy."""


class ActionDistribution(Protocol):
    """What a head predicts."""

    def mode(self) -> Tensor:
        """The action without noise: the mean, squashed or clipped, or the most likely discrete action."""
        ...

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """One action; differentiable in the distribution, unless actions are discrete."""
        ...


@dataclass(frozen=True)
class SquashedGaussian:
    """tanh(N(mean, diag(std²))): mean, log_std (..., dim). As in ODT."""

    mean: Tensor
    log_std: Tensor

    def mode(self) -> Tensor:
        return torch.tanh(self.mean)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return torch.tanh(self.mean + self.log_std.exp() * _noise(self.mean, generator))

    def log_prob(self, actions: Tensor) -> Tensor:
        """(..., dim) -> (...)."""
        return self.log_probs(actions).sum(dim=-1)

    def entropy(self, generator: torch.Generator | None = None) -> Tensor:
        """-log p of one reparameterised sample, (...): unbiased, and differentiable."""
        return self.entropies(generator).sum(dim=-1)

    def log_probs(self, actions: Tensor) -> Tensor:
        """Of each dimension, (..., dim)."""
        inside = actions.to(self.mean.dtype).clamp(-1 + BORDER, 1 - BORDER)
        return self._log_probs_before_squashing(torch.atanh(inside))

    def entropies(self, generator: torch.Generator | None = None) -> Tensor:
        """Of each dimension, (..., dim)."""
        return -self._log_probs_before_squashing(self.mean + self.log_std.exp() * _noise(self.mean, generator))

    def _log_probs_before_squashing(self, u: Tensor) -> Tensor:
        normal = _normal_log_density((u - self.mean) / self.log_std.exp()) - self.log_std
        squash = 2 * (math.log(2) - u - F.softplus(-2 * u))  # log(1 - tanh²u), even where tanh u rounds to ±1
        return normal - squash


@dataclass(frozen=True)
class ClippedGaussian:
    """N(mean, diag(std²)) clipped to [-1, 1]: mean, log_std (..., dim). The mass beyond a bound is on the bound.

    Inside, log-probabilities are those of the normal density; on a bound they are those of the whole tail, as in a
    Tobit model: log P(u >= 1) = log Φ((mean - 1) / σ). So an action on its bound pulls the mean to or beyond it, where
    the inverse of tanh would pull it to infinity.
    """

    mean: Tensor
    log_std: Tensor

    def mode(self) -> Tensor:
        return self.mean.clamp(-1, 1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return clamp_inward(self.mean + self.log_std.exp() * _noise(self.mean, generator))

    def log_prob(self, actions: Tensor) -> Tensor:
        """(..., dim) -> (...)."""
        return self.log_probs(actions).sum(dim=-1)

    def entropy(self, generator: torch.Generator | None = None) -> Tensor:
        """Exact, (...)."""
        return self.entropies().sum(dim=-1)

    def log_probs(self, actions: Tensor) -> Tensor:
        """Of each dimension, (..., dim)."""
        u = actions.to(self.mean.dtype)
        precision = (-self.log_std).exp()
        density = _normal_log_density((u - self.mean) * precision) - self.log_std
        tail = torch.special.log_ndtr((self.mean * u.sign() - 1) * precision)
        return torch.where(u.abs() < 1 - MARGIN, density, tail)

    def entropies(self) -> Tensor:
        """Of each dimension, (..., dim): of the density inside plus the masses on the bounds.

        The entropy of the unclipped Gaussian would raise σ without limit where the mean is beyond a bound, and with it
        the weight of those steps in the loss.
        """
        precision = (-self.log_std).exp()
        low, high = (-1 - self.mean) * precision, (1 - self.mean) * precision
        below: Tensor = torch.special.log_ndtr(low)
        above: Tensor = torch.special.log_ndtr(-high)
        inside = 1 - below.exp() - above.exp()
        spread = inside * (self.log_std + 0.5 * math.log(2 * math.pi * math.e))
        edges = 0.5 * (low * _normal_log_density(low).exp() - high * _normal_log_density(high).exp())
        return spread + edges - below.exp() * below - above.exp() * above


@dataclass(frozen=True)
class Deterministic:
    """A single action: action (..., dim)."""

    action: Tensor

    def mode(self) -> Tensor:
        return self.action

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self.action


@dataclass(frozen=True)
class Categorical:
    """Discrete actions: log_probs (..., n)."""

    log_probs: Tensor

    def mode(self) -> Tensor:
        return self._best(self.log_probs)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        noise = torch.empty_like(self.log_probs).exponential_(generator=generator)
        return self._best(self.log_probs - noise.log())  # Gumbel-max trick: no synchronisation

    def log_prob(self, actions: Tensor) -> Tensor:
        """(...) -> (...)."""
        return self.log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self, generator: torch.Generator | None = None) -> Tensor:
        """Exact, (...)."""
        return -(self.log_probs.exp() * self.log_probs).sum(dim=-1)

    def largest_entropy(self) -> Tensor:
        """Of a distribution over the same allowed actions, (...): log n of n actions."""
        return (self.log_probs.detach() > FORBIDDEN / 2).sum(dim=-1).log()

    def expected(self, values: Tensor) -> Tensor:
        """The mean of what actions are worth, (..., n) -> (...)."""
        return (self.log_probs.exp() * values).sum(dim=-1)

    def _best(self, scores: Tensor) -> Tensor:
        return scores.argmax(dim=-1)


@dataclass(frozen=True)
class MultiCategorical(Categorical):
    """Several discrete numbers at a time, independent given the state: log_probs (..., sum(values)), number by number.

    Log-probabilities, entropies and expected values are the sums over the numbers.
    """

    values: tuple[int, ...]

    def log_prob(self, actions: Tensor) -> Tensor:
        """(..., numbers) -> (...)."""
        numbers = zip(self.log_probs.split(self.values, dim=-1), actions.split(1, dim=-1), strict=True)
        return torch.cat([part.gather(-1, number) for part, number in numbers], dim=-1).sum(dim=-1)

    def largest_entropy(self) -> Tensor:
        parts = self.log_probs.split(self.values, dim=-1)
        return torch.stack([Categorical(part).largest_entropy() for part in parts]).sum(dim=0)

    def _best(self, scores: Tensor) -> Tensor:
        return torch.stack([part.argmax(dim=-1) for part in scores.split(self.values, dim=-1)], dim=-1)


def from_step(first: int, distribution: ActionDistribution) -> ActionDistribution:
    """The distributions (B, K, ...) of a window's steps, from number `first` on."""
    parts = {name: v[:, first:] if isinstance(v, Tensor) else v for name, v in vars(distribution).items()}
    later: ActionDistribution = type(distribution)(**parts)
    return later


def disturbed(
    actions: Tensor,
    noise: float,
    action: ActionSpec,
    generator: torch.Generator | None = None,
    clip: float = math.inf,
    allowed: Tensor | None = None,
) -> Tensor:
    """Actions with noise: (..., dim) get a Gaussian of this deviation; of discrete numbers, this share becomes random.

    `clip` bounds the Gaussian. allowed (..., n): random actions are of these.
    """
    if not action.is_discrete:
        return (actions + (noise * _noise(actions, generator)).clamp(-clip, clip)).clamp(-1, 1)
    if allowed is not None or action.values:
        draw = torch.rand(actions.shape, device=actions.device, generator=generator)
        if allowed is None:
            allowed = draw.new_ones(*actions.shape[:-1], action.size, dtype=torch.bool)
        equal = torch.where(allowed, 0.0, FORBIDDEN)
        uniform = MultiCategorical(equal, action.values) if action.values else Categorical(equal)
        return torch.where(draw < noise, uniform.sample(generator), actions)
    draw, other = torch.rand(2, *actions.shape, device=actions.device, generator=generator)
    return torch.where(draw < noise, (other * action.size).long().clamp(max=action.size - 1), actions)


class GaussianHead(nn.Module):
    """Mean and log σ by linear maps; tanh maps log σ into [-5, 2]."""

    def __init__(self, hidden: int, dim: int, distribution: type[SquashedGaussian] | type[ClippedGaussian]) -> None:
        super().__init__()
        self.mean = nn.Linear(hidden, dim)
        self.log_std = nn.Linear(hidden, dim)
        self.distribution = distribution

    def forward(self, x: Tensor) -> SquashedGaussian | ClippedGaussian:
        low, high = LOG_STD_RANGE
        weight = torch.cat([self.mean.weight, self.log_std.weight])  # one product for both
        bias = torch.cat([self.mean.bias, self.log_std.bias])
        mean, log_std = F.linear(x, weight, bias).chunk(2, dim=-1)
        return self.distribution(mean, low + (high - low) / 2 * (torch.tanh(log_std) + 1))


class DeterministicHead(nn.Module):
    """tanh of a linear map."""

    def __init__(self, hidden: int, dim: int) -> None:
        super().__init__()
        self.action = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Deterministic:
        return Deterministic(torch.tanh(self.action(x)))


class CategoricalHead(nn.Module):
    """Logits by a linear map; forbidden actions have none, and the others share all of the probability."""

    def __init__(self, hidden: int, action: ActionSpec) -> None:
        super().__init__()
        self.logits = nn.Linear(hidden, action.size)
        self.action = action

    def forward(self, x: Tensor, allowed: Tensor | None = None) -> Categorical:
        """(..., hidden), and where there are masks (..., n) bool."""
        logits = self.logits(x)
        logits = logits if allowed is None else logits.masked_fill(~allowed, FORBIDDEN)
        if not self.action.values:
            return Categorical(F.log_softmax(logits, dim=-1))
        parts = logits.split(self.action.values, dim=-1)
        return MultiCategorical(torch.cat([F.log_softmax(part, dim=-1) for part in parts], dim=-1), self.action.values)


def make_head(config: PolicyConfig) -> nn.Module:
    """The head for the action space and method, with orthogonal weights and zero biases."""
    if config.action.is_discrete:
        head: nn.Module = CategoricalHead(config.hidden, config.action)
    elif not config.is_constrained:
        head = DeterministicHead(config.hidden, config.action.size)
    else:
        distribution = SquashedGaussian if config.likelihood == "squashed" else ClippedGaussian
        head = GaussianHead(config.hidden, config.action.size, distribution)
    for layer in head.children():
        assert isinstance(layer, nn.Linear)
        nn.init.orthogonal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return head


class _ClampInward(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(-1, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        outward = (x.abs() > 1) & (gradient * x < 0)  # a step against the gradient would go further out
        return gradient.masked_fill(outward, 0.0)


def clamp_inward(x: Tensor) -> Tensor:
    """Clip to [-1, 1]; beyond a bound, a gradient that leads back inside is passed on, unlike that of `clamp`."""
    clipped: Tensor = _ClampInward.apply(x)  # type: ignore[no-untyped-call]
    return clipped


def _normal_log_density(z: Tensor) -> Tensor:
    return -0.5 * (z.square() + math.log(2 * math.pi))


def _noise(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)
