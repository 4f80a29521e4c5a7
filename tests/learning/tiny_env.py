"""A tiny task: see a number, name it. Gymnasium imports it by `tests.learning.tiny_env:Aim-v0`."""

from typing import Any, ClassVar

import gymnasium
import numpy as np

STEPS = 10
LIMIT = 1.0
ENV_ID = "tests.learning.tiny_env:Aim-v0"


class Aim(gymnasium.Env):
    """The best action is the number seen; reward 1 - |difference|, less a loss that would be 0 for a perfect aim.

    `fault` breaks the environment at step 3: raise, nan-observation or inf-reward.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, fault: str = "", render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Box(-LIMIT, LIMIT, (1,), np.float32)
        self.fault = fault

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed, options=options)
        self.t = 0
        return self._look(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward = 1.0 - abs(float(action[0]) - self.seen)
        self.t += 1
        observation = self._look()
        if self.fault and self.t == 3:
            if self.fault == "raise":
                raise OSError("the motor is on fire")
            if self.fault == "nan-observation":
                observation = np.full(1, np.nan, np.float32)
            if self.fault == "inf-reward":
                reward = float("inf")
        return observation, reward, False, self.t >= STEPS, {}

    def render(self) -> np.ndarray:
        picture = np.zeros((8, 64, 3), np.uint8)
        picture[:, int((self.seen + 1) * 31)] = 255
        return picture

    def _look(self) -> np.ndarray:
        self.seen = float(self.np_random.uniform(-0.8, 0.8))
        return np.array([self.seen], np.float32)


gymnasium.register("Aim-v0", entry_point=Aim)
