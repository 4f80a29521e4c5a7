"""What critics said of an episode's steps, against what came: values, discounted returns and TD errors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mental_accounts.inspect.episode_accounts import unit_actions
from mental_accounts.learning.critic_files import PolicyCritics
from mental_accounts.learning.critics import action_values
from mental_accounts.learning.episodes import Episode
from mental_accounts.learning.value_measures import returns_from
from mental_accounts.policy import DecisionTransformer, Window

Array = NDArray[Any]


@dataclass(frozen=True)
class EpisodeValues:
    """The values of one episode of T steps, in the environment's units of reward."""

    values: Array  # (T,): Q₁ of the action taken
    discounted_returns: Array  # (T,): what came from there on; cut off: completed with the value at the last step
    td_errors: Array  # (T,): r + γ min(Q₁, Q₂) of the next step - Q₁; NaN at the last step if it was not terminal

    @property
    def overestimation(self) -> Array:
        """How far values are above the returns that came, (T,)."""
        gap: Array = self.values - self.discounted_returns
        return gap


@torch.no_grad()
def values_of(policy: DecisionTransformer, held: PolicyCritics, episode: Episode, window: Window) -> EpisodeValues:
    """The values of an episode, given the policy's windows at its T steps (B = T)."""
    features = policy.step_features(window)[:, -1]  # (T, features)
    found = action_values(policy, held.critics, features, unit_actions(policy, episode))
    both = found.double().cpu().numpy() * held.reward_scale  # (2, T)
    values, rewards = both[0], episode.rewards.astype(np.float64)
    ahead = np.append(both.min(axis=0)[1:], 0.0 if episode.terminated else np.nan)
    returns = returns_from(rewards, values, held.discount, terminated=episode.terminated)
    return EpisodeValues(values, returns, rewards + held.discount * ahead - values)
