"""Players that keep a policy's own ledger, without a transformer: one balance per cell of its grid, or per arm.

They are what a policy that reads its ledger may become at best, so a comparison needs them; data made by them favour
such a policy, since whoever made the data then is what the policy reads.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mental_accounts.environments.kinds import grid_of
from mental_accounts.environments.makers import Attractions
from mental_accounts.environments.playing import Env, Memory, Player


@dataclass(frozen=True)
class Learner(Player):
    """An EWA learner with a policy's cells and its φ: a draw from the softmax of its attractions."""

    forgetting: float = 0.05
    """φ: the share of every attraction forgotten at each step."""
    precision: float = 20.0
    """Inverse temperature of the softmax over attractions."""
    spread: float = 0.2
    """Standard deviation of a continuous action around the centre of its kind."""

    def begin(self, env: Env, rng: np.random.Generator) -> Memory:
        return Attractions(grid_of(env, self.spread), self.forgetting, self.precision, rng)


@dataclass(frozen=True)
class HighestAccount(Player):
    """Plays the arm of the highest balance, or the centre of its cell; the first of equals."""

    forgetting: float = 0.05
    """φ: the share of every balance forgotten at each step."""

    def begin(self, env: Env, rng: np.random.Generator) -> Memory:
        return _Highest(grid_of(env), self.forgetting, 0.0, rng)


class _Highest(Attractions):
    def act(self, info: dict[str, Any]) -> Any:
        return self.kinds.action(int(self.values.argmax()), self.rng)
