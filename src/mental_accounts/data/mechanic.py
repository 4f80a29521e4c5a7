"""Who makes the data of robots with a broken actuator: a robot's medium policy, and a mechanic beside it."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from mental_accounts.data.behaviour_worker import Actor
from mental_accounts.data.builtin import recipe_of
from mental_accounts.environments.learners import Played, own_chance


@dataclass(frozen=True)
class Mechanic:
    """The medium policy acts; some steps after an actuator was reversed, the mechanic turns its wires round.

    That is a behaviour to learn from: wrong for a while, then right. With `soonest` and `latest` 0 it is an oracle;
    with both beyond an episode's end nobody ever mends anything.
    """

    robot: str
    """Whose medium policy acts, such as `halfcheetah`."""
    soonest: int = 10
    """The fewest steps that the mechanic takes."""
    latest: int = 40
    """The most; the number is drawn anew for each episode."""

    def play(self, env: gymnasium.Env[Any, Any], seed: int) -> Played:
        """One episode, all of it by seed."""
        recipe = recipe_of(self.robot, "medium")
        actor = Actor.read(str(recipe.shares[0].file), recipe.log_std_range)
        rng = own_chance(seed)
        delay = int(rng.integers(self.soonest, self.latest + 1))
        observation, info = env.reset(seed=seed)
        steps: list[tuple[Any, Any, float, int]] = []
        over, terminated, broken_for = False, False, 0
        while not over:
            which = int(info["broken"])
            action = actor.act(observation, rng)
            broken_for = broken_for + 1 if which >= 0 else 0
            if broken_for > delay:
                action[which] *= -1
            seen, reward, terminated, truncated, info = env.step(action)
            steps.append((observation.astype(np.float32), action, float(reward), which))
            observation, over = seen, terminated or truncated
        return Played.of(steps, terminated)
