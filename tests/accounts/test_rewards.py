import math

import pytest
import torch

import mental_accounts as ma


def test_kinds_and_clip() -> None:
    rewards = torch.tensor([0.0, 1.0, 2.0, 5.0])
    assert torch.equal(ma.RewardTransform.fit(rewards, "raw", clip=None)(rewards), rewards)
    assert torch.equal(ma.RewardTransform.fit(rewards, "centred", clip=None)(rewards), rewards - 2)
    standard = ma.RewardTransform.fit(rewards, "standardised", clip=None)(rewards)
    torch.testing.assert_close(standard, (rewards - 2) / rewards.std(correction=0))
    clipped = ma.RewardTransform.fit(rewards)(rewards)  # the library's default: standardised, R = 1
    assert clipped.abs().max() == 1.0
    assert torch.equal(ma.RewardTransform("raw", clip=1.5)(rewards), rewards.clamp(max=1.5))


def test_constant_rewards_are_only_centred() -> None:
    assert torch.equal(
        ma.RewardTransform.fit(torch.full((5,), 3.0))(torch.tensor([3.0, 3.5])), torch.tensor([0.0, 0.5])
    )


def test_saved_with_a_model_and_not_rounded_by_a_cast(device: str) -> None:
    fitted = ma.RewardTransform.fit(torch.randn(100) * 7 + 1234.5)
    twin = ma.RewardTransform("standardised", clip=1.0)
    twin.load_state_dict(fitted.state_dict())
    rewards = torch.randn(10) * 7 + 1234.5
    moved = twin.to(device).half()
    torch.testing.assert_close(moved(rewards.to(device)).cpu(), fitted(rewards))
    assert fitted(rewards.double()).dtype == torch.float64


def test_bad_input() -> None:
    cases = [
        (lambda: ma.RewardTransform("ranked"), "kind must be one of"),
        (lambda: ma.RewardTransform("raw", clip=0.0), "clip must be in"),
        (lambda: ma.RewardTransform("standardised", std=0.0), "std must be in"),
        (lambda: ma.RewardTransform.fit(torch.tensor([])), "at least one reward"),
        (lambda: ma.RewardTransform.fit(torch.tensor([1.0, math.nan])), r"rewards\[1\] is nan"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
