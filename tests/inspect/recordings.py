"""Recordings of small policies, for the tests."""

import io
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from mental_accounts.account_options import AccountsConfig
from mental_accounts.action_spec import ActionSpec
from mental_accounts.inspect.camera import Film
from mental_accounts.inspect.recording import Recording, record
from mental_accounts.learning.critic_files import PolicyCritics
from mental_accounts.learning.critics import critics_of
from mental_accounts.learning.episodes import Episode
from mental_accounts.learning.evaluation import Subject, subject_of
from mental_accounts.learning.make_env import EnvironmentSource
from mental_accounts.policy import DecisionTransformer
from mental_accounts.policy_options import PolicyConfig
from mental_accounts.spaces import action_spec_of, state_dim_of
from tests.policy.helpers import make_policy, random_actions

NARROW = ActionSpec("box", 3, (-2.0, 0.0, -1.0), (2.0, 1.0, 1.0))
"""Three dimensions, each with bounds of its own."""
NO_FILM = Film((), (), "there is no camera in this test")


def config(accounts: dict[str, Any] | None = None, **changes: Any) -> PolicyConfig:
    fields: dict[str, Any] = {
        "state_dim": 4, "action": NARROW, "hidden": 8, "layers": 2, "heads": 2, "context_length": 6,
        "max_timestep": 1000, "dropout": 0.0, "return_scale": 0.1,
    }  # fmt: skip
    return PolicyConfig(**(fields | changes), accounts=AccountsConfig(**({"beta": 0.5} | (accounts or {}))))


def episode(policy: DecisionTransformer, T: int, seed: int = 0) -> Episode:
    """Made-up steps; actions wander, so that some codes come again and again."""
    torch.manual_seed(seed)
    actions = random_actions(policy.config, T)
    if not policy.config.action.is_discrete:
        low, high = (torch.tensor(bound) for bound in (policy.config.action.low, policy.config.action.high))
        walk = torch.sin(torch.arange(T).unsqueeze(1) / 9 + torch.arange(policy.config.action.size)) / 2 + 0.5
        actions = low + (high - low) * (walk + 0.1 * torch.randn(walk.shape)).clamp(0, 1)
    observations = torch.randn(T, policy.config.state_dim).cumsum(0) / 3
    rewards = torch.randn(T) + torch.sin(torch.arange(T) / 5)
    return Episode(observations.numpy(), actions.numpy(), rewards.numpy(), True, False)


def critics(policy: DecisionTransformer, discount: float = 0.9, reward_scale: float = 2.5) -> PolicyCritics:
    torch.manual_seed(5)
    return PolicyCritics(critics_of(policy, 16).requires_grad_(False), discount, reward_scale)


def recording(
    policy_config: PolicyConfig,
    lengths: tuple[int, ...] = (40, 25),
    env_id: str = "Made-up-v0",
    *,
    with_critics: bool = False,
) -> Recording:
    """With critics, the last episode is one that was cut off."""
    policy = make_policy(policy_config)
    played = [episode(policy, T, seed) for seed, T in enumerate(lengths)]
    held = critics(policy) if with_critics else None
    if with_critics:
        played[-1] = replace(played[-1], terminated=False, truncated=True)
    return record(Subject(policy, env_id, 50.0, None), len(played), recorded=played, critics=held)


def played(env_id: str, accounts: dict[str, Any] | None = None, episodes: int = 2, **changes: Any) -> Recording:
    """A small policy with weights as they come, played in an environment, with and without its accounts."""
    source = EnvironmentSource(env_id)
    env = source()
    spaces = {"state_dim": state_dim_of(env.observation_space), "action": action_spec_of(env.action_space)}
    env.close()
    policy = make_policy(config(accounts, **(spaces | changes)))
    return record(subject_of(policy, source, 100.0), episodes)


def pictures(T: int, count: int, size: int = 240) -> Film:
    """As many JPEG pictures as a film of a MuJoCo episode has, and no smaller than those."""
    from PIL import Image

    steps, found = np.unique(np.linspace(0, T - 1, count).astype(int)), []
    rng = np.random.default_rng(0)
    for step in steps:
        board = np.kron(rng.integers(0, 255, (size // 8, size // 8, 3)), np.ones((8, 8, 1))).astype(np.uint8)
        board[:, : int(size * step / T)] //= 2
        file = io.BytesIO()
        Image.fromarray(board).save(file, "jpeg", quality=70)
        found.append(file.getvalue())
    return Film(tuple(map(int, steps)), tuple(found))
