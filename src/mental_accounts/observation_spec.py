"""What an observation is made of, as plain numbers: enough to make a flat vector of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mental_accounts.fields import shown

MOST_NUMBERS = 10**6
"""Numbers of a flat observation, at most."""
IMAGE_DIMENSIONS = 3
"""A box with so many dimensions, or more, is an image."""


@dataclass(frozen=True)
class ObservationPart:
    """One entry of an observation: numbers of a box, or whole numbers that are read as one-hot vectors."""

    path: tuple[str, ...]
    """Where it is: keys of dicts and places in tuples. (): it is the whole observation."""
    shape: tuple[int, ...]
    """The shape of its numbers."""
    values: tuple[int, ...] = ()
    """How many values each of its whole numbers has; (): its numbers are read as they are."""
    start: tuple[int, ...] = ()
    """The smallest of those values."""

    def __post_init__(self) -> None:
        counts = (*self.shape, *self.values)
        if any(isinstance(n, bool) or not isinstance(n, int) for n in (*counts, *self.start)):
            raise TypeError(f"shape, values and start of an observation must be whole numbers, got {shown(self)}")
        if any(not 0 < n <= MOST_NUMBERS for n in counts) or self.size > MOST_NUMBERS:
            raise ValueError(
                f"{self.name} must have 1 to {MOST_NUMBERS:,} numbers as a flat vector, got {self.size:,} (of shape "
                f"{self.shape}{f', with {shown(self.values)} values' if self.values else ''})"
            )
        if self.values and not len(self.values) == len(self.start) == math.prod(self.shape):
            raise ValueError(f"{self.name} must have values and start for each of its numbers, got {shown(self)}")

    @property
    def size(self) -> int:
        """How many numbers of the flat vector it takes."""
        return sum(self.values) if self.values else math.prod(self.shape)

    @property
    def name(self) -> str:
        """For errors: `observation['camera']`."""
        return "observation" + "".join(f"[{key!r}]" for key in self.path)

    @property
    def is_image(self) -> bool:
        """Whether it is a picture, which a network does not read as a vector."""
        return not self.values and len(self.shape) >= IMAGE_DIMENSIONS


def check_observation(parts: Sequence[ObservationPart], state_dim: int, *, encoder: str | None) -> None:
    """Refuse parts that do not add up to the flat vector, and images that nothing encodes."""
    for part in parts:
        if part.is_image and encoder is None:
            raise ValueError(
                f"{part.name} is an image of shape {part.shape}, and there is no encoder to read it: give "
                "--model.encoder conv (in Python: encoder='conv', or one of your own), or put "
                "gymnasium.wrappers.FlattenObservation around the environment to have it read as a plain vector"
            )
    if parts and (size := sum(part.size for part in parts)) != state_dim:
        raise ValueError(f"the parts of an observation must have state_dim = {state_dim} numbers together, got {size}")
