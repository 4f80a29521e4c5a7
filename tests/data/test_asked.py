import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mental_accounts.data.asked import asked_returns, describe_range, is_far_outside, return_range, return_scale

floats = st.floats(-1e6, 1e6, width=32)


@given(st.lists(floats, min_size=1, max_size=50))
def test_quantiles_are_numpys(values: list[float]) -> None:
    top, middle = np.quantile(np.array(values), [0.95, 0.5], method="lower")
    asked = asked_returns(torch.tensor(values))
    assert asked.evaluation == pytest.approx(top, rel=1e-6, abs=1e-3)
    assert asked.exploration == pytest.approx(min(2 * top - middle, max(values)), rel=1e-6, abs=1e-3)
    assert asked.exploration >= asked.evaluation - 1e-6


def test_one_lucky_episode_is_not_asked_for() -> None:
    returns = torch.cat([torch.linspace(80, 120, 99), torch.tensor([10_000.0])])
    assert 115 < asked_returns(returns).evaluation < 121
    assert 130 < asked_returns(returns).exploration < 141


@given(st.lists(st.floats(-1000, -1, width=32), min_size=2, max_size=30))
def test_negative_returns_are_asked_for_from_above(values: list[float]) -> None:
    asked = asked_returns(torch.tensor(values))
    assert min(values) - 1e-3 <= asked.evaluation <= asked.exploration + 1e-3 <= max(values) + 2e-3


def test_of_few_episodes_the_second_best_is_asked_for() -> None:
    assert asked_returns(torch.tensor([1.0, 2.0, 3.0, 100.0])).evaluation == 3.0
    assert asked_returns(torch.tensor([7.0])).evaluation == 7.0


def test_scale_and_range() -> None:
    steps = torch.cat([torch.linspace(-50, 50, 9_999), torch.tensor([1e6])])
    assert return_scale(steps) == pytest.approx(1 / 50, rel=0.02)  # one outlier does not shrink the rest
    assert return_range(steps) == (-50.0, 1e6)
    assert return_scale(torch.zeros(10)) == 1.0
    assert return_scale(torch.tensor([0.0] * 200 + [5.0])) == 0.2  # rewards that are rare are not ignored


def test_far_outside_is_half_a_range_away() -> None:
    returns = torch.tensor([0.0, 40.0, 100.0])
    assert [is_far_outside(value, returns) for value in (-51.0, -49.0, 149.0, 151.0, float("nan"))] == [
        True, False, False, True, True,
    ]  # fmt: skip
    assert describe_range(returns) == "0 to 100, median 40, 95% at most 40"
    assert not is_far_outside(501.0, torch.full((3,), 500.0))
    assert is_far_outside(560.0, torch.full((3,), 500.0))
