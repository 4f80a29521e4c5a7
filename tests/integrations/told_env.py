"""An environment of few words, and a codebook of a user's own."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Told(gymnasium.Env[Any, Any]):
    """Rewards and observations as told; episodes of 5 steps."""

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any], reward: float = 1.0) -> None:
        self.observation_space, self.action_space, self.reward = observations, actions, reward
        self.took: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.took.append(action)
        self.t += 1
        return self.observation_space.sample(), self.reward, self.t >= 5, False, {}


def told(actions: spaces.Space[Any] | None = None, **more: Any) -> Told:
    return Told(spaces.Box(-1, 1, (2,)), spaces.Discrete(3) if actions is None else actions, **more)


class Quadrants:
    """A codebook of a user's own."""

    num_codes, dim = 4, 2

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift

    def route(self, actions: np.ndarray) -> np.ndarray:
        return (actions > 0).astype(int) @ np.array([1, 2]) + self.shift
