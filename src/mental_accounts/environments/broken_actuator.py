"""A wrapper that breaks or reverses an actuator at a random time: the observation reveals neither which nor when."""

from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Fault = Literal["dead", "reversed"]


class BrokenActuator(gymnasium.Wrapper[Array, Array, Array, Array]):
    """One actuator, drawn at random, stops working (`dead`) or works the wrong way (`reversed`) at a random time.

    The time is uniform in the first `latest` steps of an episode; with probability `spared` nothing breaks at all.
    Everything random follows from the environment's seed. `info["broken"]` is the actuator that is broken at the next
    step, or -1; it is meant for oracles.
    """

    def __init__(
        self, env: gymnasium.Env[Array, Array], fault: Fault = "reversed", latest: int = 100, spared: float = 0.2
    ) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, gymnasium.spaces.Box) or len(env.action_space.shape) != 1:
            raise TypeError(f"actuators can break where actions are a vector, got {env.action_space}")
        if fault not in ("dead", "reversed"):
            raise ValueError(f"fault must be dead or reversed, got {fault!r}")
        if latest < 1 or not 0.0 <= spared <= 1.0:
            raise ValueError(f"latest must be at least 1 and spared in [0, 1], got {latest} and {spared}")
        self.fault, self.latest, self.spared = fault, latest, spared
        self.size = int(env.action_space.shape[0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode: draw which actuator will break, and when."""
        observation, info = self.env.reset(seed=seed, options=options)
        random = self.env.unwrapped.np_random
        self.t = 0
        self.which = int(random.integers(self.size))
        self.when = int(random.integers(self.latest)) if random.random() >= self.spared else np.inf
        return observation, info | {"broken": self._broken()}

    def step(self, action: Array) -> tuple[Array, Any, bool, bool, dict[str, Any]]:
        """Take the action with its broken component dead or reversed."""
        if self._broken() >= 0:
            action = np.array(action)
            action[self.which] *= 0.0 if self.fault == "dead" else -1.0
        self.t += 1
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, info | {"broken": self._broken()}

    def _broken(self) -> int:
        return self.which if self.t >= self.when else -1


def broken_hopper(**kwargs: Any) -> gymnasium.Env[Array, Array]:
    """Hopper with an actuator that breaks."""
    return _broken("Hopper-v5", **kwargs)


def broken_walker2d(**kwargs: Any) -> gymnasium.Env[Array, Array]:
    """Walker2d with an actuator that breaks."""
    return _broken("Walker2d-v5", **kwargs)


def broken_halfcheetah(**kwargs: Any) -> gymnasium.Env[Array, Array]:
    """HalfCheetah with an actuator that breaks."""
    return _broken("HalfCheetah-v5", **kwargs)


def _broken(
    env_id: str, fault: Fault = "reversed", latest: int = 100, spared: float = 0.2, **kwargs: Any
) -> gymnasium.Env[Array, Array]:
    return BrokenActuator(gymnasium.make(env_id, **kwargs), fault, latest, spared)
