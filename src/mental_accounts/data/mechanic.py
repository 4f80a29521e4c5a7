"""The behaviour policy for robots with a broken actuator: the robot's medium policy, corrected after a delay."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from mental_accounts.data.behaviour_worker import Actor
from mental_accounts.data.builtin import recipe_of
from mental_accounts.environments.playing import Played, own_chance


@dataclass(frozen=True)
class Mechanic:
    """The medium policy acts; some steps after an actuator was reversed, its action is reversed too, as if repaired.

    So it shows how to adapt: wrong for a while, then right. With `soonest` and `latest` 0 it is an oracle; with both
    beyond the end of the episode it never adapts.
    """

    robot: str
    """The robot whose medium policy acts, such as `halfcheetah`."""
    soonest: int = 10
    """The shortest delay, in steps."""
    latest: int = 40
    """The longest delay; each episode draws its own."""

    def play(self, env: gymnasium.Env[Any, Any], seed: int) -> Played:
        """One episode, determined by the seed."""
        recipe = recipe_of(self.robot, "medium")
        actor = Actor.read(str(recipe.shares[0].file), recipe.log_std_range)
        rng = own_chance(seed)
        delay = int(rng.integers(self.soonest, self.latest + 1))
        observation, info = env.reset(seed=seed)
        steps: list[tuple[Any, Any, float, int]] = []
        done, terminated, broken_for = False, False, 0
        while not done:
            which = int(info["broken"])
            action = actor.act(observation, rng)
            broken_for = broken_for + 1 if which >= 0 else 0
            if broken_for > delay:
                action[which] *= -1
            next_observation, reward, terminated, truncated, info = env.step(action)
            steps.append((observation.astype(np.float32), action, float(reward), which))
            observation, done = next_observation, terminated or truncated
        return Played.of(steps, terminated, final=observation.astype(np.float32))
