"""One trajectory of a store."""

from dataclasses import dataclass, fields

from torch import Tensor


@dataclass(frozen=True, repr=False, eq=False)
class Trajectory:
    """One trajectory of T steps; the tensors are views into the store, valid until it changes."""

    observations: Tensor  # (T, obs)
    actions: Tensor  # (T, act); (T,) or (T, numbers) int64 where actions are discrete
    rewards: Tensor  # (T,)
    timesteps: Tensor  # (T,) int32
    returns_to_go: Tensor  # (T,)
    codes: Tensor | None  # (T,) or (T, groups); None before the store is annotated
    attractions: Tensor | None  # (T,) or (T, groups)
    terminated: bool
    truncated: bool
    foregone: Tensor | None = None  # (T, actions): the rewards of all actions, where they are known
    action_masks: Tensor | None = None  # (T, values) bool: the actions that were allowed, where they are known
    final_observation: Tensor | None = None  # (obs,): after the last step, if it was cut off and this is known
    final_mask: Tensor | None = None  # (values,) bool: the actions that were allowed there

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        shown = []
        for item in fields(self):
            value = getattr(self, item.name)
            shown.append(f"{item.name}={tuple(value.shape) if isinstance(value, Tensor) else value}")
        return f"Trajectory({', '.join(shown)})"
