"""Observations of any space -> flat vectors, as `gymnasium.spaces.flatten` makes them; many at a time.

Dict and Tuple: their parts one after the other, in Gymnasium's order. Box and MultiBinary: their numbers. Discrete: a
one-hot vector; MultiDiscrete: one for each number. Data sets, environments and `policy.act` all use this.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.errors import UsageError
from mental_accounts.fields import shown
from mental_accounts.observation_spec import MOST_NUMBERS, ObservationPart

if TYPE_CHECKING:
    import gymnasium

Array = NDArray[Any]


def observation_spec_of(space: "gymnasium.Space[Any]") -> tuple[ObservationPart, ...]:
    """The parts of a space's observations; () where they are flat vectors already. Other spaces are refused."""
    from gymnasium import spaces  # a policy itself needs no environments

    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return ()
    parts = parts_of(space)
    if not parts or (size := sum(part.size for part in parts)) > MOST_NUMBERS:
        many = "none" if not parts else f"{size:,}"
        raise UsageError(f"observations must have 1 to {MOST_NUMBERS:,} numbers, got {many} in {shown(space)}")
    return parts


def parts_of(space: "gymnasium.Space[Any]", path: tuple[str, ...] = ()) -> tuple[ObservationPart, ...]:
    """As `observation_spec_of`, for flat vectors too: they are one part."""
    from gymnasium import spaces

    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        entries = space.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return tuple(part for key, entry in entries for part in parts_of(entry, (*path, str(key))))
    try:
        if isinstance(space, (spaces.Box, spaces.MultiBinary)):
            return (ObservationPart(path, tuple(map(int, space.shape))),)
        if isinstance(space, spaces.Discrete):
            return (ObservationPart(path, (), (int(space.n),), (int(space.start),)),)
        if isinstance(space, spaces.MultiDiscrete):
            values, start = (tuple(map(int, numbers.reshape(-1))) for numbers in (space.nvec, space.start))
            return (ObservationPart(path, tuple(map(int, space.shape)), values, start),)
    except ValueError as error:
        raise UsageError(str(error)) from None
    raise UsageError(
        f"{ObservationPart(path, (1,)).name} must be of a Box, Discrete, MultiDiscrete or MultiBinary space, or of a "
        f"Dict or Tuple of these, got {shown(space)}; leave it out, or encode it, with "
        "gymnasium.wrappers.TransformObservation"
    )


def flatten(parts: Sequence[ObservationPart], observations: Any, n: int) -> Array:
    """Observations of n environments as a vector environment gives them -> (n, size) float32.

    A dict or tuple holds the entries of all n, (n, ...) each. A list holds n single observations, each as its
    environment gave it. Vectors (n, size) stay as they are.
    """
    if isinstance(observations, list):
        if len(observations) != n:
            raise ValueError(f"observations must have one for each of {n} environments, got {len(observations)}")
        return np.concatenate([_joined(parts, _batch_of_one(one), 1) for one in observations])
    return _joined(parts, observations, n)


def flat_part(part: ObservationPart, values: Any, n: int) -> Array:
    """One part of n observations, (n, *shape) -> (n, size), in the precision that it has."""
    try:
        given = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{part.name} must be numbers of shape {part.shape}: {error}") from None
    if given.dtype.kind not in "biuf" or given.shape != (n, *part.shape):
        raise ValueError(f"{part.name} must be numbers of shape {(n, *part.shape)}, got {given.dtype} {given.shape}")
    flat = given.reshape(n, -1)
    return _one_hot(part, flat) if part.values else flat


def _joined(parts: Sequence[ObservationPart], observations: Any, n: int) -> Array:
    """As `flatten`, for the entries of all n together."""
    size = sum(part.size for part in parts)
    if getattr(observations, "shape", None) == (n, size):
        return np.asarray(observations, dtype=np.float32)
    found = [flat_part(part, _entry(observations, part), n) for part in parts]
    return np.concatenate(found, axis=1, dtype=np.float32, casting="unsafe")


def _batch_of_one(observation: Any) -> Any:
    """A single observation with a first dimension of 1 in every entry."""
    if isinstance(observation, Mapping):
        return {key: _batch_of_one(entry) for key, entry in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_batch_of_one(entry) for entry in observation)
    return np.asarray(observation)[None]


def _entry(observation: Any, part: ObservationPart) -> Any:
    """What an observation holds at the path of a part."""
    for key in part.path:
        if isinstance(observation, Mapping) and key in observation:
            observation = observation[key]
        elif isinstance(observation, (tuple, list)) and key.isdecimal() and int(key) < len(observation):
            observation = observation[int(key)]
        else:
            held = sorted(map(str, observation)) if isinstance(observation, Mapping) else type(observation).__name__
            raise ValueError(f"{part.name} is missing: there is no {key!r} in {shown(held)}")
    return observation


def _one_hot(part: ObservationPart, numbers: Array) -> Array:
    """(n, len(values)) whole numbers -> (n, size)."""
    from_zero = numbers.astype(np.int64) - np.array(part.start)
    if (numbers != numbers.astype(np.int64)).any() or (from_zero < 0).any() or (from_zero >= part.values).any():
        raise ValueError(
            f"{part.name} must be whole numbers from {part.start}, {part.values} of them, got {shown(numbers.tolist())}"
        )
    found = np.zeros((len(numbers), part.size), np.float32)
    begins = np.cumsum((0, *part.values[:-1]))  # (len(values),)
    np.put_along_axis(found, from_zero + begins, 1.0, axis=1)
    return found
