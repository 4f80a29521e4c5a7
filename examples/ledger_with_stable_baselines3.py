"""Stable-Baselines3's PPO on a bandit whose arms drift: with and without a ledger in its observations.

    pip install 'mental-accounts[sb3]' && python examples/ledger_with_stable_baselines3.py

The observation tells nothing of the arms, so a policy without memory can only guess. The ledger tells what each arm
paid lately and how often it was tried.
"""

from functools import partial

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from mental_accounts.environments import DriftingBandit
from mental_accounts.integrations import LedgerObservation, RunningRewards

STEPS, EPISODES = 30_000, 20


def bandit(rewards: RunningRewards | None = None) -> gymnasium.Env:
    env = DriftingBandit(arms=10, hijack=0.0)
    if rewards is None:
        return env
    return LedgerObservation(env, rewards=rewards, channels=("mean", "count"), phi=0.1)


def learned(rewards: RunningRewards | None) -> float:
    """The mean return of an episode of a policy that learned with these observations."""
    envs = make_vec_env(partial(bandit, rewards), n_envs=8, seed=0)  # one process: its environments share statistics
    model = PPO("MlpPolicy", envs, n_steps=128, batch_size=256, learning_rate=1e-3, gamma=0.9, seed=0, device="cpu")
    model.learn(STEPS)
    if rewards is not None:
        rewards.frozen = True  # evaluation must not change what payoffs are compared with
        rewards.save("rewards.json")  # keep it with the policy: RunningRewards.load("rewards.json")
    tests = make_vec_env(partial(bandit, rewards), n_envs=1, seed=1000)
    mean, _ = evaluate_policy(model, tests, n_eval_episodes=EPISODES, deterministic=False)
    return float(mean)


def main() -> None:
    torch.set_num_threads(1)  # networks this small are slower with more
    without, with_ledger = learned(None), learned(RunningRewards())
    print(f"mean return of {EPISODES} episodes of 200 steps after {STEPS:,} steps of PPO, sampled actions")
    print(f"without a ledger {without:.0f}, with a ledger {with_ledger:.0f}")
    assert with_ledger > without + 50


if __name__ == "__main__":
    main()
