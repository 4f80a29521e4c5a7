"""One run: train, evaluate, write a small file. Runs that are finished are not run again."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from mental_accounts.files import read_json, write_atomically
from mental_accounts.integrations import RunningRewards
from mental_accounts.learning.run_folder import surroundings

from .suite_envs import LearnerEnvs
from .suite_methods import METHODS, Settings, evaluate, make_envs, make_model
from .suite_players import PLAYERS, play

WINDOW = 65_536
"""Steps that one point of a learning curve averages over: the suite's own training batch."""
EVALUATION_SEED, PLAYER_SEED = 3_000_000_000, 2_000_000_000  # tuning looked at episodes from 1_000_000_000 on
EVALUATION_ENVS, EPISODES_PER_ENV = 64, 8
PLAYER_EPISODES = 1_000

STEPS = {
    "MultiarmedBanditEasy": 2_000_000,
    "MultiarmedBanditMedium": 2_000_000,
    "MultiarmedBanditHard": 2_000_000,
    "BattleshipEasy": 1_000_000,
    "MineSweeperEasy": 1_000_000,
    "RepeatPreviousEasy": 1_000_000,
    "AutoencodeEasy": 1_000_000,
    "PositionOnlyCartPoleEasy": 1_000_000,
}
"""Environments, and the training steps of each."""
BANDITS = [name for name in STEPS if "Bandit" in name]


@dataclass(frozen=True)
class Job:
    """A run that is to be done, and where its results go."""

    environment: str
    method: str
    seed: int
    steps: int
    out: Path
    device: str = "cpu"
    changes: tuple[tuple[str, Any], ...] = ()
    """Settings other than the method's own: for tuning and tests."""

    @property
    def path(self) -> Path:
        """The file of the finished run."""
        return self.out / "runs" / f"{self.environment}--{self.method}--{self.seed}.json"

    @property
    def partial(self) -> Path:
        """Its learning curve so far."""
        return self.path.with_suffix(".partial")

    @property
    def settings(self) -> Settings:
        """What it learns with."""
        return replace(METHODS[self.method], **dict(self.changes))

    def facts(self) -> dict[str, Any]:
        """What identifies the run."""
        return {
            "environment": self.environment,
            "method": self.method,
            "seed": self.seed,
            "steps": self.steps,
            "settings": asdict(self.settings),
        }


class DifferentRunError(Exception):
    """A folder has this run with other steps or settings."""


def is_finished(job: Job) -> bool:
    """Whether the run's file is there; one made with other steps or settings is an error."""
    if not job.path.exists():
        return False
    found, wanted = read_json(job.path), json.loads(json.dumps(job.facts()))
    differing = [key for key, value in wanted.items() if found.get(key) != value]
    if differing:
        raise DifferentRunError(f"{job.path} has other {' and '.join(differing)}: delete it, or give another --out")
    return True


def run(job: Job) -> dict[str, Any]:
    """Train and evaluate; the result is written whole or not at all."""
    torch.set_num_threads(1)
    job.path.parent.mkdir(parents=True, exist_ok=True)
    rewards, began, worked = RunningRewards(), time.perf_counter(), time.process_time()
    envs = make_envs(job.environment, job.settings, job.settings.envs, rewards)
    envs.seed(1_000 * job.seed)
    model = make_model(job.settings, envs, job.seed, job.device)
    curve = Curve(job, envs)
    model.learn(job.steps, callback=curve)
    trained, worked = time.perf_counter(), time.process_time() - worked
    frozen = RunningRewards(frozen=True)
    frozen.load_state(rewards.state())
    tests = make_envs(job.environment, job.settings, EVALUATION_ENVS, frozen)
    seed = EVALUATION_SEED + 1_000 * job.seed
    found: dict[str, Any] = {
        **job.facts(),
        "parameters": sum(weight.numel() for weight in model.policy.parameters()),
        "sampled": summary(evaluate(model, tests, EPISODES_PER_ENV, mode=False, seed=seed)),
        "mode": summary(evaluate(model, tests, EPISODES_PER_ENV, mode=True, seed=seed)),
        "best": max((point["return"] for point in curve.points), default=None),
        "curve": curve.points,
        "device": job.device,
        "made with": made_with(),
        "seconds": {
            "training": round(trained - began, 1),
            "training on its core": round(worked, 1),
            "evaluation": round(time.perf_counter() - trained, 1),
        },
    }
    write_atomically(job.path, (json.dumps(found) + "\n").encode())
    job.partial.unlink(missing_ok=True)
    return found


def made_with() -> dict[str, Any]:
    """Versions, hardware and commit."""
    found = surroundings()
    found["versions"] |= {name: metadata.version(name) for name in ("popgym", "stable-baselines3", "sb3-contrib")}
    return found


class Curve(BaseCallback):
    """Mean returns of training episodes, by windows of steps."""

    def __init__(self, job: Job, envs: LearnerEnvs) -> None:
        super().__init__()
        self.points: list[dict[str, Any]] = []
        self._job, self._envs, self._last = job, envs, 0
        self._window = min(WINDOW, job.steps // 8)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        finished = self._envs.finished
        if self.num_timesteps - self._last < self._window or not finished:
            return
        mean = round(float(np.mean(finished)), 5)
        self.points.append({"steps": self.num_timesteps, "return": mean, "episodes": len(finished)})
        self._last = self.num_timesteps
        finished.clear()
        write_atomically(self._job.partial, json.dumps({**self._job.facts(), "curve": self.points}).encode())


def summary(returns: np.ndarray) -> dict[str, float]:
    """Mean, standard error and number of episodes."""
    error = float(returns.std(ddof=1) / len(returns) ** 0.5)
    return {"mean": round(float(returns.mean()), 5), "error": round(error, 5), "episodes": len(returns)}


def players_path(out: Path, environment: str) -> Path:
    """Where the players' returns on a bandit are kept."""
    return out / "players" / f"{environment}.json"


def run_players(out: Path, environment: str, episodes: int = PLAYER_EPISODES) -> list[dict[str, Any]]:
    """All players on one bandit, on the same arms."""
    path = players_path(out, environment)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"environment": environment, "player": name, **summary(play(environment, player, episodes, PLAYER_SEED))}
        for name, player in PLAYERS.items()
    ]
    write_atomically(path, (json.dumps(rows) + "\n").encode())
    return rows


def attempt(task: Job | tuple[Path, str]) -> tuple[str, str | None]:
    """`run` or `run_players` for a pool of processes: what was run, and what went wrong."""
    name = task.path.stem if isinstance(task, Job) else f"{task[1]}--players"
    try:
        if isinstance(task, Job):
            found = run(task)
            sampled, mode = found["sampled"]["mean"], found["mode"]["mean"]
            seconds = found["seconds"]["training"]
            return f"{name}: sampled {sampled:.3f}, mode {mode:.3f}, {seconds:.0f} s", None
        run_players(*task)
        return name, None
    except Exception as error:  # one run must not end the others
        return name, f"{type(error).__name__}: {error}"


def read_runs(out: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Finished runs and players of a folder, in order of environment, method and seed: its files, or the packed one."""
    runs = [read_json(path) for path in sorted((out / "runs").glob("*.json"))]
    known: Sequence[Path] = [players_path(out, name) for name in BANDITS]
    players = [row for path in known if path.exists() for row in read_json(path)]
    packed = out / "runs.json"
    if not runs and packed.exists():
        held = read_json(packed)
        settings, machines = held["settings"], held["made with"]
        runs = [
            {"settings": settings[run["method"]], **run, "made with": machines[run["made with"]]}
            for run in held["runs"]
        ]
        players = held["players"]
    places = list(STEPS)
    runs.sort(key=lambda run: (places.index(run["environment"]), run["method"], run["seed"]))
    return runs, players
