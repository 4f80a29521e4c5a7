"""Slow and obvious versions of what the store and the sampler do, written independently of them."""

import random
from dataclasses import dataclass

import numpy as np
import torch

from mental_accounts.data import Trajectories


@dataclass
class Episode:
    """One trajectory as plain NumPy arrays."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: bool
    truncated: bool
    final: np.ndarray | None = None
    """What was seen after the last step, where it was cut off and this is known."""

    def returns_to_go(self, gamma: float = 1.0) -> np.ndarray:
        sums = np.zeros(len(self.rewards))
        after = 0.0
        for t in reversed(range(len(self.rewards))):
            after = float(self.rewards[t]) + gamma * after
            sums[t] = after
        return sums


def episodes(count: int, seed: int = 0, *, obs: int = 4, act: int = 2, shortest: int = 1, longest: int = 60) -> list:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        T = int(rng.integers(shortest, longest + 1))
        terminated = bool(rng.random() < 0.6)
        made.append(
            Episode(
                rng.standard_normal((T, obs)).astype(np.float32),
                rng.uniform(-1, 1, (T, act)).astype(np.float32),
                rng.standard_normal(T).astype(np.float32),
                terminated,
                not terminated,
            )
        )
    return made


def with_endings(parts: list[Episode], seed: int = 0) -> list[Episode]:
    """The same; of every other episode that was cut off, what was seen after it is known."""
    rng, cut = np.random.default_rng(seed), 0
    for part in parts:
        cut += part.truncated
        if part.truncated and cut % 2:
            part.final = rng.standard_normal(part.observations.shape[1]).astype(np.float32)
    return parts


def append(store: Trajectories, part: Episode) -> None:
    """Append an episode to a store."""
    ends = {"terminated": part.terminated, "truncated": part.truncated}
    store.append(part.observations, part.actions, part.rewards, **ends, final_observation=part.final)


def flat(parts: list[Episode]) -> dict[str, np.ndarray]:
    """The arguments of `Trajectories.from_steps`."""
    known = {}
    if any(p.final is not None for p in parts):
        unknown = np.full(parts[0].observations.shape[1], np.nan)
        known["final_observations"] = np.stack([unknown if p.final is None else p.final for p in parts])
    return known | {
        "observations": np.concatenate([p.observations for p in parts]),
        "actions": np.concatenate([p.actions for p in parts]),
        "rewards": np.concatenate([p.rewards for p in parts]),
        "lengths": np.array([len(p.rewards) for p in parts]),
        "terminated": np.array([p.terminated for p in parts]),
        "truncated": np.array([p.truncated for p in parts]),
    }


def store_of(parts: list[Episode], **options: object) -> Trajectories:
    return Trajectories.from_steps(**flat(parts), **options)


def assert_same(store: Trajectories, parts: list[Episode], gamma: float = 1.0) -> None:
    """Every trajectory of the store is the plain one, to the bit; returns-to-go to float32."""
    assert len(store) == len(parts)
    for got, part in zip(store, parts, strict=True):
        assert np.array_equal(got.observations.cpu().numpy(), part.observations.reshape(len(part.rewards), -1))
        assert np.array_equal(got.actions.cpu().numpy(), part.actions)
        assert np.array_equal(got.rewards.cpu().numpy(), part.rewards)
        assert got.timesteps.tolist() == list(range(len(part.rewards)))
        np.testing.assert_allclose(got.returns_to_go.cpu().numpy(), part.returns_to_go(gamma), rtol=1e-5, atol=1e-5)
        assert (got.terminated, got.truncated) == (part.terminated, part.truncated)
        assert (got.final_observation is None) == (part.final is None)
        if part.final is not None:
            assert np.array_equal(got.final_observation.cpu().numpy(), part.final)


def sample_first_steps(parts: list[Episode], draws: int, seed: int) -> list[tuple[int, int]]:
    """(trajectory, first step): a trajectory with probability proportional to its length, then a uniform step."""
    rng = random.Random(seed)
    lengths = [len(p.rewards) for p in parts]
    chosen = rng.choices(range(len(parts)), weights=lengths, k=draws)
    return [(i, rng.randrange(lengths[i])) for i in chosen]


def padded_window(values: np.ndarray, first: int, K: int) -> torch.Tensor:
    """Up to K steps from `first`, zeros in front."""
    taken = values[first : first + K]
    window = np.zeros((K, *values.shape[1:]), dtype=values.dtype)
    window[K - len(taken) :] = taken
    return torch.from_numpy(window)
