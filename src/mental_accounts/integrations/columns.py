"""Which tokens of a sequence are actions."""

from collections.abc import Callable

import torch
from torch import Tensor

from mental_accounts.checks import check_count

Columns = Tensor | Callable[[int], Tensor]
"""Which columns are actions: a bool selector (S,), or a function from the number of columns S to one."""


def every(period: int, offset: int) -> Callable[[int], Tensor]:
    """Action columns at a fixed offset in every step of `period` tokens: `every(3, 2)` for (return, state, action)."""
    check_count("period", period, 1)
    if check_count("offset", offset, 0) >= period:
        raise ValueError(f"offset must be below period = {period}, got {offset}")
    return lambda S: torch.arange(S) % period == offset
