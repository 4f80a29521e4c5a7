"""A SAC actor as plain arrays: read it, act with it, measure it, write it. Needs NumPy, Gymnasium and safetensors only.

The policy is a tanh-squashed Gaussian over two ReLU layers:

    h = relu(W1 relu(W0 s + b0) + b1),  u ~ N(Wm h + bm, exp(clip(Ws h + bs, -20, 2))),  action = tanh(u)

Tensors are in torch's layout, (out, in), float16 in the file and float32 in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

LOG_STD_RANGE = (-20.0, 2.0)
"""sbx's SquashedGaussianActor clips the log standard deviation to this range."""

LAYERS = ("hidden.0", "hidden.1", "mean", "log_std")
ENV_IDS = {"hopper": "Hopper-v5", "walker2d": "Walker2d-v5", "halfcheetah": "HalfCheetah-v5"}

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Actor:
    """The weights of one actor, and their origin."""

    tensors: Mapping[str, Array]  # "<layer>.weight": (out, in), "<layer>.bias": (out,)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def distribution(self, observations: NDArray[Any]) -> tuple[Array, Array]:
        """(n, obs) -> the Gaussian's mean and standard deviation before the squashing, (n, act) each."""
        t = self.tensors
        h = observations.astype(np.float32)
        for layer in ("hidden.0", "hidden.1"):
            h = np.maximum(h @ t[f"{layer}.weight"].T + t[f"{layer}.bias"], 0.0)
        mean = h @ t["mean.weight"].T + t["mean.bias"]
        log_std = np.clip(h @ t["log_std.weight"].T + t["log_std.bias"], *LOG_STD_RANGE)
        return mean, np.exp(log_std)

    def act(self, observations: NDArray[Any], rng: np.random.Generator | None = None) -> Array:
        """Actions in [-1, 1], (n, act): sampled when a generator is given, else the squashed mean."""
        mean, std = self.distribution(observations)
        if rng is not None:
            mean = mean + std * rng.standard_normal(mean.shape, dtype=np.float32)
        return np.tanh(mean)

    def rounded(self) -> Actor:
        """The same actor with its weights rounded to float16, as a file holds them."""
        return Actor({k: v.astype(np.float16).astype(np.float32) for k, v in self.tensors.items()}, self.metadata)


def write_bytes(path: Path, data: bytes) -> None:
    """Write under a temporary name, then rename: if killed, this leaves the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)


def write_json(path: Path, value: Any) -> None:
    """One value per line, so that diffs are readable."""
    write_bytes(path, (json.dumps(value, indent=1) + "\n").encode())


def write_actor(path: Path, actor: Actor, dtype: type[np.floating[Any]] = np.float16) -> None:
    """safetensors, with the metadata as one JSON string under the header's key "behaviour"."""
    tensors = {k: np.ascontiguousarray(v, dtype=dtype) for k, v in actor.tensors.items()}
    write_bytes(path, save(tensors, metadata={"behaviour": json.dumps(dict(actor.metadata))}))


def read_actor(path: Path) -> Actor:
    """The inverse of `write_actor`."""
    with safe_open(path, framework="numpy") as file:
        tensors = {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118
        return Actor(tensors, json.loads(file.metadata()["behaviour"]))


def play(
    actor: Actor | None, env_id: str, episodes: int, *, stochastic: bool = True, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns and lengths of some episodes, (episodes,) each; no actor means uniformly random actions."""
    envs = [gym.make(env_id) for _ in range(episodes)]
    rng = np.random.default_rng(seed)
    observations = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(envs)])
    returns, lengths = np.zeros(episodes), np.zeros(episodes, dtype=np.int64)
    running = np.ones(episodes, dtype=bool)
    action_dim = int(np.prod(envs[0].action_space.shape or ()))
    while running.any():
        if actor is None:
            actions = rng.uniform(-1.0, 1.0, (episodes, action_dim)).astype(np.float32)
        else:
            actions = actor.act(observations, rng if stochastic else None)
        lengths += running
        for i in np.flatnonzero(running):
            observations[i], reward, terminated, truncated, _ = envs[i].step(actions[i])
            returns[i] += float(reward)
            running[i] = not (terminated or truncated)
    for env in envs:
        env.close()
    return returns, lengths


def summary(returns: NDArray[np.float64]) -> dict[str, float]:
    """Mean, standard deviation and number of returns."""
    return {"mean": round(float(returns.mean()), 2), "std": round(float(returns.std()), 2), "episodes": len(returns)}
