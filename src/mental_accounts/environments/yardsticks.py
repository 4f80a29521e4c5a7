"""Players to measure others by: one knows nothing, one knows the environment's equations, one the hidden context."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mental_accounts.environments.bandit import DriftingBandit
from mental_accounts.environments.hidden_arm import COST, WIDTH, HiddenArm
from mental_accounts.environments.kinds import Cells, Kinds, grid_of
from mental_accounts.environments.playing import Array, Env, Memory, Player, context_of

LEAST_NOISE, LEAST_JUMP = 1e-3, 1e-9
"""Rewards are taken to be at least so noisy and jumps so likely, or a surprise would rule everything out."""


@dataclass(frozen=True)
class AtRandom(Player):
    """Uniformly random actions."""

    def begin(self, env: Env, rng: np.random.Generator) -> Memory:
        env.action_space.seed(int(rng.integers(2**31)))
        return _AtRandom(env)


class _AtRandom:
    def __init__(self, env: Env) -> None:
        self.space = env.action_space

    def act(self, info: dict[str, Any]) -> Any:
        return self.space.sample()

    def learn(self, action: Any, reward: float) -> None:
        pass


@dataclass(frozen=True)
class Oracle(Player):
    """Is told the hidden context: plays the centre of the paying cell, or the best arm."""

    def begin(self, env: Env, rng: np.random.Generator) -> Memory:
        return _Oracle(grid_of(env), rng)


class _Oracle:
    def __init__(self, kinds: Kinds, rng: np.random.Generator) -> None:
        self.kinds, self.rng = kinds, rng

    def act(self, info: dict[str, Any]) -> Any:
        context = context_of(info)
        if context is None:
            raise ValueError('this environment does not tell its hidden context: info has neither "cell" nor "means"')
        return self.kinds.action(context, self.rng)

    def learn(self, action: Any, reward: float) -> None:
        pass


@dataclass(frozen=True)
class Bayes(Player):
    """Knows the equations of the environment, and everything that follows from what it has seen: the exact posterior.

    On `HiddenArm` it plays the centre of the cell with the highest expected reward; on `DriftingBandit`, where each arm
    is a Kalman filter of its own, the arm of the highest mean + `optimism` · standard deviation.
    """

    optimism: float = 1.5
    """The weight of what is not known about an arm."""

    def begin(self, env: Env, rng: np.random.Generator) -> Memory:
        inner = env.unwrapped
        if isinstance(inner, HiddenArm):
            return _CellFilter(inner, rng)
        if isinstance(inner, DriftingBandit):
            return _ArmFilter(inner, self.optimism)
        raise TypeError(f"the equations of HiddenArm and DriftingBandit are known, those of {inner} are not")


class _CellFilter:
    """The probability that each cell pays: a hidden Markov chain."""

    def __init__(self, env: HiddenArm, rng: np.random.Generator) -> None:
        self.cells, self.rng = Cells(env.dim, 0.0), rng
        self.noise, self.jump = max(env.noise, LEAST_NOISE), max(env.jump, LEAST_JUMP)
        self.chances = np.full(self.cells.count, 1 / self.cells.count)
        self.pays = np.stack([self._means(point) for point in self.cells.centres])  # (played, paying)

    def act(self, info: dict[str, Any]) -> Array:
        return self.cells.action(int((self.pays @ self.chances).argmax()), self.rng)

    def learn(self, action: Array, reward: float) -> None:
        fits = -np.square((reward - self._means(action)) / self.noise) / 2
        weighed = self.chances * np.exp(fits - fits.max())
        self.chances = (1 - self.jump) * weighed / weighed.sum() + self.jump / self.cells.count

    def _means(self, action: Array) -> Array:
        """The mean reward of an action for each cell that may pay."""
        apart = np.square(self.cells.centres - action).sum(1)
        found: Array = np.exp(apart / (-2 * WIDTH**2)) - COST
        return found


class _ArmFilter:
    """A Kalman filter for each arm's mean, which is N(0, 1) before anything is seen."""

    def __init__(self, env: DriftingBandit, optimism: float) -> None:
        self.noise, self.drift, self.optimism = max(env.noise, LEAST_NOISE), env.drift, optimism
        self.means, self.variances = np.zeros(env.arms), np.ones(env.arms)

    def act(self, info: dict[str, Any]) -> np.int64:
        return np.int64((self.means + self.optimism * np.sqrt(self.variances)).argmax())

    def learn(self, action: int, reward: float) -> None:
        gain = self.variances[action] / (self.variances[action] + self.noise**2)
        self.means[action] += gain * (reward - self.means[action])
        self.variances[action] *= 1 - gain
        self.means *= np.sqrt(1 - self.drift)
        self.variances = (1 - self.drift) * self.variances + self.drift
