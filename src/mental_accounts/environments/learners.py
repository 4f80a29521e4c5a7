"""Players of the tasks with a hidden context: an EWA learner (the behaviour policy), a random policy, and an oracle.

The learner is the paper's account holder without a transformer: it keeps one attraction per kind of action, posts every
reward under the action taken, and samples its next action from the softmax of its attractions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from mental_accounts.environments.hidden_arm import cell_of, centre

Array = NDArray[Any]
Choice = Callable[[Array, dict[str, Any], np.random.Generator], Any]
"""Attractions, the last info, a random generator -> an action of the environment: a vector, or a number."""


@dataclass(frozen=True)
class Played:
    """One episode of T steps."""

    observations: Array  # (T, obs)
    actions: Array  # (T, dim) or (T,): the actions taken
    rewards: Array  # (T,)
    contexts: Array  # (T,): the hidden context when the action was chosen: paying cell, best arm, broken part
    terminated: bool = False
    foregone: Array | None = None  # (T, actions): the rewards of all actions, where the environment tells them

    @classmethod
    def of(
        cls,
        steps: Sequence[tuple[Array, Array, float, int]],
        terminated: bool = False,
        foregone: Sequence[Array] = (),
    ) -> "Played":
        """An episode from its steps: observation, action, reward, context; and the rewards of all actions, if known."""
        columns = [np.array(column) for column in zip(*steps, strict=True)]
        told = np.array(foregone, dtype=np.float32) if len(foregone) else None
        return cls(columns[0], columns[1], columns[2].astype(np.float32), columns[3], terminated, told)


@dataclass(frozen=True)
class Learner:
    """An EWA learner: its memory and its choice rule."""

    forgetting: float = 0.05
    """φ: the share of every attraction forgotten at each step."""
    precision: float = 20.0
    """Inverse temperature of the softmax over attractions."""
    spread: float = 0.2
    """Standard deviation of a continuous action around the centre of its kind; actions are kept off the bounds of the
    box, where many equal actions would have no density."""

    def play(self, env: gymnasium.Env[Any, Any], seed: int) -> Played:
        """One episode, determined by the seed."""
        kinds = _centres(env)
        precision, spread = self.precision, self.spread

        def choose(attractions: Array, info: dict[str, Any], rng: np.random.Generator) -> Any:
            weights = np.exp(precision * (attractions - attractions.max()))
            kind = rng.choice(len(attractions), p=weights / weights.sum())
            if kinds is None:
                return np.int64(kind)
            near = kinds[kind] + np.clip(spread * rng.normal(size=kinds.shape[1]), -0.24, 0.24)
            return near.astype(np.float32)

        return _play(env, seed, choose, self.forgetting)


def play_randomly(env: gymnasium.Env[Any, Any], seed: int) -> Played:
    """An episode of uniformly random actions."""
    env.action_space.seed(int(own_chance(seed).integers(2**31)))
    return _play(env, seed, lambda attractions, info, rng: env.action_space.sample(), 0.05)


def own_chance(seed: int) -> np.random.Generator:
    """A player's own random numbers: those of the seed itself drive the environment, and would reveal its context."""
    return np.random.default_rng([seed, 1])


def play_knowingly(env: gymnasium.Env[Any, Any], seed: int) -> Played:
    """An episode of an oracle that knows the hidden context."""
    kinds = _centres(env)

    def choose(attractions: Array, info: dict[str, Any], rng: np.random.Generator) -> Any:
        best = _context(info)
        return np.int64(best) if kinds is None else kinds[best]

    return _play(env, seed, choose, 0.05)


def _play(env: gymnasium.Env[Any, Any], seed: int, choose: Choice, forgetting: float) -> Played:
    rng = own_chance(seed)
    kinds = _centres(env)
    attractions = np.zeros(env.action_space.n if kinds is None else len(kinds))  # type: ignore[attr-defined]
    observation, info = env.reset(seed=seed)
    steps: list[tuple[Array, Array, float, int]] = []
    foregone: list[Array] = []
    done = False
    while not done:
        context = _context(info)
        action = choose(attractions, info, rng)
        next_observation, reward, terminated, truncated, info = env.step(action)
        taken = info["action_taken"]
        kind = int(taken) if kinds is None else cell_of(taken)
        attractions *= 1 - forgetting
        attractions[kind] += float(reward)
        steps.append((observation, taken, float(reward), context))
        foregone += [info["foregone"]] if "foregone" in info else []
        observation, done = next_observation, terminated or truncated
    return Played.of(steps, foregone=foregone)


def _context(info: dict[str, Any]) -> int:
    return int(info["cell"]) if "cell" in info else int(np.argmax(info["means"]))


def _centres(env: gymnasium.Env[Any, Any]) -> Array | None:
    """The centres of all kinds of action, (kinds, dim); None if actions are discrete."""
    space = env.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return None
    assert isinstance(space, gymnasium.spaces.Box)
    dim = space.shape[0]
    return np.stack([centre(cell, dim) for cell in range(3**dim)])
