"""What a policy reads of its ledger while acting is what it reads in training, from the same episode in a store."""

import numpy as np
import pytest
import torch

from mental_accounts.accounts import StateValue
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.data.windows import WindowSampler
from mental_accounts.policy import DecisionTransformer

from .helpers import BOX, DISCRETE, make_policy, numbers, tiny

ALL = ("balance", "count", "mean")
KINDS = {
    "counts and means": ({"ledger_channels": ("count", "mean")}, BOX),
    "all, late": ({"ledger_channels": ALL, "reward_delay": 2, "beta": 1.0}, BOX),
    "later than the context": ({"ledger_channels": ALL, "reward_delay": 9, "soft_codes": 2, "beta": 1.0}, BOX),
    "two codes an action, late": ({"codebook": "product", "reward_delay": 1, "beta": 1.0}, BOX),
    "foregone": ({"rule": "canonical", "foregone": True, "beta": 1.0, "ledger_channels": ALL}, DISCRETE),
    "paid by TD errors": ({"credit": "td", "ledger_channels": ALL, "beta": 1.0, "reward_transform": "raw"}, BOX),
    "paid by TD errors, two codes": ({"credit": "td", "codebook": "product", "beta": 1.0, "rule": "canonical"}, BOX),
    "foregone, bias alone": ({"rule": "canonical", "foregone": True, "beta": 1.0, "ledger_input": "none"}, DISCRETE),
}


def play(policy: DecisionTransformer, T: int) -> tuple[Trajectories, torch.Tensor]:
    """An episode of random observations and rewards, and the distributions of its actions."""
    rng, size = np.random.default_rng(0), policy.config.action.size
    context = policy.context(1, target_return=20.0)
    columns: dict[str, list[np.ndarray]] = {"observations": [], "actions": [], "rewards": [], "foregone": []}
    live = []
    for _ in range(T):
        observation, reward, foregone = rng.normal(size=(1, 3)), rng.normal(size=1), rng.normal(size=(1, size))
        distribution = policy.act_distribution(observation, context)
        live.append(numbers(distribution)[0, -1])
        action = context.choose(distribution.sample()[:, -1]).numpy()
        context.record(reward, np.zeros(1, bool), foregone=foregone)
        for name, value in zip(columns, (observation, action, reward, foregone), strict=True):
            columns[name].append(value[0])
    held = {name: np.stack(values) for name, values in columns.items()}
    foregone = held.pop("foregone")
    store = Trajectories.from_steps(
        **held, lengths=[T], terminated=[False], truncated=[True], action_spec=policy.config.action,
        foregone=foregone if policy.config.action.is_discrete else None,
    )  # fmt: skip
    return store, torch.stack(live)


def give_values(model: StateValue) -> None:
    """A value function that differs between states."""
    sizes = [model.get_buffer(f"weight_{place}").shape for place in range(3)]
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(shape, generator=generator) for shape in sizes]
    model.copy_from(weights, [torch.randn(shape[0], generator=generator) for shape in sizes], gamma=0.9, scale=0.05)


@pytest.mark.parametrize("scope", ["trajectory", "window"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_acting_is_what_was_learned(kind: str, scope: str) -> None:
    accounts, action = KINDS[kind]
    policy = make_policy(tiny({"ledger_input": "state", **accounts, "account_scope": scope}, action=action))
    assert policy.accounts is not None
    if policy.accounts.books.looks_ahead:
        give_values(policy.accounts.books.baseline)
    K, T = policy.config.context_length, 40
    store, live = play(policy, T)
    store.annotate_by(policy.accounts.books, balances=policy.config.reads_ledger)
    sampler = WindowSampler(store, 1, K, torch.Generator(), scope)
    first_return = float(store.returns[0])
    for t in range(K - 1, T):
        window = sampler.at(torch.tensor([t - K + 1]))
        shift = 20.0 - first_return  # live returns-to-go begin with the target
        window.returns_to_go.add_(shift)
        offline = numbers(policy(window))[0, -1]
        torch.testing.assert_close(live[t], offline, rtol=1e-3, atol=1e-4)


def test_foregone_rewards_are_needed_and_checked() -> None:
    policy = make_policy(tiny({"rule": "canonical", "foregone": True}, action=DISCRETE))
    context = policy.context(2, 0.0)
    policy.act(np.zeros((2, 3)), context)
    with pytest.raises(ValueError, match=r"foregone must have the reward of every action, shape \(2, 3\), got None"):
        context.record(np.zeros(2), np.zeros(2, bool))
    with pytest.raises(ValueError, match="foregone must have"):
        context.record(np.zeros(2), np.zeros(2, bool), foregone=np.zeros((2, 4)))
    with pytest.raises(ValueError, match="foregone"):
        context.record(np.zeros(2), np.zeros(2, bool), foregone=np.full((2, 3), np.nan))
    with pytest.raises(ValueError, match="needs discrete actions"):
        tiny({"rule": "canonical", "foregone": True}, action=BOX)


@pytest.mark.parametrize(
    ("accounts", "words"),
    [
        ({"foregone": True}, "foregone payoffs need rule 'canonical'"),
        ({"foregone": True, "rule": "canonical", "reward_delay": 1}, "reward_delay 0"),
        ({"foregone": True, "rule": "canonical", "state_codes": 2}, "state_codes 1"),
        ({"foregone": True, "rule": "canonical", "credit": "advantage"}, "credit 'reward'"),
        ({"foregone": True, "rule": "canonical", "credit": "td"}, "credit 'reward'"),
        ({"reward_delay": 1, "credit": "td"}, "use 'reward'"),
        ({"reward_delay": -1}, "reward_delay"),
        ({"reward_delay": 5000}, "at most 1024"),
        ({"reward_delay": 1, "read": "now"}, "use 'then'"),
        ({"reward_delay": 1, "credit": "advantage"}, "use 'reward'"),
        ({"ledger_channels": ()}, "channels must be"),
        ({"ledger_channels": ("balance", "sum")}, "channels must be"),
    ],
)
def test_what_cannot_be_is_refused_in_words(accounts: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny(accounts)
