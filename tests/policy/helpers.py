"""Small policies and windows for the tests."""

from dataclasses import replace

import torch

from mental_accounts.account_options import AccountsConfig
from mental_accounts.action_spec import ActionSpec
from mental_accounts.policy import DecisionTransformer
from mental_accounts.policy_options import PolicyConfig

BOX = ActionSpec("box", 2, (-2.0, 0.0), (2.0, 1.0))
DISCRETE = ActionSpec("discrete", 3, start=1)
TINY = PolicyConfig(
    state_dim=3,
    action=BOX,
    hidden=8,
    layers=2,
    heads=2,
    context_length=6,
    max_timestep=40,
    dropout=0.0,
    return_scale=0.1,
)


def tiny(accounts: dict[str, object] | None = None, **changes: object) -> PolicyConfig:
    return replace(TINY, accounts=AccountsConfig(**(accounts or {})), **changes)


def make_policy(config: PolicyConfig, seed: int = 0, dtype: torch.dtype = torch.float32) -> DecisionTransformer:
    """A policy with weights large enough that everything in it matters."""
    torch.manual_seed(seed)
    policy = DecisionTransformer(config)
    if policy.accounts is not None:
        actions = policy.action_scale.to_unit(random_actions(config, 60))
        policy.accounts.books.fit(actions, torch.randn(60), 0, torch.randn(60, config.state_dim))
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.ndim > 1:
                parameter.mul_(10)
            parameter.add_(0.1 * torch.randn_like(parameter))
        policy.state_mean.normal_()
        policy.state_std.uniform_(0.5, 2.0)
        if config.reads_rewards:
            policy.reward_mean.fill_(0.3)
            policy.reward_std.fill_(1.7)
        if policy.reward_baseline is not None:
            policy.reward_baseline.fit(torch.randn(60, config.state_dim), torch.randn(60))
    return policy.to(dtype).eval()


def random_actions(config: PolicyConfig, *shape: int) -> torch.Tensor:
    if config.action.values:
        starts = torch.tensor(config.action.starts)
        return torch.stack([torch.randint(count, shape) for count in config.action.values], dim=-1) + starts
    if config.action.is_discrete:
        return torch.randint(config.action.start, config.action.start + config.action.size, shape)
    low, high = torch.tensor(config.action.low), torch.tensor(config.action.high)
    return low + (high - low) * torch.rand(*shape, config.action.size)


def make_window(
    policy: DecisionTransformer, B: int, K: int, padding: list[int] | None = None
) -> dict[str, torch.Tensor]:
    """A random window with everything a policy can read; `rewards` for those who trace."""
    config = policy.config
    window = {
        "observations": torch.randn(B, K, config.state_dim),
        "actions": random_actions(config, B, K),
        "returns_to_go": torch.randn(B, K) * 10,
        "timesteps": torch.arange(K).expand(B, K) + torch.randint(0, 50, (B, 1)),
        "mask": torch.ones(B, K, dtype=torch.bool),
    }
    if config.reads_rewards:
        window["previous_rewards"] = torch.randn(B, K)
    if config.reads_advantages:
        window["previous_observations"] = torch.randn(B, K, config.state_dim)
    if config.is_recurrent:
        window["previous_actions"] = random_actions(config, B, K)
    for n, pad in enumerate(padding or []):
        window["mask"][n, :pad] = False
    return window | account_inputs(policy, window, torch.randn(B, K))


def account_inputs(
    policy: DecisionTransformer, window: dict[str, torch.Tensor], rewards: torch.Tensor
) -> dict[str, torch.Tensor]:
    """What a policy reads of its accounts, which begin with the window; all balances by posting step after step."""
    if policy.accounts is None:
        return {}
    books = policy.accounts.books
    mask, states = window.get("mask", torch.ones_like(rewards, dtype=torch.bool)), window["observations"]
    entry = books.route_step(policy.action_scale.to_unit(window["actions"]), states)
    payoffs = books.payoffs(rewards, states)
    found = {"codes": entry.codes, "attractions": books.trace(entry, payoffs, mask)}
    if entry.weights is not None:
        found["weights"] = entry.weights
    if policy.config.reads_ledger:
        ledger, before, k = books.ledger(len(rewards), rewards.device), [], books.reward_delay
        for t in range(rewards.shape[1]):
            before.append(books.told_by(ledger).masked_fill(~mask[:, t, None], 0.0))
            late = max(t - k, 0)
            weights = None if entry.weights is None else entry.weights[:, late]
            age = torch.where(mask[:, late], k, -1) if t >= k else torch.full((len(rewards),), -1)
            age = age.to(rewards.device) if k else None
            ledger.post(entry.codes[:, late], payoffs[:, t], active=mask[:, t], weights=weights, age=age)
        found["balances"] = torch.stack(before, dim=1)
    return found


def numbers(distribution: object) -> torch.Tensor:
    """All numbers of a predicted distribution, (B, K, ...)."""
    return torch.cat([value for value in vars(distribution).values() if isinstance(value, torch.Tensor)], dim=-1)
