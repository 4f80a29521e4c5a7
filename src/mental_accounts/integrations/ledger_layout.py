"""Where the ledger goes in an observation.

| the environment's observation | without `dict_key` | with `dict_key="ledger"` |
|---|---|---|
| Box of one dimension | one Box: the observation, then the ledger | Dict of `observation` and `ledger` |
| Discrete, MultiDiscrete | one Box: one-hot, then the ledger | Dict of `observation` and `ledger` |
| MultiBinary | one Box: the bits, then the ledger | Dict of `observation` and `ledger` |
| Dict | with the entry `ledger` | with the entry `dict_key` |
| anything else (images, Tuple, ...) | Dict of `observation` and `ledger` | Dict of `observation` and `dict_key` |
"""

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from mental_accounts.errors import UsageError

Array = NDArray[Any]

LEDGER, OBSERVATION = "ledger", "observation"
MOST_VALUES = 4096
"""Numbers of a one-hot observation."""


class LedgerLayout:
    """The space of observations with a ledger, and how to put them together."""

    space: Space[Any]

    def __init__(self, space: Space[Any], low: Array, high: Array, dict_key: str | None) -> None:
        if dict_key is not None and (not isinstance(dict_key, str) or not dict_key):
            raise UsageError(f"dict_key must be the name of an entry, such as 'ledger', or None, got {dict_key!r}")
        self.key = LEDGER if dict_key is None else dict_key
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        self._begins: Array | None = None
        self._is_dict, self._is_vector = isinstance(space, spaces.Dict), isinstance(space, spaces.Box)
        flat = None if dict_key is not None or self._is_dict else self._flat_bounds(space)
        self.is_flat = flat is not None
        if flat is not None:
            self.space = spaces.Box(
                np.concatenate([flat[0], low]).astype(self.dtype),
                np.concatenate([flat[1], high]).astype(self.dtype),
                dtype=self.dtype.type,
            )
            return
        taken = set(space.spaces) if isinstance(space, spaces.Dict) else {OBSERVATION}
        if self.key in taken:
            raise UsageError(
                f"the observation has an entry {self.key!r} already, of {sorted(taken)}: give another dict_key"
            )
        entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {OBSERVATION: space}
        box = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        self.space = spaces.Dict({**entries, self.key: box})

    def _flat_bounds(self, space: Space[Any]) -> tuple[Array, Array] | None:
        """Bounds of the observation as a vector; None where it is none."""
        if isinstance(space, spaces.Box) and len(space.shape) == 1 and space.dtype != np.bool_:
            self.dtype = np.result_type(space.dtype, np.float32)
            return space.low.astype(self.dtype), space.high.astype(self.dtype)
        if isinstance(space, spaces.MultiBinary):
            size = int(np.prod(space.shape))
            return np.zeros(size), np.ones(size)
        if isinstance(space, spaces.Discrete):
            values, start = np.array([space.n]), np.array([space.start])
        elif isinstance(space, spaces.MultiDiscrete):
            values, start = space.nvec.reshape(-1), space.start.reshape(-1)
        else:
            return None
        self._size = int(values.sum())
        if self._size > MOST_VALUES:
            raise UsageError(
                f"{space} would take {self._size} numbers as a one-hot observation, over {MOST_VALUES}: "
                "dict_key='ledger' keeps it as it is, in a Dict"
            )
        self._begins = np.cumsum([0, *values[:-1]]) - start  # (parts,)
        return np.zeros(self._size), np.ones(self._size)

    def join(self, observation: Any, channels: list[Array]) -> Any:
        """One observation with its ledger: channels of (num_codes,)."""
        if not self.is_flat:
            return self._entry(observation, np.concatenate(channels, dtype=np.float32, casting="same_kind"))
        if self._is_vector:
            return np.concatenate((observation, *channels), dtype=self.dtype, casting="same_kind")
        flat = np.asarray(observation).reshape(-1)
        if self._begins is not None:
            flat = self._one_hot(flat[None])[0]
        return np.concatenate((flat, *channels), dtype=self.dtype, casting="same_kind")

    def join_batch(self, observations: Any, channels: list[Array]) -> Any:
        """Those of n environments with their ledgers: channels of (n, num_codes)."""
        if not self.is_flat:
            return self._entry(observations, np.concatenate(channels, axis=1, dtype=np.float32, casting="same_kind"))
        flat = np.asarray(observations).reshape(len(channels[0]), -1)
        if self._begins is not None:
            flat = self._one_hot(flat)
        return np.concatenate((flat, *channels), axis=1, dtype=self.dtype, casting="same_kind")

    def _entry(self, observation: Any, ledger: Array) -> dict[str, Any]:
        return {**(observation if self._is_dict else {OBSERVATION: observation}), self.key: ledger}

    def _one_hot(self, values: Array) -> Array:
        """(n, parts) -> (n, size)."""
        found = np.zeros((len(values), self._size), np.float32)
        np.put_along_axis(found, values + self._begins, 1.0, axis=1)
        return found
