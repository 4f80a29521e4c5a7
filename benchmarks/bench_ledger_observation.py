"""What a ledger in the observations costs: per step, and within Stable-Baselines3's PPO.

    pip install -e '.[sb3]' && python benchmarks/bench_ledger_observation.py [--rounds 30] [--json FILE]

Steps: one environment with and without the wrapper, in turn, 2,000 steps each a round; the cost is the difference
within a round, the median over rounds. The environments: HiddenArm-v0 (Box of 3, 27 codes; every step routes twice,
since the environment says which action was taken), the same without `info["action_taken"]`, DriftingBandit-v0 with 27
arms; the last also with late rewards, and with foregone payoffs beside the same rule without. PPO: the defaults (one
environment, rollouts of 2,048 steps, 10 epochs of batches of 64) on HiddenArm-v0 with and without the ledger in turn,
one rollout and its updates each a round. Its share is what the wrapper itself takes there, the median over steps: more
than in a loop of steps alone, since the network's turn empties the caches. Times are of the process (CPU) where they
are sums, and of the clock where they are of single steps; one thread.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

from mental_accounts.environments import DriftingBandit, HiddenArm
from mental_accounts.integrations import LedgerObservation, LedgerVectorObservation

STEPS = 2_000
CHANNELS = (("balance",), ("mean", "count"), ("balance", "count", "mean"))


class Untold(gymnasium.Wrapper):
    """Does not say which action was taken."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        *step, info = self.env.step(action)
        del info["action_taken"]
        return (*step, info)


ENVIRONMENTS: dict[str, Callable[[], gymnasium.Env]] = {
    "HiddenArm-v0": HiddenArm,
    "HiddenArm-v0, untold": lambda: Untold(HiddenArm()),
    "DriftingBandit-v0, 27 arms": partial(DriftingBandit, arms=27),
}
CANONICAL = {"phi": 0.05, "rho": 0.05, "delta": 0.5}
MORE: dict[str, dict[str, Any]] = {
    "late rewards": {"reward_delay": 3},
    "canonical rule": {"rule": CANONICAL},
    "canonical rule, foregone payoffs": {"rule": CANONICAL, "foregone": True},
}


def steps_of(env: gymnasium.Env, actions: list[Any]) -> float:
    """µs a step."""
    began = time.process_time()
    for action in actions:
        *_, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return (time.process_time() - began) / len(actions) * 1e6


def step_cost(
    make: Callable[[], gymnasium.Env], channels: tuple[str, ...], rounds: int, **more: Any
) -> dict[str, float]:
    bare, wrapped = make(), LedgerObservation(make(), channels=channels, **more)
    bare.action_space.seed(0)
    actions = [bare.action_space.sample() for _ in range(STEPS)]
    for env in (bare, wrapped):
        env.reset(seed=0)
    pairs = [(steps_of(bare, actions), steps_of(wrapped, actions)) for _ in range(rounds)]
    return {
        "bare": statistics.median(before for before, _ in pairs),
        "with": statistics.median(after for _, after in pairs),
        "cost": statistics.median(after - before for before, after in pairs),
    }


def vector_cost(num_envs: int, rounds: int) -> dict[str, float]:
    """As `step_cost` for environments together: µs a step of all of them."""
    make = [partial(DriftingBandit, arms=27)] * num_envs
    bare = gymnasium.vector.SyncVectorEnv(make)
    wrapped = LedgerVectorObservation(gymnasium.vector.SyncVectorEnv(make))
    times: list[list[float]] = [[], []]
    for env in (bare, wrapped):
        env.reset(seed=0)
    actions = [bare.action_space.sample() for _ in range(STEPS // num_envs)]
    for _ in range(rounds):
        for env, found in zip((bare, wrapped), times, strict=True):
            began = time.process_time()
            for action in actions:
                env.step(action)
            found.append((time.process_time() - began) / len(actions) * 1e6)
    return {
        "bare": statistics.median(times[0]),
        "with": statistics.median(times[1]),
        "cost": statistics.median(after - before for before, after in zip(*times, strict=True)),
    }


class Timed(gymnasium.Wrapper):
    """Keeps how long each step took."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.spent: list[float] = []

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        began = time.perf_counter()
        found = self.env.step(action)
        self.spent.append(time.perf_counter() - began)
        return found


def ppo(make: Callable[[], gymnasium.Env], channels: tuple[str, ...], rounds: int) -> dict[str, float]:
    """µs a step of SB3's PPO without and with the ledger, and of the wrapper within."""
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    inner = Timed(make())
    outer = Timed(LedgerObservation(inner, channels=channels))
    models = [PPO("MlpPolicy", env, device="cpu", seed=0) for env in (make(), outer)]
    times: list[list[float]] = [[], []]
    for done in range(rounds):
        for model, found in zip(models, times, strict=True):
            began = time.process_time()
            model.learn(model.n_steps, reset_num_timesteps=not done)
            found.append((time.process_time() - began) / model.n_steps * 1e6)
    cost = statistics.median(after - before for before, after in zip(inner.spent, outer.spent, strict=True)) * 1e6
    whole = statistics.median(times[1][1:])  # the first warms up
    return {"bare": statistics.median(times[0][1:]), "with": whole, "cost": cost, "share": cost / whole}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for name, make in ENVIRONMENTS.items():
        for channels in CHANNELS:
            found[f"{name}, {'+'.join(channels)}"] = step_cost(make, channels, arguments.rounds)
    bandit = "DriftingBandit-v0, 27 arms"
    for name, more in MORE.items():
        found[f"{bandit}, {name}, balance"] = step_cost(ENVIRONMENTS[bandit], ("balance",), arguments.rounds, **more)
    for num_envs in (8, 64):
        found[f"DriftingBandit-v0, 27 arms, {num_envs} together, balance"] = vector_cost(num_envs, arguments.rounds)
    for name, numbers in found.items():
        print(f"{name:62} {numbers['bare']:6.1f} -> {numbers['with']:6.1f} µs a step: + {numbers['cost']:.1f} µs")
    for channels in CHANNELS:
        name = f"HiddenArm-v0, {'+'.join(channels)}"
        try:
            found[f"PPO on {name}"] = learning = ppo(HiddenArm, channels, max(4, arguments.rounds // 3))
        except ImportError:
            print("PPO: left out, stable-baselines3 is not installed: pip install 'mental-accounts[sb3]'")
            break
        print(
            f"PPO on {name}: {learning['bare']:.0f} µs a step without the ledger, {learning['with']:.0f} with it, of "
            f"which the wrapper takes {learning['cost']:.1f} µs: {learning['share']:.1%}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
