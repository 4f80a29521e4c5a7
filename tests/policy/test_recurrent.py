"""Method gru: an independent loop over steps, padding, memory, and acting that equals the recorded episode offline."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mental_accounts.policy import DecisionTransformer, Window
from mental_accounts.policy import autocast as policy_autocast
from mental_accounts.policy_options import PolicyConfig
from tests.data.test_windows import CountedKernels

from .helpers import BOX, DISCRETE, make_policy, make_window, numbers, tiny

KINDS = {
    "plain": {},
    "returns, two layers": {"return_input": True, "gru_layers": 2},
    "no rewards": {"reward_input": "none", "gru_layers": 2},
    "discrete": {"action": DISCRETE, "return_input": True},
}


def gru(**changes: object) -> PolicyConfig:
    return tiny(method="gru", **changes)


def fresh(config: PolicyConfig) -> DecisionTransformer:
    """A policy with weights as they are at first, whose state follows from many steps; `make_policy` saturates it."""
    torch.manual_seed(0)
    policy = DecisionTransformer(config).eval()
    policy.state_mean.normal_()
    return policy


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def slowly(policy: DecisionTransformer, window: dict[str, Tensor], row: int) -> Iterator[np.ndarray]:
    """The state at each real step of one row, by the equations of Cho et al. (2014) in NumPy's float64."""
    weights = {name: value.double().numpy() for name, value in policy.state_dict().items()}
    config, action = policy.config, policy.config.action
    h = np.zeros((config.gru_layers, config.hidden))
    for t in range(window["mask"].shape[1]):
        if not window["mask"][row, t]:
            continue
        state = (window["observations"][row, t].double().numpy() - weights["state_mean"]) / weights["state_std"]
        x = weights["recurrent.embed_state.weight"] @ state + weights["recurrent.embed_state.bias"]
        if window["timesteps"][row, t] > 0:
            taken, map_ = window["previous_actions"][row, t], weights["recurrent.embed_action.weight"]
            if action.is_discrete:
                x = x + map_[int(taken) - action.start]
            else:
                low, high = np.array(action.low), np.array(action.high)
                x = x + map_ @ (2 * (taken.double().numpy() - low) / (high - low) - 1)
            if config.reads_rewards:
                reward = (float(window["previous_rewards"][row, t]) - weights["reward_mean"]) / weights["reward_std"]
                x = x + weights["embed_reward.weight"][:, 0] * reward
        if config.reads_returns:
            scaled = float(window["returns_to_go"][row, t]) * config.return_scale
            x = x + weights["recurrent.embed_return.weight"][:, 0] * scaled
        x = np.maximum(x, 0)
        for number in range(config.gru_layers):
            name = f"recurrent.layers.{number}"
            into = np.split(weights[f"{name}.weight_ih_l0"] @ x + weights[f"{name}.bias_ih_l0"], 3)
            held = np.split(weights[f"{name}.weight_hh_l0"] @ h[number] + weights[f"{name}.bias_hh_l0"], 3)
            reset, keep = sigmoid(into[0] + held[0]), sigmoid(into[1] + held[1])
            h[number] = (1 - keep) * np.tanh(into[2] + reset * held[2]) + keep * h[number]
            x = h[number]
        yield x.copy()


@pytest.mark.parametrize("kind", list(KINDS))
def test_it_is_the_textbooks_network(kind: str) -> None:
    policy = make_policy(gru(**KINDS[kind]))
    window = make_window(policy, B=3, K=9, padding=[0, 4, 8])
    window["timesteps"] = torch.arange(9).expand(3, 9) - torch.tensor([[0], [4], [0]]).clamp(min=0)
    window["timesteps"] = window["timesteps"].clamp(min=0)
    predicted, memory = policy.predict(Window(**window))
    for row in range(3):
        states = np.stack(list(slowly(policy, window, row)))
        expected = numbers(policy.head(torch.from_numpy(states).float()))
        there = window["mask"][row]
        torch.testing.assert_close(numbers(predicted)[row][there], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(memory[row, -1], torch.from_numpy(states[-1]).float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", list(KINDS))
def test_padding_and_what_is_not_read_are_inert(kind: str) -> None:
    policy = make_policy(gru(**KINDS[kind]))
    window = make_window(policy, B=2, K=6, padding=[3, 0])
    window["timesteps"][0, 3:] = torch.arange(3)
    base = numbers(policy(Window(**window)))[window["mask"]]
    low, high = (-9, 10**6) if policy.config.action.is_discrete else (-9.0, 1e6)
    for value in (low, high):
        garbage = {name: tensor.clone() for name, tensor in window.items()}
        garbage["observations"][0, :3] = 7.0
        garbage["previous_actions"][0, :4] = value  # padding, and the episode's first step
        garbage["actions"][:] = value
        if policy.config.reads_rewards:
            garbage["previous_rewards"][0, :4] = value
        if not policy.config.reads_returns:
            garbage["returns_to_go"][:] = value
        assert torch.equal(numbers(policy(Window(**garbage)))[window["mask"]], base)
    alone = Window(**{name: tensor[:1, 3:] for name, tensor in window.items()})
    torch.testing.assert_close(numbers(policy(alone))[0], base[:3], rtol=1e-5, atol=1e-6)


def test_a_window_goes_on_where_another_ended() -> None:
    policy = fresh(gru(gru_layers=2))
    window = make_window(policy, B=3, K=12, padding=[2, 0, 0])
    whole = numbers(policy(Window(**window)))
    parts, memory = [], None
    for part in (slice(0, 5), slice(5, 6), slice(6, 12)):  # one of them is a single step
        piece = Window(**{name: value[:, part] for name, value in window.items()}, memory=memory)
        predicted, memory = policy.predict(piece)
        parts.append(numbers(predicted))
    found = torch.cat(parts, dim=1)[window["mask"]]
    torch.testing.assert_close(found, whole[window["mask"]], rtol=1e-5, atol=1e-6)


def test_gradients_reach_the_first_step_of_an_episode() -> None:
    policy = fresh(gru())
    window = make_window(policy, B=1, K=30)
    window["observations"].requires_grad_()
    policy(Window(**window)).mean[:, -1].sum().backward()
    assert (window["observations"].grad.abs().sum(dim=-1) > 0).all()


@pytest.mark.parametrize("kind", list(KINDS))
def test_acting_is_the_recorded_episode_offline(kind: str) -> None:
    """Far beyond any context; some environments end earlier than others, some begin anew, one replaces actions."""
    policy = fresh(gru(**KINDS[kind], episode_length=5))
    n, T, rng = 3, 60, np.random.default_rng(0)
    ends = {(9, 1), (10, 1), (T - 1, 0), (T - 1, 1), (20, 2)} | {(t, 2) for t in range(21, T)}  # 2 stays at its end
    context = policy.context(n, target_return=[20.0, 30.0, 40.0])
    for _ in range(2):  # the second time after a restart, which leaves nothing behind
        context.restart([20.0, 30.0, 40.0])
        log: list[list[list[tuple[np.ndarray, ...]]]] = [[[]] for _ in range(n)]
        for t in range(T):
            observations, rewards = rng.normal(size=(n, 3)).astype("f4"), rng.normal(size=n).astype("f4")
            distribution = policy.act_distribution(observations, context)
            live, actions = numbers(distribution)[:, -1].numpy(), context.choose(distribution.sample()[:, -1])
            taken = actions.numpy().copy()
            taken[0] = actions[1].numpy()
            ended = np.array([(t, i) in ends for i in range(n)])
            context.record(rewards, ended, taken)
            for i in range(n):
                log[i][-1].append((observations[i], taken[i], rewards[i], live[i]))
                if ended[i]:
                    log[i].append([])
    assert [len(episodes) - 1 for episodes in log] == [1, 3, 40]
    for i, episodes in enumerate(log):
        for episode in episodes[:-1]:
            seen, taken, paid, live = (torch.from_numpy(np.stack(column)) for column in zip(*episode, strict=True))
            before = torch.cat([torch.zeros_like(taken[:1]), taken[:-1]])
            returns = [20.0, 30.0, 40.0][i] - torch.cat([torch.zeros(1), paid.cumsum(0)[:-1]])
            window = {
                "observations": seen, "actions": taken, "returns_to_go": returns,
                "timesteps": torch.arange(len(paid)), "previous_actions": before,
                "previous_rewards": torch.cat([torch.zeros(1), paid[:-1]]),
            }  # fmt: skip
            offline = numbers(policy(Window(**{name: value[None] for name, value in window.items()})))[0]
            torch.testing.assert_close(live, offline, rtol=1e-5, atol=1e-5)


def test_a_step_costs_the_same_however_long_the_episode() -> None:
    policy = make_policy(gru(gru_layers=2))
    context = policy.context(2, 10.0)
    sizes = {name: value.shape for name, value in vars(context).items() if isinstance(value, Tensor)}
    counts = []
    for _ in range(200):
        with CountedKernels() as counted:
            policy.act(np.zeros((2, 3)), context)
            context.record(np.ones(2), np.zeros(2, bool))
        counts.append(counted.number)
    assert len(set(counts)) == 1
    assert {name: value.shape for name, value in vars(context).items() if isinstance(value, Tensor)} == sizes
    assert sizes["observations"] == (2, 1, 3)
    assert context.memory.abs().sum() > 0


def test_half_precision_changes_nothing() -> None:
    policy = make_policy(gru(hidden=32))
    window = Window(**make_window(policy, B=4, K=6))
    with policy_autocast("cpu", "bf16"):
        rough = policy(window)
    assert torch.equal(rough.mean, policy(window).mean)


def test_policies_are_saved_and_copied(tmp_path: Path) -> None:
    policy = make_policy(gru(gru_layers=2, return_input=True))
    policy.save(tmp_path)
    window = Window(**make_window(policy, B=2, K=5))
    loaded, twin = DecisionTransformer.load(tmp_path).eval(), copy.deepcopy(policy)
    assert loaded.config == policy.config
    assert torch.equal(loaded(window).mean, policy(window).mean)
    assert torch.equal(twin(window).mean, policy(window).mean)
    with torch.no_grad():
        twin.recurrent.layers[0].weight_hh_l0.zero_()
    assert not torch.equal(twin(window).mean, policy(window).mean)
    text = (tmp_path / "policy.json").read_text()
    (tmp_path / "policy.json").write_text(text.replace('"hidden": 8', '"hidden": 16'))
    with pytest.raises(ValueError, match=r"recurrent.embed_state.weight must have shape \(16, 3\), got \(8, 3\)"):
        DecisionTransformer.load(tmp_path)


def test_dropout_is_of_training_alone() -> None:
    policy = make_policy(gru(dropout=0.5, gru_layers=2))
    window = Window(**make_window(policy, B=2, K=5))
    assert torch.equal(policy(window).mean, policy(window).mean)
    policy.train()
    assert not torch.equal(policy(window).mean, policy(window).mean)


def test_what_it_reads_is_a_matter_of_configuration() -> None:
    assert (gru().reads_rewards, gru().reads_returns, gru().learns_episodes, gru().acting_context) == (
        True, False, True, 1,
    )  # fmt: skip
    assert not gru(reward_input="none").reads_rewards
    odt = replace(gru(), method="odt")
    assert (odt.reads_rewards, odt.reads_returns, odt.learns_episodes) == (False, True, False)
    with pytest.raises(ValueError, match="gru learns from whole episodes; set windows to 'auto'"):
        gru(windows="steps")
    with pytest.raises(ValueError, match="method odt always reads the return-to-go"):
        tiny(method="odt", return_input=False)
    with pytest.raises(ValueError, match="bc reads the state alone; set return_input to None"):
        tiny(method="bc", return_input=True)
    with pytest.raises(ValueError, match="gru_layers must be"):
        gru(gru_layers=0)


def test_windows_without_what_it_reads_are_refused() -> None:
    policy = make_policy(gru(action=BOX))
    window = make_window(policy, B=2, K=4)
    with pytest.raises(ValueError, match=r"previous_actions of shape \(2, 4, 2\) for method gru, got None"):
        policy(Window(**{**window, "previous_actions": None}))
    with pytest.raises(ValueError, match=r"previous_rewards of shape \(2, 4\) for reward_input 'auto', got None"):
        policy(Window(**{**window, "previous_rewards": None}))
    with pytest.raises(ValueError, match=r"memory must have shape \(B, layers, hidden\) = \(2, 1, 8\)"):
        policy(Window(**window, memory=torch.zeros(2, 2, 8)))
