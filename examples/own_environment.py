"""Your own environment: any Gymnasium environment with flat observations; here a room with a heater.

    python examples/own_environment.py

The policy starts with episodes of random actions, and two critics improve it online; it reads accounts of kinds of
heating. As a command, with the environment in your own module: `mental-accounts train --preset online --env-id
my_module:Room --method ledger-odt`.
"""

import tempfile
from typing import Any

import gymnasium
import numpy as np

import mental_accounts as ma

STEPS = 20


class Room(gymnasium.Env):
    """Keep a room at 0 while the weather pulls it elsewhere; the heater takes [-2, 2]. Reward: 1 - |temperature|."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-5, 5, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed, options=options)
        self.t, self.inside, self.outside = 0, 0.0, float(self.np_random.uniform(-2, 2))
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.inside += 0.3 * (self.outside - self.inside) + 0.3 * float(action[0])
        self.t += 1
        return self._observation(), 1.0 - abs(self.inside), False, self.t >= STEPS, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.inside, self.outside], np.float32)


def random_return(episodes: int = 50) -> float:
    env = Room()
    env.action_space.seed(0)
    total = 0.0
    for episode in range(episodes):
        env.reset(seed=episode)
        total += sum(env.step(env.action_space.sample())[1] for _ in range(STEPS))
    return total / episodes


def main() -> None:
    run = ma.train(
        env=Room,
        preset="online",
        method="ledger-odt",
        run=f"{tempfile.mkdtemp()}/room",
        random_episodes=50,
        online_iterations=4,
        episodes_per_iteration=10,
        updates_per_iteration=100,
        eval_every=4,
        device="cpu",
    )
    learned = run.returns[-1]
    print(f"return {learned:.1f} of {STEPS}; random actions {random_return():.1f}; run: {run.folder}")
    assert learned > random_return() + 10


if __name__ == "__main__":
    main()
