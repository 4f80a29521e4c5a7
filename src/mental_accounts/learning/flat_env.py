"""Environments whose observations are no flat vectors, with observations that are."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from mental_accounts.flattening import flatten, observation_spec_of


class FlatObservation(gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Flattens Dict, Tuple, Discrete, MultiDiscrete, MultiBinary and Box observations (flattening.py).

    Processes that step environments make it anew from the environment's spec: it imports no PyTorch.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        self.observation_parts = observation_spec_of(env.observation_space)
        size = sum(part.size for part in self.observation_parts)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def observation(self, observation: Any) -> NDArray[Any]:
        flat: NDArray[Any] = flatten(self.observation_parts, [observation], 1)[0]
        return flat
