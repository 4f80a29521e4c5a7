"""A worker that rolls out behaviour policies: `python behaviour_worker.py` reads one shard per line of its input.

It runs as a separate process, by its path, and imports only NumPy, Gymnasium and safetensors: no waiting for torch, and
no need for the caller's script to guard its `__main__`, as with multiprocessing.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

REPORTED_STEPS = 500
"""Steps between progress reports."""

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Shard:
    """A piece of work that depends on nothing but these fields: whole episodes of one policy, `steps` or more."""

    env_id: str
    actor: str | None
    """The policy's file; None for uniformly random actions."""
    log_std_range: tuple[float, float]
    steps: int
    entropy: tuple[int, ...]
    """Seed material of the random numbers."""


@dataclass(frozen=True)
class Actor:
    """A tanh-squashed Gaussian over two ReLU layers, in float32.

    h = relu(W₁ relu(W₀ s + b₀) + b₁),  u ~ N(W_m h + b_m, exp(clip(W_s h + b_s))²),  action = tanh(u)
    """

    weights: Mapping[str, Array]  # "<layer>.weight": (out, in), "<layer>.bias": (out,)
    log_std_range: tuple[float, float]

    @classmethod
    def read(cls, path: str, log_std_range: tuple[float, float]) -> "Actor":
        with safe_open(path, framework="numpy") as file:
            weights = {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118
        return cls(weights, log_std_range)

    def act(self, observation: NDArray[Any], rng: np.random.Generator) -> Array:
        """(obs,) -> (act,) in [-1, 1], sampled."""
        w = self.weights
        h = observation.astype(np.float32)
        for layer in ("hidden.0", "hidden.1"):
            h = np.maximum(w[f"{layer}.weight"] @ h + w[f"{layer}.bias"], np.float32(0))
        mean = w["mean.weight"] @ h + w["mean.bias"]
        log_std = np.clip(w["log_std.weight"] @ h + w["log_std.bias"], *self.log_std_range)
        noise = rng.standard_normal(len(mean), dtype=np.float32)
        action: Array = np.tanh(mean + np.exp(log_std) * noise)
        return action


def play(shard: Shard, report: Callable[[int], None]) -> dict[str, NDArray[Any]]:
    """Play the shard's episodes one after another; `report` is called with the number of steps done.

    One environment at a time: the policy takes a tenth of a step's time, so batching gains nothing, and every episode
    is kept, long or short.
    """
    import gymnasium  # here, so that reading the table of tasks does not have to wait for it

    rng = np.random.default_rng(shard.entropy)
    env = gymnasium.make(shard.env_id, disable_env_checker=True)
    space = env.action_space
    if not isinstance(space, gymnasium.spaces.Box) or not space.is_bounded():
        raise ValueError(f"{shard.env_id}: behaviour policies act in a bounded Box, got {space}")
    middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
    actor = None if shard.actor is None else Actor.read(shard.actor, shard.log_std_range)
    observations: list[Array] = []
    actions: list[Array] = []
    rewards: list[float] = []
    lengths: list[int] = []
    ends: list[tuple[bool, bool]] = []
    final: list[Array] = []
    while len(rewards) < shard.steps:
        begun = len(rewards)
        observation, _ = env.reset(seed=int(rng.integers(2**31)))
        terminated = truncated = False
        while not (terminated or truncated):
            if actor is None:
                unit = rng.uniform(-1.0, 1.0, len(middle)).astype(np.float32)
            else:
                unit = actor.act(observation, rng)
            action = (unit * half + middle).astype(np.float32)
            observations.append(np.asarray(observation, dtype=np.float32))
            actions.append(action)
            observation, reward, terminated, truncated, _ = env.step(action)
            rewards.append(float(reward))
            if len(rewards) % REPORTED_STEPS == 0:
                report(REPORTED_STEPS)
        lengths.append(len(rewards) - begun)
        ends.append((terminated, truncated))
        final.append(np.asarray(observation, dtype=np.float32))
    env.close()
    return {
        "observations": np.stack(observations),
        "actions": np.stack(actions),
        "rewards": np.asarray(rewards, dtype=np.float32),
        "lengths": np.asarray(lengths, dtype=np.int64),
        "terminated": np.asarray([end[0] for end in ends]),
        "truncated": np.asarray([end[1] for end in ends]),
        "final_observations": np.stack(final),
    }


def request(shard: Shard, path: Path) -> str:
    """The request for a shard, as one line; the worker writes the file `path`."""
    return json.dumps({"path": str(path), "shard": asdict(shard)})


def serve(lines: TextIO, answers: TextIO) -> None:
    """Answer each request with lines of `{"steps": n}`, then one of `{"done": true}` or `{"error": "..."}`."""

    def answer(**fields: object) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    for line in lines:
        asked = json.loads(line)
        shard = Shard(**{**asked["shard"], "entropy": tuple(asked["shard"]["entropy"])})
        try:
            arrays = play(shard, report=lambda steps: answer(steps=steps))
            save_file(arrays, asked["path"])
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            answer(error=f"{type(error).__name__}: {error}")
        else:
            answer(done=True)


if __name__ == "__main__":
    # Output printed by libraries must not mix with the replies.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin, answers)
