"""On a GPU: captured updates equal eager ones, and a run goes through, stops and resumes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mental_accounts.config import TrainConfig
from mental_accounts.errors import InterruptedRunError
from mental_accounts.learning.capture import RepeatedUpdate
from mental_accounts.learning.events import Event, Message
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.trainer import Trainer
from mental_accounts.policy import DecisionTransformer
from mental_accounts.value_options import ValueConfig

from .test_half_weights import set_up

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

ACCOUNTS = [
    {},
    {"account_scope": "window"},
    {"beta_learned": True, "beta_per": "layer-head"},
    {"read": "now", "codebook": "product", "groups": 1},
    {"ledger_input": "state", "ledger_channels": ("balance", "count", "mean"), "reward_delay": 2},
]


@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
@pytest.mark.parametrize("accounts", ACCOUNTS)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_captured_updates_equal_eager_ones(
    aim: TrainConfig, optimizer: str, accounts: dict[str, object], precision: str
) -> None:
    model = replace(aim.model, accounts=replace(aim.model.accounts, **accounts))
    config = replace(aim, device="cuda", optimizer=optimizer, precision=precision, model=model)
    results = []
    for captured in (False, True):
        updater, sampler = set_up(config)
        said: list[str] = []
        repeated = RepeatedUpdate(updater, sampler, said.append)
        repeated.wanted = captured
        torch.manual_seed(3)
        for _ in range(20):
            repeated.step()
        assert (repeated.graph is not None) == captured, said
        results.append(updater.drain(20) | {"weight": updater.policy.head.mean.weight.abs().sum().item()})
    for name, value in results[0].items():
        assert results[1][name] == pytest.approx(value, rel=2e-3, abs=2e-4), name


@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
@pytest.mark.parametrize("accounts", ACCOUNTS)
def test_compiled_updates_equal_plain_ones(aim: TrainConfig, optimizer: str, accounts: dict[str, object]) -> None:
    model = replace(aim.model, dropout=0.0, accounts=replace(aim.model.accounts, **accounts))
    config = replace(aim, device="cuda", optimizer=optimizer, precision="float32", initial_lambda=1e-9, model=model)
    results = []
    for compiled in (False, True):
        updater, sampler = set_up(config)
        if compiled:
            updater.compile()
        said: list[str] = []
        repeated = RepeatedUpdate(updater, sampler, said.append)
        for _ in range(20):
            repeated.step()
        assert repeated.graph is not None
        assert updater.is_compiled == compiled, said
        results.append(updater.drain(20))
    for name in ("training/nll", "training/nll_last", "training/gradient_norm"):
        assert results[1][name] == pytest.approx(results[0][name], rel=5e-3, abs=1e-3), name


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("model", [{"gru_layers": 2, "dropout": 0.0}, {"episode_length": 4, "dropout": 0.0}])
def test_captured_updates_of_a_recurrent_policy_equal_eager_ones(
    aim: TrainConfig, model: dict[str, object], compiled: bool
) -> None:
    config = replace(aim, device="cuda", model=replace(aim.model, **model), initial_lambda=1e-9).for_method("gru")
    results = []
    for captured in (False, True):
        updater, sampler = set_up(config)
        if compiled and captured:
            updater.compile()
        said: list[str] = []
        repeated = RepeatedUpdate(updater, sampler, said.append)
        repeated.wanted = captured
        for _ in range(20):
            repeated.step()
        assert (repeated.graph is not None) == captured, said
        assert updater.is_compiled == (compiled and captured), said
        results.append(updater.drain(20))
    for name in ("training/nll", "training/nll_last", "training/gradient_norm"):
        assert results[1][name] == pytest.approx(results[0][name], rel=5e-3, abs=1e-3), name


def test_captured_updates_learn_from_episodes_added_since(aim: TrainConfig) -> None:
    """Replays draw from what the store holds then, although its pieces begin elsewhere."""
    updater, sampler = set_up(replace(aim, device="cuda").for_method("gru"))
    sampler.store.reserve(2000)
    repeated = RepeatedUpdate(updater, sampler, lambda text: None)
    for _ in range(5):
        repeated.step()
    assert repeated.graph is not None
    old = len(sampler.store)
    sampler.store.append(np.zeros((3, 1)), np.zeros((3, 1)), np.zeros(3), terminated=True)
    sampler.store.evict(old)
    repeated.step()
    torch.cuda.synchronize()
    assert int(sampler._count) == 1
    assert set(sampler().timesteps[sampler().mask].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("method", ["dt", "odt", "ledger-odt", "gru"])
@pytest.mark.parametrize("compiled", [False, True])
def test_critics_learn_inside_the_captured_graph(aim: TrainConfig, method: str, precision: str, compiled: bool) -> None:
    config = replace(aim, improve="td3", device="cuda", precision=precision, values=ValueConfig(alpha=0.5))
    results = []
    for captured in (False, True):
        updater, sampler = set_up(config.for_method(method))
        updater.values.begin("online", 1.0)
        if compiled:
            updater.compile()
        said: list[str] = []
        repeated = RepeatedUpdate(updater, sampler, said.append)
        repeated.wanted = captured
        torch.manual_seed(3)
        for _ in range(20):
            repeated.step()
        assert (repeated.graph is not None) == captured, said
        assert updater.is_compiled == compiled, said
        average = sum(value.abs().sum().item() for value in updater.values.average_critics.parameters())
        results.append(updater.drain(20) | {"average": average})
    assert results[0]["values/td_error"] > 0
    for name, value in results[0].items():
        assert results[1][name] == pytest.approx(value, rel=2e-2, abs=2e-3), name


@pytest.mark.parametrize("improve", ["none", "td3"])
@pytest.mark.parametrize("method", ["ewa-vq-odt", "gru"])
def test_a_run_on_a_gpu(aim: TrainConfig, improve: str, method: str, tmp_path: Path) -> None:
    config = replace(aim, device="cuda", precision="auto", improve=improve).for_method(method)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.write_config(config, ["test"])
    Trainer(config, folder).run()
    lines = folder.read_metrics()
    assert len(lines) == 6
    assert lines[-1]["updates"] == 140


@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
def test_a_resumed_run_is_captured_again(aim: TrainConfig, optimizer: str, tmp_path: Path) -> None:
    config = replace(aim, device="cuda", optimizer=optimizer)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.write_config(config, ["test"])
    trainer = Trainer(config, folder)
    iterate, calls = trainer._iterate, 0

    def stop_after_three(loggers: list[object]) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise InterruptedRunError(15)
        iterate(loggers)

    trainer._iterate = stop_after_three
    with pytest.raises(InterruptedRunError):
        trainer.run()
    said: list[Event] = []
    trainer = Trainer(config, folder, callbacks=said.append)
    trainer.run()
    assert not [event.text for event in said if isinstance(event, Message) and "cannot be captured" in event.text]
    assert trainer._repeated is not None
    assert trainer._repeated.graph is not None
    lines = folder.read_metrics()
    assert lines[-1]["updates"] == 140
    assert DecisionTransformer.load(folder.path / "policy").config.method == "ewa-vq-odt"
