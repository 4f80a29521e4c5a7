"""An environment whose rewards come late, and a ledger of it that is recomputed from all steps at every step."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Step = tuple[int, float, int | None]
"""The action that was taken, the reward that came, and how late it is said to be (None: nothing is said)."""


class Late(gymnasium.Env[Any, Any]):
    """Rewards at random, of delays at random; episodes of at most `steps` steps. Everything is written down."""

    def __init__(self, arms: int = 4, steps: int = 12, tells: float = 0.7, hijack: float = 0.3) -> None:
        self.observation_space, self.action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(arms)
        self.arms, self.steps, self.tells, self.hijack = arms, steps, tells, hijack
        self.episodes: list[list[Step]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episodes.append([])
        self.length = int(self.np_random.integers(1, self.steps + 1))
        return np.zeros(1, np.float32), {"reward_delay": 99}  # of a reset it means nothing

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        info: dict[str, Any] = {}
        taken, told, so_far = int(action), None, len(self.episodes[-1])
        if self.np_random.random() < self.hijack:
            taken = info["action_taken"] = int(self.np_random.integers(self.arms))
        if self.np_random.random() < self.tells:
            told = info["reward_delay"] = int(self.np_random.integers(so_far + 1))
        reward = float(self.np_random.normal())
        self.episodes[-1].append((taken, reward, told))
        return np.zeros(1, np.float32), reward, so_far + 1 >= self.length, False, info


def slow_ledger(
    episodes: list[list[Step]], constant: int, codes: int, phi: float, rho: float | None, begin: float = 1.0
) -> np.ndarray:
    """Balance, count and mean of every code, one after the other, in closed form: each payoff by the age of its action.

    Written down in the order of steps, but entered by whose they are.
    """
    sums, counts, total = np.zeros(codes), np.zeros(codes), sum(map(len, episodes))
    before = 0
    for episode in episodes:
        for t, (_, reward, told) in enumerate(episode):
            owner = t - (constant if told is None else told)
            if owner >= 0:
                left = (1 - phi) ** (total - 1 - (before + owner))
                sums[episode[owner][0]] += reward * left
                counts[episode[owner][0]] += left
        before += len(episode)
    experience = begin
    for _ in range(total):
        experience = experience * (1 - (rho or 0)) + 1
    balance = phi * sums if rho is None else sums / max(experience, 1.0)
    mean = np.divide(sums, counts, out=np.zeros(codes), where=counts > 0)
    return np.concatenate([balance, 1 - 1 / np.sqrt(1 + counts), mean])
