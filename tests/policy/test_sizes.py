"""A fresh policy tells large from small: returns, actions, ledgers, rewards; with and without embeddings of place."""

import itertools

import numpy as np
import pytest
import torch

from mental_accounts.action_spec import ActionSpec
from mental_accounts.policy import DecisionTransformer, Window
from mental_accounts.policy_options import PolicyConfig

BOX = ActionSpec("box", 6, (-1.0,) * 6, (1.0,) * 6)
K = 4
PLACES = list(itertools.product([False, True], repeat=2))
"""Whether there is an embedding of the timestep, and one of the order."""


def fresh(seed: int = 0, **changes: object) -> DecisionTransformer:
    torch.manual_seed(seed)
    settings = {"state_dim": 17, "action": BOX, "method": "odt", "hidden": 128, "layers": 2, "context_length": K}
    return DecisionTransformer(PolicyConfig(**{**settings, **changes})).eval()


def window(**changes: torch.Tensor) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    found = {
        "observations": torch.randn(8, K, 17, generator=generator),
        "actions": torch.rand(8, K, 6, generator=generator) * 2 - 1,
        "returns_to_go": torch.full((8, K), 3000.0),
        "timesteps": torch.arange(20, 20 + K).expand(8, K),
    }
    return found | changes


def moved(policy: DecisionTransformer, one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """How far the mean action of the last step lies from one window to another."""
    with torch.no_grad():
        return float((policy(Window(**one)).mode()[:, -1] - policy(Window(**other)).mode()[:, -1]).abs().mean())


@pytest.mark.parametrize(("timestep", "order"), PLACES)
@pytest.mark.parametrize("method", ["dt", "odt", "ewa-vq-odt"])
def test_the_size_of_a_return_is_seen(timestep: bool, order: bool, method: str) -> None:
    for seed in range(3):
        policy = fresh(seed, method=method, timestep_embedding=timestep, order_embedding=order)
        extra = {} if policy.accounts is None else {"attractions": torch.zeros(8, K)}

        def asked(returns: float, extra: dict[str, torch.Tensor] = extra) -> dict[str, torch.Tensor]:
            return window(returns_to_go=torch.full((8, K), returns)) | extra

        assert moved(policy, asked(500.0), asked(5000.0)) >= 0.1 * moved(policy, asked(-5000.0), asked(5000.0))


@pytest.mark.parametrize(("timestep", "order"), PLACES)
def test_the_size_of_an_action_is_seen(timestep: bool, order: bool) -> None:
    for seed in range(3):
        policy = fresh(seed, timestep_embedding=timestep, order_embedding=order)
        actions = window()["actions"]
        whole = moved(policy, window(actions=-actions), window(actions=actions))
        assert moved(policy, window(actions=0.1 * actions), window(actions=actions)) >= 0.1 * whole


@pytest.mark.parametrize("order", [False, True])
def test_rich_ledgers_differ_from_poor_ones(order: bool) -> None:
    for seed in range(3):
        policy = fresh(seed, method="ledger-odt", timestep_embedding=False, order_embedding=order)
        generator = torch.Generator().manual_seed(seed)
        rich = 16 * torch.rand(8, K, policy.accounts.books.num_codes, generator=generator)
        whole = moved(policy, window(balances=-rich), window(balances=rich))
        assert moved(policy, window(balances=0.1 * rich), window(balances=rich)) >= 0.1 * whole


def test_rewards_are_read_as_they_deviate_from_the_data() -> None:
    policy = fresh(reward_input="state", timestep_embedding=False)
    rewards = 3.0 + 0.5 * torch.randn(500, generator=torch.Generator().manual_seed(0))
    policy.fit_normalisation(torch.randn(500, 17), torch.zeros(500, 6), rewards)
    assert float(policy.reward_mean) == pytest.approx(float(rewards.mean()), rel=1e-5)
    usual, large = (window(previous_rewards=torch.full((8, K), value)) for value in (3.0, 4.0))
    assert moved(policy, usual, large) > 0.01
    first = {"timesteps": torch.zeros(8, 1, dtype=torch.long)}
    alone = {name: value[:, :1] for name, value in large.items()}
    nothing = {**alone, "previous_rewards": torch.full((8, 1), 3.0)}
    assert moved(policy, alone | first, nothing | first) == 0.0  # nothing was paid before an episode's first step
    with pytest.raises(
        ValueError, match=r"must have previous_rewards of shape \(8, 4\) for reward_input 'state', got None"
    ):
        policy(Window(**window()))


@pytest.mark.parametrize("order", [False, True])
def test_a_reward_stands_out_of_the_rounding_of_a_returns_token(order: bool) -> None:
    """Tokens are rounded to bf16 on their way into the blocks. A reward of 5 moves a return's token, along the way
    that returns move it, by more than ten times as far as rounding does."""
    policy = fresh(hidden=512, timestep_embedding=False, order_embedding=order)

    def tokens(returns: torch.Tensor) -> torch.Tensor:
        n = len(returns)
        embedded = policy.embedding(
            returns.unsqueeze(-1) * 0.001, torch.zeros(n, 1, 17), torch.zeros(n, 1, 6),
            torch.zeros(n, 1, dtype=torch.long), None,
        )  # fmt: skip
        return embedded[:, 0]

    with torch.no_grad():
        returns = torch.linspace(200, 4800, 200)
        before, after = tokens(returns), tokens(returns - 5.0)
        step = after - before
        along = step / step.norm(dim=-1, keepdim=True)
        signal = (step * along).sum(dim=-1)
        noise = ((before.bfloat16().float() - before) * along).sum(dim=-1)
    assert float(signal.min()) > 0
    assert float((signal / noise.std()).median()) > 10


@pytest.mark.parametrize("bounds", [None, (-200.0, -1.0)])
def test_returns_to_go_stay_in_the_range_of_the_data(bounds: tuple[float, float] | None) -> None:
    policy = fresh(return_range=bounds)
    context = policy.context(3, [-150.0, -300.0, 50.0])  # inside, below and above the range
    for reward in (-100.0, -100.0, 40.0):
        policy.act(np.zeros((3, 17), np.float32), context)
        context.record(np.full(3, reward, np.float32), np.zeros(3, bool))
    policy.act(np.zeros((3, 17), np.float32), context)
    exact = torch.tensor([[-150.0, -50.0, 50.0, 10.0], [-300.0, -200.0, -100.0, -140.0], [50.0, 150.0, 250.0, 210.0]])
    if bounds is not None:
        exact = torch.tensor([[-150.0, -50.0, -1.0, -1.0], [-300.0, -200.0, -100.0, -140.0], [50.0] * 4])
    assert torch.equal(context.returns_to_go, exact)
