"""Accounts in TorchRL's actors: against eager attention with the bias by hand, and in TorchRL's own rollouts."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import mental_accounts as ma
from mental_accounts.integrations import ledger_transform, torchrl_accounts
from mental_accounts.integrations.torchrl_actors import rewards_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("torchrl")
    pytest.importorskip("transformers")
    from tensordict.nn import TensorDictModule
    from torchrl.envs import CatFrames, GymEnv, SerialEnv, TargetReturn, TensorDictPrimer, TransformedEnv
    from torchrl.envs import UnsqueezeTransform as Unsqueeze
    from torchrl.modules import DecisionTransformer, DecisionTransformerInferenceWrapper, DTActor, OnlineDTActor

pytestmark = pytest.mark.filterwarnings("ignore")  # TorchRL warns of its own imports and defaults

B, K, STATE, ACTION = 3, 6, 3, 1
BOOK, RULE = ma.GridCodebook(dim=ACTION, bins=3), ma.EWA(phi=0.1, delta=0.8)
SIZES = {
    "n_embd": 32, "n_layer": 2, "n_head": 2, "n_inner": 64, "activation": "relu", "n_positions": 64,
    "resid_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip


def make(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "DecisionTransformer":
        return DecisionTransformer(STATE, ACTION, SIZES).eval()
    if kind == "DTActor":
        return DTActor(STATE, ACTION, SIZES).eval()
    return OnlineDTActor(STATE, ACTION, SIZES).eval()


def window() -> dict[str, Tensor]:
    return {
        "observation": torch.randn(B, K, STATE),
        "action": torch.rand(B, K, ACTION) * 2 - 1,
        "return_to_go": torch.randn(B, K, 1),
    }


def first(output: Any) -> Tensor:
    found: Tensor = output[0] if isinstance(output, tuple) else output
    return found


KINDS = ["DecisionTransformer", "DTActor", "OnlineDTActor"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_bias_added_by_hand(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    actor, inputs = make(kind), window()
    untouched = first(actor(**inputs))
    returns = inputs["return_to_go"].squeeze(-1)
    rewards = torch.stack([returns[:, t] - returns[:, t + 1] if t + 1 < K else torch.zeros(B) for t in range(K)], dim=1)
    bias = ma.column_bias(RULE.trace(BOOK.route(inputs["action"]), rewards), 0.7)

    def eager(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any) -> Any:
        logits = query @ key.transpose(-1, -2) * kwargs["scaling"] + bias
        weights = torch.softmax(logits if mask is None else logits + mask, dim=-1)
        return (weights @ value).transpose(1, 2), weights

    by_hand = make(kind)
    backbone = next(part for part in by_hand.modules() if isinstance(part, DecisionTransformer))
    backbone.transformer.set_attn_implementation("eager")
    with monkeypatch.context() as patch:
        patch.setattr("transformers.models.gpt2.modeling_gpt2.eager_attention_forward", eager)
        expected = first(by_hand(**inputs))
    with torchrl_accounts(actor, BOOK, RULE, 0.7):
        ours = first(actor(**inputs))
    assert torch.allclose(ours, expected, atol=1e-6, rtol=0)
    assert not torch.allclose(ours, untouched, atol=1e-4)
    with torchrl_accounts(actor, BOOK, RULE, 0.0):
        assert torch.equal(first(actor(**inputs)), untouched)
    assert torch.equal(first(actor(**inputs)), untouched)
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in actor.modules())


def test_rewards_are_differences_of_scaled_returns() -> None:
    assert rewards_of(torch.tensor([[5.0, 3.0, 3.5]])).tolist() == [[2.0, -0.5, 0.0]]
    actor, inputs = make("DTActor"), window()
    with torchrl_accounts(actor, BOOK, RULE, 0.7, return_scale=0.5):
        scaled = actor(**inputs)
    rewards = rewards_of(inputs["return_to_go"].squeeze(-1)) / 0.5
    with torchrl_accounts(actor, BOOK, RULE, 0.7) as accounts:
        accounts.enter(inputs["action"], rewards)
        assert torch.equal(actor(**inputs), scaled)


def test_gradients_reach_a_learned_beta() -> None:
    actor, scale = make("OnlineDTActor"), ma.BiasScale(0.1, learned=True)
    with torchrl_accounts(actor, BOOK, RULE, scale):
        first(actor(**window())).square().sum().backward()
    assert scale.beta.grad is not None
    assert scale.beta.grad.abs() > 0


def environment(accounts: Any, num_envs: int, steps: int) -> Any:
    def one() -> Any:
        return GymEnv("Pendulum-v1")

    base = one() if num_envs == 1 else SerialEnv(num_envs, one)
    env = TransformedEnv(base)
    keys = ["observation", "action", "return_to_go"]
    stacked = [f"{name}_cat" for name in keys]
    env.append_transform(TargetReturn(-100.0, out_keys=["return_to_go"]))
    env.append_transform(ledger_transform(accounts))
    env.append_transform(TensorDictPrimer(action=one().action_spec, expand_specs=True))
    env.append_transform(Unsqueeze(-2, in_keys=keys, out_keys=stacked))
    env.append_transform(CatFrames(in_keys=stacked, N=steps, dim=-2, padding="constant"))
    return env


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_rollout_keeps_live_accounts(num_envs: int) -> None:
    """Each action of TorchRL's own rollout is that of one forward with the whole trajectory's attractions."""
    T, actor = 12, make("DTActor")
    policy = TensorDictModule(
        actor, in_keys=["observation_cat", "action_cat", "return_to_go_cat"], out_keys=["action"]
    )  # fmt: skip
    wrapped = DecisionTransformerInferenceWrapper(policy, inference_context=K)
    wrapped.set_tensor_keys(observation="observation_cat", action="action_cat", return_to_go="return_to_go_cat")
    seen: list[tuple[Tensor, ...]] = []
    with torchrl_accounts(actor, BOOK, RULE, 0.05) as accounts, torch.no_grad():
        env = environment(accounts, num_envs, K)
        env.set_seed(0)
        watch = actor.transformer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs))
        played = env.rollout(T, policy=wrapped)
        watch.remove()
        actions = played["action"].reshape(num_envs, T, ACTION)
        rewards = played["next", "reward"].reshape(num_envs, T)
        A = RULE.trace(BOOK.route(actions), rewards)
        assert accounts.ledger is not None
        assert torch.allclose(
            accounts.ledger.attractions, RULE.closed_form(BOOK.route(actions), rewards, BOOK.num_codes), atol=1e-3
        )
        accounts.end()
        assert A.abs().max() > 1
        for t, inputs in enumerate(seen):
            known = torch.nn.functional.pad(A[:, max(0, t + 1 - K) : t], (K - 1 - min(t, K - 1), 1))  # 0: to come
            expected = actor.action_layer(actor.transformer(*inputs, attractions=known))
            expected = expected.reshape(num_envs, K, ACTION)[:, -1]
            assert torch.allclose(expected, actions[:, t], atol=1e-6)
        accounts.begin(num_envs)
        env.reset()
        assert (accounts.ledger.attractions == 0).all()


def test_a_rollout_is_told_the_live_ledger() -> None:
    """Each action of TorchRL's own rollout is that of one forward with what the trajectory's ledger told."""
    T, actor, delay = 9, make("DTActor"), 2
    policy = TensorDictModule(
        actor, in_keys=["observation_cat", "action_cat", "return_to_go_cat"], out_keys=["action"]
    )  # fmt: skip
    wrapped = DecisionTransformerInferenceWrapper(policy, inference_context=K)
    wrapped.set_tensor_keys(observation="observation_cat", action="action_cat", return_to_go="return_to_go_cat")
    seen: list[tuple[Tensor, ...]] = []
    options = {"ledger_input": "state", "channels": ("balance", "count"), "reward_delay": delay}
    with torchrl_accounts(actor, BOOK, RULE, **options) as accounts, torch.no_grad():
        env = environment(accounts, 2, K)
        env.set_seed(0)
        watch = actor.transformer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs))
        played = env.rollout(T, policy=wrapped)
        watch.remove()
        actions, rewards = played["action"].reshape(2, T, ACTION), played["next", "reward"].reshape(2, T)
        told = accounts.told(actions, rewards)
        accounts.end()
        for t, inputs in enumerate(seen):
            shown = told[:, max(0, t + 1 - K) : t + 1]
            shown = torch.nn.functional.pad(shown, (0, 0, K - shown.shape[1], 0))
            expected = actor.action_layer(actor.transformer(*inputs, ledger=shown)).reshape(2, K, ACTION)[:, -1]
            assert torch.allclose(expected, actions[:, t], atol=1e-5)


def test_one_environment_of_two_begins_anew() -> None:
    with torchrl_accounts(make("DTActor"), BOOK, RULE, 0.05) as accounts:
        env = environment(accounts, 2, K)
        after = env.rollout(3)[:, -1]["next"]
        assert accounts.ledger is not None
        before = accounts.ledger.attractions.clone()
        assert (before != 0).any(dim=-1).all()
        after["_reset"] = torch.tensor([[True], [False]])
        env.reset(after)
        window = accounts.live_window(K)
        assert window is not None
        assert accounts.ledger.attractions[0].tolist() == [0.0] * BOOK.num_codes
        assert torch.equal(accounts.ledger.attractions[1], before[1])
        assert not window[0].any()
        assert window[1].any()


class TestBadInput:
    def test_no_decision_transformer(self) -> None:
        with pytest.raises(ValueError, match=r"expected one torchrl DecisionTransformer inside.*found 0"):
            torchrl_accounts(torch.nn.Linear(2, 2), BOOK, RULE, 0.1)

    def test_accounts_twice(self) -> None:
        actor = make("DTActor")
        with (
            torchrl_accounts(actor, BOOK, RULE, 0.1),
            pytest.raises(ValueError, match="already has accounts"),
        ):
            torchrl_accounts(actor.transformer, BOOK, RULE, 0.1)
