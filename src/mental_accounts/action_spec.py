"""The action space of a policy, as plain numbers."""

import math
import numbers
from dataclasses import dataclass
from typing import Literal

from mental_accounts.fields import check_choice, shown
from mental_accounts.number_checks import check_count

MOST = 2**53
"""Larger integers are not exact as floats."""


@dataclass(frozen=True)
class ActionSpec:
    """The action space of an environment: a box with finite bounds, or a number of discrete actions."""

    kind: Literal["box", "discrete"]
    """box: real vectors; discrete: whole numbers."""
    size: int
    """Dimensions of a box; number of discrete actions."""
    low: tuple[float, ...] = ()
    """Lower bounds of a box; the policy works in [-1, 1], and actions are rescaled to and from it."""
    high: tuple[float, ...] = ()
    """Upper bounds of a box."""
    start: int = 0
    """The smallest discrete action."""

    def __post_init__(self) -> None:
        check_choice(self, "kind")
        check_count("action.size", self.size, 1)
        if isinstance(self.start, bool) or not isinstance(self.start, numbers.Integral):
            raise TypeError(f"action.start must be a whole number, got {self.start!r}")
        if not -MOST <= self.start <= MOST:
            raise ValueError(f"action.start must be within ±2**53, got {shown(self.start)}")
        if self.kind == "box":
            if len(self.low) != self.size or len(self.high) != self.size:
                raise ValueError(
                    f"action.low and action.high must have {self.size} bounds each, "
                    f"got {len(self.low)} and {len(self.high)}"
                )
            for d, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
                if not (math.isfinite(low) and math.isfinite(high) and low < high):
                    raise ValueError(
                        f"action bounds must be finite with low < high, got [{low}, {high}] in dimension {d}"
                    )
            for name in ("low", "high"):  # plain floats, since they are saved as JSON
                object.__setattr__(self, name, tuple(float(bound) for bound in getattr(self, name)))

    @property
    def choices(self) -> tuple[int, ...]:
        """How many values each number of a discrete action has; () for a box."""
        return (self.size,) if self.is_discrete else ()

    @property
    def is_discrete(self) -> bool:
        """Whether actions are whole numbers."""
        return self.kind == "discrete"
