"""Tiny environments with the spaces that people have."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 8
Answer = tuple[Any, float, bool, bool, dict[str, Any]]


class Shown(gymnasium.Env[Any, Any]):
    """A number is shown among other things; the best action is that number."""

    observation_space: spaces.Space[Any] = spaces.Dict(
        {
            "which": spaces.Discrete(2, start=1),
            "parts": spaces.Tuple([spaces.Box(-1, 1, (1, 2)), spaces.MultiBinary(2), spaces.MultiDiscrete([3, 2])]),
        }
    )
    action_space: spaces.Space[Any] = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.look()

    def step(self, action: Any) -> Answer:
        reward = self.pay(action)
        self.t += 1
        observation, info = self.look()
        return observation, reward, False, self.t >= STEPS, info

    def pay(self, action: Any) -> float:
        """Whether the number in sight was named."""
        return float(action == self.number)

    def look(self) -> tuple[Any, dict[str, Any]]:
        """What there is to see now."""
        self.number = int(self.np_random.integers(3))
        noise = self.np_random.uniform(-1, 1, (1, 2)).astype(np.float32)
        which, coin = int(self.np_random.integers(1, 3)), self.np_random.integers(0, 2, 2).astype(np.int8)
        return {"which": which, "parts": (noise, coin, np.array([self.number, coin[0]]))}, {}


class Doors(Shown):
    """Doors that pay 0, 1, 2 and 3; some are locked, and nothing in sight says which. Trying a locked one raises."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(4, start=1)

    def pay(self, action: Any) -> float:
        door = int(action - 1)
        if not self.mask[door]:
            raise RuntimeError(f"door {door} is locked")
        return float(door)

    def look(self) -> tuple[Any, dict[str, Any]]:
        self.mask = self.np_random.permutation(np.array([1, 1, 0, int(self.np_random.integers(2))], np.int8))
        if self.t >= STEPS:
            self.mask = np.zeros(4, np.int8)  # as many environments do: nothing is left to do at the end
        foregone = np.arange(4, dtype=np.float32)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {"action_mask": self.mask, "foregone": foregone}


class OpenDoors(Doors):
    """They stay open when the time is up, and episodes have many lengths; some are over when they end."""

    def look(self) -> tuple[Any, dict[str, Any]]:
        observation, info = super().look()
        self.mask = info["action_mask"] = np.where(self.mask.any(), self.mask, [1, 0, 1, 0])
        return observation, info

    def step(self, action: Any) -> Answer:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, bool(self.np_random.random() < 0.1), truncated, info


class DoorsByMethod(Doors):
    """As sb3-contrib has it."""

    def look(self) -> tuple[Any, dict[str, Any]]:
        return super().look()[0], {}

    def action_masks(self) -> np.ndarray:
        """Which doors are open."""
        return self.mask


class Panel(Shown):
    """Three dials show what is to be set: a point for each that is set right. Some settings may be blocked."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space: spaces.Space[Any] = spaces.MultiDiscrete([3, 2, 4], start=[1, 0, -1])
    values, starts = np.array([3, 2, 4]), np.array([1, 0, -1])
    blocks = False

    def pay(self, action: Any) -> float:
        assert self.action_space.contains(action), action
        dials = np.asarray(action) - self.starts
        assert self.mask[dials + np.cumsum([0, *self.values[:-1]])].all(), "blocked"
        return float((dials == self.wanted).mean())

    def look(self) -> tuple[Any, dict[str, Any]]:
        self.wanted = np.array([self.np_random.integers(count) for count in self.values])
        self.mask = np.ones(sum(self.values), bool)
        if self.blocks:
            begins = np.cumsum([0, *self.values[:-1]])
            self.mask = self.np_random.random(sum(self.values)) < 0.5
            self.mask[self.wanted + begins] = True
        seen = (self.wanted / (self.values - 1) * 2 - 1).astype(np.float32)
        return seen, {"action_mask": self.mask} if self.blocks else {}


class BlockedPanel(Panel):
    """With masks."""

    blocks = True


class Switches(Panel):
    """Three switches."""

    action_space = spaces.MultiBinary(3)
    values, starts = np.array([2, 2, 2]), np.zeros(3, np.int64)


class Bars(Shown):
    """Is the bar in the picture upright? Wherever it is: no single pixel tells."""

    observation_space = spaces.Dict(
        {"eye": spaces.Box(0, 255, (8, 8, 1), np.uint8), "speed": spaces.Box(-1, 1, (2,), np.float32)}
    )
    action_space = spaces.Discrete(2)

    def look(self) -> tuple[Any, dict[str, Any]]:
        self.number = int(self.np_random.integers(2))
        eye = self.np_random.integers(0, 60, (8, 8, 1)).astype(np.uint8)
        place = int(self.np_random.integers(8))
        eye[(slice(None), place) if self.number else (place, slice(None))] = 255
        return {"eye": eye, "speed": self.np_random.uniform(-1, 1, 2).astype(np.float32)}, {}
