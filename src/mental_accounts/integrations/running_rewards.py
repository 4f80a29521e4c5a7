"""Rewards -> payoffs in NumPy: standardised by running statistics, or by those of a fitted `RewardTransform`."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from mental_accounts.errors import UsageError
from mental_accounts.files import read_json, write_atomically
from mental_accounts.number_checks import check_number, check_positive

Floats = NDArray[np.float64]

CLIP = 5.0
"""The largest payoff of running rewards, in standard deviations."""
WARM_UP = 20
"""Rewards before the first payoff: a standard deviation of fewer is noise."""


class PayoffRule(Protocol):
    """What makes payoffs of rewards."""

    @property
    def bound(self) -> float:
        """The largest payoff; infinite where there is none."""

    def payoff(self, reward: float) -> float:
        """Of one actor's step; the reward is finite."""

    def payoffs(self, rewards: Floats) -> Floats:
        """Of one step of n actors, (n,) -> (n,); the rewards are finite."""

    def payoffs_now(self, rewards: Floats) -> Floats:
        """Of rewards that nobody received, of any shape: nothing is learned from them."""

    def spec(self) -> str | dict[str, Any]:
        """Plain values that `payoffs_of` takes."""


class RunningRewards:
    """r̃ = clip((r - mean) / std, ±clip), by the mean and standard deviation of all rewards so far (Welford, Chan).

    The first 20 rewards pay 0. `frozen` statistics are used but not updated: for evaluation. One object may be given to
    several environments of a process, which then share it.
    """

    def __init__(self, clip: float = CLIP, *, frozen: bool = False) -> None:
        self.clip = check_positive("clip", clip)
        self.frozen = frozen
        self.count, self.mean, self._squares = 0, 0.0, 0.0

    @property
    def std(self) -> float:
        """The standard deviation; 1 where rewards never changed."""
        return math.sqrt(self._squares / self.count) if self._squares > 0 else 1.0

    @property
    def bound(self) -> float:
        return self.clip

    def payoff(self, reward: float) -> float:
        if self.frozen:
            self._check_seen()
        else:  # `_add` of one, written out: environments wait for it
            self.count += 1
            apart = reward - self.mean
            self.mean += apart / self.count
            self._squares += apart * (reward - self.mean)
        if self.count <= WARM_UP:
            return 0.0
        payoff = (reward - self.mean) / self.std
        return self.clip if payoff > self.clip else -self.clip if payoff < -self.clip else payoff

    def payoffs(self, rewards: Floats) -> Floats:
        if self.frozen:
            self._check_seen()
        elif len(rewards):
            mean = float(rewards.mean())
            self._add(len(rewards), mean, float(np.square(rewards - mean).sum()))
        return self.payoffs_now(rewards)

    def payoffs_now(self, rewards: Floats) -> Floats:
        if self.count <= WARM_UP:
            return np.zeros_like(rewards)
        return np.clip((rewards - self.mean) / self.std, -self.clip, self.clip)

    def _check_seen(self) -> None:
        if not self.count:
            raise UsageError(
                "frozen running rewards need statistics, and these have seen no reward: load those of training with "
                "set_reward_state or RunningRewards.load"
            )

    def _add(self, count: int, mean: float, squares: float) -> None:
        """Enter `count` more rewards by their mean and the sum of their squared distances from it."""
        total = self.count + count
        apart = mean - self.mean
        self.mean += apart * count / total
        self._squares += squares + apart * apart * self.count * count / total
        self.count = total

    # Saving.

    def state(self) -> dict[str, float]:
        """The statistics as plain numbers; `squares` is the sum of squared distances from the mean."""
        return {"count": self.count, "mean": self.mean, "squares": self._squares}

    def load_state(self, state: Mapping[str, float]) -> None:
        """Take the statistics that `state` gave."""
        if not isinstance(state, Mapping) or set(state) != {"count", "mean", "squares"}:
            found = sorted(state) if isinstance(state, Mapping) else type(state).__name__
            raise UsageError(f"a state of running rewards has count, mean and squares, got {found}")
        count = check_number("count", state["count"], 0, 2**53, closed=True)
        mean = check_number("mean", state["mean"], -1e300, 1e300, closed=True)
        squares = check_number("squares", state["squares"], 0.0, 1e300, closed=True)
        if count != int(count):
            raise UsageError(f"count must be a whole number, got {count}")
        self.count, self.mean, self._squares = int(count), mean, squares

    @classmethod
    def merged(cls, states: Iterable[Mapping[str, float]], clip: float = CLIP, *, frozen: bool = True) -> Self:
        """The statistics of several environments as one, from the `get_reward_state` of each."""
        whole = cls(clip, frozen=frozen)
        for state in states:
            part = cls()
            part.load_state(state)
            if part.count:
                whole._add(part.count, part.mean, part._squares)
        return whole

    def save(self, path: str | Path) -> None:
        """Write the statistics as JSON."""
        text = json.dumps({"clip": self.clip, **self.state()}, indent=1) + "\n"
        write_atomically(Path(path), text.encode())

    @classmethod
    def load(cls, path: str | Path, *, frozen: bool = True) -> Self:
        """Back from `save`; frozen, unless training goes on."""
        saved = read_json(Path(path))
        if not isinstance(saved, dict) or "clip" not in saved:
            raise UsageError(f"{path} is no file of RunningRewards.save: it has no clip")
        loaded = cls(saved.pop("clip"), frozen=frozen)
        loaded.load_state(saved)
        return loaded

    def spec(self) -> str | dict[str, Any]:
        return {"kind": "running", "clip": self.clip, "frozen": self.frozen, **self.state()}

    def __repr__(self) -> str:
        numbers = f"mean={self.mean:.4g}, std={self.std:.4g} of {self.count} rewards, clip={self.clip:g}"
        return f"RunningRewards({numbers}{', frozen' if self.frozen else ''})"


class FixedRewards:
    """r̃ = clip((r - mean) / std, ±clip) by fixed numbers: those of a `RewardTransform`, or none at all (raw)."""

    def __init__(self, mean: float = 0.0, std: float = 1.0, clip: float | None = None) -> None:
        self.mean = check_number("mean", mean, -1e300, 1e300, closed=True)
        self.std = check_positive("std", std)
        self.clip = None if clip is None else check_positive("clip", clip)

    @property
    def bound(self) -> float:
        return math.inf if self.clip is None else self.clip

    def payoff(self, reward: float) -> float:
        return min(max((reward - self.mean) / self.std, -self.bound), self.bound)

    def payoffs(self, rewards: Floats) -> Floats:
        return np.clip((rewards - self.mean) / self.std, -self.bound, self.bound)

    def payoffs_now(self, rewards: Floats) -> Floats:
        return self.payoffs(rewards)

    def spec(self) -> str | dict[str, Any]:
        return {"kind": "fixed", "mean": self.mean, "std": self.std, "clip": self.clip}


def payoffs_of(rewards: object) -> PayoffRule:
    """Any `rewards=` that a user may give."""
    if isinstance(rewards, str) and rewards in ("running", "raw"):
        return RunningRewards() if rewards == "running" else FixedRewards()
    if isinstance(rewards, RunningRewards | FixedRewards):
        return rewards
    if isinstance(rewards, Mapping):
        return _from_spec(dict(rewards))
    if not isinstance(rewards, str):
        from mental_accounts.accounts import RewardTransform  # whoever has one has PyTorch

        if isinstance(rewards, RewardTransform):
            return FixedRewards(float(rewards.mean), float(rewards.std), rewards.clip)
    raise UsageError(
        f"rewards must be 'running', 'raw', a fitted RewardTransform or RunningRewards(...), got {rewards!r}"
    )


def _from_spec(spec: dict[str, Any]) -> PayoffRule:
    kind = spec.pop("kind", None)
    try:
        if kind == "fixed":
            return FixedRewards(**spec)
        if kind == "running":
            made = RunningRewards(spec.pop("clip"), frozen=spec.pop("frozen"))
            made.load_state(spec)
            return made
    except (TypeError, KeyError) as error:
        raise UsageError(f"rewards {spec} lack or have too much: {error}") from error
    raise UsageError(f"rewards as a dict must be of kind running or fixed, got {kind!r}")
