"""Standard deviations that are safe to divide by."""

import torch
from torch import Tensor


def spread(values: Tensor) -> Tensor:
    """Standard deviations to divide by, (N, d) -> (d,): plus 1e-6 as in ODT, but 1 for a constant feature.

    A feature that was constant in the data may change later; divided by 1e-6 it would swamp all others.
    """
    constant = values.amax(dim=0) == values.amin(dim=0)
    return torch.where(constant, 1.0, values.std(dim=0, correction=0) + 1e-6)
