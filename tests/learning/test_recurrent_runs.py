"""Runs of method gru: exact after a stop, learned from the right steps, played, exported, and better with rewards."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mental_accounts as ma
from mental_accounts.cli import main
from mental_accounts.config import TrainConfig
from mental_accounts.data.episode_windows import EpisodeSampler, sampler_for
from mental_accounts.data.tasks import find_task
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.export.programs import export_policy
from mental_accounts.learning.account_payoffs import annotate
from mental_accounts.learning.capture import RepeatedUpdate
from mental_accounts.learning.critics import inputs_of
from mental_accounts.learning.preparation import prepare, resolve_model
from mental_accounts.learning.update import Updater
from mental_accounts.policy import Categorical, DecisionTransformer, Window
from mental_accounts.policy_options import ModelConfig
from mental_accounts.presets import PRESETS
from mental_accounts.value_options import ValueConfig
from tests.policy.helpers import BOX, DISCRETE, make_policy, numbers, tiny

from .conftest import aim_data
from .cut_runs import numbers as numbers_of
from .cut_runs import run_cut_and_whole, start
from .test_half_weights import set_up
from .test_values import CONFIG, store_for


def recurrent(aim: TrainConfig, **model: Any) -> TrainConfig:
    config = aim.for_method("gru")
    return replace(config, model=replace(config.model, **model))


@pytest.mark.parametrize(
    ("improve", "model"),
    [("none", {"gru_layers": 2}), ("none", {"episode_length": 4, "return_input": True}), ("td3", {})],
    ids=["whole", "pieces", "values"],
)
def test_a_run_is_resumed_exactly(aim: TrainConfig, improve: str, model: dict[str, Any], tmp_path: Path) -> None:
    """With dropout; stopped while pretraining, and online with a replay that forgets."""
    config = replace(recurrent(aim, **model), improve=improve, checkpoint_seconds=0.0, replay_size=10)
    config = replace(config, updates_per_pretrain_iteration=8, updates_per_iteration=6, online_iterations=3)
    run_cut_and_whole(config, tmp_path, 9, 21)


def test_losses_are_means_over_the_steps_to_learn_from(aim: TrainConfig) -> None:
    """Those carried into a piece are read, but count for nothing; and neither does padding."""
    updater, sampler = set_up(recurrent(aim, episode_length=4, dropout=0.0))
    assert isinstance(sampler, EpisodeSampler)
    assert sampler.carried == 4
    window = sampler()
    assert window.learned is not None
    assert 0 < int(window.learned.sum()) < int(window.mask.sum()) < window.mask.numel()
    updater.policy.eval()
    predicted = updater.policy(window)
    actions = updater.policy.action_scale.to_unit(window.actions)
    wanted = -predicted.log_prob(actions)[window.learned].mean().item()
    assert float(updater._compute_losses(window)[1].nll) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("length", [1000, 4], ids=["whole", "pieces"])
@pytest.mark.parametrize("action", [BOX, DISCRETE], ids=["box", "discrete"])
def test_critics_look_one_step_ahead_in_the_same_episode(action: Any, length: int) -> None:
    """The targets of the textbook, with next actions by the averaged policy on the episode so far, one at a time.

    The averaged critics read the episode so far, too, by their own network.
    """
    policy = make_policy(tiny(method="gru", action=action, dropout=0.0, episode_length=length, return_input=True))
    config = replace(CONFIG, method="gru", values=ValueConfig(target_noise=0.0, discount=0.9, reward_scale=2.0))
    torch.manual_seed(0)
    updater, store = Updater(policy, config), store_for(policy)
    values = updater.values
    assert values is not None
    with torch.no_grad():  # another network than the policy, which targets must not be computed by
        for parameter in [*values.average_policy.parameters(), *values.average_critics.parameters()]:
            parameter.add_(0.3 * torch.randn_like(parameter))
    pairs = sampler_for(policy.config, store, 16, torch.Generator().manual_seed(1)).transitions()
    assert pairs.now.mask is not None
    assert pairs.now.rewards is not None
    torch.manual_seed(5)
    _, targets, _ = values._compute_targets(pairs)
    B, K = pairs.known.shape
    shapes = {name: value.shape[2:] for name, value in vars(policy(pairs.now)).items()}
    parts = {name: torch.zeros(B, K, *shape) for name, shape in shapes.items()}
    states = torch.zeros(B, K, policy.config.hidden)
    for b, k in (pairs.known & ~pairs.terminal).nonzero().tolist():
        first = int(pairs.now.mask[b].long().argmax())
        part = slice(first, k + 2)  # from the window's first step to the successor, one column behind its place
        so_far = Window(**{name: value[b : b + 1, part] for name, value in pairs.following.tensors().items()})
        for name, value in vars(values.average_policy(so_far)).items():
            parts[name][b, k] = value[0, -1].detach()
        read = values.average_policy.step_features(so_far)
        before, returns = values.average_policy.previous_unit_actions(so_far), so_far.returns_to_go
        memory = None
        for t in range(k + 2 - first):  # step by step, with the state carried along
            step = [part[:, t : t + 1] for part in (read, before, returns, so_far.timesteps)]
            state, memory = values.average_critics.recurrent(*step, None, memory=memory)
        states[b, k] = state[0, 0].detach()
    following = type(policy(pairs.now))(**parts)
    features = torch.cat([values.average_policy.step_features(pairs.following)[:, 1:], states], dim=-1)
    torch.manual_seed(5)
    with torch.no_grad():
        if isinstance(following, Categorical):
            ahead = (following.log_probs.exp() * values.average_critics(features).amin(dim=0)).sum(dim=-1)
        else:
            ahead = values.average_critics(inputs_of(policy, features, following.sample())).amin(dim=0)[..., 0]
    ahead = ahead.masked_fill(pairs.terminal, 0.0)
    wanted = pairs.now.rewards / 2.0 + 0.9 * ahead
    assert int(pairs.known.sum()) > 40
    assert bool((pairs.known & pairs.terminal).any())
    torch.testing.assert_close(targets[pairs.known], wanted[pairs.known], rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("improve", ["none", "td3"])
def test_compiled_updates_equal_plain_ones(aim: TrainConfig, improve: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recurrent layers stay outside of what is compiled."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    config, results = replace(recurrent(aim, dropout=0.0, episode_length=4), improve=improve), []
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


def test_half_precision_learns_the_same(aim: TrainConfig) -> None:
    losses = []
    for precision in ("float32", "bf16"):
        updater, sampler = set_up(replace(recurrent(aim, dropout=0.0), precision=precision))
        for _ in range(3):
            updater.update(sampler())
        losses.append(updater.drain(3))
    assert losses[0] == losses[1]


@pytest.mark.parametrize("format", ["torch-export", "onnx"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"gru_layers": 2, "return_input": True}, {"reward_input": "none"}, {"action": DISCRETE}],
    ids=["plain", "returns", "no rewards", "discrete"],
)
def test_it_leaves_as_a_program(format: Any, changes: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    policy = DecisionTransformer(tiny(method="gru", **changes))
    about = export_policy(policy, tmp_path, format, num_envs=3)
    assert about["checked"]["largest_difference_of_actions"] <= 1e-5
    names = [part["name"] for part in about["state"]]
    returns = ["return_now"] if policy.config.reads_returns else []
    assert names == ["actions", *returns, "timestep_now", "memory"]
    assert about["state"][-1]["shape"] == [3, policy.config.gru_layers, 8]


def test_commands_know_it(aim: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Played as any other policy; inspected with a reason why not."""
    config = replace(recurrent(aim), target_return=5.0, pretrain_iterations=1, online_iterations=0)
    said: list[ma.Event] = []
    start(config, tmp_path / "run", said.append).run()
    texts = [event.text for event in said if isinstance(event, ma.Message)]
    assert "--target-return changes nothing: gru reads the return with --model.return-input True" in texts
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "3", "--json", "--sample"]) == 0
    assert len(json.loads(capsys.readouterr().out)["returns"]) == 3
    assert main(["inspect", str(tmp_path / "run")]) == 2
    assert "method gru has no attention and no accounts to inspect: it is a recurrent network" in (
        " ".join(capsys.readouterr().err.split())
    )
    assert main(["train", "--method", "gru", "--model.windows", "steps"]) == 2
    assert "gru learns from whole episodes" in capsys.readouterr().err


def test_changing_the_method_takes_along_what_it_has(aim: TrainConfig) -> None:
    hidden = PRESETS["hidden"].for_method("gru")
    assert (hidden.model.reward_input, hidden.model.accounts.ledger_input) == ("auto", "none")
    assert hidden.for_method("odt").model.reward_input == "auto"
    asked = replace(hidden, model=replace(hidden.model, return_input=False))
    assert asked.for_method("odt").model.return_input is None
    assert asked.for_method("bc").model.return_input is None
    steps = replace(aim, method="odt", model=replace(aim.model, windows="steps"))
    assert steps.for_method("gru").model.windows == "auto"


@pytest.mark.learning
def test_rewards_tell_which_arm_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a drifting bandit nothing else does: without them, a policy can only copy how often each arm was played."""
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    model = replace(PRESETS["hidden"].for_method("gru").model, hidden=32)
    config = replace(
        PRESETS["hidden"].for_method("gru"), task="drifting-bandit", data_steps=60_000, device="cpu", lr=5e-3,
        warmup_updates=20, grad_clip=1.0, weight_decay=0.0, batch_size=16, pretrain_iterations=1,
        updates_per_pretrain_iteration=400, eval_episodes=100,
    )  # fmt: skip
    returns = {}
    for reward_input in ("state", "none"):
        path = tmp_path / reward_input
        start(replace(config, model=replace(model, reward_input=reward_input)), path).run()
        returns[reward_input] = numbers_of(path)[-1]["evaluation/return_mean_gm"]
    assert returns["state"] > 45  # 72 and 65 with two seeds; the data have 105
    assert returns["none"] < 20  # 6 and 3


# A transformer over whole episodes.


def test_a_transformer_over_whole_episodes_acts_with_all_of_them() -> None:
    task, data = find_task("hidden-arm"), aim_data(3)
    model = ModelConfig(context_length=200)
    assert task.eval_context_length == 5
    assert resolve_model(model, task, data, None).eval_context_length == 5
    whole = replace(model, windows="episodes")
    assert resolve_model(whole, task, data, None).eval_context_length == 200
    assert resolve_model(replace(whole, eval_context_length=9), task, data, None).eval_context_length == 9


@pytest.mark.parametrize("method", ["odt", "ledger-odt"])
def test_a_transformer_over_whole_episodes_acts_as_it_learned(method: str) -> None:
    """Step by step as in one forward over the recorded episode; on a CPU, without the padding of all."""
    policy = make_policy(tiny(method=method, windows="episodes", context_length=12, reward_input="state"))
    context, rng = policy.context(2, 0.0), np.random.default_rng(0)
    live, columns = [], {"observations": [], "actions": [], "rewards": []}
    for t in range(12):
        ended = np.array([t == 3, t == 11])  # the first environment begins anew
        seen, paid = rng.normal(size=(2, 3)), rng.normal(size=2)
        live.append(numbers(policy.act_distribution(seen, context))[1, -1])
        assert context.window().mask.shape == (2, t + 1)
        taken = context.choose(torch.from_numpy(rng.uniform(-1, 1, (2, 2))).float()).numpy()
        context.record(paid, ended)
        for values, value in zip(columns.values(), (seen, taken, paid), strict=True):
            values.append(value[1])
    assert not context.mask[1].any()
    held = {name: np.stack(values) for name, values in columns.items()}
    store = Trajectories.from_steps(**held, lengths=[12], terminated=[True], truncated=[False])
    annotate(store, policy)
    window = sampler_for(policy.config, store, 1, torch.Generator())()
    window.returns_to_go.sub_(float(store.returns[0]))  # live ones begin with the target of 0
    torch.testing.assert_close(torch.stack(live), numbers(policy(window))[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["odt", "ledger-odt"])
def test_a_transformer_over_whole_episodes_is_resumed_exactly(aim: TrainConfig, method: str, tmp_path: Path) -> None:
    model = replace(aim.model, windows="episodes", context_length=10, reward_input="state")
    config = replace(aim, model=model, improve="td3", checkpoint_seconds=0.0).for_method(method)
    config = replace(config, updates_per_pretrain_iteration=8, updates_per_iteration=6, online_iterations=2)
    sampler = sampler_for(prepare(config).policy, aim_data(), 8, torch.Generator())
    assert set(sampler().timesteps[:, 0].tolist()) == {0}
    run_cut_and_whole(config, tmp_path, 12)
