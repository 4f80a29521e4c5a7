"""The last steps of each actor, as read by a window of live accounts."""

from collections import deque

import torch
import torch.nn.functional as F
from torch import Tensor

KEPT_STEPS = 4096
"""Default number of steps to keep."""


class Posted:
    """Values after each of the last `keep` steps of `num_actors` actors, of one shape; earlier episodes are hidden."""

    def __init__(self, num_actors: int, keep: int, shape: tuple[int, ...] = ()) -> None:
        self._steps: deque[Tensor] = deque(maxlen=keep)
        self._shape = shape
        self._count = 0
        self._began = torch.zeros(num_actors, dtype=torch.int64)
        """The number of steps before each actor's current episode."""

    def append(self, values: Tensor) -> None:
        """Append one step of all actors, (n, *shape)."""
        self._steps.append(values)
        self._count += 1

    def restart(self, actors: Tensor) -> None:
        """A new episode begins for the actors where (n,) is True."""
        self._began = torch.where(actors, self._count, self._began.to(actors.device))

    def last(self, K: int, device: torch.device) -> Tensor:
        """Values after the last K steps, (n, K, *shape); 0 before the first step of an actor's episode."""
        keep = self._steps.maxlen
        assert keep is not None
        if K > keep and self._count > keep:
            raise ValueError(
                f"the accounts of {K} actions are needed, but live accounts keep those of the last {keep}; "
                f"begin them with begin(num_actors, keep={K})"
            )
        n = min(K, len(self._steps))
        began = self._began.to(device).unsqueeze(-1)
        if not n:
            return torch.zeros(len(began), K, *self._shape, device=device)
        recent = torch.stack([self._steps[place].to(device) for place in range(-n, 0)], dim=1)  # (actors, n, *shape)
        hidden = torch.arange(self._count - n, self._count, device=device) < began  # (actors, n)
        recent = recent.masked_fill(hidden.view(*hidden.shape, *[1] * len(self._shape)), 0.0)
        return F.pad(recent, (*[0, 0] * len(self._shape), K - n, 0))
