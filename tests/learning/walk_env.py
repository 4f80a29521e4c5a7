"""A task that ends early or late, acts otherwise than it is told at times, and can be made to break."""

import os
import signal
import time
from typing import Any

import gymnasium
import numpy as np

STEPS = 20
ENV_ID = "tests.learning.walk_env:Walk-v0"
DISCRETE_ID = "tests.learning.walk_env:DiscreteWalk-v0"


class Walk(gymnasium.Env):
    """A random walk from 0 that the action pushes; over when it leaves [-6, 6], or after 20 steps.

    Every fourth action or so is replaced, which `info` says. `fault` happens in step 5 of an episode with an odd
    number: raise, die (its process), or sleep.
    """

    def __init__(self, discrete: bool = False, fault: str = "") -> None:
        self.observation_space = gymnasium.spaces.Box(-100, 100, (2,), np.float64)
        self.action_space = (
            gymnasium.spaces.Discrete(3, start=-1) if discrete else gymnasium.spaces.Box(-0.5, 0.7, (2,), np.float64)
        )
        self.discrete, self.fault = discrete, fault

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed, options=options)
        self.faulty = bool(self.fault) and seed is not None and seed % 2 == 1
        self.t, self.x = 0, self.np_random.normal(size=2) / 3
        return self.x.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        info = {}
        if self.np_random.random() < 0.25:
            action = self.np_random.integers(-1, 2) if self.discrete else self.np_random.uniform(-0.4, 0.6, 2)
            info["action_taken"] = action
        self.t += 1
        if self.faulty and self.t == 5:
            if self.fault == "raise":
                raise OSError("the motor is on fire")
            if self.fault == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "sleep":
                time.sleep(60)
        self.x = self.x + action + self.np_random.normal(size=2)
        left = bool(np.abs(self.x).max() > 6)
        return self.x.copy(), float(self.x.sum()), left, self.t >= STEPS, info


gymnasium.register("Walk-v0", entry_point=Walk)
gymnasium.register("DiscreteWalk-v0", entry_point=Walk, kwargs={"discrete": True})
