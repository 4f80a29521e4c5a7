"""Kinds of action, each of which a player keeps one number for: arms, cells of a grid, or sites placed at random."""

from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np

from mental_accounts.environments.hidden_arm import cell_of, centre
from mental_accounts.environments.playing import Array, Env

EDGE = 0.99
"""Players keep their actions off the bounds of the box, where many equal actions would have no density."""
WITHIN = 0.24
"""How far an action may be from the centre of its cell: cells end at a distance of 0.25."""


class Kinds(Protocol):
    """`count` kinds of action."""

    count: int

    def of(self, action: Any) -> int:
        """The kind of an action."""
        ...

    def action(self, kind: int, rng: np.random.Generator) -> Any:
        """An action of a kind."""
        ...


@dataclass
class Arms:
    """Discrete actions: each is a kind of its own."""

    count: int

    def of(self, action: Any) -> int:
        return int(action)

    def action(self, kind: int, rng: np.random.Generator) -> np.int64:
        return np.int64(kind)


class Cells:
    """The cells of a grid with three points per dimension: the codes of a policy, and the cells of `HiddenArm`."""

    def __init__(self, dim: int, spread: float) -> None:
        self.count, self.spread = 3**dim, spread
        self.centres = np.stack([centre(cell, dim) for cell in range(self.count)])  # (cells, dim)

    def of(self, action: Array) -> int:
        return cell_of(action)

    def action(self, kind: int, rng: np.random.Generator) -> Array:
        found: Array = self.centres[kind]
        if self.spread:
            found = found + np.clip(self.spread * rng.normal(size=found.shape), -WITHIN, WITHIN)
        return found.astype(np.float32)


class Sites:
    """Points placed at random in the box, anew for every episode: an action belongs to the nearest."""

    def __init__(self, dim: int, count: int, spread: float, rng: np.random.Generator) -> None:
        self.count, self.spread = count, spread
        self.points = rng.uniform(-EDGE, EDGE, (count, dim))

    def of(self, action: Array) -> int:
        return int(np.square(self.points - action).sum(1).argmin())

    def action(self, kind: int, rng: np.random.Generator) -> Array:
        point = self.points[kind]
        return inside(point + self.spread * rng.normal(size=point.shape)).astype(np.float32)


def arms_of(env: Env) -> int | None:
    """The number of discrete actions; None if actions are vectors."""
    space = env.action_space
    return int(space.n) if isinstance(space, gymnasium.spaces.Discrete) else None


def dim_of(env: Env) -> int:
    """The dimensions of vector actions."""
    space = env.action_space
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise TypeError(f"players act in Discrete spaces and in boxes of one axis, got {space}")
    return space.shape[0]


def grid_of(env: Env, spread: float = 0.0) -> Kinds:
    """The arms, or the cells of the grid that a policy's ledger has by default."""
    arms = arms_of(env)
    return Arms(arms) if arms is not None else Cells(dim_of(env), spread)


def sites_of(env: Env, fineness: float, spread: float, rng: np.random.Generator) -> Kinds:
    """The arms, or `fineness` to the power of the box's dimensions sites."""
    arms = arms_of(env)
    if arms is not None:
        return Arms(arms)
    dim = dim_of(env)
    return Sites(dim, max(2, round(fineness**dim)), spread, rng)


def inside(actions: Array) -> Array:
    """Actions beyond the edge, mirrored there."""
    size = np.abs(actions)
    return np.where(size > EDGE, np.sign(actions) * (2 * EDGE - size), actions)
