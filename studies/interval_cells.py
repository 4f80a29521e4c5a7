"""Estimates with their intervals as text for the cells of a table."""

import math

from mental_accounts.report.statistics import Interval


def written(found: Interval, digits: int, *, signed: bool = False) -> str:
    """An interval as text for a cell; with too few seeds there is none."""
    sign = "+" if signed else ""
    estimate, low, high = (f"{value:{sign}.{digits}f}" for value in (found.estimate, found.low, found.high))
    known = math.isfinite(found.low) and math.isfinite(found.high)
    return f"{estimate} {f'[{low}, {high}]' if known else '(no interval)'}".replace("-", "−")
