"""What is compiled gives what is not: windows, losses, sums. The compiler's front end alone, no machine code."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from mental_accounts.config import TrainConfig
from mental_accounts.learning.capture import RepeatedUpdate

from .test_half_weights import set_up


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
