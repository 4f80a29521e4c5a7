"""What the infos of a vector environment say of the step that was just taken."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class StepInfos:
    """One entry at a time, with the environments (n,) that say it of this step rather than of a reset.

    An environment that was reset by this very step says nothing of it (`active` is False there). In SAME_STEP mode the
    `ended` ones speak in `final_info`, and what they say in `infos` is of the next episode's reset.
    """

    def __init__(self, infos: Mapping[str, Any], *, active: Array | None = None, ended: Array | None = None) -> None:
        self._parts = [(infos, active if ended is None else ~ended)]
        if ended is not None and "final_info" in infos:
            self._parts.append((infos["final_info"], ended))

    def __contains__(self, name: str) -> bool:
        return any(name in infos for infos, _ in self._parts)

    def said(self, name: str) -> Iterator[tuple[Array, Array]]:
        """The entry's values (n, ...), and where they count (n,)."""
        for infos, where in self._parts:
            if name not in infos:
                continue
            values = np.asarray(infos[name])
            said = np.asarray(infos.get(f"_{name}", np.ones(len(values), np.bool_)))
            said = said if where is None else said & where
            if said.any():
                yield values, said
