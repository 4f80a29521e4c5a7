"""Episodes played without learning: what a player is, the loop that all players share, and what it records."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Env = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class Played:
    """One episode of T steps."""

    observations: Array  # (T, obs)
    actions: Array  # (T, dim) or (T,): the actions taken
    rewards: Array  # (T,)
    contexts: Array  # (T,): the hidden context when the action was chosen: paying cell, best arm, broken part
    terminated: bool = False
    foregone: Array | None = None  # (T, actions): the rewards of all actions, where the environment tells them
    player: str | None = None
    """Who played it, where several take turns."""
    final_observation: Array | None = None  # (obs,): after the last step, where it was kept

    @classmethod
    def of(
        cls,
        steps: Sequence[tuple[Array, Array, float, int]],
        terminated: bool = False,
        foregone: Sequence[Array] = (),
        final: Array | None = None,
    ) -> "Played":
        """An episode from its steps: observation, action, reward, context; and the rewards of all actions, if known.

        `final` is the observation after the last step, which counts if the episode did not terminate.
        """
        columns = [np.array(column) for column in zip(*steps, strict=True)]
        told = np.array(foregone, dtype=np.float32) if len(foregone) else None
        rewards = columns[2].astype(np.float32)
        return cls(columns[0], columns[1], rewards, columns[3], terminated, told, final_observation=final)


class Memory(Protocol):
    """What a player knows within one episode."""

    def act(self, info: dict[str, Any]) -> Any:
        """The next action; `info` is the environment's last, for oracles alone."""
        ...

    def learn(self, action: Any, reward: float) -> None:
        """The action that was taken, perhaps not the player's own, and its reward."""
        ...


@dataclass(frozen=True)
class Player(ABC):
    """Acts by a rule; its fields and the seed determine an episode."""

    @abstractmethod
    def begin(self, env: Env, rng: np.random.Generator) -> Memory:
        """A blank memory, for one episode."""

    def play(self, env: Env, seed: int) -> Played:
        """One episode, determined by the seed."""
        memory = self.begin(env, own_chance(seed))
        observation, info = env.reset(seed=seed)
        steps: list[tuple[Array, Array, float, int]] = []
        foregone: list[Array] = []
        done = False
        while not done:
            context = context_of(info)
            action = memory.act(info)
            next_observation, reward, terminated, truncated, info = env.step(action)
            taken = info.get("action_taken", action)
            memory.learn(taken, float(reward))
            steps.append((observation, taken, float(reward), -1 if context is None else context))
            foregone += [info["foregone"]] if "foregone" in info else []
            observation, done = next_observation, terminated or truncated
        return Played.of(steps, foregone=foregone, final=None if terminated else observation)


def own_chance(seed: int) -> np.random.Generator:
    """A player's own random numbers: those of the seed itself drive the environment, and would reveal its context."""
    return np.random.default_rng([seed, 1])


def context_of(info: dict[str, Any]) -> int | None:
    """The paying cell or the best arm, if the environment tells."""
    if "cell" in info:
        return int(info["cell"])
    return int(np.argmax(info["means"])) if "means" in info else None
