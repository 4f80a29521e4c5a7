"""Checks of single numbers; they need no PyTorch."""

import math
import numbers


def check_number(name: str, value: float, low: float, high: float, *, closed: bool) -> float:
    """Refuse anything but a real number between low and high (borders included where `closed`)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r} ({type(value).__name__})")
    inside = low <= value <= high if closed else low < value < high
    if not inside:
        interval = f"[{low:g}, {high:g}]" if closed else f"({low:g}, {high:g})"
        raise ValueError(f"{name} must be in {interval}, got {value!r}")
    return float(value)


def check_count(name: str, value: int, least: int) -> int:
    """Refuse anything but a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r} ({type(value).__name__})")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_positive(name: str, value: float) -> float:
    """Refuse anything but a finite number above zero."""
    checked = check_number(name, value, 0.0, math.inf, closed=False)
    if math.isinf(checked):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return checked
