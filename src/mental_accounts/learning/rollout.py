"""Acting in environments: whole episodes, played in parallel, checked as they come in."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from mental_accounts.learning.seeds import derive
from mental_accounts.learning.update import DivergenceError
from mental_accounts.policy import Actor

Array = NDArray[Any]
Environment = gymnasium.Env[Any, Any]


class BrokenEnvironmentError(RuntimeError):
    """An environment that raised, or answered with something that is no number."""


@dataclass(frozen=True)
class Episode:
    """One whole episode of T steps."""

    observations: Array  # (T, state): what was seen before each action
    actions: Array  # (T, dim) or (T,), in the environment's units
    rewards: Array  # (T,)
    terminated: bool
    truncated: bool

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def total(self) -> float:
        """Its return."""
        return float(self.rewards.sum(dtype=np.float64))


class Environments:
    """The same environment n times. Made once, used for every rollout of its kind."""

    def __init__(self, make: Callable[[], Environment], n: int) -> None:
        self.envs = [make() for _ in range(n)]

    def __len__(self) -> int:
        return len(self.envs)

    def reset(self, i: int, seed: int) -> Array:
        """Begin an episode in environment i."""
        try:
            observation, _ = self.envs[i].reset(seed=seed)
        except Exception as error:
            raise BrokenEnvironmentError(f"environment {i} raised in reset(seed={seed}): {error!r}") from error
        return _checked_observation(observation, f"environment {i} at reset(seed={seed})")

    def step(self, i: int, action: Array, t: int) -> tuple[Array, float, bool, bool, Array]:
        """One step of environment i; t is named in errors. The last is the action that was really taken.

        An environment that may act otherwise than it is told says what it did in `info["action_taken"]`.
        """
        space = self.envs[i].action_space
        if isinstance(space, gymnasium.spaces.Box):  # in the environment's own precision, and within its bounds there
            action = np.clip(np.asarray(action, dtype=space.dtype), space.low, space.high)
        try:
            observation, reward, terminated, truncated, info = self.envs[i].step(action)
            paid = float(np.float32(float(reward)))
        except Exception as error:
            raise BrokenEnvironmentError(
                f"environment {i} raised in step {t} with action {action}: {error!r}"
            ) from error
        if not math.isfinite(paid):
            raise BrokenEnvironmentError(
                f"environment {i} gave the reward {reward} in step {t}; rewards must be finite"
            )
        seen = _checked_observation(observation, f"environment {i} in step {t}")
        taken = np.asarray(info.get("action_taken", action))
        return seen, paid, bool(terminated), bool(truncated), taken

    def close(self) -> None:
        """Close all of them."""
        for env in self.envs:
            env.close()


def play(
    actor: Actor,
    environments: Environments,
    target_return: float,
    seed: int,
    *,
    on_step: Callable[[], None] = lambda: None,
) -> list[Episode]:
    """One episode in every environment, together.

    Everything random follows from `seed`. `on_step` is called before each step of all environments; it may raise.
    """
    n = len(environments)
    observations = np.stack([environments.reset(i, derive(seed, "environment", i)) for i in range(n)])
    actor.begin(target_return, derive(seed, "actions"))
    logs: list[_Log] = [_Log() for _ in range(n)]
    over = np.zeros(n, dtype=bool)
    t = 0
    while not over.all():
        on_step()
        actions = actor.act(observations)
        if not np.isfinite(actions).all():
            raise DivergenceError(f"the policy's actions are not finite any more, in step {t}: training diverged")
        rewards, ended = np.zeros(n, dtype=np.float32), over.copy()
        for i in map(int, np.flatnonzero(~over)):
            seen, rewards[i], terminated, truncated, actions[i] = environments.step(i, actions[i], t)
            logs[i].add(observations[i], actions[i], rewards[i], terminated, truncated)
            observations[i] = seen
            ended[i] = terminated or truncated
        actor.record(rewards, ended, actions)
        over |= ended
        t += 1
    return [log.episode() for log in logs]


def play_randomly(environments: Environments, seed: int) -> list[Episode]:
    """One episode of uniformly random actions in every environment."""
    episodes = []
    for i, env in enumerate(environments.envs):
        space = env.action_space
        space.seed(derive(seed, "actions", i))
        observation, log, t, over = environments.reset(i, derive(seed, "environment", i)), _Log(), 0, False
        while not over:
            action = space.sample()
            seen, reward, terminated, truncated, taken = environments.step(i, action, t)
            log.add(observation, taken, reward, terminated, truncated)
            observation, t, over = seen, t + 1, terminated or truncated
        episodes.append(log.episode())
    return episodes


class _Log:
    """An episode in the making."""

    def __init__(self) -> None:
        self.observations: list[Array] = []
        self.actions: list[Array] = []
        self.rewards: list[float] = []
        self.terminated = self.truncated = False

    def add(self, observation: Array, action: Array, reward: float, terminated: bool, truncated: bool) -> None:
        self.observations.append(observation.copy())
        self.actions.append(np.array(action))
        self.rewards.append(reward)
        self.terminated, self.truncated = terminated, truncated

    def episode(self) -> Episode:
        return Episode(
            np.stack(self.observations).astype(np.float32),
            np.stack(self.actions),
            np.array(self.rewards, dtype=np.float32),
            self.terminated,
            self.truncated and not self.terminated,
        )


def _checked_observation(observation: Any, where: str) -> Array:
    seen = np.asarray(observation, dtype=np.float32)
    if not np.isfinite(seen).all():
        raise BrokenEnvironmentError(f"{where} gave an observation that is not finite: {seen}")
    return seen
