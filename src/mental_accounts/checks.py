"""Validation of inputs: every message says what was expected, what was given, and where.

Checking values on a GPU would synchronise it, so the hot path (`route`, `trace`, `post`) checks values only where that
is free: on the CPU, outside `torch.compile`. Data bound for a GPU are checked once, by calling these functions where
the data enter.
"""

import torch
from torch import Tensor

from mental_accounts.number_checks import check_count, check_number, check_positive

__all__ = ["check_codes", "check_count", "check_finite", "check_number", "check_positive", "looking_is_free"]


def looking_is_free(values: Tensor) -> bool:
    """Whether the values can be read without a device synchronisation or a graph break."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def check_finite(name: str, values: Tensor) -> None:
    """Refuse NaN and infinities, naming the first bad element."""
    # A sum is finite if all its terms are, barring overflow: one cheap pass nearly always decides.
    if not values.is_floating_point() or bool(torch.isfinite(values.sum())):
        return
    bad = (~torch.isfinite(values)).nonzero()
    if len(bad):
        where = tuple(bad[0].tolist())
        raise ValueError(f"{name} must be finite, but {name}{_index(where)} is {values[where].item()}")


def check_codes(codes: Tensor, num_codes: int) -> None:
    """Refuse codes outside [0, num_codes), naming the first bad one."""
    if codes.numel() == 0:
        return
    low, high = codes.aminmax()
    if int(low) >= 0 and int(high) < num_codes:
        return
    where = tuple(((codes < 0) | (codes >= num_codes)).nonzero()[0].tolist())
    raise ValueError(f"codes must be in [0, {num_codes}), but codes{_index(where)} is {codes[where].item()}")


def _index(where: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, where))}]" if where else ""
