"""Small data from scripted policies: whether transformers learn at least as much as behaviour cloning.

    python studies/small_data.py --out results/small-data      # all tasks, ten data seeds: 40 minutes on two cores
    python studies/small_data.py --tasks pendulum --seeds 2    # a first look
    python studies/small_data.py --parts --seeds 3             # odt with one part of the default changed

Three environments, each with 100 episodes of a scripted policy, defined below. Every data seed has its own data, from
which all methods learn: preset quick, hidden 64, 600 updates, no online phase. We report the mean return of the last
evaluation over the data seeds, and the difference from bc with its 95% interval, paired by data seed.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from interval_cells import written
from mental_accounts.config import TrainConfig
from mental_accounts.data.tasks import imported_path
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.learning.run_folder import RunFolder, surroundings
from mental_accounts.learning.trainer import Trainer
from mental_accounts.policy_options import Method
from mental_accounts.presets import PRESETS
from mental_accounts.report.statistics import Interval, difference_interval, mean_interval

EPISODES = 100
METHODS: tuple[Method, ...] = ("bc", "dt", "odt", "ewa-vq-odt")


def swing_up(observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Pendulum: pump energy in until it is nearly upright, then hold it. 6% of the torques are at a bound."""
    cosine, sine, velocity = observation
    if cosine > 0.85 and abs(velocity) < 4:
        torque = -12 * np.arctan2(sine, cosine) - 3 * velocity
    else:
        torque = -0.3 * velocity * (velocity**2 / 6 + 5 * (cosine - 1))
    return np.array([np.clip(torque, -2, 2)], dtype=np.float32)


def balance(observation: np.ndarray, rng: np.random.Generator) -> np.int64:
    """CartPole: push towards the side the pole is falling to; 40% of pushes are random, so that many episodes fail."""
    _, _, angle, spin = observation
    if rng.random() < 0.4:
        return np.int64(rng.integers(2))
    return np.int64(angle + 0.05 * spin > 0)


def rock(observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """MountainCarContinuous: push in the direction of motion. Pushes cost, the flag pays 100: rewards of both signs."""
    push = 25 * observation[1] + 0.2 * rng.standard_normal()
    return np.array([np.clip(push, -1, 1)], dtype=np.float32)


@dataclass(frozen=True)
class Script:
    """An environment and its behaviour policy."""

    env_id: str
    policy: Callable[[np.ndarray, np.random.Generator], Any]


SCRIPTS = {
    "pendulum": Script("Pendulum-v1", swing_up),
    "cartpole": Script("CartPole-v1", balance),
    "mountain-car": Script("MountainCarContinuous-v0", rock),
}


def make_data(name: str, seed: int, episodes: int = EPISODES) -> Trajectories:
    """Episodes of a script; all of them follow from `seed`."""
    script, rng = SCRIPTS[name], np.random.default_rng(seed)
    env = gymnasium.make(script.env_id)
    observations, actions, rewards, lengths, terminated = [], [], [], [], []
    for episode in range(episodes):
        observation, _ = env.reset(seed=1_000_000 * seed + episode)
        length, ended, truncated = 0, False, False
        while not (ended or truncated):
            action = script.policy(observation, rng)
            observations.append(observation)
            actions.append(action)
            observation, reward, ended, truncated, _ = env.step(action)
            rewards.append(reward)
            length += 1
        lengths.append(length)
        terminated.append(ended)
    env.close()
    return Trajectories.from_steps(
        np.stack(observations).astype(np.float32),
        np.stack(actions),
        np.array(rewards, dtype=np.float32),
        lengths=lengths,
        terminated=terminated,
        truncated=[not ended for ended in terminated],
        info={"env_id": script.env_id},
    )


def settings(name: str, method: Method, seed: int, updates: int, eval_episodes: int) -> TrainConfig:
    """One run: preset quick with hidden 64, offline."""
    base = PRESETS["quick"].for_method(method)
    return replace(
        base,
        task=f"imported/{name}-{seed}",
        data_steps=None,
        seed=seed,
        model=replace(base.model, hidden=64),
        pretrain_iterations=4,
        updates_per_pretrain_iteration=updates // 4,
        pretrain_eval_every=4,
        online_iterations=0,
        eval_episodes=eval_episodes,
        env_workers=0,
        device="cpu",
    )


def with_model(**changes: Any) -> Callable[[TrainConfig], TrainConfig]:
    """The same run with another network."""
    return lambda config: replace(config, model=replace(config.model, **changes))


PARTS: dict[str, Callable[[TrainConfig], TrainConfig]] = {
    "as it is": lambda config: config,
    "ODT's likelihood (squashed)": with_model(likelihood="squashed"),
    "dropout 0.1": with_model(dropout=0.1),
    "a timestep embedding": with_model(timestep_embedding=True),
    "LAMB instead of AdamW": lambda config: replace(config, optimizer="lamb"),
}
"""odt on the pendulum with one part of the default changed."""


def run(
    name: str, method: Method, seed: int, updates: int, eval_episodes: int, part: str = "as it is"
) -> dict[str, Any]:
    """Train, and return the results. The data stay in the cache; the run is deleted."""
    import torch

    torch.set_num_threads(1)
    config = PARTS[part](settings(name, method, seed, updates, eval_episodes))
    with tempfile.TemporaryDirectory() as folder:
        run_folder = RunFolder(Path(folder) / "run")
        run_folder.path.mkdir()
        run_folder.write_config(config, sys.argv)
        Trainer(config, run_folder).run()
        summary, lines = run_folder.read_summary(), run_folder.read_metrics()
    return {
        "task": name,
        "method": method,
        "part": part,
        "seed": seed,
        "return": summary["last_return"],
        "nll": lines[-1].get("training/nll", lines[-1].get("training/squared_error")),
        "target_return": lines[-1]["evaluation/target_return"],
        "data_return": summary["data"]["return_mean"],
    }


def table(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of task × method: mean return, and the difference from bc, paired by data seed."""
    rows = []
    for task in dict.fromkeys(run["task"] for run in runs):
        by_method = {
            method: {run["seed"]: run["return"] for run in runs if (run["task"], run["method"]) == (task, method)}
            for method in dict.fromkeys(run["method"] for run in runs if run["task"] == task)
        }
        data = {run["seed"]: run["data_return"] for run in runs if run["task"] == task}
        for method, found in {"the data": data, **by_method}.items():
            returns = list(found.values())
            row = {"task": task, "method": method, "seeds": len(returns), **_bounds(mean_interval(returns))}
            baseline = by_method.get("bc", {})
            shared = [seed for seed in found if seed in baseline]
            if method not in ("bc", "the data") and shared:
                ours, theirs = ([values[seed] for seed in shared] for values in (found, baseline))
                row["against bc"] = _bounds(difference_interval(ours, theirs))
            rows.append(row)
    return rows


def _bounds(found: Interval) -> dict[str, float]:
    """A mean and, with enough seeds for one, its interval."""
    return {"mean": found.estimate} | ({"low": found.low, "high": found.high} if found.is_known else {})


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a table."""
    lines = ["| task | policy | mean return [95%] | compared with bc [95%] |", "|---|---|---:|---:|"]
    for row in rows:
        apart = written(_interval(row["against bc"]), 1, signed=True) if "against bc" in row else ""
        lines.append(f"| {row['task']} | {row['method']} | {written(_interval(row), 1)} | {apart} |")
    return "\n".join(lines)


def _interval(row: dict[str, Any]) -> Interval:
    return Interval(row["mean"], row.get("low", -math.inf), row.get("high", math.inf))


def parts_table(runs: Sequence[dict[str, Any]]) -> str:
    """The returns of each part, by data seed."""
    lines = ["| odt on the pendulum | mean return | by data seed |", "|---|---:|---|"]
    for part in dict.fromkeys(run["part"] for run in runs):
        found = [run["return"] for run in runs if run["part"] == part]
        lines.append(f"| {part} | {np.mean(found):.0f} | {', '.join(f'{value:.0f}' for value in found)} |")
    return "\n".join(lines).replace("| -", "| −").replace(" -", " −")


def main() -> None:
    """Make the data, run, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(SCRIPTS), choices=list(SCRIPTS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=10, help="data seeds, from 0 on")
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--eval-episodes", type=int, default=50)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--parts", action="store_true", help="odt on the pendulum, one part of the default changed")
    parser.add_argument("--out", type=Path, help="a folder for runs.json and README.md")
    chosen = parser.parse_args()
    for name in ["pendulum"] if chosen.parts else chosen.tasks:
        for seed in range(chosen.seeds):
            make_data(name, seed).save(imported_path(f"{name}-{seed}"))
    seeds, sizes = range(chosen.seeds), (chosen.updates, chosen.eval_episodes)
    jobs = [
        (name, method, seed, *sizes, "as it is") for name in chosen.tasks for seed in seeds for method in chosen.methods
    ]
    if chosen.parts:
        jobs = [("pendulum", "odt", seed, *sizes, part) for part in PARTS for seed in seeds]
    runs: list[dict[str, Any]] = []
    with ProcessPoolExecutor(chosen.workers) as pool:
        futures = [pool.submit(run, *job) for job in jobs]
        for future in futures:
            runs.append(future.result())
            print(json.dumps(runs[-1]), flush=True)
            if chosen.out is not None:
                chosen.out.mkdir(parents=True, exist_ok=True)
                facts = {"command": sys.argv, "config": asdict(settings("NAME", "odt", 0, chosen.updates, 50))}
                (chosen.out / "runs.json").write_text(json.dumps({**facts, **surroundings(), "runs": runs}, indent=1))
    print(parts_table(runs) if chosen.parts else markdown(table(runs)))


if __name__ == "__main__":
    main()
