"""The loss: masked regression (bc, dt), or negative log-likelihood under a sequence-level entropy constraint (odt).

Everything is averaged over real steps; padding is ignored.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mental_accounts.learning.fused_losses import can_fuse, fused_losses
from mental_accounts.policy import ActionDistribution, Categorical, ClippedGaussian, Deterministic, SquashedGaussian
from mental_accounts.policy_options import PolicyConfig

ENTROPY_SHARE = 0.2
"""The target entropy of discrete actions, as a share of the largest one."""


@dataclass(frozen=True)
class Losses:
    """Scalars on the policy's device."""

    loss: Tensor
    """What the optimiser minimises: nll - λ · entropy (odt), each step weighted if the likelihood is clipped; or the
    regression error (bc, dt)."""
    nll: Tensor
    """Negative log-likelihood of the actions (odt); mean squared error or cross-entropy (bc, dt)."""
    entropy: Tensor
    """Mean entropy of the predicted actions; 0 for deterministic ones."""
    constraint: Tensor | None = None
    """The part of the loss that is there for the entropy, - λ · entropy; None if there is none, or nobody reads it."""
    target_entropy: Tensor | None = None
    """The lower bound on the entropy that follows from the actions allowed; None: that of the objective."""


class Objective(nn.Module):
    """The loss of a policy, and λ, the multiplier of the entropy constraint.

    L(θ, λ) = J(θ) + λ (target - H(θ)) with λ >= 0 (held as its logarithm): the policy takes a step in θ, then
    `lambda_loss` one in λ. The target entropy defaults to minus the number of action dimensions, or a fifth of log n
    for n discrete actions (of their sum over the numbers of an action); with action masks, n is the number of those
    allowed, and the target the mean over steps.
    """

    def __init__(self, config: PolicyConfig, initial_lambda: float = 0.1, target_entropy: float | None = None) -> None:
        super().__init__()
        if not initial_lambda > 0 or not math.isfinite(initial_lambda):
            raise ValueError(f"initial_lambda must be positive, got {initial_lambda}")
        self.constrained, self.follows_masks = config.is_constrained, False
        self.log_lambda = nn.Parameter(torch.tensor(math.log(initial_lambda)), requires_grad=self.constrained)
        if target_entropy is None:
            largest = sum(math.log(count) for count in config.action.choices)
            target_entropy = ENTROPY_SHARE * largest if config.action.is_discrete else -float(config.action.size)
            self.follows_masks = config.action_masks
        self.target_entropy = target_entropy

    @property
    def multiplier(self) -> Tensor:
        """λ."""
        return self.log_lambda.exp()

    def forward(
        self,
        predicted: ActionDistribution,
        actions: Tensor,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Losses:
        """Losses of predictions (B, K) for the policy's actions, (B, K, dim) or (B, K), where mask (B, K) is True."""
        expected = predicted.mode().shape
        if actions.shape != expected:
            raise ValueError(f"actions must have shape {tuple(expected)} like predictions, got {tuple(actions.shape)}")
        if isinstance(predicted, (ClippedGaussian, SquashedGaussian)) and can_fuse(predicted):
            return Losses(*fused_losses(predicted, actions, mask, self.multiplier, generator).unbind())
        if mask is not None:  # a padded step may hold anything
            actions = actions.masked_fill(mask.logical_not().view(*mask.shape, *[1] * (actions.ndim - 2)), 0)
        if isinstance(predicted, Deterministic):
            error = mean_over((predicted.action - actions).square().mean(dim=-1), mask)
            return Losses(error, error, torch.zeros_like(error))
        if isinstance(predicted, ClippedGaussian):
            return self._weighted(predicted, actions, mask)
        assert isinstance(predicted, (SquashedGaussian, Categorical))
        nll = -mean_over(predicted.log_prob(actions), mask)
        entropy = mean_over(predicted.entropy(generator), mask)
        if not self.constrained:
            return Losses(nll, nll, entropy)
        held, target = self.multiplier.detach() * entropy, None
        if self.follows_masks and isinstance(predicted, Categorical):
            target = ENTROPY_SHARE * mean_over(predicted.largest_entropy(), mask)
        return Losses(nll - held, nll, entropy, -held, target)

    def _weighted(self, predicted: ClippedGaussian, actions: Tensor, mask: Tensor | None) -> Losses:
        """Σ_d σ_d² (nll_d - λ entropy_d), with σ² as a constant weight: the β-NLL of Seitzer et al. (2022), β = 1.

        For each prediction the gradient vanishes where the likelihood's does. But the likelihood's gradient in the
        mean, (mean - a) / σ², grows without bound as σ shrinks, and gradient clipping then leaves almost nothing for
        the steps that are not learned yet. Times σ² it is that of a squared error, on the same scale at every step.
        """
        weight = (2 * predicted.log_std.detach()).exp()
        nlls, entropies = -predicted.log_probs(actions), predicted.entropies()
        descended = weight * (nlls - self.multiplier.detach() * entropies)  # (B, K, dim)
        held = weight * self.multiplier.detach() * entropies
        loss, nll, entropy, constraint = (
            mean_over(values.sum(dim=-1), mask) for values in (descended, nlls, entropies, -held)
        )
        return Losses(loss, nll, entropy, constraint)

    def lambda_loss(self, entropy: Tensor, target: Tensor | None = None) -> Tensor:
        """λ · (H - target): minimising it raises λ while the entropy is below its target."""
        return self.multiplier * (entropy.detach() - (self.target_entropy if target is None else target))


def mean_over(values: Tensor, mask: Tensor | None) -> Tensor:
    """The mean where the mask is True; 0 where it is nowhere."""
    if mask is None:
        return values.mean()
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp(min=1)
