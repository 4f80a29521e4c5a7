"""Checks where data enter: every message names the file, the key, and the first element that is wrong."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mental_accounts.action_masks import checked_masks
from mental_accounts.action_spec import ActionSpec
from mental_accounts.checks import check_finite
from mental_accounts.errors import DataError, UsageError
from mental_accounts.machine import in_words
from mental_accounts.spaces import ActionScale

Values = Tensor | NDArray[Any] | Sequence[Any]

BOUNDS_TOLERANCE = 1e-5
"""How far outside of its bounds an action may lie, as a share of their width: float32 rounding, and no more."""


UNFOLDED_BYTES, UNFOLDED_SHARE, STEP_BYTES = 2**28, 32, 64
"""What a file may unfold to in memory: this many bytes, or this many times its own size, where that is more. A step
counts for `STEP_BYTES` beside its numbers."""

SHOWN_NAMES, SHOWN_LETTERS, SHOWN_REASON = 20, 60, 300
"""How much of a stranger's names, and of what a library says about a file, an error repeats."""


@contextlib.contextmanager
def damaged(what: str, advice: str = "get the file again") -> Iterator[None]:
    """Libraries fail in any way on a file that is damaged: one line, whatever they raised."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise DataError(f"{what} ({reason_of(error)}); {advice}") from None


def reason_of(error: Exception) -> str:
    """What an error says, on one line, and not too long."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN_REASON]


def check_unfolding(
    declared: Mapping[str, int], steps: int, size: int, where: str, advice: str, *, share: int = UNFOLDED_SHARE
) -> None:
    """Refuse a file of `size` bytes that declares far more: so many bytes by key, and so many steps."""
    total = sum(declared.values()) + STEP_BYTES * steps
    most = max(UNFOLDED_BYTES, share * size)
    if total > most:
        name = max(declared, key=lambda name: declared[name])
        raise DataError(
            f"{where}: {name} and the other keys declare {steps:,} steps, {in_words(total)} in memory, but a "
            f"file of {in_words(size)} may unfold to {in_words(most)} at most; if it is right, {advice}"
        )


def shown_names(names: Iterable[object]) -> str:
    """A list of names from a file: on one line, of printable letters, and not too long."""
    first = [str(name)[:SHOWN_LETTERS] for name in itertools.islice(names, SHOWN_NAMES + 1)]
    return f"{first[:SHOWN_NAMES]}" + (" and more" if len(first) > SHOWN_NAMES else "")


@dataclass(frozen=True, eq=False)
class Steps:
    """Checked steps of whole trajectories, one after the other, on the CPU."""

    observations: Tensor  # (N, obs) float32
    actions: Tensor  # (N, act) float32; (N,) or (N, numbers) int64 where actions are discrete
    rewards: Tensor  # (N,) float32
    lengths: Tensor  # (trajectories,) int64, each at least 1; they add up to N
    terminated: Tensor  # (trajectories,) bool: ended by the task itself
    truncated: Tensor  # (trajectories,) bool: cut off, by a time limit or by the end of the recording
    foregone: Tensor | None = None  # (N, actions) float32: the rewards of all discrete actions at each step, if known
    action_masks: Tensor | None = None  # (N, values) bool: the discrete actions allowed at each step, if known

    def __len__(self) -> int:
        return len(self.rewards)


def checked_steps(
    observations: Values,
    actions: Values,
    rewards: Values,
    lengths: Values,
    terminated: Values,
    truncated: Values,
    *,
    where: str,
    action_spec: ActionSpec | None = None,
    foregone: Values | None = None,
    action_masks: Values | None = None,
) -> Steps:
    """Refuse what is not a whole number of finite trajectories; convert the rest to the types of the store."""
    seen = number_tensor("observations", observations, where)
    done = number_tensor("actions", actions, where)
    paid = number_tensor("rewards", rewards, where)
    long = number_tensor("lengths", lengths, where)
    if long.numel() and (long.is_floating_point() or long.dtype == torch.bool):
        raise DataError(f"{where}: lengths must be whole numbers, got {long.dtype}")
    long = long.long()
    ends = {
        "terminated": number_tensor("terminated", terminated, where),
        "truncated": number_tensor("truncated", truncated, where),
    }
    N = len(paid) if paid.ndim else 0
    if paid.ndim == 2 and paid.shape[1] == 1:  # as some files have them
        paid = paid[:, 0]
    if paid.ndim != 1:
        raise DataError(f"{where}: rewards must have shape (steps,), got {tuple(paid.shape)}")
    if seen.ndim != 2 or done.ndim not in (1, 2):
        raise DataError(
            f"{where}: observations must have shape (steps, obs) and actions (steps, act), or (steps,) where they are "
            f"discrete, got {tuple(seen.shape)} and {tuple(done.shape)}"
        )
    if not len(seen) == len(done) == N:
        raise DataError(
            f"{where}: observations, actions and rewards must have the same number of steps, "
            f"got {len(seen)}, {len(done)} and {N}"
        )
    whole = action_spec is not None and action_spec.kind == "multi-discrete"
    if whole and bool((done != done.round() if done.is_floating_point() else done.new_zeros(())).any()):
        raise DataError(f"{where}: actions of several discrete numbers must be whole, got {done.dtype} with fractions")
    discrete = whole or (not done.is_floating_point() and done.ndim == 1)
    if done.ndim == 1 and not discrete:
        raise DataError(
            f"{where}: actions of shape (steps,) must be whole numbers (discrete actions), got {done.dtype}"
        )
    _check_lengths(long, N, where)
    for name, flags in ends.items():
        if flags.shape != long.shape:
            raise DataError(
                f"{where}: {name} must have one flag per trajectory, shape ({len(long)},), got {tuple(flags.shape)}"
            )
    steps = Steps(
        observations=seen.float(),
        actions=done.long() if discrete else done.float(),
        rewards=paid.float(),
        lengths=long,
        terminated=ends["terminated"].bool(),
        truncated=ends["truncated"].bool(),
        foregone=None if foregone is None else number_tensor("foregone", foregone, where).float(),
        action_masks=None if action_masks is None else number_tensor("action_masks", action_masks, where),
    )
    for name in ("observations", "actions", "rewards", "foregone"):
        values = getattr(steps, name)
        try:
            if values is not None:
                check_finite(name, values)
        except ValueError as error:
            raise DataError(f"{where}: {error}") from None
    if action_spec is not None:
        check_actions(steps.actions, action_spec, where)
    if steps.foregone is not None:
        _check_foregone(steps.foregone, steps.actions, action_spec, where)
    if steps.action_masks is None:
        return steps
    return replace(steps, action_masks=check_masks(steps.action_masks, steps.actions, action_spec, where))


def check_actions(actions: Tensor, spec: ActionSpec, where: str) -> None:
    """Refuse actions that are not of the space, naming the first."""
    if spec.kind == "discrete":
        expected = f"(steps,) of {spec.size} discrete actions"
        ends = (spec.start, spec.start + spec.size - 1)
        low, high = (torch.tensor(min(max(bound, -(2**63)), 2**63 - 1)) for bound in ends)
    elif spec.is_discrete:
        expected = f"(steps, {len(spec.values)}) of whole numbers"
        low = torch.tensor(spec.starts)
        high = low + torch.tensor(spec.values) - 1
    else:
        expected = f"(steps, {spec.size})"
        low, high = (torch.tensor(bounds, dtype=torch.float64) for bounds in (spec.low, spec.high))
        slack = (high - low) * BOUNDS_TOLERANCE
        low, high = low - slack, high + slack
    if tuple(actions.shape[1:]) != spec.shape:
        raise DataError(f"{where}: actions must have shape {expected}, got {tuple(actions.shape)}")
    if bool((actions.amin(0) >= low).all() & (actions.amax(0) <= high).all()):
        return
    place = ((actions < low) | (actions > high)).nonzero()[0].tolist()
    least, most = (low, high) if spec.is_discrete else (torch.tensor(spec.low), torch.tensor(spec.high))
    if actions.ndim == 2:
        least, most = least[place[1]], most[place[1]]
    raise DataError(
        f"{where}: actions[{', '.join(map(str, place))}] is {actions[tuple(place)].item():g}, outside of the action "
        f"bounds [{float(least):g}, {float(most):g}]"
    )


def check_masks(masks: Tensor, actions: Tensor, spec: ActionSpec | None, where: str) -> Tensor:
    """Action masks (N, values) as bool; refused if they forbid everything, or an action that was taken.

    Without a spec, a mask has one flag for each discrete action; that what was taken is allowed is checked with it.
    """
    if actions.is_floating_point() or (spec is not None and not spec.is_discrete):
        raise DataError(f"{where}: action_masks are of discrete actions, but actions are vectors; give action_spec")
    choices = spec.choices if spec is not None else (masks.shape[-1] if masks.ndim == 2 else 1,)
    try:
        allowed = torch.from_numpy(checked_masks(masks.numpy(), choices, len(actions)))
    except ValueError as error:
        raise DataError(f"{where}: action_masks: {error}") from None
    if spec is not None:
        scale = ActionScale(spec)
        taken = scale.places(scale.to_unit(actions))  # (N, numbers)
        forbidden = (~allowed.gather(1, taken)).nonzero()
        if len(forbidden):
            step = int(forbidden[0, 0])
            raise DataError(f"{where}: actions[{step}] is {actions[step].tolist()}, which its action mask forbids")
    return allowed


def _check_foregone(foregone: Tensor, actions: Tensor, spec: ActionSpec | None, where: str) -> None:
    """Refuse foregone rewards (N, actions) that do not have one number per discrete action."""
    if actions.ndim != 1:
        raise DataError(f"{where}: foregone rewards are those of discrete actions, but actions are vectors")
    size = foregone.shape[1] if spec is None and foregone.ndim == 2 else None if spec is None else spec.size
    if size is None or tuple(foregone.shape) != (len(actions), size):
        expected = "(steps, actions)" if spec is None else f"({len(actions)}, {spec.size})"
        raise DataError(f"{where}: foregone must have shape {expected}, got {tuple(foregone.shape)}")


def _check_lengths(lengths: Tensor, N: int, where: str) -> None:
    if lengths.ndim != 1 or len(lengths) == 0:
        raise DataError(f"{where}: expected at least one trajectory, got lengths of shape {tuple(lengths.shape)}")
    if int(lengths.min()) < 1:
        first = int((lengths < 1).nonzero()[0])
        raise DataError(f"{where}: trajectory {first} has {int(lengths[first])} steps, expected at least one")
    if int(lengths.max()) > N or len(lengths) > N:  # before their sum, which could overflow
        raise DataError(
            f"{where}: {len(lengths)} trajectories of up to {int(lengths.max())} steps, but there are {N} steps"
        )
    if int(lengths.sum()) != N:
        raise DataError(f"{where}: the trajectories' lengths add up to {int(lengths.sum())}, but there are {N} steps")


def number_tensor(name: str, values: Values, where: str) -> Tensor:
    """Numbers as a CPU tensor; shares memory with the input where it can."""
    if isinstance(values, Tensor):
        if values.is_complex() or values.is_quantized:
            raise DataError(f"{where}: {name} must be real numbers, got {values.dtype}")
        return values.detach().cpu()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{where}: {name} must be numbers, got an array of {array.dtype}")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # torch has none so wide
        array = array.astype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:  # torch has no arithmetic for these
        array = array.astype(np.int64)
    if not (array.dtype.isnative and array.flags.writeable and array.flags.c_contiguous):
        array = np.array(array, dtype=array.dtype.newbyteorder("="))
    return torch.from_numpy(array)
