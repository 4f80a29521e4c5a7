"""Changes to a configuration, as Python and `--set` give them."""

from dataclasses import replace

import pytest

from mental_accounts.account_options import AccountsConfig
from mental_accounts.changes import with_changes
from mental_accounts.config import TrainConfig
from mental_accounts.errors import UsageError
from mental_accounts.policy_options import ModelConfig
from mental_accounts.presets import PRESETS

QUICK = PRESETS["quick"]


def test_one_field_by_many_names() -> None:
    expected = replace(QUICK, model=replace(QUICK.model, hidden=64))
    for changes in ({"hidden": 64}, {"model.hidden": 64}, {"model": {"hidden": 64}}):
        assert with_changes(QUICK, changes) == expected
    accounts = replace(QUICK.model.accounts, beta=0.5)
    expected = replace(QUICK, model=replace(QUICK.model, accounts=accounts))
    for changes in ({"beta": 0.5}, {"accounts": {"beta": 0.5}}, {"model": {"accounts": {"beta": 0.5}}}):
        assert with_changes(QUICK, changes) == expected
    assert with_changes(QUICK, {"lr": 1}) == replace(QUICK, lr=1.0)


def test_whole_parts() -> None:
    model = ModelConfig(hidden=32, heads=2, accounts=AccountsConfig(phi=0.5))
    assert with_changes(TrainConfig(), {"model": model}) == TrainConfig(model=model)
    assert with_changes(QUICK, {}) == QUICK


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hiden": 64}, "there is no field 'hiden' to set; did you mean hidden"),
        ({"model": {"hiden": 64}}, "there is no field 'model.hiden' to set; did you mean model.hidden"),
        ({"modle": {"hidden": 64}}, "there is no field 'modle' to set"),
        ({"lr": {"hidden": 64}}, "lr takes one value, not a table of fields"),
        ({"lr": "fast"}, "lr must be float, got 'fast'"),
        ({"lr": -1.0}, "lr must be"),
        ({"account_scope": "episode"}, "account_scope must be one of"),
    ],
)
def test_bad_changes(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        with_changes(QUICK, changes)
