"""What is compiled gives what is not: windows, losses, sums. The compiler's front end alone, no machine code."""

import gc
import weakref
from dataclasses import replace
from functools import partial

import pytest
import torch

from mental_accounts.config import TrainConfig
from mental_accounts.learning.capture import RepeatedUpdate

from .test_half_weights import set_up


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["odt", "ledger-odt", "ewa-vq-odt"])
def test_runs_of_one_form_share_compiled_code_and_keep_nothing_alive(
    aim: TrainConfig, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with other weights, other scales of returns, other data: what a worker compiles is for all of its runs."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    torch._dynamo.reset()
    forms, kept = [], []
    for seed, scale in ((0, 0.5), (1, 0.125)):
        config = replace(aim, seed=seed, model=replace(aim.model, return_scale=scale, dropout=0.0)).for_method(method)
        updater, sampler = set_up(config, seed)
        updater.compile()
        repeated = RepeatedUpdate(updater, sampler, pytest.fail)
        torch.manual_seed(3)
        repeated.step()
        forms.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        expected = losses_without_compiling(config, seed)
        assert updater.drain(1)["training/loss_mean"] == pytest.approx(expected, rel=1e-5)
        kept.append(weakref.ref(updater.policy))
        del updater, sampler, repeated
    gc.collect()
    assert forms[0] == forms[1] > 0
    assert [policy() for policy in kept] == [None, None]


def losses_without_compiling(config: TrainConfig, seed: int) -> float:
    """The loss of the first update."""
    updater, sampler = set_up(config, seed)
    torch.manual_seed(3)
    RepeatedUpdate(updater, sampler, pytest.fail).step()
    return updater.drain(1)["training/loss_mean"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("optimizer", "improve"), [("lamb", "none"), ("adamw", "none"), ("adamw", "td3")])
@pytest.mark.parametrize(
    "accounts", [{}, {"account_scope": "window", "ledger_input": "state"}, "ledger-odt", "rewards"]
)
def test_compiled_updates_equal_plain_ones(
    aim: TrainConfig,
    optimizer: str,
    accounts: dict[str, object] | str,
    improve: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    options = {} if isinstance(accounts, str) else accounts
    model = replace(aim.model, dropout=0.0, accounts=replace(aim.model.accounts, **options))
    config = replace(aim, optimizer=optimizer, model=model, improve=improve)
    config = config.for_method("ledger-odt") if accounts == "ledger-odt" else config
    if accounts == "rewards":
        config = replace(config, method="odt", model=replace(model, reward_input="advantage"))
    results = []
    for compiled in (False, True):
        updater, sampler = set_up(config)
        if updater.values is not None:
            updater.values.begin("online", 1.0)
        if compiled:
            updater.compile()
        said: list[str] = []
        repeated = RepeatedUpdate(updater, sampler, said.append)
        torch.manual_seed(3)
        for _ in range(4):
            repeated.step()
        assert not said
        assert updater.is_compiled == compiled
        results.append(updater.drain(4))
    assert results[1] == pytest.approx(results[0], rel=1e-5)
