"""Players that do not learn, on the suite's bandits: they know that arms pay by chance, and need no training."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .suite_envs import SuiteEnvs

Floats = NDArray[np.float64]
Player = Callable[[Floats, Floats, np.random.Generator], Floats]
"""Wins and plays of every arm so far, (episodes, arms) each -> scores; the arm of the highest score is played."""


def uniform(wins: Floats, plays: Floats, rng: np.random.Generator) -> Floats:
    """Any arm."""
    return rng.random(wins.shape)


def greedy(wins: Floats, plays: Floats, rng: np.random.Generator) -> Floats:
    """The arm with the highest mean payoff, 0 where untried (rewards are ±1/T); ties by chance."""
    return (2 * wins - plays) / np.maximum(plays, 1) + 1e-9 * rng.random(wins.shape)


def thompson(wins: Floats, plays: Floats, rng: np.random.Generator) -> Floats:
    """A draw from each arm's posterior, with a uniform prior: the suite's own."""
    return rng.beta(1 + wins, 1 + plays - wins)


def ucb(c: float) -> Player:
    """UCB1's index, share of wins + c √(ln t / plays), for the c given; UCB1 has c = √2."""

    def scores(wins: Floats, plays: Floats, rng: np.random.Generator) -> Floats:
        t = np.maximum(plays.sum(1, keepdims=True), 1)
        bonus = np.sqrt(np.log(t) / np.maximum(plays, 1))
        tried = wins / np.maximum(plays, 1) + c * bonus + 1e-9 * rng.random(wins.shape)
        return np.where(plays > 0, tried, 1e9 + rng.random(wins.shape))

    return scores


PLAYERS: dict[str, Player] = {
    "uniform": uniform,
    "greedy on mean payoffs": greedy,
    "UCB1 (c = √2)": ucb(2**0.5),
    "Thompson sampling": thompson,
    "UCB, c = 0.1": ucb(0.1),
}


def play(environment: str, player: Player, episodes: int, seed: int) -> Floats:
    """Returns of episodes (episodes,) on one of the suite's bandits."""
    envs, rng = SuiteEnvs(environment, episodes, None), np.random.default_rng(seed)
    envs.reset(seed=seed)
    wins, plays = np.zeros((episodes, envs.actions)), np.zeros((episodes, envs.actions))
    returns, rows, ends = np.zeros(episodes), np.arange(episodes), np.zeros(episodes, np.bool_)
    while not ends.any():  # all episodes have the same length
        actions = player(wins, plays, rng).argmax(1)
        _, rewards, ends, _, _ = envs.step(actions)
        wins[rows, actions] += rewards > 0
        plays[rows, actions] += 1
        returns += rewards
    return returns
