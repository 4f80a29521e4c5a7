"""Action masks are obeyed wherever an action is chosen, learned from, valued or exported."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mental_accounts as ma
from mental_accounts.action_masks import checked_masks, choices_of, random_action
from mental_accounts.data.data_checks import DataError
from mental_accounts.errors import BrokenEnvironmentError
from mental_accounts.export.programs import export_policy
from mental_accounts.learning import Objective
from mental_accounts.learning.make_env import EnvironmentSource, make_environment
from mental_accounts.learning.parallel_envs import Environments
from mental_accounts.learning.rollout import play, play_randomly
from mental_accounts.learning.values import ValueLearner
from mental_accounts.policy import Actor, Categorical, DecisionTransformer, Window, disturbed
from tests.policy.helpers import make_policy, make_window, tiny

from .live_and_offline import assert_live_is_offline, policy_for
from .spaces_envs import Doors, DoorsByMethod

DOORS, BY_METHOD = (f"tests.learning.spaces_envs:{kind.__name__}" for kind in (Doors, DoorsByMethod))
DOOR = ma.ActionSpec("discrete", 4, start=1)
FOREGONE = {"rule": "canonical", "foregone": True, "beta": 1.0, "ledger_input": "state"}
SMALL: dict[str, Any] = {
    "model": {"hidden": 16, "layers": 1, "context_length": 4}, "batch_size": 8, "online_iterations": 2,
    "updates_per_iteration": 3, "eval_episodes": 2, "eval_every": 1, "random_episodes": 4, "device": "cpu",
    "precision": "float32",
}  # fmt: skip


def masked_policy(**changes: Any) -> DecisionTransformer:
    return make_policy(tiny(action=DOOR, action_masks=True, **changes))


@pytest.mark.parametrize("env_id", [DOORS, BY_METHOD])
@pytest.mark.parametrize("workers", [0, 1])
def test_no_locked_door_is_ever_tried(env_id: str, workers: int) -> None:
    """By random episodes, by the most likely action, by samples, and with noise: a locked door raises."""
    envs = Environments(EnvironmentSource(env_id), 4, workers, masks=True)
    policy = policy_for(make_environment(env_id))
    assert policy.config.action_masks
    episodes = [] if workers else play_randomly(envs, 0)
    for sample, noise in ((False, 0.0), (True, 0.0), (True, 0.9)):
        episodes += play(Actor(policy, 4, sample=sample, noise=noise), envs, 4.0, 1)
    for episode in episodes:
        assert episode.action_masks is not None
        assert episode.action_masks[np.arange(len(episode)), episode.actions - 1].all()
        assert not episode.action_masks.all()
    envs.close()


@pytest.mark.parametrize(
    ("method", "accounts"),
    [("bc", {}), ("gru", {}), ("dt", {}), ("odt", {}), ("ewa-vq-odt", {"beta": 1.0}), ("ledger-odt", {}),
     ("ewa-vq-odt", FOREGONE), ("ewa-vq-odt", {**FOREGONE, "account_scope": "window"})],
)  # fmt: skip
def test_live_is_offline(method: Any, accounts: dict[str, object]) -> None:
    env = make_environment(DOORS)
    store = assert_live_is_offline(policy_for(env, accounts, method=method), env)
    assert store.action_masks is not None
    assert store.slice(0).action_masks is not None


def test_the_likelihood_is_that_of_the_allowed_actions() -> None:
    policy = masked_policy(method="odt")
    window = make_window(policy, B=3, K=5, padding=[0, 2, 0])
    masks = torch.rand(3, 5, 4) < 0.5
    masks[..., 1] = True
    window["actions"] = torch.full((3, 5), 2)
    masks[1, :2] = False  # as it is where there is no step
    predicted = policy(Window(**window, action_masks=masks))
    assert isinstance(predicted, Categorical)
    plain = make_policy(tiny(action=DOOR, method="odt"))(Window(**window))
    for b, k in ((0, 0), (1, 3), (2, 4)):
        allowed = masks[b, k]
        expected = plain.log_probs[b, k][allowed].log_softmax(-1)
        torch.testing.assert_close(predicted.log_probs[b, k][allowed], expected)
        assert (predicted.log_probs[b, k][~allowed].exp() == 0).all()
        torch.testing.assert_close(predicted.entropy()[b, k], -(expected.exp() * expected).sum())
        torch.testing.assert_close(predicted.largest_entropy()[b, k], torch.log(allowed.sum()))
    losses = Objective(policy.config)(predicted, policy.action_scale.to_unit(window["actions"]), window["mask"])
    losses.loss.backward()
    gradients = [value.grad for value in policy.parameters() if value.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    real = window["mask"]
    torch.testing.assert_close(losses.target_entropy, 0.2 * masks.sum(-1)[real].log().mean())
    assert Objective(policy.config, target_entropy=0.3)(predicted, window["actions"] - 1, real).target_entropy is None


def test_values_are_those_of_the_allowed_actions() -> None:
    """A critic that thinks highly of a forbidden action changes neither targets nor the policy's value."""
    policy = masked_policy(method="odt")
    config = ma.TrainConfig(task=None, env_id=DOORS, method="odt", improve="td3", device="cpu", precision="float32")
    values = ValueLearner(policy, config)
    values.begin("online", 1.0)
    masks = torch.tensor([True, True, False, True]).expand(2, 5, 4)
    window = Window(**make_window(policy, B=2, K=5), action_masks=masks)
    found = []
    for worth in (0.0, 1e6):
        with torch.no_grad():
            values.critics.biases[-1][..., 2] = worth
            values.hold_critics()
        found.append(values.policy_loss(policy(window), window)[1])
    torch.testing.assert_close(found[0], found[1])


def test_noise_is_of_the_allowed_actions_and_reaches_all_of_them() -> None:
    allowed = torch.tensor([True, False, True, True]).expand(500, 4)
    noisy = disturbed(torch.zeros(500, dtype=torch.int64), 0.9, DOOR, torch.Generator().manual_seed(0), allowed=allowed)
    assert set(noisy.tolist()) == {0, 2, 3}


def test_forbidden_actions_are_not_credited_with_foregone_payoffs() -> None:
    policy = masked_policy(accounts={"rule": "canonical", "foregone": True, "reward_transform": "raw"})
    context = policy.context(1, 0.0)
    policy.act(np.zeros((1, 3)), context, action_masks=np.array([[1, 0, 1, 0]]))
    context.record(np.ones(1), np.zeros(1, bool), np.array([1]), foregone=np.full((1, 4), 5.0))
    held = context.balances_now()[0]
    assert held[2] > 0
    assert (held[[1, 3]] == 0).all()


@pytest.mark.parametrize("improve", ["none", "td3"])
def test_a_run_is_stopped_and_resumed_with_its_masks(improve: Any, tmp_path: Path) -> None:
    whole = ma.train(Doors, run=tmp_path / "whole", improve=improve, **SMALL)

    def stop(event: ma.Event) -> object:
        return ma.STOP if isinstance(event, ma.IterationEnded) else None

    cut = ma.train(Doors, run=tmp_path / "cut", improve=improve, callbacks=stop, **SMALL)
    assert ma.resume(cut).returns == whole.returns
    stored = ma.Trajectories.load(tmp_path / "whole" / "trajectories" / "00000.safetensors")
    assert stored.action_masks is not None
    assert stored.action_masks.dtype == torch.bool


def test_data_without_masks_allow_everything(tmp_path: Path) -> None:
    N = 40
    data = ma.Trajectories.from_steps(
        np.zeros((N, 2), np.float32), np.arange(N) % 4 + 1, np.zeros(N), lengths=[8] * 5, terminated=[False] * 5,
        truncated=[True] * 5,
    )  # fmt: skip
    run = ma.train(Doors, data, run=tmp_path / "run", **{**SMALL, "pretrain_iterations": 1},
                   updates_per_pretrain_iteration=3)  # fmt: skip
    assert run.policy.config.action_masks


@pytest.mark.parametrize(
    ("accounts", "format"),
    [({"beta": 0.5}, "onnx"), (FOREGONE, "onnx"), ({**FOREGONE, "account_scope": "window"}, "torch-export")],
)
def test_the_mask_is_an_input_of_exported_programs(accounts: dict[str, Any], format: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    policy = policy_for(make_environment(DOORS), accounts, layers=1)
    about = export_policy(policy, tmp_path, format, num_envs=3)  # checked against policy.act, step by step
    assert about["checked"]["largest_difference_of_actions"] == 0
    assert about["inputs"][4] == {"name": "action_mask", "dtype": "bool", "shape": [3, 4]}
    assert "action_mask says which actions are allowed now" in about["use"]


@pytest.mark.learning
def test_the_best_open_door_is_found(tmp_path: Path) -> None:
    """A random choice among open doors pays 1.5 a step, the best one 2.4 or more."""
    run = ma.train(
        Doors, preset="online", run=tmp_path / "run", hidden=16, layers=1, online_iterations=6, eval_every=6,
        updates_per_iteration=60, random_episodes=60, device="cpu",
    )  # fmt: skip
    assert run.evaluate(episodes=30).return_mean / 8 > 2.35


class TestBadInput:
    def test_masks_that_forbid_everything(self) -> None:
        policy = masked_policy()
        with pytest.raises(ValueError, match=r"the action mask at \[1\] forbids all actions: at least one must be"):
            policy.act(np.zeros((2, 3)), policy.context(2, 0.0), action_masks=np.array([[0, 1, 0, 0], [0, 0, 0, 0]]))

    def test_an_environment_that_forbids_everything(self, tmp_path: Path) -> None:
        class Locked(Doors):
            def look(self) -> tuple[Any, dict[str, Any]]:
                observation, info = super().look()
                return observation, {**info, "action_mask": info["action_mask"] * (self.t < 3)}

        with pytest.raises(BrokenEnvironmentError, match=r"in step 2 must say which.*forbids all actions.*have ended"):
            ma.train(Locked, run=tmp_path / "run", **SMALL)

    def test_an_environment_that_says_nothing_later(self, tmp_path: Path) -> None:
        class Silent(Doors):
            def look(self) -> tuple[Any, dict[str, Any]]:
                observation, info = super().look()
                return observation, {} if self.t == 2 else info

        with pytest.raises(BrokenEnvironmentError, match=r'in step 1 must say which actions.*info\["action_mask"\]'):
            ma.train(Silent, run=tmp_path / "run", **SMALL)

    @pytest.mark.parametrize("mask", [[1, 0], [1, 2, 0, 0], ["a"] * 4, [[1, 0, 0, 0]], [np.nan, 1, 1, 1]])
    def test_masks_that_are_none(self, mask: Any) -> None:
        with pytest.raises(ValueError, match=r"an action mask must be \(4,\) flags, 1 where an action is allowed"):
            checked_masks(mask, (4,))

    def test_masks_that_are_missing_or_not_wanted(self) -> None:
        policy, plain = masked_policy(), make_policy(tiny(action=DOOR))
        with pytest.raises(ValueError, match=r"action_masks must say which actions are allowed, shape \(1, 4\)"):
            policy.act(np.zeros((1, 3)), policy.context(1, 0.0))
        with pytest.raises(ValueError, match="action_masks must be None for a policy without them"):
            plain.act(np.zeros((1, 3)), plain.context(1, 0.0), action_masks=np.ones((1, 4)))
        with pytest.raises(ValueError, match="action_masks must be bool of shape"):
            policy(Window(**make_window(policy, B=2, K=3)))
        with pytest.raises(ValueError, match="action_masks need discrete actions"):
            tiny(action_masks=True)

    def test_data_that_took_a_forbidden_action(self) -> None:
        steps: dict[str, Any] = {"lengths": [2], "terminated": [True], "truncated": [False], "action_spec": DOOR}
        data = (np.zeros((2, 1), np.float32), np.array([1, 3]), np.zeros(2))
        with pytest.raises(DataError, match=r"actions\[1\] is 3, which its action mask forbids"):
            ma.Trajectories.from_steps(*data, **steps, action_masks=[[1, 0, 0, 0], [1, 1, 0, 0]])
        with pytest.raises(DataError, match=r"action_masks: the action mask at \[0\] forbids all actions"):
            ma.Trajectories.from_steps(*data, **steps, action_masks=np.zeros((2, 4)))
        with pytest.raises(DataError, match="action_masks are of discrete actions"):
            ma.Trajectories.from_steps(
                data[0], np.zeros((2, 1), np.float32), data[2], lengths=[2], terminated=[True], truncated=[False],
                action_masks=np.ones((2, 4)),
            )  # fmt: skip
        store = ma.Trajectories.from_steps(*data, **steps, action_masks=[[1, 0, 0, 0], [1, 1, 1, 0]])
        with pytest.raises(DataError, match="action masks are missing"):
            store.append(*data, terminated=True)


def test_random_actions_are_uniform_among_those_allowed() -> None:
    space = Doors().action_space
    space.seed(0)
    assert choices_of(space) == (4,)
    drawn = [int(random_action(space, np.array([True, False, True, True]))) for _ in range(600)]
    assert [drawn.count(door) / 600 for door in (1, 2, 3, 4)] == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=0.06)
