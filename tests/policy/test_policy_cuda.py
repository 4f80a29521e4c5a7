"""On a GPU: the CPU's numbers in float32, close ones in bf16, a captured update, acting with a ledger there."""

import copy

import numpy as np
import pytest
import torch

from mental_accounts.learning import Objective, WarmUp, clip_gradients, make_optimizer
from mental_accounts.policy import Actor, DecisionTransformer, Window, autocast

from .helpers import DISCRETE, make_policy, make_window, numbers, tiny

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CONFIGS = {
    "odt": tiny(method="odt"),
    "then": tiny({"beta": 0.7}),
    "now": tiny({"beta": 0.7, "read": "now"}),
    "per layer and head": tiny({"beta": 0.7, "beta_learned": True, "beta_per": "layer-head"}),
    "discrete": tiny({"beta": 0.7}, action=DISCRETE),
    "rewards above a baseline": tiny(method="odt", reward_input="advantage"),
    "gru": tiny(method="gru", gru_layers=2, return_input=True),
    "gru, discrete": tiny(method="gru", action=DISCRETE),
    "late": tiny({"ledger_input": "state", "ledger_channels": ("count", "balance", "mean"), "reward_delay": 2}),
}


def on_gpu(window: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.cuda() for name, value in window.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_same_numbers_as_on_the_cpu(name: str) -> None:
    policy = make_policy(CONFIGS[name])
    window = make_window(policy, B=4, K=6, padding=[0, 3, 1, 0])
    expected = numbers(policy(Window(**window)))[window["mask"]].detach()
    policy.cuda()
    there = window["mask"]
    exact = numbers(policy(Window(**on_gpu(window)))).cpu()[there]
    torch.testing.assert_close(exact, expected, rtol=1e-3, atol=1e-3)
    with autocast("cuda"):
        rough = numbers(policy(Window(**on_gpu(window)))).cpu()[there]
    assert rough.dtype == torch.float32
    assert (rough - expected).abs().mean() < 0.1 * expected.abs().mean() + 0.02


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("optimizer_name", ["lamb", "adamw"])
def test_a_captured_update_equals_an_eager_one(name: str, optimizer_name: str) -> None:
    def problem() -> tuple[object, DecisionTransformer]:
        policy = make_policy(CONFIGS[name]).cuda().train()
        objective = Objective(policy.config).cuda()
        optimizer = make_optimizer(optimizer_name, policy.parameters(), 1e-3, 1e-3, "cuda")
        warm_up = WarmUp(optimizer, 5)
        torch.manual_seed(7)
        window = on_gpu(make_window(policy.cpu(), B=4, K=6, padding=[0, 3, 1, 0]))
        policy.cuda()
        actions = policy.action_scale.to_unit(window["actions"])

        def update() -> torch.Tensor:
            losses = objective(policy(Window(**window)), actions, window["mask"])
            optimizer.zero_grad(set_to_none=False)
            losses.nll.backward()  # the entropy's noise would differ between a graph and eager
            clip_gradients(policy.parameters(), 0.25)
            optimizer.step()
            warm_up.advance()
            return losses.nll.detach()

        return update, policy

    eager, eager_policy = problem()
    for _ in range(8):
        eager()
    captured, policy = problem()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            captured()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured()
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    for one, other in zip(policy.parameters(), eager_policy.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_recurrent_policy_has_gradients_in_evaluation_too() -> None:
    """As for what is logged of critics; cuDNN refuses them outside of training mode."""
    policy = make_policy(CONFIGS["gru"]).cuda().eval()
    twin = copy.deepcopy(policy)  # its weights are in one piece, or a warning would say so
    window = Window(**on_gpu(make_window(policy.cpu(), B=4, K=6, padding=[0, 3, 1, 0])))
    for one in (policy.cuda(), twin):
        one(window).mean.sum().backward()
        assert all(value.grad is not None for value in one.recurrent.parameters())


def test_acting_on_a_gpu() -> None:
    policy = make_policy(CONFIGS["then"])
    here, there = policy.context(3, 20.0), None
    actions = []
    rng = np.random.default_rng(0)
    script = [(rng.normal(size=(3, 3)), rng.normal(size=3), rng.random(3) < 0.2) for _ in range(15)]
    for device in ("cpu", "cuda"):
        policy.to(device)
        context = here if device == "cpu" else (there := policy.context(3, 20.0))
        taken = []
        for observations, rewards, ended in script:
            taken.append(policy.act(observations, context))
            context.record(rewards, ended)
        actions.append(np.stack(taken))
    assert there is not None
    np.testing.assert_allclose(actions[0], actions[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("sample", [False, True])
def test_a_captured_actor_equals_an_eager_one(name: str, sample: bool) -> None:
    policy = make_policy(CONFIGS[name]).cuda()
    rng = np.random.default_rng(0)
    script = [
        (rng.normal(size=(3, 3)).astype("f4"), rng.normal(size=3).astype("f4"), rng.random(3) < 0.2) for _ in range(15)
    ]
    results = []
    for captured in (True, False):
        actor = Actor(policy, 3, sample=sample)
        assert actor._captured is not None
        if not captured:
            actor._captured = None
        taken = []
        for episode in range(2):  # the second rollout begins anew
            actor.begin(20.0, seed=episode)
            for observations, rewards, ended in script:
                taken.append(actor.act(observations))
                actor.record(rewards, ended)
        results.append(np.stack(taken))
    if not sample:  # a graph draws other numbers than the same generator does eagerly
        np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)
        return
    actor = Actor(policy, 3, sample=True)
    actor.begin(20.0, seed=0)
    again = []
    for observations, rewards, ended in script:
        again.append(actor.act(observations))
        actor.record(rewards, ended)
    np.testing.assert_array_equal(results[0][:15], np.stack(again))
    assert (results[0][:15] != results[0][15:]).any()


def test_a_captured_actor_enters_foregone_rewards() -> None:
    config = tiny({"rule": "canonical", "foregone": True, "ledger_input": "state"}, action=DISCRETE)
    policy = make_policy(config).cuda()
    rng = np.random.default_rng(0)
    seen, paid = rng.normal(size=(20, 3, 3)).astype("f4"), rng.normal(size=(20, 3)).astype("f4")
    foregone = rng.normal(size=(20, 3, 3)).astype("f4")
    balances = []
    for captured in (True, False):
        actor = Actor(policy, 3, sample=False)
        assert actor._captured is not None
        if not captured:
            actor._captured = None
        actor.begin(20.0, seed=0)
        for t in range(20):
            actor.act(seen[t])
            actor.record(paid[t], np.zeros(3, bool), np.full(3, 2), foregone[t])
        balances.append(actor.context.balances_now().cpu())
    torch.testing.assert_close(balances[0], balances[1])
    actor = Actor(policy, 3, sample=False)
    actor.act(seen[0])
    with pytest.raises(ValueError, match="foregone must have"):
        actor.record(paid[0], np.zeros(3, bool))
