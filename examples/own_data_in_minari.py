"""Your own data in Minari: record them, read them, route and trace them, and train offline on them.

    pip install 'mental-accounts[minari]' && python examples/own_data_in_minari.py

A data set recorded with Minari is a task by its name: `mental-accounts train --task minari/mine/pendulum-v0`.
"""

import os
import tempfile

os.environ["MINARI_DATASETS_PATH"] = tempfile.mkdtemp()  # this example leaves your own data sets alone

import gymnasium
import minari
import numpy as np
import torch
from minari.data_collector import EpisodeBuffer

from mental_accounts.data import WindowSampler, load_task
from mental_accounts.learning import Objective, clip_gradients, make_optimizer
from mental_accounts.policy import DecisionTransformer, state_dim_of
from mental_accounts.policy_options import PolicyConfig

EPISODES, UPDATES = 20, 60


def record(name: str) -> None:
    """Record your own controller; here a noisy one that swings a pendulum up."""
    env = gymnasium.make("Pendulum-v1")
    rng = np.random.default_rng(0)
    episodes = []
    for number in range(EPISODES):
        observations, rows, done = [env.reset(seed=number)[0]], [], False
        while not done:
            cos, sin, speed = observations[-1]
            torque = 1.5 * np.sign(speed) if cos < 0.8 else -6.0 * sin - 1.5 * speed
            action = np.clip(np.clip(torque, -1.5, 1.5) + rng.normal(0, 0.2, 1), -2, 2).astype(np.float32)
            observation, reward, terminated, truncated, _ = env.step(action)
            observations.append(observation)
            rows.append((action, reward, terminated, truncated))
            done = terminated or truncated
        columns = (list(column) for column in zip(*rows, strict=True))
        episodes.append(EpisodeBuffer(number, None, None, observations, *columns))
    minari.create_dataset_from_buffers(name, episodes, env=env, algorithm_name="a noisy controller")
    env.close()


def main() -> None:
    record("mine/pendulum-v0")
    task, store = load_task("minari/mine/pendulum-v0")
    print(f"{task.env_id}: {len(store)} trajectories, {store.steps} steps, mean return {store.returns.mean():.0f}")

    torch.manual_seed(0)
    assert store.action_spec is not None
    config = PolicyConfig(
        state_dim=state_dim_of(gymnasium.make(task.env_id).observation_space),
        action=store.action_spec,
        hidden=32,
        layers=2,
        heads=1,
        context_length=10,
    )
    policy = DecisionTransformer(config)
    policy.fit_normalisation(store.observations, store.actions, store.rewards)
    assert policy.accounts is not None
    store.annotate(policy.accounts.books.codebook, policy.accounts.books.rule, policy.accounts.books.transform)

    sampler = WindowSampler(store, 32, config.context_length, torch.Generator().manual_seed(0))
    objective = Objective(config)
    optimizer = make_optimizer("adamw", policy.parameters(), 3e-3, 0.0, "cpu")
    losses = []
    for _ in range(UPDATES):
        window = sampler()
        loss = objective(policy(window), policy.action_scale.to_unit(window.actions), window.mask).loss
        optimizer.zero_grad()
        loss.backward()
        clip_gradients(policy.parameters(), 0.25)
        optimizer.step()
        losses.append(float(loss.detach()))
    first, last = np.mean(losses[:10]), np.mean(losses[-10:])
    print(f"loss {first:.2f} -> {last:.2f}")
    assert last < first


if __name__ == "__main__":
    main()
