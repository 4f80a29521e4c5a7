"""A policy that treats all codes of a ledger alike."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, PPO

from mental_accounts.environments import DriftingBandit
from mental_accounts.integrations import LedgerObservation, PerCodePolicy

ARMS = 6


def bandit(dict_key: str | None = None, channels: tuple[str, ...] = ("mean", "count")) -> gymnasium.Env[Any, Any]:
    return LedgerObservation(DriftingBandit(arms=ARMS), channels=channels, phi=0.01, dict_key=dict_key)


def made(context: int, channels: int, seed: int = 0) -> PerCodePolicy:
    torch.manual_seed(seed)
    box = spaces.Box(-5, 5, (context + channels * ARMS,), np.float32)
    policy = PerCodePolicy(box, spaces.Discrete(ARMS), lambda _: 1e-3, channels=channels, hidden=8)
    with torch.no_grad():  # small last layers would hide what is wrong
        policy.action_net.linear.weight.mul_(100)
    return policy


@pytest.mark.parametrize(("context", "channels"), [(0, 1), (0, 2), (3, 2), (1, 3)])
def test_permuted_codes_permute_the_logits_and_keep_the_value(context: int, channels: int) -> None:
    policy, rng = made(context, channels), np.random.default_rng(0)
    for _ in range(10):
        given = torch.as_tensor(rng.normal(size=(5, context)), dtype=torch.float32)
        accounts = torch.as_tensor(rng.normal(size=(5, channels, ARMS)), dtype=torch.float32)
        order = torch.as_tensor(rng.permutation(ARMS))
        one, other = (
            torch.cat([given, table.flatten(1)], dim=1)  # channel after channel, as in a LedgerObservation
            for table in (accounts, accounts[:, :, order])
        )
        logits, moved = (policy.get_distribution(seen).distribution.logits for seen in (one, other))
        torch.testing.assert_close(logits[:, order], moved, rtol=0, atol=1e-5)
        assert logits.std() > 0.01
        torch.testing.assert_close(policy.predict_values(one), policy.predict_values(other), rtol=0, atol=1e-5)


def test_codes_with_the_same_account_have_the_same_logit_to_the_bit() -> None:
    policy = made(2, 2)
    accounts = torch.tensor([0.5, -1.0, 0.5, 0.0, 0.5, 2.0, 0.1, 0.2, 0.1, 0.0, 0.1, 0.9])
    seen = torch.cat([torch.tensor([0.3, -0.7]), accounts])[None]
    logits = policy.get_distribution(seen).distribution.logits[0]
    assert logits[0] == logits[2] == logits[4]
    assert len(set(logits.tolist())) == 4


def test_a_dict_is_read_like_a_flat_observation() -> None:
    flat = made(2, 2)
    entries = {"ledger": spaces.Box(-5, 5, (2 * ARMS,)), "observation": spaces.Box(-5, 5, (2,))}
    policy = PerCodePolicy(spaces.Dict(entries), spaces.Discrete(ARMS), lambda _: 1e-3, hidden=8)
    policy.load_state_dict(flat.state_dict())
    seen = torch.randn(4, 2 + 2 * ARMS)
    logits = policy.get_distribution({"observation": seen[:, :2], "ledger": seen[:, 2:]}).distribution.logits
    torch.testing.assert_close(logits, flat.get_distribution(seen).distribution.logits)


@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize("dict_key", [None, "ledger"])
def test_a_model_is_saved_and_loaded(algorithm: Any, dict_key: str | None, tmp_path: Path) -> None:
    env = bandit(dict_key)
    network = {} if dict_key else {"channels": 2}
    sizes = {"batch_size": 32} if algorithm is PPO else {}
    model = algorithm(PerCodePolicy, env, n_steps=64, device="cpu", seed=0, policy_kwargs=network, **sizes)
    model.learn(128)
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", device="cpu")
    model.policy.save(tmp_path / "policy")
    alone = PerCodePolicy.load(tmp_path / "policy", device="cpu")
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        action, _ = model.predict(observation, deterministic=True)
        assert loaded.predict(observation, deterministic=True)[0] == action
        assert alone.predict(observation, deterministic=True)[0] == action
        observation, *_ = env.step(int(action))


def test_discrete_entries_of_a_dict_are_the_context() -> None:
    entries = {"ledger": spaces.Box(-5, 5, (ARMS,)), "place": spaces.Discrete(4)}
    policy = PerCodePolicy(spaces.Dict(entries), spaces.Discrete(ARMS), lambda _: 1e-3)
    logits = policy.get_distribution({"place": torch.tensor([[1], [2]]), "ledger": torch.zeros(2, ARMS)})
    assert logits.distribution.logits.shape == (2, ARMS)


BOX, ACTIONS = spaces.Box(-1, 1, (2 + 2 * ARMS,)), spaces.Discrete(ARMS)


@pytest.mark.parametrize(
    ("observations", "actions", "asked", "words"),
    [
        (BOX, spaces.Box(-1, 1, (2,)), {"channels": 2}, "needs Discrete actions, one per code, got Box"),
        (BOX, spaces.MultiDiscrete([3, 3]), {"channels": 2}, "needs Discrete actions"),
        (BOX, ACTIONS, {}, r"how many of the observation's numbers.*policy_kwargs=\{'channels': 2\}"),
        (BOX, ACTIONS, {"channels": 3}, "3 channels of 6 actions are 18 numbers, of 14"),
        (BOX, ACTIONS, {"channels": 0}, "channels must be"),
        (BOX, ACTIONS, {"channels": 2, "hidden": 0}, "hidden must be"),
        (BOX, ACTIONS, {"channels": 2, "net_arch": [64]}, "no net_arch: hidden=32"),
        (spaces.Box(0, 255, (36, 36, 3), np.uint8), ACTIONS, {"channels": 2}, "got an image"),
        (spaces.Discrete(4), ACTIONS, {"channels": 2}, "Box of one dimension"),
        (spaces.Dict({"seen": BOX}), ACTIONS, {}, r"no entry 'ledger' in the observation, which has \['seen'\]"),
        (spaces.Dict({"ledger": BOX}), ACTIONS, {}, "must have 6 numbers per channel"),
        (spaces.Dict({"ledger": spaces.Box(-1, 1, (12,))}), ACTIONS, {"channels": 3}, "channels=3, but .* has 2"),
        (
            spaces.Dict({"ledger": spaces.Box(-1, 1, (12,)), "seen": spaces.Box(0, 1, (9, 9))}),
            ACTIONS,
            {},
            r"reads vectors.*\['seen'\]",
        ),
    ],
)
def test_spaces_that_do_not_fit_are_refused(observations: Any, actions: Any, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):  # a UsageError, or a number out of range
        PerCodePolicy(observations, actions, lambda _: 1e-3, **asked)


@pytest.mark.learning
def test_it_learns_a_bandit_of_many_arms_within_seconds() -> None:
    torch.set_num_threads(1)
    env = LedgerObservation(DriftingBandit(arms=20, hijack=0.0), channels=("mean", "count"), phi=0.1, dict_key="ledger")
    model = PPO(PerCodePolicy, env, n_steps=600, batch_size=200, learning_rate=1e-2, gamma=0.0, seed=0, device="cpu")
    assert model.ep_info_buffer is None
    model.learn(600)  # one rollout of an untrained policy
    before = np.mean([info["r"] for info in model.ep_info_buffer or []])
    model.learn(2_400)
    after = [info["r"] for info in model.ep_info_buffer or []][-3:]
    assert np.mean(after) > before + 20
