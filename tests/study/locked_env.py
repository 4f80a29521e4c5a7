"""An environment that no other process can make: what makes it cannot be pickled."""

from typing import Any

import gymnasium

from tests.learning.tiny_env import Aim


class Locked:
    def __call__(self, **_: Any) -> Aim:
        return Aim()

    def __deepcopy__(self, _: object) -> "Locked":
        return self

    def __reduce__(self) -> Any:
        raise TypeError("it holds a lock")


gymnasium.register("Locked-v0", entry_point=Locked())
