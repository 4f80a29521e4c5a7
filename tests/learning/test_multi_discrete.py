"""MultiDiscrete and MultiBinary actions: a categorical and a code for every number, in everything that policies do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import mental_accounts as ma
from mental_accounts.accounts import ValuesCodebook, codebook_from_spec
from mental_accounts.data.data_checks import DataError
from mental_accounts.export.programs import export_policy
from mental_accounts.inspect.inspect_summary import center_text
from mental_accounts.inspect.recording import record
from mental_accounts.learning import Objective
from mental_accounts.learning.critics import action_values, critics_of
from mental_accounts.learning.evaluation import subject_of
from mental_accounts.learning.make_env import environment_source, make_environment
from mental_accounts.policy import Categorical, MultiCategorical, Window, action_spec_of, disturbed
from tests.policy.helpers import make_policy, make_window, tiny

from .live_and_offline import assert_live_is_offline, policy_for
from .spaces_envs import BlockedPanel, Panel, Switches

SPEC = ma.ActionSpec("multi-discrete", 9, values=(3, 2, 4), starts=(1, 0, -1))
METHODS = ["bc", "gru", "dt", "odt", "ewa-vq-odt", "ledger-odt"]
SMALL: dict[str, Any] = {
    "model": {"hidden": 16, "layers": 1, "context_length": 4}, "batch_size": 8, "online_iterations": 2,
    "updates_per_iteration": 3, "eval_episodes": 2, "eval_every": 1, "random_episodes": 4, "device": "cpu",
    "precision": "float32",
}  # fmt: skip


def env_of(kind: type[Panel]) -> Any:
    return make_environment(f"tests.learning.spaces_envs:{kind.__name__}")


def test_spaces_become_specs() -> None:
    assert action_spec_of(Panel.action_space) == SPEC
    assert (SPEC.shape, SPEC.choices, SPEC.is_discrete) == ((3,), (3, 2, 4), True)
    assert action_spec_of(Switches.action_space) == ma.ActionSpec("multi-discrete", 6, values=(2, 2, 2))
    config = tiny(action=SPEC)
    assert ma.PolicyConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize("kind", [Panel, Switches, BlockedPanel])
@pytest.mark.parametrize("method", METHODS)
def test_live_is_offline(method: Any, kind: type[Panel]) -> None:
    env = env_of(kind)
    store = assert_live_is_offline(policy_for(env, method=method), env)
    assert store.actions.dtype == torch.int64
    assert store.actions.shape == (8, 3)


@pytest.mark.parametrize(
    "accounts",
    [
        {"account_scope": "window", "beta": 1.0, "read": "now"},
        {"rule": "canonical", "beta": 1.0, "ledger_input": "state", "reward_delay": 2},
    ],
)
def test_live_is_offline_with_other_accounts(accounts: dict[str, object]) -> None:
    env = env_of(Panel)
    assert_live_is_offline(policy_for(env, accounts), env)


def test_a_distribution_is_one_of_each_number() -> None:
    torch.manual_seed(0)
    parts = [torch.randn(2, 5, count).log_softmax(-1) for count in SPEC.values]
    each, both = [Categorical(part) for part in parts], MultiCategorical(torch.cat(parts, dim=-1), SPEC.values)
    actions = torch.stack([part.argmin(-1) for part in parts], dim=-1)
    numbers = actions.unbind(-1)
    torch.testing.assert_close(both.log_prob(actions), sum(p.log_prob(a) for p, a in zip(each, numbers, strict=True)))
    torch.testing.assert_close(both.entropy(), sum(part.entropy() for part in each))
    torch.testing.assert_close(both.largest_entropy(), sum(part.largest_entropy() for part in each))
    assert torch.equal(both.mode(), torch.stack([part.mode() for part in each], dim=-1))
    drawn = torch.stack([both.sample() for _ in range(4000)])  # (4000, 2, 5, 3)
    for d, part in enumerate(parts):
        share = torch.stack([(drawn[..., d] == value).float().mean(0) for value in range(SPEC.values[d])], dim=-1)
        torch.testing.assert_close(share, part.exp(), atol=0.04, rtol=0)
    noisy = disturbed(torch.zeros(400, 3, dtype=torch.int64), 0.5, SPEC, torch.Generator().manual_seed(0))
    assert noisy.amax(0).tolist() == [2, 1, 3]
    assert (noisy == 0).float().mean(0) == pytest.approx([0.5 + 0.5 / count for count in SPEC.values], abs=0.08)


def test_loss_and_target_entropy_add_up() -> None:
    policy = make_policy(tiny(action=SPEC, method="odt"))
    window = make_window(policy, B=3, K=5, padding=[0, 2, 0])
    objective = Objective(policy.config)
    assert objective.target_entropy == pytest.approx(0.2 * np.log(3 * 2 * 4))
    losses = objective(policy(Window(**window)), policy.action_scale.to_unit(window["actions"]), window["mask"])
    losses.loss.backward()
    assert torch.isfinite(losses.loss)
    assert policy.head.logits.weight.grad.abs().sum() > 0


def test_values_are_sums_over_numbers() -> None:
    policy = make_policy(tiny(action=SPEC, method="odt"))
    critics = critics_of(policy, 16)
    features, actions = torch.randn(2, 5, policy.num_features), torch.tensor([2, 0, 3]).expand(2, 5, 3)
    expected = critics(features)[..., [2, 3, 8]].sum(-1)
    torch.testing.assert_close(action_values(policy, critics, features, actions), expected)
    sure = torch.full((2, 5, 9), -1e9)
    sure[..., [2, 3, 8]] = 0.0
    torch.testing.assert_close(MultiCategorical(sure, SPEC.values).expected(critics(features)[0]), expected[0])


def test_the_codebook_has_a_code_for_every_value() -> None:
    book = ValuesCodebook((3, 2, 4))
    actions = torch.tensor([[0, 1, 3], [2, 0, 0]])
    codes = book.route(actions)
    assert codes.tolist() == [[0, 4, 8], [2, 3, 5]]
    assert torch.equal(book.stands_for(codes).sum(-1), torch.full((2,), 3.0))
    assert codebook_from_spec(book.spec()).values == book.values
    assert (book.num_codes, book.code_shape) == (9, (3,))
    with pytest.raises(ValueError, match=r"codes must be in \[0, 2\), but codes\[0\] is 2"):
        book.route(torch.tensor([[0, 2, 0]]))
    with pytest.raises(ValueError, match=r"whole numbers of shape \(\.\.\., 3\)"):
        book.route(torch.zeros(2, 3))


def test_an_action_has_the_mean_of_its_accounts() -> None:
    policy = make_policy(tiny({"reward_transform": "raw"}, action=SPEC))
    assert policy.accounts is not None
    books = policy.accounts.books
    entry = books.route_step(torch.tensor([[[0, 1, 3], [0, 0, 3], [2, 0, 3]]]))
    A = books.trace(entry, torch.tensor([[1.0, 2.0, 4.0]]))  # (1, 3, 3)
    rule = books.rule
    each = [rule.trace(entry.codes[..., d], torch.tensor([[1.0, 2.0, 4.0]])) for d in range(3)]
    torch.testing.assert_close(A, torch.stack(each, dim=-1))
    torch.testing.assert_close(books.one_per_action(A), A.mean(-1))


@pytest.mark.parametrize("kind", [Panel, Switches, BlockedPanel])
@pytest.mark.parametrize("improve", ["none", "td3"])
def test_runs_are_stopped_and_resumed(kind: type[Panel], improve: Any, tmp_path: Path) -> None:
    whole = ma.train(kind, run=tmp_path / "whole", improve=improve, **SMALL)

    def stop(event: ma.Event) -> object:
        return ma.STOP if isinstance(event, ma.IterationEnded) else None

    cut = ma.train(kind, run=tmp_path / "cut", improve=improve, callbacks=stop, **SMALL)
    assert ma.resume(cut).returns == whole.returns
    assert whole.policy.config.action.kind == "multi-discrete"


def test_own_data_may_be_of_any_number_type(tmp_path: Path) -> None:
    data = np.tile([[1, 0, -1], [3, 1, 2]], (20, 1))
    runs = []
    for place, actions in enumerate((data, data.astype(np.float32))):
        store = ma.Trajectories.from_steps(
            np.zeros((40, 3), np.float32), actions, np.ones(40), lengths=[8] * 5, terminated=[False] * 5,
            truncated=[True] * 5,
        )  # fmt: skip
        changes = {**SMALL, "pretrain_iterations": 1, "updates_per_pretrain_iteration": 3}
        runs.append(ma.train(Panel, store, run=tmp_path / str(place), **changes))
    assert runs[0].returns == runs[1].returns


@pytest.mark.parametrize(
    ("kind", "method", "format"),
    [(Panel, "ewa-vq-odt", "onnx"), (BlockedPanel, "ledger-odt", "onnx"), (Switches, "gru", "torch-export")],
)
def test_exported_programs_act_the_same(kind: type[Panel], method: Any, format: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    policy = policy_for(env_of(kind), method=method, layers=1)
    about = export_policy(policy, tmp_path, format, num_envs=2)
    assert about["checked"]["largest_difference_of_actions"] == 0
    if kind is Panel:
        held = next(state for state in about["state"] if state["name"] == "actions")
        assert np.full(held["shape"], held["first"])[0, 0].tolist() == [1, 0, -1]


def test_inspection_names_the_value_of_a_code() -> None:
    policy = policy_for(env_of(Panel))
    recording = record(subject_of(policy, environment_source(Panel), 4.0), episodes=1)
    assert recording.codes is not None
    assert [center_text(recording.codes, place) for place in (0, 4, 8)] == ["1, ·, ·", "·, 1, ·", "·, ·, 2"]


@pytest.mark.learning
def test_three_dials_are_found_by_values(tmp_path: Path) -> None:
    """Half of the settings are blocked; at random 4.4 of 8 points."""
    run = ma.train(
        BlockedPanel, preset="online", run=tmp_path / "run", method="ledger-odt", hidden=32, layers=1, device="cpu",
        online_iterations=8, eval_every=8, updates_per_iteration=50, random_episodes=150, lr=3e-3,
    )  # fmt: skip
    assert run.evaluate(episodes=20).return_mean > 6.0


@pytest.mark.learning
@pytest.mark.parametrize(("kind", "method"), [(Panel, "ewa-vq-odt"), (Switches, "bc")])
def test_what_most_did_is_learned(kind: type[Panel], method: Any, tmp_path: Path) -> None:
    """Data that set half of the dials right, and the others at random."""
    rng, env = np.random.default_rng(0), kind()
    seen, done, paid = [], [], []
    for episode in range(100):
        observation, _ = env.reset(seed=episode)
        for _ in range(8):
            guess = rng.integers(env.values)
            action = np.where(rng.random(3) < 0.5, env.wanted, guess) + env.starts
            seen.append(observation)
            done.append(action.astype(env.action_space.dtype))
            observation, reward, _, _, _ = env.step(done[-1])
            paid.append(reward)
    data = ma.Trajectories.from_steps(
        np.array(seen), np.array(done), np.array(paid), lengths=[8] * 100, terminated=[False] * 100,
        truncated=[True] * 100,
    )  # fmt: skip
    run = ma.train(
        kind, data, method=method, run=tmp_path / "run", hidden=32, layers=1, lr=3e-3, pretrain_iterations=1,
        updates_per_pretrain_iteration=300, online_iterations=0, device="cpu",
    )  # fmt: skip
    assert run.evaluate(episodes=20).return_mean > 7.5


class TestBadInput:
    @pytest.mark.parametrize(
        ("space", "words"),
        [
            (spaces.MultiDiscrete([[2, 2], [3, 3]]), r"flat MultiDiscrete or MultiBinary \(n,\), got shape \(2, 2\)"),
            (spaces.MultiBinary((2, 3)), "flat MultiDiscrete or MultiBinary"),
            (spaces.Tuple([spaces.Discrete(2)]), "must be Box, Discrete, MultiDiscrete or MultiBinary, got Tuple"),
        ],
    )
    def test_other_spaces(self, space: Any, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            action_spec_of(space)

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"size": 9}, "action.values must have"),
            ({"size": 9, "values": (3, 2)}, "sum of action.values, 5, got 9"),
            ({"size": 5, "values": (3, 2), "starts": (0,)}, "action.starts must have 2 numbers"),
            ({"size": 3, "values": (3, 0)}, "action.values must be at least 1"),
        ],
    )
    def test_specs(self, fields: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            ma.ActionSpec("multi-discrete", **fields)

    def test_data(self) -> None:
        ends: dict[str, Any] = {"lengths": [2], "terminated": [True], "truncated": [False], "action_spec": SPEC}
        for actions, words in (
            ([[1, 0, 0], [4, 0, 0]], r"actions\[1, 0\] is 4, outside of the action bounds \[1, 3\]"),
            ([[1.0, 0.5, 0.0], [1.0, 0.0, 0.0]], "must be whole, got torch.float64 with fractions"),
            ([[1, 0], [1, 0]], r"actions must have shape \(steps, 3\) of whole numbers, got \(2, 2\)"),
        ):
            with pytest.raises(DataError, match=words):
                ma.Trajectories.from_steps(np.zeros((2, 1)), np.array(actions), np.zeros(2), **ends)

    def test_masks_that_forbid_every_value_of_a_number(self) -> None:
        policy = make_policy(tiny(action=SPEC, action_masks=True))
        mask = np.array([[1, 1, 1, 0, 0, 1, 1, 1, 1]])
        with pytest.raises(ValueError, match=r"the action mask at \[0\] forbids all values of number 1"):
            policy.act(np.zeros((1, 3)), policy.context(1, 0.0), action_masks=mask)

    def test_accounts_that_need_one_code_per_action(self) -> None:
        with pytest.raises(ValueError, match=r"accounts\.foregone needs discrete actions"):
            tiny({"rule": "canonical", "foregone": True}, action=SPEC)
        with pytest.raises(ValueError, match="soft_codes must be 1 for discrete actions"):
            make_policy(tiny({"soft_codes": 2}, action=SPEC))
