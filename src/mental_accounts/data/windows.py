"""Windows of trajectories for training, sampled where the store lies: no loader workers, no synchronisation.

The distribution is ODT's: a trajectory with probability proportional to its length, a uniform first step, up to K steps
forward, padded on the left. That is the same as a uniform first step among all steps of the store.
"""

from dataclasses import dataclass, fields
from typing import Literal, get_args

import torch
from torch import Tensor

from mental_accounts.data.annotation import Annotation
from mental_accounts.data.checks import DataError
from mental_accounts.data.trajectories import Trajectories

AccountScope = Literal["trajectory", "window"]


@dataclass(frozen=True, repr=False, eq=False)
class Windows:
    """B windows of K steps, padded on the left with zeros."""

    observations: Tensor  # (B, K, obs)
    actions: Tensor  # (B, K, act), or (B, K) int64 where actions are discrete
    rewards: Tensor  # (B, K)
    returns_to_go: Tensor  # (B, K)
    timesteps: Tensor  # (B, K) int64
    mask: Tensor  # (B, K) bool, True where a step is there
    codes: Tensor | None  # (B, K) or (B, K, groups) int64; None where the store is not annotated
    attractions: Tensor | None  # (B, K) or (B, K, groups)

    def __repr__(self) -> str:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return f"Windows({', '.join(f'{k}={None if v is None else tuple(v.shape)}' for k, v in values.items())})"


class WindowSampler:
    """Draws windows from a store: `sampler()` -> `Windows`.

    `account_scope` says where accounts begin: with the whole trajectory (its stored attractions are read), or anew with
    every window (codes and rewards of the window are traced). `generator` lies on the store's device.

    A call can be captured in a CUDA graph: register the generator with the graph and pin the store's addresses;
    replays then draw from whatever the store holds at that time (changes to it are kernels on the current stream).
    """

    def __init__(
        self,
        store: Trajectories,
        batch_size: int,
        context_length: int,
        generator: torch.Generator,
        account_scope: AccountScope = "trajectory",
    ) -> None:
        if batch_size < 1 or context_length < 1:
            raise DataError(f"batch_size and context_length must be at least 1, got {batch_size} and {context_length}")
        if account_scope not in get_args(AccountScope):
            raise DataError(f"account_scope must be one of {list(get_args(AccountScope))}, got {account_scope!r}")
        if generator.device.type != store.device.type:
            raise DataError(
                f"the generator must lie where the store does, {store.device}, got one on {generator.device}; "
                f"make it with torch.Generator('{store.device}')"
            )
        if not len(store):
            raise DataError("windows cannot be sampled from an empty store; append a trajectory first")
        self.store, self.batch_size, self.context_length = store, batch_size, context_length
        self.generator, self.account_scope = generator, account_scope
        self._back = torch.arange(-context_length, 0, device=store.device)  # places counted from the window's end

    def __call__(self) -> Windows:
        """One batch."""
        live = self.store.storage.live
        draw = torch.rand(self.batch_size, generator=self.generator, device=live.device, dtype=torch.float64)
        return self.at((draw * live[1]).long() + live[0])  # float64 below 1 times a count stays below the count

    def at(self, first: Tensor) -> Windows:
        """The windows that begin at these rows of the store's storage, (B,) int64."""
        columns = self.store.storage.columns
        length = columns["remaining"].index_select(0, first).clamp(max=self.context_length)  # (B,) int32
        offset = self._back + length.unsqueeze(-1)  # (B, K): negative where padded
        mask = offset >= 0
        row = torch.where(mask, first.unsqueeze(-1) + offset, self.store.storage.blank).flatten()  # (B·K,)
        shape = mask.shape

        def read(name: str) -> Tensor:
            column = columns[name]
            return column.index_select(0, row).view(*shape, *column.shape[1:])  # (B, K, ...)

        rewards = read("rewards")
        codes = attractions = None
        annotation = self.store.annotation
        if annotation is not None:
            codes = read("codes").long()
            if self.account_scope == "trajectory":
                attractions = read("attractions")
            else:
                attractions = _trace_anew(annotation, codes, rewards, mask)
        return Windows(
            observations=read("observations"),
            actions=read("actions"),
            rewards=rewards,
            returns_to_go=read("returns_to_go"),
            timesteps=read("timesteps").long(),
            mask=mask,
            codes=codes,
            attractions=attractions,
        )


def _trace_anew(annotation: Annotation, codes: Tensor, rewards: Tensor, mask: Tensor) -> Tensor:
    payoffs = annotation.reward_transform(rewards)
    return annotation.rule.trace(codes, payoffs, mask=mask, num_codes=annotation.codebook.num_codes)
