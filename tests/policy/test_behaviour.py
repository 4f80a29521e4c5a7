"""What must hold whatever the weights: causality, inert padding, live = offline."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mental_accounts.action_spec import ActionSpec
from mental_accounts.policy import Actor, DecisionTransformer, Window
from mental_accounts.policy import autocast as policy_autocast

from .helpers import BOX, DISCRETE, account_inputs, make_policy, make_window, numbers, random_actions, tiny

ACCOUNTS = [
    {"beta": 1.0, "read": "then"},
    {"beta": 1.0, "read": "now"},
    {"beta": 1.0, "codebook": "product", "read": "now"},
    {"beta": 1.0, "codebook": "product", "groups": 1},
    {"beta": 1.0, "rule": "canonical", "read": "now"},
    {"beta": 0.5, "beta_per": "layer-head", "beta_learned": True, "bias_clip": 0.4},
]
OPTIONS = [
    {"beta": 1.0, "ledger_input": "state"},
    {"beta": 1.0, "ledger_input": "state", "read": "now"},
    {"beta": 1.0, "ledger_input": "state", "ledger_channels": ("mean", "balance", "count"), "reward_delay": 2},
    {"beta": 1.0, "ledger_input": "state", "codebook": "product"},
    {"beta": 1.0, "ledger_input": "state", "rule": "canonical"},
    {"beta": 1.0},
    {"beta": 1.0, "soft_codes": 3},
    {"beta": 1.0, "codebook": "hierarchical", "read": "now"},
    {"beta": 1.0, "state_codes": 3},
    {"beta": 1.0, "credit": "advantage"},
    {"beta": 1.0, "beta_per": "token", "beta_learned": True, "bias_clip": 2.0},
    {"beta": 1.0, "beta_per": "token", "beta_learned": True, "read": "now", "ledger_input": "state"},
    {
        "beta": 0.7, "soft_codes": 2, "state_codes": 2, "ledger_input": "state", "credit": "advantage",
        "beta_per": "token", "beta_learned": True,
    },
]  # fmt: skip
BOTH = [*ACCOUNTS, *OPTIONS]


def allowed(accounts: dict[str, object] | None, action: object) -> bool:
    """Discrete actions have no distance to each other, and so no soft routing."""
    return accounts is None or action is BOX or accounts.get("soft_codes", 1) == 1


def traced(policy: DecisionTransformer, window: dict[str, torch.Tensor], rewards: torch.Tensor) -> torch.Tensor:
    """Predictions on a window whose attractions follow from its actions and rewards."""
    return numbers(policy(Window(**window | account_inputs(policy, window, rewards))))


@pytest.mark.parametrize("accounts", BOTH)
@pytest.mark.parametrize("action", [BOX, DISCRETE])
def test_causality_through_tokens_and_accounts(accounts: dict[str, object], action: object) -> None:
    if not allowed(accounts, action):
        pytest.skip("discrete actions have no soft routing")
    policy = make_policy(tiny(accounts, action=action))
    window, rewards = make_window(policy, B=3, K=6), torch.randn(3, 6)
    base = traced(policy, window, rewards)
    for t in range(6):
        for name in ("rewards", "actions", "observations", "returns_to_go"):
            changed, other_rewards = {key: value.clone() for key, value in window.items()}, rewards.clone()
            if name == "rewards":
                other_rewards[:, t] += 3.0
            elif name == "actions":
                changed["actions"][:, t] = random_actions(policy.config, 3)
            else:
                changed[name][:, t] += 1.0
            other = traced(policy, changed, other_rewards)
            unchanged = t + 1 if name in ("rewards", "actions") else t  # predictions at steps before this stay
            assert torch.equal(other[:, :unchanged], base[:, :unchanged]), (name, t)
            if unchanged < 6 and name == "observations":
                assert not torch.equal(other[:, unchanged:], base[:, unchanged:]), (name, t)
    if action is BOX:  # rewards do reach later predictions, through the accounts alone
        other_rewards = rewards.clone()
        first = 1 + policy.config.accounts.reward_delay  # earlier ones belong to no step
        other_rewards[:, first] += 3.0
        changed = traced(policy, window, other_rewards)
        assert torch.equal(changed[:, : first + 1], base[:, : first + 1])
        assert not torch.equal(changed[:, first + 1 :], base[:, first + 1 :])


@settings(max_examples=20)
@given(
    pad=st.integers(0, 5),
    accounts=st.sampled_from(BOTH),
    ordered=st.booleans(),
    method=st.sampled_from(["dt", "odt", "ewa-vq-odt"]),
    reward_input=st.sampled_from(["none", "state", "advantage"]),
)
def test_padding_is_inert_and_equals_a_short_context(
    pad: int, accounts: dict[str, object], ordered: bool, method: str, reward_input: str
) -> None:
    policy = make_policy(tiny(accounts, method=method, order_embedding=ordered, reward_input=reward_input))
    window = make_window(policy, B=2, K=6, padding=[pad, pad])
    base = numbers(policy(Window(**window)))[:, pad:]
    garbage = {name: value.clone() for name, value in window.items()}
    for name, value in garbage.items():
        if value.is_floating_point():
            value[:, :pad] = 1e3 * torch.randn_like(value[:, :pad])
        elif name == "timesteps":
            value[:, :pad] = 7
    torch.testing.assert_close(numbers(policy(Window(**garbage)))[:, pad:], base, rtol=1e-5, atol=1e-5)
    short = {name: value[:, pad:] for name, value in window.items() if name != "mask"}
    torch.testing.assert_close(numbers(policy(Window(**short))), base, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["odt", "ewa-vq-odt"])
def test_padded_discrete_actions_may_be_any_number(method: str) -> None:
    policy = make_policy(tiny(method=method, action=DISCRETE))
    window = make_window(policy, B=2, K=6, padding=[3, 0])
    base = numbers(policy(Window(**window)))
    for value in (0, -9, 10**6):
        garbage = {**window, "actions": window["actions"].where(window["mask"], value)}
        assert torch.equal(numbers(policy(Window(**garbage)))[window["mask"]], base[window["mask"]])
    window["actions"][1, 2] = 0
    with pytest.raises(ValueError, match=r"codes must be in \[0, 3\), but codes\[1, 2\] is -1"):
        policy(Window(**window))


@pytest.mark.parametrize("scope", ["trajectory", "window"])
@pytest.mark.parametrize("accounts", [*BOTH, None])
@pytest.mark.parametrize("action", [BOX, DISCRETE])
@pytest.mark.parametrize("reward_input", ["none", "state", "advantage"])
def test_live_equals_offline(scope: str, accounts: dict[str, object] | None, action: object, reward_input: str) -> None:
    """Rolling episodes step by step gives the distributions of one forward over the recorded windows.

    Accounts of scope `window` reach back over the context of training, 6 steps, where 4 of them are seen.
    """
    if not allowed(accounts, action):
        pytest.skip("discrete actions have no soft routing")
    changes = {"action": action, "eval_context_length": 4, "reward_input": reward_input}
    if accounts is None:
        policy = make_policy(tiny(method="odt", **changes))
    else:
        policy = make_policy(tiny({**accounts, "account_scope": scope}, **changes))
    n, T, K, L = 2, 11, 4, 6
    ends = {(5, 1), (T - 1, 0), (T - 1, 1)}  # environment 1 begins a second episode after step 5
    context = policy.context(n, target_return=[20.0, 30.0])
    log: list[list[dict[str, object]]] = [[{"steps": []}] for _ in range(n)]
    for t in range(T):
        observations = torch.randn(n, 3).numpy()
        distribution = policy.act_distribution(observations, context)
        live = numbers(distribution)[:, -1]
        actions = context.choose(distribution.sample()[:, -1])
        rewards = torch.randn(n).numpy()
        ended = np.array([(t, i) in ends for i in range(n)])
        for i in range(n):
            log[i][-1]["steps"].append((observations[i], actions[i], rewards[i], live[i]))
            if ended[i] and t < T - 1:
                log[i].append({"steps": []})
        context.record(rewards, ended)
    for i, episodes in enumerate(log):
        assert len(episodes) == 1 + i
        for episode in episodes:
            observations, actions, rewards, live = (np.stack(column) for column in zip(*episode["steps"], strict=True))
            observations, actions, rewards = (torch.as_tensor(x)[None] for x in (observations, actions, rewards))
            to_go = [20.0, 30.0][i] - torch.cat([torch.zeros(1, 1), rewards.cumsum(1)[:, :-1]], dim=1)
            steps = torch.arange(rewards.shape[1])[None]
            whole = account_inputs(policy, {"observations": observations, "actions": actions}, rewards)
            for t in range(rewards.shape[1]):
                part = slice(max(0, t - K + 1), t + 1)
                window = {
                    "observations": observations[:, part],
                    "actions": actions[:, part],
                    "returns_to_go": to_go[:, part],
                    "timesteps": steps[:, part],
                }
                if reward_input != "none":
                    window["previous_rewards"] = torch.nn.functional.pad(rewards, (1, 0))[:, part]
                if reward_input == "advantage":
                    window["previous_observations"] = torch.nn.functional.pad(observations, (0, 0, 1, 0))[:, part]
                if scope == "window":
                    reached = slice(max(0, t - L + 1), t + 1)
                    long = {"observations": observations[:, reached], "actions": actions[:, reached]}
                    held = account_inputs(policy, long, rewards[:, reached])
                    window |= {name: value[:, -K:] for name, value in held.items()}
                else:
                    window |= {name: value[:, part] for name, value in whole.items()}
                offline = numbers(policy(Window(**window)))[0, -1]
                torch.testing.assert_close(torch.as_tensor(live[t]), offline, rtol=1e-4, atol=1e-5)


def test_bf16_stays_close_and_float32_where_it_counts() -> None:
    policy = make_policy(tiny({"beta": 0.5}, hidden=32))
    window = make_window(policy, B=4, K=6)
    exact = policy(Window(**window))
    with policy_autocast("cpu", "bf16"):
        rough = policy(Window(**window))
    assert rough.mean.dtype == torch.float32
    assert not torch.equal(rough.mean, exact.mean)
    assert float((rough.mean - exact.mean).detach().abs().mean() / exact.mean.detach().abs().mean()) < 0.05
    with policy_autocast("cpu", "float32"):
        assert torch.equal(policy(Window(**window)).mean, exact.mean)
    with pytest.raises(ValueError, match="precision must be"):
        policy_autocast("cpu", "fp8")


@pytest.mark.parametrize("action", [BOX, DISCRETE], ids=["box", "discrete"])
def test_a_tensor_gives_a_tensor_and_numpy_gives_numpy(action: ActionSpec) -> None:
    policy = make_policy(tiny(action=action))
    seen = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    plain = policy.act(seen, policy.context(2, 10.0))
    tensor = policy.act(torch.from_numpy(seen), policy.context(2, 10.0))
    assert isinstance(plain, np.ndarray)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.device == torch.device("cpu")
    assert np.array_equal(tensor.numpy(), plain)


def test_acting_needs_recording_and_the_right_shapes() -> None:
    policy = make_policy(tiny())
    context = policy.context(2, 10.0)
    with pytest.raises(RuntimeError, match="nothing to record"):
        context.record(np.zeros(2), np.zeros(2, dtype=bool))
    policy.act(np.zeros((2, 3)), context)
    with pytest.raises(RuntimeError, match="act was called twice"):
        policy.act(np.zeros((2, 3)), context)
    with pytest.raises(ValueError, match=r"rewards and ended must have shape \(2,\)"):
        context.record(np.zeros(3), np.zeros(2, dtype=bool))
    context.record(np.zeros(2), np.zeros(2, dtype=bool))
    with pytest.raises(ValueError, match=r"state_dim = 3\), got \(2, 4\)"):
        policy.act(np.zeros((2, 4)), context)
    with pytest.raises(ValueError, match="target_return must be finite"):
        policy.context(2, float("nan"))
    with pytest.raises(ValueError, match="one for each of 3 environments"):
        policy.context(3, [1.0, 2.0])
    context = policy.train().context(2, 10.0)
    with pytest.raises(ValueError, match=r"observations\[1, 0\] is nan"):
        policy.act(np.array([[0.0, 0, 0], [np.nan, 0, 0]]), context)
    assert policy.training
    policy.act(np.zeros((2, 3)), context)
    with pytest.raises(ValueError, match=r"rewards\[0\] is inf"):
        context.record(np.array([np.inf, 0.0]), np.zeros(2, dtype=bool))
    assert context.return_now.tolist() == [10.0, 10.0]
    context.record(np.zeros(2), np.zeros(2, dtype=bool))
    with pytest.raises(ValueError, match="num_envs must be at least 1"):
        policy.context(0, 1.0)


def test_sampling_is_seeded_and_within_bounds() -> None:
    policy = make_policy(tiny())
    actions = []
    for _ in range(2):
        context, generator = policy.context(5, 10.0), torch.Generator().manual_seed(3)
        actions.append(policy.act(np.ones((5, 3)), context, sample=True, generator=generator))
    assert np.array_equal(*actions)
    assert (actions[0] >= np.array(BOX.low)).all()
    assert (actions[0] <= np.array(BOX.high)).all()
    assert policy.training is False


def test_bad_windows_name_the_field() -> None:
    policy = make_policy(tiny())
    window = make_window(policy, B=2, K=6)
    cases = [
        ({"observations": torch.zeros(2, 6, 4)}, r"state_dim = 3\), got \(2, 6, 4\)"),
        ({"actions": torch.zeros(2, 6, 3)}, r"action.size = 2\), got \(2, 6, 3\)"),
        ({"returns_to_go": torch.zeros(2, 5)}, "returns_to_go must have shape"),
        ({"timesteps": torch.zeros(2, 5)}, "timesteps must have shape"),
        ({"attractions": None}, r"the window must have attractions of shape \(2, 6\), got None"),
        ({"attractions": torch.zeros(2, 6, 5)}, r"attractions of shape \(2, 6\), got \(2, 6, 5\)"),
        ({"mask": torch.ones(2, 6)}, "mask must be bool"),
        ({"mask": torch.tensor([[True] * 5 + [False]] * 2)}, r"padding .* on the left"),
    ]
    for change, message in cases:
        with pytest.raises(ValueError, match=message):
            policy(Window(**window | change))
    longer = {name: value.repeat_interleave(2, dim=1) for name, value in window.items()}
    with pytest.raises(ValueError, match="1 to context_length = 6 steps, got 12"):
        policy(Window(**longer))
    now = make_policy(tiny({"read": "now"}))
    with pytest.raises(
        ValueError, match=r"the window must have codes of shape \(2, 6\) to read accounts `now`, got None"
    ):
        now(Window(**make_window(now, 2, 6) | {"codes": None}))


def test_normalisation_is_fitted_on_whole_data_or_refused() -> None:
    policy = DecisionTransformer(tiny({"codebook": "kmeans", "num_codes": 4}))
    with pytest.raises(ValueError, match="has no centres yet: fit it"):
        policy.accounts.books.codebook.route(torch.zeros(1, 2))
    actions = random_actions(policy.config, 20)
    for observations, rewards in [(torch.randn(20, 1), torch.randn(20)), (torch.randn(20, 3), torch.randn(19))]:
        with pytest.raises(ValueError, match="state_dim = 3"):
            policy.fit_normalisation(observations, actions, rewards)
    policy.fit_normalisation(torch.randn(20, 3), actions, torch.randn(20))
    assert len(policy.accounts.books.codebook.route(torch.zeros(1, 2))) == 1


@pytest.mark.parametrize("action", [BOX, DISCRETE])
def test_an_actor_acts_like_the_policy_rollout_after_rollout(action: object) -> None:
    policy = make_policy(tiny({"beta": 0.7}, action=action))
    actor = Actor(policy, 3, sample=True)
    rng = np.random.default_rng(0)
    for seed in (5, 6):
        generator = torch.Generator().manual_seed(seed)
        context = policy.context(3, 20.0)
        actor.begin(20.0, seed)
        for _ in range(12):
            observations = rng.normal(size=(3, 3)).astype("f4")
            rewards, ended = rng.normal(size=3).astype("f4"), rng.random(3) < 0.2
            expected = policy.act(observations, context, sample=True, generator=generator)
            np.testing.assert_array_equal(actor.act(observations), expected)
            context.record(rewards, ended)
            actor.record(rewards, ended)
    with pytest.raises(ValueError, match="finite"):
        actor.begin(float("nan"), 0)
