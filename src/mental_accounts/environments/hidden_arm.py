"""HiddenArm-v0: one of 3^dim cells of the action space pays; which one is hidden, and it jumps now and then.

Observations do not reveal it. The only evidence is the rewards of past actions, half of which are not the agent's own:
at evenly spaced steps its action is replaced by a random one, reported in `info["action_taken"]`. So the paying cell
has to be inferred from rewards, over more steps than a short context holds.
"""

from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
WIDTH = 0.35
"""Standard deviation of the Gaussian reward around the centre of the paying cell."""
COST = 0.105
"""Cost per step: random actions lose on average."""
MOST_DIM, MOST_STEPS = 12, 1_000_000
"""Half a million cells, a million steps: names of environments come from files, too."""


class HiddenArm(gymnasium.Env[Array, Array]):
    """Actions in [-1, 1]^dim; observations (2,): whether this step's action will be replaced, and the time.

    reward = exp(-|a - c|² / (2 · 0.35²)) - 0.105 + noise · N(0, 1), where a is the action taken and c the centre of the
    paying cell, a point of {-0.75, 0, 0.75}^dim: the middles of the cells of a grid with three points per dimension.
    `hijack` is the share of steps at which the action is replaced (0.5: every second one), `jump` the probability per
    step that another cell pays from the next step on. Episodes end after 200 steps (truncated). The paying cell is
    `info["cell"]`, for oracles and probes; a policy must not read it.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(
        self,
        dim: int = 3,
        noise: float = 0.1,
        hijack: float = 0.5,
        jump: float = 0.01,
        steps: int = 200,
        render_mode: str | None = None,
    ) -> None:
        for name, value in (("hijack", hijack), ("jump", jump)):
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} must be in [0, 1], got {value}")
        if not 1 <= dim <= MOST_DIM or not 1 <= steps <= MOST_STEPS or noise < 0:
            raise ValueError(
                f"dim must be from 1 to {MOST_DIM}, steps from 1 to {MOST_STEPS} and noise at least 0, "
                f"got {dim}, {steps}, {noise}"
            )
        self.dim, self.noise, self.hijack, self.jump, self.steps = dim, noise, hijack, jump, steps
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (dim,), np.float32)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode with a cell drawn at random."""
        super().reset(seed=seed)
        self.t = 0
        self.cell = int(self.np_random.integers(3**self.dim))
        return self._observation(), {"cell": self.cell}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take the action, or a random one if this step is hijacked; then the paying cell may jump."""
        taken = np.minimum(np.maximum(np.asarray(action, np.float32), -1.0), 1.0)  # np.clip takes three times as long
        if is_hijacked(self.t, self.hijack):
            taken = self.np_random.uniform(-1.0, 1.0, self.dim).astype(np.float32)
        reward = pay(taken, centre(self.cell, self.dim)) + self.noise * float(self.np_random.normal())
        if self.np_random.random() < self.jump:
            self.cell = int(self.np_random.integers(3**self.dim))
        self.t += 1
        return self._observation(), reward, False, self.t >= self.steps, {"action_taken": taken, "cell": self.cell}

    def _observation(self) -> Array:
        return np.array([is_hijacked(self.t, self.hijack), self.t / self.steps], np.float32)


def is_hijacked(t: int, share: float) -> bool:
    """Whether the action of step t is replaced: `share` of all steps, evenly spaced."""
    return int((t + 1) * share) > int(t * share)


@lru_cache(3**7)
def centre(cell: int, dim: int) -> Array:
    """The centre of a cell, a point of {-0.75, 0, 0.75}^dim, the first dimension varying fastest; not to be changed."""
    found = np.array([0.75 * ((cell // 3**d) % 3 - 1) for d in range(dim)], np.float32)
    found.flags.writeable = False
    return found


def cell_of(action: Array) -> int:
    """The cell of an action: that of the nearest point of {-1, 0, 1}^dim, as in a grid codebook."""
    digits = np.clip(np.rint(action), -1, 1).astype(int) + 1
    return int((digits * 3 ** np.arange(len(digits))).sum())


def pay(action: Array, target: Array) -> float:
    """The reward of an action, without noise."""
    distance = action - target
    return float(np.exp(-np.add.reduce(distance * distance) / (2 * WIDTH**2))) - COST
