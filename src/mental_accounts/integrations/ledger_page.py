"""Where observations and their ledgers are put together."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class LedgerPage:
    """The observations of n actors and the channels of their ledgers, side by side: (n, size + channels · num_codes).

    Every step writes into the same memory, through views that are made once. What is handed out must be a copy.
    """

    def __init__(self, actors: int, size: int, channels: Sequence[str], num_codes: int, dtype: "np.dtype[Any]") -> None:
        self._made_of = (actors, size, channels, num_codes, dtype)
        width = size + len(channels) * num_codes
        self.whole: Array = np.zeros((actors, width), np.result_type(dtype, np.float64))
        self.lines = list(self.whole)  # n of (width,)
        self.observed = self.whole[:, :size]
        parts = [self.whole[:, begin : begin + num_codes] for begin in range(size, width, num_codes)]
        self.channels = list(zip(channels, parts, strict=True))

    def __reduce__(self) -> tuple[type["LedgerPage"], tuple[Any, ...]]:
        return type(self), self._made_of  # views that are copied or pickled would be arrays of their own
