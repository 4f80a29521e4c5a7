"""DriftingBandit-v0: discrete actions whose mean rewards drift; the observation does not reveal them.

The canonical rule applies as published: the payoffs of the actions not taken are known (`info["foregone"]`).
"""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from mental_accounts.environments.hidden_arm import MOST_STEPS, is_hijacked

Array = NDArray[np.float32]
MOST_ARMS = 100_000


class DriftingBandit(gymnasium.Env[Array, np.int64]):
    """`arms` actions; arm j pays q_j + noise · N(0, 1), and each q_j follows its own slow random walk.

    q_j(t+1) = √(1 - drift) q_j(t) + √drift · N(0, 1): at all times q_j is N(0, 1) over episodes. Observations (2,):
    whether this step's arm will be replaced by a random one, and the time. That happens at evenly spaced steps
    (`hijack`); `info["action_taken"]` is the arm pulled. `info["foregone"]` has the payoffs of all arms at the step,
    and `info["means"]` the q_j, for oracles.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(
        self,
        arms: int = 10,
        noise: float = 0.5,
        drift: float = 0.01,
        hijack: float = 0.5,
        steps: int = 200,
        render_mode: str | None = None,
    ) -> None:
        if not 2 <= arms <= MOST_ARMS or not 1 <= steps <= MOST_STEPS:
            raise ValueError(
                f"arms must be at least 2 and at most {MOST_ARMS}, steps from 1 to {MOST_STEPS}, got {arms}, {steps}"
            )
        if noise < 0 or not 0.0 <= drift <= 1.0 or not 0.0 <= hijack <= 1.0:
            raise ValueError(f"noise must be at least 0, drift and hijack in [0, 1], got {noise}, {drift}, {hijack}")
        self.arms, self.noise, self.drift, self.hijack, self.steps = arms, noise, drift, hijack, steps
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(arms)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode with means drawn at random."""
        super().reset(seed=seed)
        self.t = 0
        self.means = self.np_random.normal(size=self.arms)
        return self._observation(), {"means": self.means.copy()}

    def step(self, action: np.int64 | int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Pull the arm, or a random one if this step is hijacked; then all means drift."""
        if not self.action_space.contains(np.int64(action)):
            raise ValueError(f"the action must be an arm from 0 to {self.arms - 1}, got {action}")
        taken = int(action)
        if is_hijacked(self.t, self.hijack):
            taken = int(self.np_random.integers(self.arms))
        payoffs = self.means + self.noise * self.np_random.normal(size=self.arms)
        drifted = np.sqrt(1 - self.drift) * self.means + np.sqrt(self.drift) * self.np_random.normal(size=self.arms)
        self.means = drifted
        self.t += 1
        info = {"action_taken": taken, "foregone": payoffs, "means": drifted.copy()}
        return self._observation(), float(payoffs[taken]), False, self.t >= self.steps, info

    def _observation(self) -> Array:
        return np.array([is_hijacked(self.t, self.hijack), self.t / self.steps], np.float32)
