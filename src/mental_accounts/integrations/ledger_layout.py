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
from mental_accounts.integrations.ledger_page import LedgerPage

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
        self._is_dict = isinstance(space, spaces.Dict)
        flat = None if dict_key is not None or self._is_dict else self._flat_bounds(space)
        self.is_flat, self.size = flat is not None, 0 if flat is None else len(flat[0])
        """Whether observations are vectors with the ledger at their end, and the size of what comes before it."""
        self._is_vector = self.is_flat and isinstance(space, spaces.Box)
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
        size = int(values.sum())
        if size > MOST_VALUES:
            raise UsageError(
                f"{space} would take {size} numbers as a one-hot observation, over {MOST_VALUES}: "
                "dict_key='ledger' keeps it as it is, in a Dict"
            )
        self._begins = np.cumsum([0, *values[:-1]]) - start  # (parts,)
        return np.zeros(size), np.ones(size)

    def join(self, observation: Any, page: LedgerPage, place: int) -> Any:
        """One observation with its ledger, which is on the page already."""
        if self._is_vector:
            page.observed[place] = observation
        elif self.is_flat:
            page.observed[place] = self._flattened(observation, 1)[0]
        ledger = page.lines[place].astype(self.dtype)
        return ledger if self.is_flat else self._entry(observation, ledger)

    def join_batch(self, observations: Any, page: LedgerPage) -> Any:
        """Those of n environments with their ledgers, which are on the page already."""
        if self.is_flat:
            page.observed[:] = self._flattened(observations, len(page.lines))
        ledgers = page.whole.astype(self.dtype)
        return ledgers if self.is_flat else self._entry(observations, ledgers)

    def _flattened(self, observations: Any, n: int) -> Array:
        """Observations of n environments as vectors, (n, size)."""
        flat = np.asarray(observations).reshape(n, -1)
        return flat if self._begins is None else self._one_hot(flat)

    def _entry(self, observation: Any, ledger: Array) -> dict[str, Any]:
        return {**(observation if self._is_dict else {OBSERVATION: observation}), self.key: ledger}

    def _one_hot(self, values: Array) -> Array:
        """(n, parts) -> (n, size)."""
        found = np.zeros((len(values), self.size), np.float32)
        np.put_along_axis(found, values + self._begins, 1.0, axis=1)
        return found
