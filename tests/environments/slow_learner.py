"""The learner that made the data of hidden-arm and drifting-bandit before there were others, as it was written then."""

from typing import Any

import numpy as np


def slow_episode(env: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The actions taken and the rewards of one episode: softmax of attractions, φ = 0.05, the policy's own cells."""
    rng = np.random.default_rng([seed, 1])
    discrete = hasattr(env.action_space, "n")
    dim = 0 if discrete else env.action_space.shape[0]
    points = [[0.75 * ((cell // 3**d) % 3 - 1) for d in range(dim)] for cell in range(3**dim)]
    centres = np.array(points, np.float32)
    attractions = np.zeros(env.action_space.n if discrete else 3**dim)
    env.reset(seed=seed)
    actions, rewards, done = [], [], False
    while not done:
        weights = np.exp(20.0 * (attractions - attractions.max()))
        kind = rng.choice(len(attractions), p=weights / weights.sum())
        if discrete:
            action = np.int64(kind)
        else:
            action = (centres[kind] + np.clip(0.2 * rng.normal(size=dim), -0.24, 0.24)).astype(np.float32)
        _, reward, terminated, truncated, info = env.step(action)
        taken = info["action_taken"]
        if discrete:
            cell = int(taken)
        else:
            cell = int(((np.clip(np.rint(taken), -1, 1).astype(int) + 1) * 3 ** np.arange(dim)).sum())
        attractions *= 1 - 0.05
        attractions[cell] += float(reward)
        actions.append(taken)
        rewards.append(float(reward))
        done = terminated or truncated
    return np.array(actions), np.array(rewards).astype(np.float32)
