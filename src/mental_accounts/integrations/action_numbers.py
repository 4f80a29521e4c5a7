"""Actions of an environment -> the numbers that codebooks route: (n, dim) in [-1, 1], or whole numbers from 0."""

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from mental_accounts.errors import UsageError
from mental_accounts.integrations.numpy_codebooks import (
    CheckedCodes,
    DiscreteCodes,
    GridCodes,
    NumpyCodebook,
    codes_of,
)

Array = NDArray[Any]

BINS = 3
MOST_CELLS = 81
"""Codes of the largest grid that is taken by default; actions of more dimensions get a product codebook."""
GROUP = 3
"""Dimensions of a group of that product codebook, at most."""
MOST_DEFAULT_CODES = 4096
"""Codes of a codebook that nobody asked for."""
LIMIT = 1 + 1e-5
"""How far actions may be out of [-1, 1]: policies that squash and scale them round."""


class BoxActions:
    """A bounded Box: scaled to [-1, 1]."""

    def __init__(self, space: spaces.Box) -> None:
        self.space, self.dim = space, int(np.prod(space.shape))
        self.dtype = np.dtype(np.float32 if space.dtype in (np.float16, np.float32) else np.float64)
        low, high = space.low.astype(np.float64).reshape(-1), space.high.astype(np.float64).reshape(-1)
        half = (high - low) / 2
        self._middle = ((high + low) / 2).astype(self.dtype)
        self._half = np.where(half > 0, half, 1.0).astype(self.dtype)  # an action that cannot vary is 0
        self.is_plain = bool((self._middle == 0).all() and (self._half == 1).all())  # [-1, 1] already

    def __call__(self, actions: Array, n: int) -> Array:
        """Actions of n actors -> (n, dim)."""
        numbers = self.scaled(actions, n)
        if not (np.abs(numbers) <= LIMIT).all():  # NaN is not, either
            raise self.outside(actions)
        return numbers

    def scaled(self, actions: Array, n: int) -> Array:
        """As the call, not yet held to [-1, 1]."""
        numbers = np.asarray(actions)
        if numbers.dtype.kind not in "fiu" or numbers.size != n * self.dim:
            raise _misfit(self.space, actions, n)
        numbers = numbers.reshape(n, self.dim)
        if numbers.dtype != self.dtype:
            numbers = numbers.astype(self.dtype)
        return numbers if self.is_plain else (numbers - self._middle) / self._half

    def outside(self, actions: object) -> UsageError:
        """What is raised for actions beyond the bounds."""
        return UsageError(
            f"actions must be finite and within {self.space}, got {np.asarray(actions)}; clip them first, or put "
            "gymnasium.wrappers.ClipAction around LedgerObservation"
        )


class DiscreteActions:
    """Discrete, MultiDiscrete and MultiBinary: whole numbers from 0."""

    def __init__(self, space: Space[Any], values: Array, start: Array) -> None:
        self.space, self.dim = space, len(values)
        self.values = [int(value) for value in values]
        self._most, self._start = values.astype(np.uint64), start.astype(np.int64)
        self.first = int(start[0])

    def __call__(self, actions: Array, n: int) -> Array:
        """Actions of n actors -> (n, dim)."""
        given = np.asarray(actions)
        if given.dtype.kind not in "iub" or given.size != n * self.dim:
            raise _misfit(self.space, actions, n)
        numbers: Array = given.astype(np.int64, copy=False).reshape(n, self.dim) - self._start
        if not (numbers.view(np.uint64) < self._most).all():  # those below 0 are the largest of all
            raise UsageError(f"actions must be within {self.space}, got {given}")
        return numbers


ActionNumbers = BoxActions | DiscreteActions


def _misfit(space: Space[Any], actions: object, n: int) -> UsageError:
    given = np.asarray(actions)
    actors = "" if n == 1 else f" of {n} environments"
    return UsageError(f"actions{actors} must be of {space}, got {given.dtype} {given.shape}: {actions!r}")


def numbers_of(space: Space[Any]) -> ActionNumbers:
    """How the actions of a space become numbers; spaces that have no codes are refused."""
    if isinstance(space, spaces.Box):
        if not space.is_bounded("both"):
            raise UsageError(
                f"the action space must be bounded, got {space}: codes are kinds of action within bounds. If "
                "gymnasium.wrappers.ClipAction made it so, put LedgerObservation inside; else give it bounds with "
                "gymnasium.wrappers.TransformAction(env, lambda a: a, gymnasium.spaces.Box(-1, 1, shape))"
            )
        if not space.shape or not np.prod(space.shape):
            raise UsageError(f"the action space must have at least one dimension, got {space}")
        return BoxActions(space)
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space, np.array([space.n]), np.array([space.start]))
    if isinstance(space, spaces.MultiDiscrete):
        return DiscreteActions(space, space.nvec.reshape(-1), space.start.reshape(-1))
    if isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape))
        return DiscreteActions(space, np.full(size, 2), np.zeros(size))
    raise UsageError(
        f"the action space must be Discrete, MultiDiscrete, MultiBinary or a bounded Box, got {space}; wrap the "
        "environment so that its actions are one of these (gymnasium.wrappers.TransformAction), then LedgerObservation "
        "around it"
    )


def codebook_for(space: Space[Any], numbers: ActionNumbers, codebook: object) -> NumpyCodebook:
    """The codebook that was given, where it fits the space; else one by default."""
    if codebook is None:
        return _default_codes(space, numbers)
    codes = codes_of(codebook)
    name = type(codebook).__name__
    needed = f"{space} needs one of {numbers.dim} dimension{'s' if numbers.dim > 1 else ''}"
    if isinstance(codes, CheckedCodes):
        fits = codes.dim == numbers.dim
    elif isinstance(numbers, BoxActions):
        fits = codes.dim == numbers.dim and not isinstance(codes, DiscreteCodes)
    else:
        values = numbers.values
        fits = isinstance(codes, DiscreteCodes) and codes.values == values
        needed = f"{space} needs one code per action, " + (
            f"ma.DiscreteCodebook(n={values[0]})" if len(values) == 1 else "which codebook=None gives"
        )
    if not fits:
        raise UsageError(
            f"codebook does not fit the action space: {needed}, got {name} of {codes.num_codes} codes, dim={codes.dim}"
        )
    return codes


def _default_codes(space: Space[Any], numbers: ActionNumbers) -> NumpyCodebook:
    codes: DiscreteCodes | GridCodes
    if isinstance(numbers, DiscreteActions):
        codes = DiscreteCodes(numbers.values)
    elif BINS**numbers.dim <= MOST_CELLS:
        codes = GridCodes(numbers.dim, BINS)
    else:
        codes = GridCodes(numbers.dim, BINS, groups=-(-numbers.dim // GROUP))
    if codes.num_codes > MOST_DEFAULT_CODES:
        raise UsageError(
            f"{space} would get {codes.num_codes} codes by default, over {MOST_DEFAULT_CODES}: give a codebook of fewer"
        )
    return codes
