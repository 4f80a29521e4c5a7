"""Action masks: which of its discrete actions an environment allows at a step.

A mask has one flag for each value that an action can take, True where it is allowed; with several numbers per action,
those of the first number come first. Environments give them in `info["action_mask"]` of every reset and step, or by a
method `action_masks()`, as sb3-contrib has it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import gymnasium

Array = NDArray[Any]
NEEDED = "at least one must be allowed; where none is left, the episode should have ended"


def choices_of(space: "gymnasium.Space[Any]") -> tuple[int, ...]:
    """How many values each number of an action has; () if actions are not discrete."""
    from gymnasium import spaces  # a policy itself needs no environments

    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(map(int, space.nvec.reshape(-1)))
    return (2,) * int(np.prod(space.shape)) if isinstance(space, spaces.MultiBinary) else ()


def mask_of(env: "gymnasium.Env[Any, Any]", info: Mapping[str, Any]) -> Any:
    """What an environment says is allowed after a reset or step; None if it says nothing."""
    told = info.get("action_mask")
    if told is None and env.has_wrapper_attr("action_masks"):
        told = env.get_wrapper_attr("action_masks")()
    return told


def checked_masks(masks: Any, choices: Sequence[int], *shape: int) -> Array:
    """Masks of any kind of flags as bool, (*shape, sum(choices)); refused if they forbid everything somewhere."""
    wanted = (*shape, sum(choices))
    given = np.asarray(masks)
    if given.dtype.kind not in "biuf" or given.shape != wanted or not ((given == 0) | (given == 1)).all():
        got = f"{given.dtype} {given.shape}" if given.shape != wanted or given.dtype.kind not in "biuf" else given
        raise ValueError(f"an action mask must be {wanted} flags, 1 where an action is allowed, got {got}")
    allowed: Array = given.astype(bool)
    for number, flags in enumerate(np.split(allowed, np.cumsum(choices)[:-1], axis=-1)):
        forbidden = np.argwhere(~flags.any(axis=-1))
        if len(forbidden):
            where = f" at {forbidden[0].tolist()}" if shape else ""
            which = "all actions" if len(choices) == 1 else f"all values of number {number}"
            raise ValueError(f"the action mask{where} forbids {which}: {NEEDED}")
    return allowed


def random_action(space: Any, mask: Array) -> Any:
    """A uniformly random action among those allowed, by the generator of the space."""
    parts = np.split(mask, np.cumsum(choices_of(space))[:-1])
    numbers = np.array([space.np_random.choice(np.flatnonzero(part)) for part in parts])
    return (numbers.reshape(space.shape) + getattr(space, "start", 0)).astype(space.dtype)
