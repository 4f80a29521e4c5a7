"""Tasks with a hidden context, which has to be inferred from rewards over more steps than a short context holds.

Importing this registers them with Gymnasium: `gymnasium.make("HiddenArm-v0")`, or without an import
`gymnasium.make("mental_accounts.environments:HiddenArm-v0")`.
"""

import gymnasium

from mental_accounts.environments.bandit import DriftingBandit
from mental_accounts.environments.broken_actuator import BrokenActuator
from mental_accounts.environments.hidden_arm import HiddenArm

__all__ = ["BrokenActuator", "DriftingBandit", "HiddenArm"]

HERE = "mental_accounts.environments"


def register() -> None:
    """Register the environments with Gymnasium; calling it twice is harmless."""
    for name, entry, steps in (
        ("HiddenArm-v0", "hidden_arm:HiddenArm", 200),
        ("DriftingBandit-v0", "bandit:DriftingBandit", 200),
        ("BrokenHopper-v0", "broken_actuator:broken_hopper", 1000),
        ("BrokenWalker2d-v0", "broken_actuator:broken_walker2d", 1000),
        ("BrokenHalfCheetah-v0", "broken_actuator:broken_halfcheetah", 1000),
    ):
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=f"{HERE}.{entry}", max_episode_steps=steps)


register()
