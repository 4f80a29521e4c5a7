"""What a policy does live, from raw observations, against what it computes of the same episode in a store."""

from typing import Any

import gymnasium
import numpy as np
import torch

from mental_accounts.action_masks import mask_of
from mental_accounts.data.episode_windows import sampler_for
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.flattening import flatten
from mental_accounts.learning.env_spaces import spaces_of
from mental_accounts.policy import DecisionTransformer
from tests.policy.helpers import make_policy, numbers, tiny

TARGET = 4.0


def policy_for(env: gymnasium.Env[Any, Any], accounts: dict[str, object] | None = None, **changes: Any) -> Any:
    """A random policy that fits an environment of `make_environment`."""
    return make_policy(tiny(accounts, **spaces_of(env).fields(), **changes))


def assert_live_is_offline(policy: DecisionTransformer, env: gymnasium.Env[Any, Any]) -> Trajectories:
    """One episode with sampled actions; the raw observations are those of the environment inside the wrappers."""
    generator = torch.Generator().manual_seed(0)
    context, live, raw = policy.context(1, TARGET), [], env.unwrapped
    columns: dict[str, list[Any]] = {"observations": [], "actions": [], "rewards": []}
    told: dict[str, list[Any]] = {"action_masks": [], "foregone": []}
    observation, info = raw.reset(seed=3)
    over = False
    while not over:
        mask = mask_of(raw, info) if policy.config.action_masks else None
        distribution = policy.act_distribution([observation], context, None if mask is None else mask[None])
        live.append(numbers(distribution)[0, -1])
        action = context.choose(distribution.sample(generator)[:, -1]).numpy()[0]
        seen = flatten(policy.config.observation, [observation], 1)[0] if policy.config.observation else observation
        observation, reward, terminated, truncated, info = raw.step(action)
        over = terminated or truncated
        foregone = info["foregone"][None] if policy.config.enters_foregone else None
        context.record([reward], [over], foregone=foregone)
        if mask is not None:
            told["action_masks"].append(mask)
        if foregone is not None:
            told["foregone"].append(foregone[0])
        for name, value in zip(columns, (seen, action, reward), strict=True):
            columns[name].append(value)
    held = {name: np.array(values) for name, values in (columns | told).items() if values}
    store = Trajectories.from_steps(
        **held, lengths=[len(live)], terminated=[False], truncated=[True], action_spec=policy.config.action
    )
    if policy.accounts is not None:
        store.annotate_by(policy.accounts.books, balances=policy.config.reads_ledger)
    sampler = sampler_for(policy.config, store, 1, torch.Generator())
    K = len(live) if policy.config.is_recurrent else policy.config.context_length
    for t in range(K - 1, len(live)):
        window = sampler.at(torch.tensor([t - K + 1]))
        window.returns_to_go.add_(TARGET - float(store.returns[0]))  # live returns-to-go begin with the target
        torch.testing.assert_close(live[t], numbers(policy(window))[0, -1], rtol=1e-4, atol=1e-5)
    return store
