"""Metrics of critics: whose gradient moves the policy, and whether values agree with the returns that came."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mental_accounts.data.windows import WindowSampler
from mental_accounts.learning.update import Updater
from mental_accounts.learning.values import ValueLearner
from mental_accounts.policy import DecisionTransformer, Window


def gradient_shares(updater: Updater, window: Window) -> dict[str, float]:
    """The norms of both parts of the policy's gradient on a batch of windows, and the critics' share of their sum."""
    values, policy = updater.values, updater.policy
    if values is None:
        return {}
    policy.eval()
    predicted = policy(window)
    losses = updater.objective(predicted, policy.action_scale.to_unit(window.actions), window.counted)
    pull, _ = values.policy_loss(predicted, window)
    supervised, pulled = _norm(values.supervised(losses), policy), _norm(pull, policy)
    total = supervised + pulled
    return {
        "values/gradient_supervised": supervised,
        "values/gradient_critics": pulled,
        "values/gradient_share": pulled / total if total else 0.0,
    }


def overestimation(values: ValueLearner, sampler: WindowSampler, episodes: int) -> dict[str, float]:
    """How far values are above the discounted returns of the newest episodes in the sampler's store.

    In the environment's units of reward, over all steps; `returns_from` says what the returns are.
    """
    store, gaps = sampler.store, []
    for place in range(-min(episodes, len(store)), 0):
        found = _values_of(values, sampler, place)  # (T,), in the critics' units
        trajectory = store.slice(place)
        rewards = trajectory.rewards.double().cpu().numpy() / values.reward_scale
        gaps.append(found - returns_from(rewards, found, values.options.discount, terminated=trajectory.terminated))
    return {"values/overestimation": float(np.concatenate(gaps).mean()) * values.reward_scale} if gaps else {}


def returns_from(
    rewards: NDArray[np.float64], values: NDArray[np.float64], gamma: float, *, terminated: bool
) -> NDArray[np.float64]:
    """The discounted return that came from each step of an episode on: (T,), (T,) in the same units -> (T,).

    What would have come after an episode was cut off is not known: the value at its last step stands for it.
    """
    return discounted(rewards, rewards[-1] if terminated else values[-1], gamma)


def discounted(rewards: NDArray[np.float64], last: float, gamma: float) -> NDArray[np.float64]:
    """G_t = r_t + γ G_{t+1} of rewards (T,), with G of the last step given: (T,)."""
    found = np.empty_like(rewards)
    found[-1] = last
    for t in range(len(rewards) - 2, -1, -1):
        found[t] = rewards[t] + gamma * found[t + 1]
    return found


@torch.no_grad()
def _values_of(values: ValueLearner, sampler: WindowSampler, place: int) -> NDArray[np.float64]:
    """Q₁ of every step of a trajectory, (T,): from windows that follow each other."""
    first, length = sampler.store.rows_of(place)
    begins = torch.arange(first, first + length, sampler.stride, device=sampler.store.device)
    window = sampler.at(begins)
    assert window.counted is not None
    return values.of_data(window)[window.counted].double().cpu().numpy()


def _norm(loss: Tensor, policy: DecisionTransformer) -> float:
    if not loss.requires_grad:
        return 0.0
    found = torch.autograd.grad(loss, list(policy.parameters()), retain_graph=True, allow_unused=True)
    return float(torch.stack([gradient.norm() for gradient in found if gradient is not None]).norm())
