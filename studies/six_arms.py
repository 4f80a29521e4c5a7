"""A bandit whose six arms drift, with an observation that never changes: only a memory of rewards tells them apart.

Its name is `six_arms:SixArms`, from this folder; `epsilon_greedy` plays it without learning.
"""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from mental_accounts.environments.makers import EpsilonGreedy

ARMS, STEPS = 6, 200
NOISE, DRIFT = 0.5, 0.01


class SixArms(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Arm j pays q_j + 0.5 · N(0, 1); each q_j is N(0, 1) at all times and drifts by √0.01 a step. 200 steps."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(ARMS)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode with means drawn at random."""
        super().reset(seed=seed)
        self.t, self.means = 0, self.np_random.normal(size=ARMS)
        return np.ones(1, np.float32), {}

    def step(self, action: np.int64 | int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Pull an arm; then all means drift."""
        reward = float(self.means[int(action)] + NOISE * self.np_random.normal())
        self.means = np.sqrt(1 - DRIFT) * self.means + np.sqrt(DRIFT) * self.np_random.normal(size=ARMS)
        self.t += 1
        return np.ones(1, np.float32), reward, False, self.t >= STEPS, {}


def epsilon_greedy(seeds: list[int], epsilon: float, rate: float) -> NDArray[np.float64]:
    """The returns of episodes, one for each seed of the environment: the best running mean, ε of the time any arm.

    `rate` is the weight of the newest reward in an arm's running mean.
    """
    env, player = SixArms(), EpsilonGreedy(epsilon, rate)
    return np.array([player.play(env, seed).rewards.sum(dtype=np.float64) for seed in seeds])


def best_epsilon_greedy(seeds: list[int]) -> tuple[float, float]:
    """The ε and the rate that do best on these seeds, of a grid of both."""
    grid = [(epsilon, rate) for epsilon in (0.0, 0.02, 0.05, 0.1, 0.2) for rate in (0.05, 0.1, 0.2, 0.3, 0.5)]
    return max(grid, key=lambda pair: float(epsilon_greedy(seeds, *pair).mean()))
