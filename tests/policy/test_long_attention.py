"""The bias as dimensions of the keys gives what a dense mask gives: outputs, and the gradients of everything."""

import pytest
import torch

from mental_accounts.account_options import AccountsConfig
from mental_accounts.action_spec import ActionSpec
from mental_accounts.policy import DecisionTransformer, Window, autocast, transformer
from mental_accounts.policy import decision_transformer as module
from mental_accounts.policy.attention_probe import attention_of
from mental_accounts.policy.long_attention import FROM, attend_columns
from mental_accounts.policy_options import PolicyConfig

from ..conftest import CUDA

B = 3
LAYERS = 3
OPTIONS = {
    "odt": {},
    "ewa-vq-odt": {},
    "layers": {"beta_learned": True, "beta_per": "layer-head", "beta": 0.4},
    "tokens": {"beta_learned": True, "beta_per": "token"},
    "now": {"read": "now"},
    "ledger": {"ledger_input": "state"},
}
BY_ROW = ("tokens", "now")
"""Their bias depends on the row: these keep the dense mask."""


def make(
    options: str, device: str, K: int = 11, dropout: float = 0.0
) -> tuple[DecisionTransformer, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    accounts = AccountsConfig(**OPTIONS[options])
    config = PolicyConfig(
        state_dim=4, action=ActionSpec("box", 2, (-1.0,) * 2, (1.0,) * 2), hidden=32, layers=LAYERS, heads=2,
        dropout=dropout, context_length=K, accounts=accounts, method="odt" if options == "odt" else "ewa-vq-odt",
    )  # fmt: skip
    policy = DecisionTransformer(config)
    window = {
        "observations": torch.randn(B, K, 4), "actions": torch.rand(B, K, 2) * 2 - 1, "returns_to_go": torch.rand(B, K),
        "timesteps": torch.arange(K).expand(B, K), "mask": torch.ones(B, K, dtype=torch.bool),
    }  # fmt: skip
    window["mask"][0, :4] = False
    if policy.accounts is not None:
        window |= {"attractions": torch.randn(B, K) * 5, "codes": torch.randint(0, 9, (B, K))}
        window["balances"] = torch.randn(B, K, policy.accounts.books.num_codes)
    return policy.to(device), {name: value.to(device) for name, value in window.items()}


def outcome(policy: DecisionTransformer, window: dict[str, torch.Tensor], precision: str) -> dict[str, torch.Tensor]:
    policy.zero_grad()
    with autocast(policy.device, precision):
        predicted = policy(Window(**window))
    actions = window["actions"] * 0.9
    real = predicted.log_prob(actions)[window["mask"]]
    real.mean().backward()
    grads = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    return {"log_prob": real.detach()} | grads


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The dropout of each call of attend_columns."""
    seen: list[float] = []

    def watched(*given: torch.Tensor) -> torch.Tensor:
        seen.append(given[-1])
        return attend_columns(*given)

    monkeypatch.setattr(transformer, "attend_columns", watched)
    return seen


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("options", list(OPTIONS))
def test_long_contexts_give_what_a_dense_mask_gives(
    options: str, device: str, calls: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, window = make(options, device)
    dense, dense_half = outcome(policy, window, "float32"), outcome(policy, window, "bf16")
    assert not calls
    monkeypatch.setattr(module, "is_long", lambda tokens: True)
    long, long_half = outcome(policy, window, "float32"), outcome(policy, window, "bf16")
    assert len(calls) == (0 if options in BY_ROW else 2 * LAYERS)
    assert dense.keys() == long.keys()
    for name, value in dense.items():
        size = value.norm()
        assert (long[name] - value).norm() <= 1e-4 * size + 1e-6, name
        rounding = (dense_half[name] - value).norm()  # half precision rounds no more than it does with a dense mask
        assert (long_half[name] - value).norm() <= 2 * rounding + 0.01 * size + 1e-6, name


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_dropout_is_that_of_a_dense_mask_on_average(
    device: str, calls: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 9, 8, device=device)
    columns = torch.randn(1, 1, 1, 9, device=device)
    plain = attend_columns(q, k, v, columns, 0.0)
    many = torch.stack([attend_columns(q, k, v, columns, 0.3) for _ in range(2000)])
    assert not torch.allclose(many[0], plain)
    torch.testing.assert_close(many.mean(dim=0), plain, atol=0.15, rtol=0.0)
    policy, window = make("ewa-vq-odt", device, dropout=0.2)
    monkeypatch.setattr(module, "is_long", lambda tokens: True)
    policy.train()(Window(**window))
    policy.eval()(Window(**window))
    assert calls == [0.2] * LAYERS + [0.0] * LAYERS


@pytest.mark.parametrize("options", ["ewa-vq-odt", "layers"])
def test_looking_inside_is_the_same(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, window = make(options, "cpu")
    dense = attention_of(policy, Window(**window))
    monkeypatch.setattr(module, "is_long", lambda tokens: True)
    long = attention_of(policy, Window(**window))
    padded = int((~window["mask"][0]).sum())
    for place, (one, other) in enumerate(zip(dense, long, strict=True)):
        assert one.logits.shape == other.logits.shape
        first = padded if place == LAYERS - 1 else 3 * padded  # row of the first real token; in the last layer state
        for name in ("logits", "bias"):
            a, b = (getattr(layer, name).expand(B, 2, -1, -1) for layer in (one, other))
            torch.testing.assert_close(b[1:], a[1:])
            torch.testing.assert_close(b[0, :, first:], a[0, :, first:])
        torch.testing.assert_close(other.drift(), one.drift())


@pytest.mark.parametrize("device", [CUDA])
def test_a_long_context_is_attended_to_by_columns(
    device: str, calls: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, window = make("ewa-vq-odt", device, FROM // 3 + 2)
    long = policy(Window(**window)).log_prob(window["actions"] * 0.9)[window["mask"]]
    assert len(calls) == LAYERS
    monkeypatch.setattr(module, "is_long", lambda tokens: False)
    dense = policy(Window(**window)).log_prob(window["actions"] * 0.9)[window["mask"]]
    assert len(calls) == LAYERS
    torch.testing.assert_close(long, dense, atol=1e-4, rtol=1e-4)
