"""What a policy would have done without its accounts: against policies that truly have none, and by playing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mental_accounts.account_options import AccountsConfig
from mental_accounts.inspect.inspect_summary import findings, numbers, what_without_means
from mental_accounts.inspect.recording import Recording, acting_windows
from mental_accounts.inspect.without_accounts import empty_accounts
from mental_accounts.learning.episodes import Episode
from mental_accounts.policy import DecisionTransformer
from tests.policy.helpers import DISCRETE, make_policy

from .recordings import config, episode, played, recording

KINDS = {
    "bias": config(),
    "bias, read now": config({"read": "now"}),
    "bias per token": config({"beta_per": "token", "beta_learned": True}),
    "bias in windows": config({"account_scope": "window"}),
    "bias, canonical": config({"rule": "canonical", "read": "now"}),
    "ledger": config({"beta": 0.05}, method="ledger-odt"),
    "ledger of all channels": config(
        {"beta": 0.05, "ledger_channels": ("balance", "count", "mean")}, method="ledger-odt"
    ),
    "discrete": config(action=DISCRETE),
}


def fresh_actions(policy: DecisionTransformer, found: Episode) -> np.ndarray:
    """Step by step with a context whose rewards are hidden from the accounts: nothing is ever entered."""
    windows, _ = acting_windows(policy, found, 50.0)
    with torch.no_grad():
        distribution = policy.eval()(empty_accounts(policy, windows), last_only=True)
    return policy.action_scale.from_unit(distribution.mode()[:, -1]).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_empty_accounts_have_no_effect_on_the_input(kind: str) -> None:
    policy = make_policy(KINDS[kind]).eval()
    found = episode(policy, 30)
    windows, _ = acting_windows(policy, found, 50.0)
    empty = empty_accounts(policy, windows)
    assert policy.accounts is not None
    tokens = torch.randn(30, 3 * windows.timesteps.shape[1] - 1, policy.config.hidden)
    bias = policy.accounts.bias(empty, tokens)
    assert bias is None or bool((bias == 0).all())
    if empty.balances is not None:
        first = policy.context(1, 50.0)
        first.observe(found.observations[:1])
        told = first.window().balances
        assert told is not None
        assert torch.equal(empty.balances, told[:, -1:].expand_as(empty.balances))  # as before the first step


def test_without_its_bias_the_paper_s_policy_is_odt() -> None:
    ewa = make_policy(config({"bias_clip": 0.3}))
    odt = DecisionTransformer(replace(ewa.config, method="odt", accounts=AccountsConfig()))
    shared = {name: value for name, value in ewa.state_dict().items() if name in odt.state_dict()}
    odt.load_state_dict(shared)
    found = episode(ewa, 30)
    windows, _ = acting_windows(odt, found, 50.0)
    with torch.no_grad():
        plain = odt.eval()(windows, last_only=True).mode()[:, -1]
    expected = odt.action_scale.from_unit(plain).numpy()
    np.testing.assert_allclose(fresh_actions(ewa, found), expected, atol=1e-6)
    seen = recording(config({"bias_clip": 0.3}), (30,)).episodes[0].without
    assert seen is not None
    np.testing.assert_allclose(seen.actions, expected, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_effect_is_the_distance_between_both_actions(kind: str) -> None:
    made = recording(KINDS[kind])
    for seen in made.episodes:
        without = seen.without
        assert without is not None
        assert len(without.effect) == len(seen)
        assert without.effect[0] == 0.0  # nothing was entered before the first step
        assert without.effect.max() > 0
        assert without.effect[without.peak] == without.effect.max()
        if kind == "discrete":
            assert without.effect.max() <= 1.0
        else:
            action = KINDS[kind].action
            span = (np.array(action.high) - np.array(action.low)) / 2
            apart = np.linalg.norm((without.chosen - without.actions) / span, axis=1)
            np.testing.assert_allclose(without.effect, apart, atol=1e-5)
        assert f"mattered most at step {without.peak}: action" in " ".join(findings(made, seen))


def actions_agree(made: Recording) -> None:
    for seen in made.episodes:
        assert seen.without is not None
        np.testing.assert_allclose(seen.without.chosen, seen.actions, atol=1e-5)


@pytest.mark.parametrize(
    ("env_id", "method"), [("CartPole-v1", "ewa-vq-odt"), ("Pendulum-v1", "ewa-vq-odt"), ("Pendulum-v1", "ledger-odt")]
)
def test_a_second_episode_from_the_same_seed(env_id: str, method: str) -> None:
    made = played(env_id, {"beta": 0.05} if method == "ledger-odt" else None, method=method)
    actions_agree(made)  # what was recorded as chosen is what was played
    for seen in made.episodes:
        without = seen.without
        assert without is not None
        assert without.played is not None
        np.testing.assert_array_equal(without.played.observations[0], seen.observations[0])  # the same environment
        agree = without.actions == seen.actions
        same = int(np.argmin(np.append(agree.reshape(len(seen), -1).all(axis=1), False)))
        until = min(same, len(without.played))
        np.testing.assert_allclose(without.played.observations[:until], seen.observations[:until], atol=1e-5)
        if same < len(seen):  # the first action that differs is the one that would have been taken
            np.testing.assert_allclose(without.played.actions[same], without.actions[same], atol=1e-4)
        told = " ".join(findings(made, seen))
        assert f"without them, the episode had return {without.played.total:.1f}" in told
    plain = numbers(made)["episodes"][0]["without_accounts"]
    assert plain["played"]["return"] == made.episodes[0].without.played.total
    assert len(plain["effect"]) == len(made.episodes[0])
    words = what_without_means(made)
    assert ("no bias on its attention" in words, "an empty one" in words) == (
        method == "ewa-vq-odt",
        method == "ledger-odt",
    )


def test_a_policy_without_accounts_says_nothing_of_it() -> None:
    made = recording(config(method="odt"))
    assert all(seen.without is None for seen in made.episodes)
    assert not [text for text in findings(made, made.episodes[0]) if "without them" in text or "mattered" in text]
    assert "without_accounts" not in numbers(made)["episodes"][0]


def test_accounts_that_change_nothing() -> None:
    made = recording(config({"beta": 0.0}))
    assert "At no step did the accounts change what the policy would do." in findings(made, made.episodes[0])
