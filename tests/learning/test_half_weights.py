"""Updates on half-precision copies of the weights: the numbers of autocast, and float32 weights for everyone else."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from mental_accounts.config import TrainConfig
from mental_accounts.data.episode_windows import sampler_for
from mental_accounts.data.windows import WindowSampler
from mental_accounts.learning.capture import RepeatedUpdate
from mental_accounts.learning.preparation import prepare
from mental_accounts.learning.update import Updater
from mental_accounts.policy import DecisionTransformer, Window
from mental_accounts.policy.half_weights import HalfWeights

ACCOUNTS = [
    {},
    {"account_scope": "window", "ledger_input": "state"},
    {"beta_learned": True, "beta_per": "token", "ledger_input": "state"},
    {"read": "now", "beta_learned": True, "beta_per": "layer-head"},
]


def set_up(config: TrainConfig, seed: int = 0) -> tuple[Updater, WindowSampler]:
    """An updater of a new policy, and windows."""
    prepared = prepare(config)
    torch.manual_seed(seed)
    policy = DecisionTransformer(prepared.policy)
    data = prepared.data
    policy.fit_normalisation(data.observations, data.actions, data.rewards)
    policy.to(config.device)
    data = data.to(config.device)
    if policy.accounts is not None:
        data.annotate_by(policy.accounts.books, policy.action_scale.to_unit, balances=prepared.policy.reads_ledger)
    sampler = sampler_for(prepared.policy, data, config.batch_size, torch.Generator(config.device).manual_seed(1))
    return Updater(policy, config), sampler


def weights_after(updater: Updater, sampler: WindowSampler, updates: int) -> dict[str, Tensor]:
    torch.manual_seed(3)
    for _ in range(updates):
        updater.update(sampler())
    return {name: value.clone() for name, value in updater.policy.state_dict().items()}


@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
@pytest.mark.parametrize("accounts", ACCOUNTS)
def test_updates_are_those_of_autocast_bit_for_bit(
    aim: TrainConfig, optimizer: str, accounts: dict[str, object]
) -> None:
    model = replace(aim.model, layers=2, accounts=replace(aim.model.accounts, **accounts))
    config = replace(aim, optimizer=optimizer, precision="bf16", model=model)
    results = []
    for copied in (False, True):
        updater, sampler = set_up(config)
        assert updater._half is not None
        if not copied:
            updater._half = None
        results.append(weights_after(updater, sampler, 6) | {"sums": updater.sums})
    for name, value in results[0].items():
        assert torch.equal(results[1][name], value), name


def test_the_policy_keeps_its_float32_parameters(aim: TrainConfig) -> None:
    updater, sampler = set_up(replace(aim, precision="bf16"))
    before = [id(parameter) for parameter in updater.policy.parameters()]
    seen = []
    hook = updater.policy.transformer.register_forward_hook(
        lambda module, inputs, output: seen.append({p.dtype for p in module.parameters()})
    )
    updater.update(sampler())
    hook.remove()
    assert seen == [{torch.float32, torch.bfloat16}]
    assert [id(parameter) for parameter in updater.policy.parameters()] == before
    assert all(parameter.dtype == torch.float32 for parameter in updater.policy.parameters())
    saved = [value for name, value in updater.tensors().items() if name.startswith("policy.transformer.")]
    assert all(value.dtype == torch.float32 for value in saved)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in updater.policy.transformer.parameters())


def test_updates_go_on_from_loaded_weights(aim: TrainConfig) -> None:
    config = replace(aim, precision="bf16")
    first, windows = set_up(config)
    weights_after(first, windows, 4)
    saved = {name: value.clone() for name, value in first.tensors().items()}
    second, others = set_up(config, seed=7)
    weights_after(second, others, 4)
    second.load_tensors(saved)
    expected = weights_after(first, windows, 3)
    for name, value in weights_after(second, others, 3).items():
        assert torch.equal(expected[name], value), name


def test_weights_are_back_after_an_error(aim: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    updater, sampler = set_up(replace(aim, precision="bf16"))

    def fail(windows: Window) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(updater, "_losses", fail)
    with pytest.raises(RuntimeError, match="no"):
        updater.update(sampler())
    assert all(parameter.dtype == torch.float32 for parameter in updater.policy.parameters())


def test_a_backward_that_failed_leaves_nothing_behind(aim: TrainConfig) -> None:
    updater, sampler = set_up(replace(aim, precision="bf16"))
    sound, windows = set_up(replace(aim, precision="bf16"))
    first = updater.policy.transformer.blocks[0].attention_norm.weight

    def fail(gradient: torch.Tensor) -> None:
        raise RuntimeError("no")

    hook = first.register_hook(fail)  # late in the backward: most copies have their gradients by then
    state, seed = torch.get_rng_state(), sampler.generator.get_state()
    with pytest.raises(RuntimeError, match="no"):
        updater.update(sampler())
    hook.remove()
    torch.set_rng_state(state)
    sampler.generator.set_state(seed)
    updater.update(sampler())
    torch.set_rng_state(state)
    windows.generator.set_state(seed)
    sound.update(windows())
    for (name, value), other in zip(updater.policy.named_parameters(), sound.policy.parameters(), strict=True):
        assert torch.equal(value, other), name


def test_a_weight_that_was_not_used_has_no_gradient() -> None:
    module = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4, bias=False)])
    half = HalfWeights(module)
    with half.in_place():
        module[0](torch.ones(2, 4).bfloat16()).sum().backward()
    assert module[0].weight.grad is not None
    assert module[0].weight.grad.dtype == torch.float32
    assert module[1].weight.grad is None


def test_full_precision_has_no_copies(aim: TrainConfig) -> None:
    updater, _ = set_up(replace(aim, precision="float32"))
    assert updater._half is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
@pytest.mark.parametrize("accounts", ACCOUNTS)
def test_captured_updates_are_those_of_autocast(aim: TrainConfig, optimizer: str, accounts: dict[str, object]) -> None:
    model = replace(aim.model, layers=2, accounts=replace(aim.model.accounts, **accounts))
    config = replace(aim, device="cuda", optimizer=optimizer, precision="bf16", model=model)
    results = []
    for copied in (False, True):
        updater, sampler = set_up(config)
        if not copied:
            updater._half = None
        repeated = RepeatedUpdate(updater, sampler, lambda text: None)
        torch.manual_seed(3)
        for _ in range(20):
            repeated.step()
        assert repeated.graph is not None
        results.append(updater.drain(20))
    assert results[1] == pytest.approx(results[0], rel=1e-2, abs=1e-3)  # biases of residual sums are rounded, or not
