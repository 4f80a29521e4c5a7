"""Standard deviations that are safe to divide by."""

import torch
from torch import Tensor


def spread(values: Tensor) -> Tensor:
    """Standard deviations to divide by, (N, d) -> (d,): as ODT has them, 1e-6 added, but 1 where a value never changes.

    A value that was constant in the data may change later; divided by 1e-6 it would drown all others.
    """
    constant = values.amax(dim=0) == values.amin(dim=0)
    return torch.where(constant, 1.0, values.std(dim=0, correction=0) + 1e-6)
