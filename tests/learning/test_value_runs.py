"""Runs that improve by values: exact after a stop, nothing lost on the way, better than what they learned from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mental_accounts.config import TrainConfig
from mental_accounts.data.tasks import imported_path
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import DivergenceError, UsageError
from mental_accounts.learning import trainer as trainer_module
from mental_accounts.learning.account_payoffs import renew_payoffs
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_view import summary_line
from mental_accounts.learning.update import Updater
from mental_accounts.value_options import ValueConfig

from .conftest import aim_data
from .cut_runs import numbers, run_cut_and_whole, start, weights
from .tiny_env import ENV_ID

METRICS = Path(__file__).parents[2] / "docs" / "metrics.md"


def improving(aim: TrainConfig, method: str, *, credit: str = "reward", **values: Any) -> TrainConfig:
    config = replace(aim, improve="td3", values=ValueConfig(**values)).for_method(method)
    return replace(config, model=replace(config.model, accounts=replace(config.model.accounts, credit=credit)))


@pytest.mark.parametrize("method", ["bc", "gru", "dt", "odt", "ewa-vq-odt", "ledger-odt"])
def test_every_method_can_improve_and_says_how(aim: TrainConfig, method: str, tmp_path: Path) -> None:
    start(improving(aim, method), tmp_path / "run").run()
    lines = numbers(tmp_path / "run")
    for name in ("loss", "td_error", "data_mean", "target_mean", "policy_mean", "gradient_share"):
        assert all(np.isfinite(line[f"values/{name}"]) for line in lines)
    assert [line["values/gradient_critics"] > 0 for line in lines] == [False] * 2 + [True] * 4
    assert [("values/overestimation" in line) for line in lines] == [False] * 2 + [True] * 4
    assert all(0 < line["values/gradient_share"] < 1 for line in lines[2:])
    logged = "training/squared_error" if method in ("bc", "dt") else "training/nll"
    assert all({logged, f"{logged}_last"} <= line.keys() for line in lines)
    assert ("training/nll" in lines[0]) == (method not in ("bc", "dt"))
    defined = METRICS.read_text(encoding="utf-8")
    assert not [name for line in lines for name in line if f"`{name}`" not in defined]


def test_the_log_shows_values_where_there_are_some() -> None:
    line = {"phase": "online", "iteration": 3, "updates": 40, "training/nll_last": 1.5, "time/iteration": 2.0}
    assert summary_line(line) == "online      3  updates     40  nll    1.500  2.0 s"
    error = {name.replace("nll", "squared_error"): value for name, value in line.items()}
    assert summary_line(error) == "online      3  updates     40  error    1.500  2.0 s"
    line |= {"values/policy_mean": -123.456, "values/td_error": 0.04567}
    assert summary_line(line) == "online      3  updates     40  nll    1.500  value   -123.5  TD error   0.0457  2.0 s"


@pytest.mark.parametrize("kind", ["dt", "ledger-odt", "td", "td, a window's accounts"])
def test_a_run_that_improves_is_resumed_exactly(aim: TrainConfig, kind: str, tmp_path: Path) -> None:
    """Stopped early in the first online iteration; where TD errors pay, also while pretraining, and later."""
    credit = "td" if kind.startswith("td") else "reward"
    config = improving(aim, "dt" if kind == "dt" else "ledger-odt", credit=credit)
    config = replace(config, anneal=kind == "dt")
    if "window" in kind:
        accounts = replace(config.model.accounts, account_scope="window")
        config = replace(config, model=replace(config.model, accounts=accounts))
    config = replace(config, checkpoint_seconds=0.0, replay_size=10, online_iterations=3, eval_every=3)
    config = replace(config, updates_per_pretrain_iteration=10, updates_per_iteration=8)
    run_cut_and_whole(config, tmp_path, *((13, 23, 34) if kind == "td" else (23,)))


def test_values_change_nothing_of_the_policy_while_they_have_no_weight(aim: TrainConfig, tmp_path: Path) -> None:
    offline = replace(aim, online_iterations=0, model=replace(aim.model, dropout=0.0)).for_method("dt")
    start(offline, tmp_path / "plain").run()
    start(improving(offline, "dt"), tmp_path / "values").run()
    for name, value in weights(tmp_path / "plain").items():
        torch.testing.assert_close(weights(tmp_path / "values")[name], value, rtol=1e-4, atol=1e-6)


def test_td_errors_pay_the_accounts_and_are_renewed(
    aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = start(improving(aim, "ledger-odt", credit="td"), tmp_path / "run")
    seen: list[torch.Tensor] = []

    def watched(store: Trajectories, updater: Updater) -> None:
        renew_payoffs(store, updater)
        seen.append(store.storage.rows("payoffs").clone())

    monkeypatch.setattr(trainer_module, "renew_payoffs", watched)
    policy = trainer.run()
    books, store = policy.accounts.books, trainer.replay.store
    assert not torch.equal(seen[0], seen[1])  # V was 0 at first: rewards
    states, last = store.observations, store.storage.rows("remaining") == 1
    ahead = torch.where(last.unsqueeze(-1), states, states.roll(-1, 0))  # where what follows the last is not known
    known = store.has_final
    assert known.any()
    ahead[last.nonzero().squeeze(-1)[known]] = store.final_observations[known]
    errors = store.rewards + books.baseline.gamma * books.baseline(ahead) - books.baseline(states)
    torch.testing.assert_close(store.storage.rows("payoffs"), books.transform(errors))
    assert books.baseline(states).std() > 0
    with pytest.raises(ValueError, match=r"accounts\.credit 'td' is computed by critics, and there are none"):
        replace(trainer.config, improve="none")


def test_exploration_goes_on_until_there_are_enough_steps(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(aim, steps_per_iteration=45, online_iterations=2, pretrain_iterations=1)
    start(config, tmp_path / "run").run()
    assert RunFolder(tmp_path / "run").read_metrics()[-1]["env_steps"] == 2 * 60  # rounds of two episodes of ten steps
    assert replace(config, steps_per_iteration=0) == replace(aim, online_iterations=2, pretrain_iterations=1)


@pytest.mark.parametrize("size", [1e6, 1e-6])
def test_rewards_of_any_size(aim: TrainConfig, size: float, tmp_path: Path) -> None:
    """Values of scaled rewards are scaled ones: what the data choose as their unit makes all of it the same."""
    data = aim_data()
    ends = {"lengths": data.lengths, "terminated": data.terminated, "truncated": data.truncated}
    found = {}
    for scale in (1.0, size):
        Trajectories.from_steps(
            data.observations, data.actions, data.rewards * scale, **ends, info={"env_id": ENV_ID}
        ).save(imported_path("scaled"))
        config = improving(replace(aim, task="imported/scaled", online_iterations=0), "dt", reward_scale=None)
        start(config, tmp_path / str(scale)).run()
        found[scale] = numbers(tmp_path / str(scale))[-1]
    for name in ("td_error", "data_mean", "policy_mean"):
        assert found[size][f"values/{name}"] == pytest.approx(size * found[1.0][f"values/{name}"], rel=1e-2)


def test_exploding_values_stop_the_run_and_spare_the_policy(aim: TrainConfig, tmp_path: Path) -> None:
    trainer = start(improving(replace(aim, checkpoint_seconds=0.0), "dt"), tmp_path / "run")
    set_up, learn, done = trainer._set_up, None, 0

    def learn_and_break(sampler: object) -> None:
        nonlocal done
        done += 1
        if done == 20:
            with torch.no_grad():
                trainer.updater.values.critics.biases[-1].fill_(1e5)
        learn(sampler)

    def set_up_and_break() -> None:
        nonlocal learn
        set_up()
        learn, trainer.updater.learn_from = trainer.updater.learn_from, learn_and_break

    trainer._set_up = set_up_and_break
    with pytest.raises(DivergenceError, match=r"critics' values explode.*lower --values\.critic-lr"):
        trainer.run()
    assert done == 20
    resumed = start(trainer.config, tmp_path / "run").run()  # from the state before
    assert all(bool(torch.isfinite(value).all()) for value in resumed.state_dict().values())
    assert len(numbers(tmp_path / "run")) == 6


@pytest.mark.parametrize("terminated", [True, False])
def test_episodes_of_one_step(aim: TrainConfig, terminated: bool, tmp_path: Path) -> None:
    data = aim_data()
    n = len(data.rewards)
    Trajectories.from_steps(
        data.observations, data.actions, data.rewards, lengths=[1] * n, terminated=[terminated] * n,
        truncated=[not terminated] * n, info={"env_id": ENV_ID},
    ).save(imported_path("short"))  # fmt: skip
    config = replace(improving(aim, "dt"), task="imported/short", online_iterations=0)
    if not terminated:
        with pytest.raises(UsageError, match="every episode is cut off after one step"):
            start(config, tmp_path / "run").run()
        return
    start(replace(config, updates_per_pretrain_iteration=150), tmp_path / "run").run()
    last = numbers(tmp_path / "run")[-1]
    assert last["values/data_mean"] == pytest.approx(float(data.rewards.mean()), abs=0.1)  # nothing follows a reward
    assert last["values/target_mean"] == pytest.approx(float(data.rewards.mean()), abs=0.05)


def test_options_of_critics_without_critics_are_noted(aim: TrainConfig, tmp_path: Path) -> None:
    events: list[object] = []
    config = replace(aim, values=ValueConfig(alpha=0.3), pretrain_iterations=1, online_iterations=0)
    start(config, tmp_path / "run", events.append).run()
    assert any("give --improve td3" in getattr(event, "text", "") for event in events)


@pytest.mark.learning
@pytest.mark.parametrize("method", ["dt", "odt"])
def test_values_lead_beyond_the_data(aim: TrainConfig, method: str, tmp_path: Path) -> None:
    """The marksman of the data scores 4; imitation stays near it, values find the target."""
    values = {"alpha": 1.0, "normalised": True, "imitate": "offline", "discount": 0.5, "critic_hidden": 64}
    config = replace(improving(aim, method, **values), online_iterations=8, updates_per_iteration=60, eval_every=8)
    start(config, tmp_path / "run").run()
    start(replace(config, improve="none"), tmp_path / "plain").run()
    better, plain = (numbers(tmp_path / name)[-1]["evaluation/return_mean_gm"] for name in ("run", "plain"))
    assert better > 9.0 > plain
