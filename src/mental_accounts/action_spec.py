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
    """The action space of an environment: a box with finite bounds, discrete actions, or several of them at a time."""

    kind: Literal["box", "discrete", "multi-discrete"]
    """box: real vectors; discrete: whole numbers; multi-discrete: vectors of whole numbers."""
    size: int
    """Dimensions of a box; number of discrete actions, or of the values of all numbers of a multi-discrete one."""
    low: tuple[float, ...] = ()
    """Lower bounds of a box; the policy works in [-1, 1], and actions are rescaled to and from it."""
    high: tuple[float, ...] = ()
    """Upper bounds of a box."""
    start: int = 0
    """The smallest discrete action."""
    values: tuple[int, ...] = ()
    """How many values each number of a multi-discrete action has."""
    starts: tuple[int, ...] = ()
    """The smallest of those values; (): 0."""

    def __post_init__(self) -> None:
        check_choice(self, "kind")
        check_count("action.size", self.size, 1)
        if self.kind == "multi-discrete":
            self._check_values()
        for start in (self.start, *self.starts):
            if isinstance(start, bool) or not isinstance(start, numbers.Integral):
                raise TypeError(f"action.start must be a whole number, got {start!r}")
            if not -MOST <= start <= MOST:
                raise ValueError(f"action.start must be within ±2**53, got {shown(start)}")
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
        return {"box": (), "discrete": (self.size,), "multi-discrete": self.values}[self.kind]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an action."""
        return {"box": (self.size,), "discrete": (), "multi-discrete": (len(self.values),)}[self.kind]

    @property
    def is_discrete(self) -> bool:
        """Whether actions are whole numbers, one or several."""
        return self.kind != "box"

    def _check_values(self) -> None:
        if not self.values:
            raise ValueError("action.values must have the number of values of each number, got none")
        for count in self.values:
            check_count("action.values", count, 1)
        if sum(self.values) != self.size:
            raise ValueError(f"action.size must be the sum of action.values, {sum(self.values)}, got {self.size}")
        object.__setattr__(self, "starts", tuple(self.starts or (0,) * len(self.values)))
        if len(self.starts) != len(self.values):
            raise ValueError(f"action.starts must have {len(self.values)} numbers, got {len(self.starts)}")
