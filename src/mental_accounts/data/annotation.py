"""Trajectories -> codes and attractions: each trajectory is routed and traced once, in padded groups of like length."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mental_accounts.accounts import Codebook, RewardTransform, UpdateRule

GROUP_STEPS = 2**18
"""Padded steps traced at a time, and actions routed at a time: bounds the memory."""

PAD_STEPS = 32
"""Lengths are padded to multiples of this, so that a trajectory's sums are added in the same order, and come out the
same to the bit, whichever group it is traced in."""


@dataclass(frozen=True, eq=False)
class Annotation:
    """What turns actions and rewards into codes and attractions. Holds copies: nobody else moves or refits them."""

    codebook: Codebook
    rule: UpdateRule
    reward_transform: RewardTransform
    to_unit: Callable[[Tensor], Tensor] | None
    """Actions in the environment's units -> [-1, 1], where the codebook lives; None for actions that are there."""

    def to(self, device: torch.device | str) -> "Annotation":
        book, transform = copy.deepcopy(self.codebook).to(device), copy.deepcopy(self.reward_transform).to(device)
        return Annotation(book, self.rule, transform, self.to_unit)

    @property
    def code_dtype(self) -> torch.dtype:
        """The smallest type that holds every code."""
        small = (torch.int16, torch.int32)
        return next((kind for kind in small if self.codebook.num_codes <= torch.iinfo(kind).max), torch.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one step's codes and attractions: (), or (groups,) of a product codebook."""
        return self.codebook.code_shape

    def route(self, actions: Tensor) -> Tensor:
        """(N, act) or (N,) -> (N,) or (N, groups)."""
        codes = []
        for part in actions.split(GROUP_STEPS):
            unit = part if self.to_unit is None else self.to_unit(part)
            codes.append(self.codebook.route(unit).to(self.code_dtype))
        return torch.cat(codes)

    def trace(self, codes: Tensor, rewards: Tensor, lengths: Tensor) -> Tensor:
        """The attraction of each step's own codes, (N,) or (N, groups); trajectories of `lengths` (on the CPU) in turn.

        codes: (N,) or (N, groups), rewards: (N,).
        """
        attractions = torch.zeros(len(rewards) + 1, *self.shape, device=rewards.device)  # the last row takes padding
        payoffs = self.reward_transform(rewards).float()
        starts = lengths.cumsum(0) - lengths
        for members in _groups(lengths):
            T = -(-int(lengths[members].max()) // PAD_STEPS) * PAD_STEPS
            step = torch.arange(T, device=rewards.device)
            start, length = (values[members].to(rewards.device).unsqueeze(-1) for values in (starts, lengths))
            mask = step < length  # (B, T)
            row = torch.where(mask, start + step, 0)
            code = codes[row].long()  # (B, T) or (B, T, groups)
            traced = self.rule.trace(code, payoffs[row], mask=mask, num_codes=self.codebook.num_codes)
            rows = torch.where(mask, row, len(rewards)).flatten()
            attractions.index_copy_(0, rows, traced.reshape(-1, *self.shape))
        return attractions[:-1]


def _groups(lengths: Tensor) -> Iterator[Tensor]:
    """Indices of trajectories that are traced together: neighbours in length, within the bounds on memory."""
    order = lengths.argsort(descending=True, stable=True)
    begin = 0
    while begin < len(order):
        most = max(1, GROUP_STEPS // (int(lengths[order[begin]]) + PAD_STEPS))
        yield order[begin : begin + most]
        begin += most
