"""Online from scratch on two CPU cores: what preset `online` learns, and what a ledger adds where only memory helps.

    python studies/online_scratch.py runs/online --out results/online/runs.json     # what the file lacks; resumable
    python studies/online_scratch.py --report results/online/runs.json              # the table

Each run is `mental-accounts train --preset online` with the arguments recorded for it, in a process with one thread
(`--device cuda` for the recurrent policy, which takes hours on a CPU).
Its last policy is then played for more episodes than the run itself evaluates, with seeds of its own.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from interval_cells import written
from mental_accounts.learning.run_folder import surroundings
from mental_accounts.report.statistics import mean_interval
from six_arms import best_epsilon_greedy, epsilon_greedy

BANDIT = "six_arms:SixArms"
HIDDEN_ARM = "mental_accounts.environments:HiddenArm-v0"
RAW = ["--model.accounts.phi", "0.2", "--model.accounts.reward-transform", "raw"]
RAW += ["--model.accounts.reward-clip", "None"]
LEDGER = ["--method", "ledger-odt", "--model.accounts.ledger-channels", "mean", "count", *RAW]
BALANCES = ["--method", "ledger-odt", *RAW]
HIDDEN_ARM_RUN = ["--values.discount", "0", "--values.critic-hidden", "256"]
HIDDEN_ARM_RUN += ["--random-episodes", "40", "--online-iterations", "40", "--episodes-per-iteration", "8"]
HIDDEN_ARM_RUN += ["--updates-per-iteration", "300"]
WINDOWS, EPISODES = ["--batch-size", "128"], ["--batch-size", "16"]
"""Of an update on hidden-arm: windows of 5 steps, or whole episodes of 200."""
BANDIT_RUN = ["--episodes-per-iteration", "4", "--values.discount", "0.9"]
FORMS: dict[tuple[str, str], list[str]] = {
    ("CartPole-v1", "odt"): [],
    ("Pendulum-v1", "odt"): [],
    (BANDIT, "ledger-odt"): [*LEDGER, *BANDIT_RUN],
    (BANDIT, "odt"): BANDIT_RUN,
    (HIDDEN_ARM, "ledger-odt"): [*BALANCES, *HIDDEN_ARM_RUN, *WINDOWS],
    (HIDDEN_ARM, "gru"): ["--method", "gru", *HIDDEN_ARM_RUN, *EPISODES],
    (HIDDEN_ARM, "odt"): [*HIDDEN_ARM_RUN, *WINDOWS],
}
"""Environment and method -> arguments beside the preset's."""
FIRST_SEED = 1000
"""Smaller ones were used to choose the preset (PROTOCOL.md)."""
PLAYED = 200
"""Episodes that are played with each run's last policy."""
PLAYED_SEED, TUNING_SEEDS = 100_000, list(range(50_000, 50_200))


def train(folder: Path, device: str, env_id: str, method: str, seed: int) -> dict[str, Any]:
    """One run, or what it came to if it is there already."""
    run = folder / f"{env_id.rpartition(':')[2]}-{method}-{seed}"
    arguments = ["--preset", "online", "--env-id", env_id, *FORMS[env_id, method], "--seed", str(seed)]
    arguments += ["--env-workers", "0", "--device", device]
    verb = ["resume", str(run)] if (run / "config.json").exists() else ["train", *arguments, "--run", str(run)]
    program = [sys.executable, "-m", "mental_accounts"]
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    with (folder / f"{run.name}.log").open("a") as log:
        subprocess.run([*program, *verb], check=True, env=environ, stdout=log, stderr=log)
    played = [*program, "evaluate", str(run), "--episodes", str(PLAYED), "--seed", str(PLAYED_SEED), "--json"]
    found = json.loads(subprocess.run(played, check=True, env=environ, capture_output=True, text=True).stdout)
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = ("env_steps", "updates", "time/total", "evaluation/return_mean_gm", "values/overestimation")
    lines = [{name: line[name] for name in kept if name in line} for line in metrics]
    print(f"{run.name}: {np.mean(found['returns']):.1f}, {metrics[-1]['time/total']:.0f} s", flush=True)
    return {
        "env_id": env_id, "method": method, "seed": seed, "arguments": arguments, "metrics": lines,
        "returns": found["returns"], "made_by": surroundings(),
    }  # fmt: skip


def made_before(file: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """The runs of a file, by environment, method and seed."""
    runs = json.loads(file.read_text())["runs"] if file.exists() else []
    return {(run["env_id"], run["method"], run["seed"]): run for run in runs}


def table(runs: Sequence[dict[str, Any]], players: Sequence[dict[str, Any]]) -> str:
    """Environment × method: the mean return over seeds, the worst seed, steps and time; players that do not learn."""
    lines = ["| environment | who acts | seeds | mean return [95%] | worst seed | steps | minutes |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for env_id, method in dict.fromkeys((run["env_id"], run["method"]) for run in runs):
        chosen = [run for run in runs if (run["env_id"], run["method"]) == (env_id, method)]
        means = [float(np.mean(run["returns"])) for run in chosen]
        found, last = mean_interval(means), [run["metrics"][-1] for run in chosen]
        steps = np.mean([line["env_steps"] for line in last])
        minutes = np.mean([line["time/total"] for line in last]) / 60
        on_gpu = " (GPU)" if any("gpu" in run["made_by"]["hardware"] for run in chosen) else ""
        name = env_id.rpartition(":")[2]
        lines.append(
            f"| {name} | {method} | {len(chosen)} | {written(found, 1)} | "
            f"{min(means):.1f} | {steps:,.0f} | {minutes:.1f}{on_gpu} |"
        )
    for player in players:
        lines.append(f"| {player['env']} | {player['name']} | | {np.mean(player['returns']):.1f} | | | |")
    return "\n".join(lines)


def players() -> list[dict[str, Any]]:
    """What acting without learning earns on the bandit, on the seeds that policies are played with."""
    from mental_accounts.learning.evaluation import environment_seed

    seeds = [environment_seed(PLAYED_SEED, place) for place in range(PLAYED)]
    epsilon, rate = best_epsilon_greedy(TUNING_SEEDS)
    greedy, at_random = epsilon_greedy(seeds, epsilon, rate), epsilon_greedy(seeds, 1.0, rate)
    name = f"ε-greedy (ε = {epsilon:g}, rate {rate:g}: the best of 25 on other episodes)"
    return [
        {"env": "SixArms", "name": name, "returns": greedy.tolist()},
        {"env": "SixArms", "name": "random", "returns": at_random.tolist()},
    ]


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where the runs are")
    parser.add_argument("--out", type=Path, help="the file of all runs")
    parser.add_argument("--report", type=Path, help="print the table of this file")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="runs at a time")
    parser.add_argument("--only", default="", help="environments whose name contains this")
    parser.add_argument("--device", default="cpu", help="where runs learn")
    given = parser.parse_args()
    if given.report is None:
        if given.folder is None or given.out is None:
            parser.error("give a folder for the runs and --out, or --report")
        given.folder.mkdir(parents=True, exist_ok=True)
        jobs = [
            (*form, seed)
            for seed in range(FIRST_SEED, FIRST_SEED + given.seeds)
            for form in FORMS
            if given.only in form[0]
        ]
        known = made_before(given.out)
        with ThreadPoolExecutor(given.workers) as pool:
            made = pool.map(
                lambda job: train(given.folder, given.device, *job), [job for job in jobs if job not in known]
            )
        known |= {(run["env_id"], run["method"], run["seed"]): run for run in made}
        given.out.parent.mkdir(parents=True, exist_ok=True)
        beside = players() if any(job[0] == BANDIT for job in jobs) else []
        found = [known[job] for job in sorted(known)]
        given.out.write_text(json.dumps({"runs": found, "players": beside}) + "\n")
        given.report = given.out
    content = json.loads(given.report.read_text())
    print(table(content["runs"], content["players"]))


if __name__ == "__main__":
    main()
