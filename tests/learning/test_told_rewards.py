"""Runs whose accounts enter late or foregone rewards, from data to acting, stopped and resumed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mental_accounts.account_options import AccountsConfig
from mental_accounts.config import TrainConfig
from mental_accounts.data.tasks import imported_path, load_task
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import BrokenEnvironmentError, DataError
from mental_accounts.learning.evaluation import play_subject, read_subject
from mental_accounts.policy_options import ModelConfig

from .cut_runs import run_cut_and_whole, start

SMALL = TrainConfig(
    task="drifting-bandit", method="ewa-vq-odt", device="cpu", precision="float32", data_steps=1_000,
    model=ModelConfig(hidden=16, layers=1, heads=1, context_length=4, dropout=0.0), optimizer="adamw", lr=1e-3,
    warmup_updates=5, batch_size=16, pretrain_iterations=1, updates_per_pretrain_iteration=5, online_iterations=3,
    episodes_per_iteration=2, updates_per_iteration=3, eval_every=3, eval_episodes=2, replay_size=4, env_workers=0,
    checkpoint_seconds=0.0,
)  # fmt: skip
FOREGONE = AccountsConfig(rule="canonical", foregone=True, ledger_input="state", ledger_channels=("mean", "balance"))
LATE = AccountsConfig(reward_delay=3, ledger_input="state", ledger_channels=("count", "balance"))


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("accounts", [FOREGONE, LATE], ids=["foregone", "late"])
def test_a_run_is_resumed_exactly(accounts: AccountsConfig, tmp_path: Path) -> None:
    config = replace(SMALL, model=replace(SMALL.model, accounts=accounts))
    run_cut_and_whole(config, tmp_path, 11)  # in the middle of the second online iteration
    played = play_subject(read_subject(tmp_path / "11", None, None, "cpu"), 2)
    assert all((episode.foregone is not None) == accounts.foregone for episode in played)


def test_foregone_rewards_of_the_data_are_those_of_the_bandit() -> None:
    _, data = load_task("drifting-bandit", 1_000, 0)
    assert data.foregone is not None
    taken = data.foregone.gather(1, data.actions.unsqueeze(-1)).squeeze(-1)
    np.testing.assert_allclose(taken.numpy(), data.rewards.numpy(), rtol=1e-6)


def test_environments_that_do_not_tell_are_named(tmp_path: Path) -> None:
    model = replace(SMALL.model, accounts=FOREGONE)
    silent = replace(SMALL, task=None, env_id="CartPole-v1", model=model, random_episodes=2)
    with pytest.raises(BrokenEnvironmentError, match=r'rewards of all 2 actions in info\["foregone"\]'):
        start(silent, tmp_path / "silent").run()


def test_data_that_do_not_tell_are_named(tmp_path: Path) -> None:
    _, data = load_task("drifting-bandit", 1_000, 0)
    Trajectories.from_steps(
        data.observations, data.actions, data.rewards, lengths=data.lengths, terminated=data.terminated,
        truncated=data.truncated, action_spec=data.action_spec, info={"env_id": data.info["env_id"]},
    ).save(imported_path("untold"))  # fmt: skip
    config = replace(SMALL, task="imported/untold", data_steps=None, model=replace(SMALL.model, accounts=FOREGONE))
    with pytest.raises(DataError, match="the data have none"):
        start(config, tmp_path / "untold").run()
