"""The three robots: what all their tasks share, whoever played the data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Robot:
    """ODT's settings and D4RL's constants."""

    name: str
    """As in `hopper-medium`."""
    env: str
    """Gymnasium's id without its version."""
    action_dim: int
    """Dimensions of an action; each lies in [-1, 1]."""
    target_return: float
    """The target return in evaluation."""
    exploration_return: float
    """The target return while exploring."""
    random_return: float
    """D4RL's normalised score is 0 here ..."""
    expert_return: float
    """... and 100 here."""
    eval_context_length: int
    """Steps in ODT's context while acting."""
    timestep_embedding: bool
    """Whether ODT embeds the absolute timestep."""


ROBOTS = {
    robot.name: robot
    for robot in (
        Robot("hopper", "Hopper", 3, 3600, 7200, -20.272305, 3234.3, 20, True),
        Robot("walker2d", "Walker2d", 6, 5000, 10000, 1.629008, 4592.3, 5, False),
        Robot("halfcheetah", "HalfCheetah", 6, 6000, 12000, -280.178953, 12135.0, 5, False),
    )
}
