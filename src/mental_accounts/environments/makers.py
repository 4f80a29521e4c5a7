"""Players that learn within an episode as bandit algorithms do, and a mixture of players: they make the data.

None of them keeps a policy's ledger. Where actions are vectors, two have no cells at all, and the others have sites
placed at random in every episode.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mental_accounts.environments.kinds import Kinds, sites_of
from mental_accounts.environments.playing import Array, Env, Memory, Played, Player
from mental_accounts.environments.recall import Recall

LIGHT = 0.01
"""Steps of a smaller weight are forgotten altogether."""


@dataclass(frozen=True)
class Thompson(Player):
    """Thompson sampling with discounted posteriors: the best of one draw per action.

    The posterior of an action's mean reward, with n decayed observations that sum to s, is
    N(s / (n + prior), noise² / (n + prior)).
    """

    forgetting: float
    """The share of every observation's weight that is lost at each step."""
    noise: float
    """Standard deviation of a reward."""
    prior: float
    """The weight of a reward of 0 before anything is seen, in observations."""
    width: float = 0.25
    """Width of the kernel between vectors."""

    def begin(self, env: Env, rng: np.random.Generator) -> Memory:
        window = int(np.ceil(np.log(LIGHT) / np.log1p(-self.forgetting)))
        return _Indexed(Recall(env, window, self.forgetting, self.width), self, rng)

    def indices(self, counts: Array, sums: Array, rng: np.random.Generator) -> Array:
        """The index of each action, of which the highest is taken."""
        known = counts + self.prior
        found: Array = sums / known + self.noise / np.sqrt(known) * rng.normal(size=len(known))
        return found


@dataclass(frozen=True)
class UCB(Player):
    """Sliding-window UCB: the highest s / (n + prior) + optimism · √(ln(1 + N) / (n + prior)), N the steps in sight."""

    window: int
    """Steps in sight; older ones are forgotten at once."""
    optimism: float
    """The weight of what is not known."""
    prior: float
    """The weight of a reward of 0 before anything is seen, in observations."""
    width: float = 0.25
    """Width of the kernel between vectors."""

    def begin(self, env: Env, rng: np.random.Generator) -> Memory:
        return _Indexed(Recall(env, self.window, 0.0, self.width), self, rng)

    def indices(self, counts: Array, sums: Array, rng: np.random.Generator) -> Array:
        """The index of each action, of which the highest is taken."""
        known = counts + self.prior
        found: Array = sums / known + self.optimism * np.sqrt(np.log1p(counts.sum()) / known)
        return found


class _Indexed:
    """Takes the option of the highest index."""

    def __init__(self, recall: Recall, player: Thompson | UCB, rng: np.random.Generator) -> None:
        self.recall, self.player, self.rng = recall, player, rng
        self.learn = recall.learn

    def act(self, info: dict[str, Any]) -> Any:
        options = self.recall.options(self.rng)
        index = self.player.indices(*self.recall.about(options), self.rng)
        best = options[index.argmax()]
        return np.int64(best) if self.recall.arms is not None else best.astype(np.float32)


@dataclass(frozen=True)
class EpsilonGreedy(Player):
    """The kind of action with the best running mean; a share `epsilon` of the time any kind."""

    epsilon: float
    """The share of steps that explore."""
    rate: float
    """The weight of the newest reward in the running mean of its kind."""
    fineness: float = 4.0
    """Where actions are vectors: sites per dimension."""
    spread: float = 0.1
    """Standard deviation of a vector around its site."""

    def begin(self, env: Env, rng: np.random.Generator) -> Memory:
        return _RunningMeans(self, sites_of(env, self.fineness, self.spread, rng), rng)


class _RunningMeans:
    def __init__(self, player: EpsilonGreedy, kinds: Kinds, rng: np.random.Generator) -> None:
        self.player, self.kinds, self.rng = player, kinds, rng
        self.means = np.zeros(kinds.count)

    def act(self, info: dict[str, Any]) -> Any:
        explores = self.rng.random() < self.player.epsilon
        return self.kinds.action(
            int(self.rng.integers(self.kinds.count) if explores else self.means.argmax()), self.rng
        )

    def learn(self, action: Any, reward: float) -> None:
        kind = self.kinds.of(action)
        self.means[kind] += self.player.rate * (reward - self.means[kind])


@dataclass(frozen=True)
class EWALearner(Player):
    """Experience-weighted attraction over random sites, or arms: a draw from the softmax of its attractions."""

    forgetting: float
    """φ: the share of every attraction forgotten at each step."""
    precision: float
    """Inverse temperature of the softmax over attractions."""
    fineness: float = 4.0
    """Where actions are vectors: sites per dimension."""
    spread: float = 0.1
    """Standard deviation of a vector around its site."""

    def begin(self, env: Env, rng: np.random.Generator) -> Memory:
        kinds = sites_of(env, self.fineness, self.spread, rng)
        return Attractions(kinds, self.forgetting, self.precision, rng)


class Attractions:
    """One attraction per kind of action; actions are drawn from their softmax."""

    def __init__(self, kinds: Kinds, forgetting: float, precision: float, rng: np.random.Generator) -> None:
        self.kinds, self.forgetting, self.precision, self.rng = kinds, forgetting, precision, rng
        self.values = np.zeros(kinds.count)

    def act(self, info: dict[str, Any]) -> Any:
        weights = np.exp(self.precision * (self.values - self.values.max()))
        kind = int(self.rng.choice(self.kinds.count, p=weights / weights.sum()))
        return self.kinds.action(kind, self.rng)

    def learn(self, action: Any, reward: float) -> None:
        self.values *= 1 - self.forgetting
        self.values[self.kinds.of(action)] += reward


@dataclass(frozen=True)
class Part:
    """A player and its share of the episodes."""

    name: str
    player: Player
    share: float


@dataclass(frozen=True)
class Mixture:
    """Players who take turns by episode, drawn by its seed; each plays what it would play alone."""

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        total = sum(part.share for part in self.parts)
        if abs(total - 1) > 1e-9 or any(part.share <= 0 for part in self.parts):
            raise ValueError(f"shares must be above 0 and sum to 1, got {[part.share for part in self.parts]}")

    def drawn(self, seed: int) -> Part:
        """Who plays the episode of that seed."""
        chance = np.random.default_rng([seed, 2])  # neither the environment's nor the player's
        return self.parts[int(chance.choice(len(self.parts), p=[part.share for part in self.parts]))]

    def play(self, env: Env, seed: int) -> Played:
        """One episode, determined by the seed."""
        part = self.drawn(seed)
        return replace(part.player.play(env, seed), player=part.name)
