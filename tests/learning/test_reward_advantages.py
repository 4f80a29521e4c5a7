"""`reward_input="advantage"`: the policy reads how far rewards are above what their states let expect."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mental_accounts.accounts import StateBaseline
from mental_accounts.config import TrainConfig
from mental_accounts.data.episode_windows import sampler_for
from mental_accounts.data.tasks import imported_path
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.export.programs import export_policy
from mental_accounts.observation_spec import ObservationPart
from mental_accounts.policy import DecisionTransformer, Window
from mental_accounts.policy_options import ModelConfig, PolicyConfig
from tests.policy.helpers import DISCRETE, make_policy, make_window, numbers, tiny

from .cut_runs import numbers as numbers_of
from .cut_runs import run_cut_and_whole, start
from .tiny_env import ENV_ID

KINDS: dict[str, dict[str, Any]] = {
    "odt": {"method": "odt", "eval_context_length": 4},
    "one step": {"method": "odt", "eval_context_length": 1},
    "whole episodes": {"method": "odt", "windows": "episodes", "context_length": 40},
    "beside a ledger": {"method": "ledger-odt"},
    "gru": {"method": "gru"},
    "gru, discrete": {"method": "gru", "action": DISCRETE, "gru_layers": 2},
}


def advantages(**changes: Any) -> PolicyConfig:
    return tiny(**{"method": "odt", **changes}, reward_input="advantage")


def test_the_regression_is_that_of_the_accounts_and_the_rest_is_standardised() -> None:
    rng = torch.Generator().manual_seed(0)
    states, noise = torch.randn(500, 3, generator=rng), torch.randn(500, generator=rng)
    rewards = 40.0 + 9.0 * states[:, 0] - 5.0 * states[:, 1].square() + 0.5 * noise
    policy = DecisionTransformer(advantages())
    policy.fit_normalisation(states, torch.zeros(500, 2), rewards)
    baseline = StateBaseline(3)
    baseline.fit(states, rewards)
    assert torch.equal(policy.reward_baseline.coefficients, baseline.coefficients)
    assert float(policy.reward_std) == pytest.approx(0.5, rel=0.1)
    read = policy.step_features(
        Window(
            states[None], torch.zeros(1, 500, 2), torch.zeros(1, 500), torch.ones(1, 500, dtype=torch.long),
            previous_rewards=rewards[None], previous_observations=states[None],
        )
    )[0, :, -1]  # fmt: skip
    assert float(read.mean()) == pytest.approx(0.0, abs=1e-4)
    assert float(read.std()) == pytest.approx(1.0, abs=1e-2)
    assert np.corrcoef(read.numpy(), noise.numpy())[0, 1] > 0.98


def test_what_came_before_an_episode_is_not_read() -> None:
    policy = make_policy(advantages())
    window = make_window(policy, B=2, K=5)
    window["timesteps"] = torch.arange(5).expand(2, 5)
    base = numbers(policy(Window(**window)))
    for first, changes in ((0, False), (2, True)):
        other = {name: value.clone() for name, value in window.items()}
        other["previous_observations"][:, first] = 1e30
        assert (not torch.equal(numbers(policy(Window(**other))), base)) == changes


@pytest.mark.parametrize("kind", list(KINDS))
def test_acting_is_what_was_learned(kind: str) -> None:
    """An episode played step by step, and the same one read from a store; the environment begins another before it."""
    policy = make_policy(advantages(**KINDS[kind]))
    rng, T, target = np.random.default_rng(0), 30, 20.0
    context = policy.context(1, target)
    for length in (3, T):
        columns: dict[str, list[np.ndarray]] = {"observations": [], "actions": [], "rewards": []}
        live = []
        for t in range(length):
            observation, reward = rng.normal(size=(1, 3)).astype("f4"), rng.normal(size=1).astype("f4")
            distribution = policy.act_distribution(observation, context)
            live.append(numbers(distribution)[0, -1])
            action = context.choose(distribution.sample()[:, -1]).numpy().copy()
            context.record(reward, np.array([t == length - 1]))
            for name, value in zip(columns, (observation, action, reward), strict=True):
                columns[name].append(value[0])
    store = Trajectories.from_steps(
        **{name: np.stack(values) for name, values in columns.items()},
        lengths=[T], terminated=[False], truncated=[True], action_spec=policy.config.action,
    )  # fmt: skip
    if policy.accounts is not None:
        store.annotate_by(policy.accounts.books, balances=True)
    sampler = sampler_for(policy.config, store, 1, torch.Generator())
    whole, K = policy.config.learns_episodes, policy.config.acting_context
    for t in range(1 if whole else policy.config.context_length - 1, T):
        window = sampler.at(torch.tensor([0 if whole else t - policy.config.context_length + 1]))
        window = replace(window, returns_to_go=window.returns_to_go + target - float(store.returns[0]))
        if whole:
            offline = numbers(policy(window))[0, t]
        else:
            offline = numbers(policy(window.since(policy.config.context_length - K)))[0, -1]
        torch.testing.assert_close(live[t], offline, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["odt", "beside a ledger", "gru"])
def test_it_is_saved_and_leaves_as_a_program(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    policy = DecisionTransformer(advantages(**KINDS[kind])).eval()
    actions = torch.ones(90, dtype=torch.long) if policy.config.action.is_discrete else torch.rand(90, 2)
    policy.fit_normalisation(torch.randn(90, 3), actions, torch.randn(90))
    policy.save(tmp_path / "saved")
    window = Window(**make_window(policy, B=2, K=5))
    assert torch.equal(numbers(DecisionTransformer.load(tmp_path / "saved").eval()(window)), numbers(policy(window)))
    for format in ("torch-export", "onnx"):
        about = export_policy(policy, tmp_path, format, num_envs=3)
        assert about["checked"]["largest_difference_of_actions"] <= 1e-6
        held = "observations" if policy.config.is_recurrent else "previous_observations"
        assert held in [part["name"] for part in about["state"]]


def test_what_it_cannot_do_is_said(aim: TrainConfig) -> None:
    policy = make_policy(advantages())
    window = make_window(policy, B=2, K=4)
    with pytest.raises(ValueError, match=r"previous_observations of shape \(2, 4, 3\) for reward_input 'advantage'"):
        policy(Window(**{**window, "previous_observations": None}))
    with pytest.raises(ValueError, match="method bc reads the state alone; set reward_input to 'none'"):
        advantages(method="bc")
    reads = replace(aim, method="odt", model=replace(aim.model, reward_input="advantage"))
    assert reads.for_method("bc").model.reward_input == "none"
    assert reads.for_method("gru").model.reward_input == "advantage"
    picture = {"state_dim": 64, "observation": (ObservationPart((), (8, 8, 1)),), "encoder": "conv"}
    with pytest.raises(ValueError, match="images have too many; set it to 'state'"):
        advantages(**picture)


@pytest.mark.parametrize("method", ["odt", "gru"])
def test_a_run_is_resumed_exactly(method: Any, aim: TrainConfig, tmp_path: Path) -> None:
    model = replace(aim.model, reward_input="advantage")
    run_cut_and_whole(replace(aim, method=method, model=model, checkpoint_seconds=0.0), tmp_path, 75)


def test_a_runs_policy_is_fitted_to_its_data(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(
        aim, method="odt", model=replace(aim.model, reward_input="advantage"), pretrain_iterations=1,
        updates_per_pretrain_iteration=1, online_iterations=0, eval_episodes=1,
    )  # fmt: skip
    start(config, tmp_path / "run").run()
    policy = DecisionTransformer.from_run(tmp_path / "run")
    assert float(policy.reward_baseline.coefficients.abs().sum()) > 0


@pytest.mark.learning
def test_a_small_part_of_the_reward_that_decides_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best action is the sign of what the last reward has beyond its state, a hundredth of the reward's spread."""
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    episodes, T = 200, 12
    states = rng.standard_normal((episodes, T)).astype(np.float32)
    beyond = rng.choice([-1.0, 1.0], (episodes, T)).astype(np.float32)
    before = np.concatenate([np.zeros((episodes, 1)), beyond[:, :-1]], axis=1)
    store = Trajectories.from_steps(
        states.reshape(-1, 1),
        (0.6 * before + rng.uniform(-0.1, 0.1, (episodes, T))).reshape(-1, 1).astype(np.float32),
        (100.0 * states + beyond).reshape(-1),
        lengths=[T] * episodes, terminated=[False] * episodes, truncated=[True] * episodes, info={"env_id": ENV_ID},
    )  # fmt: skip
    store.save(imported_path("beyond"))
    likelihoods = {}
    for reward_input in ("state", "advantage"):
        config = TrainConfig(
            task="imported/beyond", method="odt", device="cpu", precision="float32", optimizer="adamw", lr=2e-3,
            warmup_updates=20, batch_size=64, pretrain_iterations=1, updates_per_pretrain_iteration=250,
            pretrain_eval_every=0, online_iterations=0, model=ModelConfig(
                hidden=32, layers=1, heads=1, context_length=4, dropout=0.0, reward_input=reward_input
            ),
        )  # fmt: skip
        start(config, tmp_path / reward_input).run()
        likelihoods[reward_input] = numbers_of(tmp_path / reward_input)[-1]["training/nll_last"]
    assert likelihoods["advantage"] < likelihoods["state"] - 0.5, likelihoods
