"""Returns as people read them."""

import math

import pytest

from mental_accounts.return_text import return_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2345.678, "2345.7"), (-10.74, "-10.7"), (10.0, "10.0"), (0.0, "0.0"), (5.0, "5"), (-3.456, "-3.46"),
        (0.7051, "0.705"), (5.9e-06, "5.9e-06"), (math.nan, "nan"), (-math.inf, "-inf"),
    ],
)  # fmt: skip
def test_small_returns_are_told_apart(value: float, text: str) -> None:
    assert return_text(value) == text
