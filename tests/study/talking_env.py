"""An environment that prints."""

from typing import Any

import gymnasium
import numpy as np


class Talking(gymnasium.Env[np.ndarray, np.ndarray]):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        print(42)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        self.t += 1
        print("null")
        return np.zeros(1, np.float32), float(action[0]), False, self.t >= 5, {}


gymnasium.register("Talking-v0", entry_point=f"{__name__}:Talking", max_episode_steps=5)
