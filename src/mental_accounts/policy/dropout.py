"""Dropout with cheap masks on a CPU.

PyTorch draws them one number at a time, on one thread: an eighth of an update. Here each 64-bit number of a faster
generator gives four decisions; it is seeded by PyTorch's own generator, so that runs stay reproducible and resumable.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 2**16
"""Resolution of the dropout probability."""


def draws_fast(x: Tensor) -> bool:
    """Whether this module draws the masks: on a CPU, outside torch.compile."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def drop(x: Tensor, share: float) -> Tensor:
    """X with that share of its entries set to zero at random, and the others scaled up."""
    if share <= 0.0:
        return x
    return x * kept(x, share) if draws_fast(x) else F.dropout(x, share)


def kept(x: Tensor, share: float) -> Tensor:
    """The factors for x, of its shape and type: 0 where an entry is dropped."""
    dropped = round(share * LEVELS)
    seed = int(torch.randint(2**63 - 1, ()))
    drawn = np.random.SFC64(seed).random_raw(-(-x.numel() // 4)).view(np.int16)[: x.numel()]
    stays = torch.from_numpy(drawn >= dropped - LEVELS // 2).view(x.shape)
    scale = LEVELS / (LEVELS - dropped) if dropped < LEVELS else 0.0
    return torch.where(stays, torch.tensor(scale, dtype=x.dtype), torch.zeros((), dtype=x.dtype))
