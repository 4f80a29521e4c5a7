"""The last steps of an episode, and what they say of any action: no cells, but the actions themselves."""

from typing import Any

import numpy as np

from mental_accounts.environments.kinds import EDGE, arms_of, dim_of, inside
from mental_accounts.environments.playing import Array, Env

ANYWHERE, NEARBY = 32, 32
"""Vectors that are weighed up at each step: so many anywhere in the box, so many near the best of the last steps."""
BEST, RADIUS = 4, 0.15
"""How many steps are the best, and the standard deviation around them."""


class Recall:
    """The last `window` steps; of each, a share `forgetting` of its weight is lost at every later step.

    Discrete actions tell of themselves; a vector tells of another by a Gaussian kernel of `width` of their distance.
    """

    def __init__(self, env: Env, window: int, forgetting: float, width: float) -> None:
        self.arms, self.forgetting, self.width = arms_of(env), forgetting, width
        dim = dim_of(env) if self.arms is None else 0
        self.actions = np.zeros((window, dim) if self.arms is None else window, float if dim else int)
        self.rewards, self.weights = np.zeros(window), np.zeros(window)
        self.steps = 0

    def learn(self, action: Any, reward: float) -> None:
        """Enter a step in place of the oldest."""
        place = self.steps % len(self.rewards)
        self.weights *= 1 - self.forgetting
        self.actions[place], self.rewards[place], self.weights[place] = action, reward, 1.0
        self.steps += 1

    def options(self, rng: np.random.Generator) -> Array:
        """What may be done next: all arms (n,), or some vectors (n, dim)."""
        if self.arms is not None:
            return np.arange(self.arms)
        known = min(self.steps, len(self.rewards))
        dim = self.actions.shape[1]
        anywhere = rng.uniform(-EDGE, EDGE, (ANYWHERE, dim))
        if not known:
            return anywhere
        best = np.argsort(-(self.weights * self.rewards)[:known])[:BEST]
        chosen = self.actions[best[rng.integers(len(best), size=NEARBY)]]
        return np.concatenate([anywhere, inside(chosen + RADIUS * rng.normal(size=(NEARBY, dim)))])

    def about(self, options: Array) -> tuple[Array, Array]:
        """How many steps tell of each option, by weight, and the sum of their rewards: (n,), (n,)."""
        if self.arms is not None:
            counts = np.bincount(self.actions, self.weights, self.arms)
            return counts, np.bincount(self.actions, self.weights * self.rewards, self.arms)
        apart = np.square(options).sum(1)[:, None] + np.square(self.actions).sum(1) - 2 * options @ self.actions.T
        near = np.exp(apart / (-2 * self.width**2)) * self.weights  # (n, window)
        return near.sum(1), near @ self.rewards
