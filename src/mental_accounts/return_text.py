"""Returns as people read them."""

import math


def return_text(value: float) -> str:
    """One decimal; below 10 three significant figures, since some tasks never pay more than 1."""
    return f"{value:.1f}" if abs(value) >= 10 or value == 0 or not math.isfinite(value) else f"{value:.3g}"
