"""The bias as dimensions of the keys gives what a dense mask gives: outputs, and the gradients of everything."""

import pytest
import torch

from mental_accounts.config import AccountsConfig, ActionSpec, PolicyConfig
from mental_accounts.policy import DecisionTransformer, autocast, transformer
from mental_accounts.policy import decision_transformer as module
from mental_accounts.policy.attention import attention_of
from mental_accounts.policy.long_attention import FROM, attend_columns

from ..conftest import CUDA

B = 3
OPTIONS = {
    "odt": {},
    "ewa-vq-odt": {},
    "layers": {"beta_learned": True, "beta_per": "layer-head", "beta": 0.4},
    "tokens": {"beta_learned": True, "beta_per": "token"},
    "now": {"read": "now"},
    "ledger": {"ledger_input": "token"},
}


def make(options: str, device: str, K: int = 11) -> tuple[DecisionTransformer, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    accounts = AccountsConfig(**OPTIONS[options])
    config = PolicyConfig(
        state_dim=4, action=ActionSpec("box", 2, (-1.0,) * 2, (1.0,) * 2), hidden=32, layers=3, heads=2, dropout=0.0,
        context_length=K, accounts=accounts, method="odt" if options == "odt" else "ewa-vq-odt",
    )  # fmt: skip
    policy = DecisionTransformer(config)
    window = {
        "observations": torch.randn(B, K, 4), "actions": torch.rand(B, K, 2) * 2 - 1, "returns_to_go": torch.rand(B, K),
        "timesteps": torch.arange(K).expand(B, K), "mask": torch.ones(B, K, dtype=torch.bool),
    }  # fmt: skip
    window["mask"][0, :4] = False
    if policy.accounts is not None:
        window |= {"attractions": torch.randn(B, K) * 5, "codes": torch.randint(0, 9, (B, K))}
        window["ledgers"] = torch.randn(B, K, policy.accounts.num_codes)
    return policy.to(device), {name: value.to(device) for name, value in window.items()}


def outcome(policy: DecisionTransformer, window: dict[str, torch.Tensor], precision: str) -> dict[str, torch.Tensor]:
    policy.zero_grad()
    with autocast(policy.device, precision):
        predicted = policy(**window)
    actions = window["actions"] * 0.9
    real = predicted.log_prob(actions)[window["mask"]]
    real.mean().backward()
    grads = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    return {"log_prob": real.detach()} | grads


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("options", list(OPTIONS))
def test_long_contexts_give_what_a_dense_mask_gives(options: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, window = make(options, device)
    dense, dense_half = outcome(policy, window, "float32"), outcome(policy, window, "bf16")
    asked = []
    monkeypatch.setattr(module, "is_long", lambda tokens: asked.append(1) or True)
    long, long_half = outcome(policy, window, "float32"), outcome(policy, window, "bf16")
    assert asked
    assert dense.keys() == long.keys()
    for name, value in dense.items():
        size = value.norm()
        assert (long[name] - value).norm() <= 1e-4 * size + 1e-6, name
        rounding = (dense_half[name] - value).norm()  # half precision rounds no more than it does with a dense mask
        assert (long_half[name] - value).norm() <= 2 * rounding + 0.01 * size + 1e-6, name


@pytest.mark.parametrize("options", ["ewa-vq-odt", "layers"])
def test_looking_inside_is_the_same(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, window = make(options, "cpu")
    dense = attention_of(policy, **window)
    monkeypatch.setattr(module, "is_long", lambda tokens: True)
    for one, other in zip(dense[:-1], attention_of(policy, **window)[:-1], strict=True):
        torch.testing.assert_close(other.drift()[1:], one.drift()[1:])
        torch.testing.assert_close(other.logits[1:], one.logits[1:])


@pytest.mark.parametrize("device", [CUDA])
def test_a_long_context_is_attended_to_by_columns(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, window = make("ewa-vq-odt", device, FROM // 3 + 2)
    calls = []
    monkeypatch.setattr(transformer, "attend_columns", lambda *args: calls.append(1) or attend_columns(*args))
    long = policy(**window).log_prob(window["actions"] * 0.9)[window["mask"]]
    assert len(calls) == policy.config.layers
    monkeypatch.setattr(module, "is_long", lambda tokens: False)
    dense = policy(**window).log_prob(window["actions"] * 0.9)[window["mask"]]
    assert len(calls) == policy.config.layers
    torch.testing.assert_close(long, dense, atol=1e-4, rtol=1e-4)
