"""Whole episodes, and their conversion to and from a store of trajectories."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.action_spec import ActionSpec
from mental_accounts.data.trajectories import Trajectories

Array = NDArray[Any]


@dataclass(frozen=True)
class Episode:
    """One whole episode of T steps."""

    observations: Array  # (T, state): before each action
    actions: Array  # (T, dim) or (T,), in the environment's units
    rewards: Array  # (T,)
    terminated: bool
    truncated: bool
    foregone: Array | None = None  # (T, actions): the rewards of all discrete actions, where they are known
    action_masks: Array | None = None  # (T, values) bool: the actions that were allowed, where the environment says
    final_observation: Array | None = None  # (state,): after the last step, where it was cut off and this is known
    final_mask: Array | None = None  # (values,) bool: the actions allowed there, where the environment says

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def total(self) -> float:
        """Its return."""
        return float(self.rewards.sum(dtype=np.float64))


def as_trajectories(episodes: list[Episode], gamma: float = 1.0, action_spec: ActionSpec | None = None) -> Trajectories:
    """Episodes as a store."""
    foregone = [episode.foregone for episode in episodes if episode.foregone is not None]
    masks = [episode.action_masks for episode in episodes if episode.action_masks is not None]
    unknown = np.full(episodes[0].observations.shape[1:], np.nan, np.float32)
    nothing = None if not masks else np.zeros(masks[0].shape[1], bool)
    return Trajectories.from_steps(
        np.concatenate([episode.observations for episode in episodes]),
        np.concatenate([episode.actions for episode in episodes]),
        np.concatenate([episode.rewards for episode in episodes]),
        lengths=[len(episode) for episode in episodes],
        terminated=[episode.terminated for episode in episodes],
        truncated=[episode.truncated for episode in episodes],
        gamma=gamma,
        action_spec=action_spec,
        foregone=np.concatenate(foregone) if foregone else None,
        action_masks=np.concatenate(masks) if masks else None,
        final_observations=[_or(episode.final_observation, unknown) for episode in episodes],
        final_masks=None if nothing is None else [_or(episode.final_mask, nothing) for episode in episodes],
        where="episodes",
    )


def as_episodes(store: Trajectories) -> list[Episode]:
    """A store as episodes."""
    return [
        Episode(
            trajectory.observations.cpu().numpy(),
            trajectory.actions.cpu().numpy(),
            trajectory.rewards.cpu().numpy(),
            trajectory.terminated,
            trajectory.truncated,
            None if trajectory.foregone is None else trajectory.foregone.cpu().numpy(),
            None if trajectory.action_masks is None else trajectory.action_masks.cpu().numpy(),
            None if trajectory.final_observation is None else trajectory.final_observation.cpu().numpy(),
            None if trajectory.final_mask is None else trajectory.final_mask.cpu().numpy(),
        )
        for trajectory in store
    ]


def _or(values: Array | None, default: Array) -> Array:
    return default if values is None else values
