"""Trajectories held out: never learned from, measured after every iteration, and pretraining ends with the best."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mental_accounts.config import TrainConfig
from mental_accounts.errors import InterruptedRunError, UsageError
from mental_accounts.learning.held_out import METRIC, split
from mental_accounts.learning.preparation import prepare
from mental_accounts.learning.trainer import Trainer
from mental_accounts.policy import DecisionTransformer
from mental_accounts.report.runs import read_runs

from .conftest import aim_data
from .cut_runs import numbers, run_cut_and_whole, same_run, start


def test_no_trajectory_is_on_both_sides(aim: TrainConfig) -> None:
    whole, found = prepare(aim).data, prepare(replace(aim, held_out=0.25))
    assert found.held_out is not None
    assert len(found.held_out) == round(0.25 * len(whole))
    assert len(found.data) + len(found.held_out) == len(whole)
    rows = [one.observations.sum().item() for store in (found.data, found.held_out) for one in store]
    assert sorted(rows) == pytest.approx(sorted(one.observations.sum().item() for one in whole))
    again, other = (prepare(replace(aim, held_out=0.25, seed=seed)).held_out for seed in (aim.seed, aim.seed + 1))
    assert again is not None
    assert other is not None
    assert torch.equal(again.observations, found.held_out.observations)
    assert not torch.equal(other.observations, found.held_out.observations)


@pytest.mark.parametrize("method", ["dt", "odt", "ledger-odt", "gru"])
def test_pretraining_ends_with_the_best_weights(aim: TrainConfig, method: str, tmp_path: Path) -> None:
    # A step this large makes things worse after a while: the best policy is not the last one.
    config = replace(
        aim, method=method, held_out=0.2, lr=0.03, pretrain_iterations=6, updates_per_pretrain_iteration=10,
        online_iterations=0,
    )  # fmt: skip
    kept: list[dict[str, torch.Tensor]] = []
    trainer = start(config, tmp_path / "run")
    learn = trainer._learn

    def watched(*given: object) -> None:
        learn(*given)  # type: ignore[arg-type]
        kept.append({name: value.clone() for name, value in trainer.policy.state_dict().items()})

    trainer._learn = watched  # type: ignore[method-assign]
    trainer.run()
    losses = [line[METRIC] for line in numbers(tmp_path / "run")]
    best = losses.index(min(losses))
    assert len(losses) == 6
    last = DecisionTransformer.load(tmp_path / "run" / "policy").state_dict()
    assert all(torch.equal(last[name], value) for name, value in kept[best].items())
    if best < 5:
        assert any(not torch.equal(last[name], value) for name, value in kept[5].items())


def test_some_policy_before_the_last_is_best(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(aim, held_out=0.2, lr=0.1, pretrain_iterations=4, online_iterations=0)
    start(config, tmp_path / "run").run()
    losses = [line[METRIC] for line in numbers(tmp_path / "run")]
    assert losses.index(min(losses)) < 3


def test_a_run_that_is_cut_ends_as_a_whole_one(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(aim, held_out=0.2, lr=0.03, pretrain_iterations=3, checkpoint_seconds=0.0)
    run_cut_and_whole(config, tmp_path, 35, 95)


def test_a_run_that_is_stopped_while_its_best_policy_is_evaluated(
    aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(aim, held_out=0.2, lr=0.1, pretrain_iterations=3, online_iterations=1, pretrain_eval_every=3)
    start(config, tmp_path / "whole").run()

    def stopped(*_: object, **__: object) -> None:
        raise InterruptedRunError(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_evaluate", stopped)
        with pytest.raises(InterruptedRunError):
            start(config, tmp_path / "cut").run()
    start(config, tmp_path / "cut").run()
    same_run(tmp_path / "cut", tmp_path / "whole")


def test_what_cannot_be_held_out_is_refused(aim: TrainConfig) -> None:
    with pytest.raises(ValueError, match="held_out"):
        replace(aim, held_out=1.0)
    with pytest.raises(ValueError, match="there is none"):
        replace(aim, held_out=0.1, pretrain_iterations=0)
    with pytest.raises(UsageError, match="have 1; leave it out"):
        split(aim_data().select(torch.tensor([0])), replace(aim, held_out=0.1))


def test_pretraining_ends_when_patience_is_over(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(
        aim, held_out=0.2, lr=0.1, pretrain_iterations=9, pretrain_eval_every=9, online_iterations=1, patience=2
    )
    trainer = start(config, tmp_path / "run")
    trainer.run()
    lines = numbers(tmp_path / "run")
    offline = [line for line in lines if line["phase"] == "pretrain"]
    losses = [line[METRIC] for line in offline]
    assert len(losses) - 1 - losses.index(min(losses)) == 2
    assert len(losses) < 9
    assert "evaluation/return_mean_gm" in offline[-1]  # as after the last iteration
    assert lines[-1]["iteration"] == 10  # online iterations keep their numbers
    assert len(lines) == len(losses) + 1
    (found,) = read_runs([tmp_path / "run"]).runs  # reports take it for a whole run
    assert found.summary["iterations"] == len(lines)


def test_a_run_whose_patience_is_over_can_be_cut(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(aim, held_out=0.2, lr=0.1, pretrain_iterations=9, patience=1, checkpoint_seconds=0.0)
    run_cut_and_whole(config, tmp_path, 35, 95)


def test_patience_needs_something_held_out(aim: TrainConfig) -> None:
    with pytest.raises(ValueError, match="set held_out"):
        replace(aim, patience=3)
