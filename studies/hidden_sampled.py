"""Evaluate the policies of a study once more, with sampled actions: FOLDER/sampled.json, by method and seed.

    python sampled.py FOLDER [--episodes 300] [--device cuda] [--workers 2]

A run evaluates with the mean action. Of a policy that does not know which of 27 cells pays, that is the middle of them
all; a sample tries something.
"""

import argparse
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from mental_accounts.learning.evaluation import evaluate_policy, read_subject
from mental_accounts.learning.run_folder import surroundings


def evaluate(path: Path, seed: int, episodes: int, device: str) -> float:
    """The mean return of a run's policy."""
    result, _ = evaluate_policy(read_subject(path, None, None, device), episodes, seed, sample=True)
    return float(result["return_mean"])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--episodes", type=int, default=300)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--workers", type=int, default=1)
    asked = arguments.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers
    runs = json.loads((asked.folder / "study.json").read_text())["runs"]
    runs = [run for run in runs if (asked.folder / run["path"] / "policy").exists()]
    found: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor(asked.workers, multiprocessing.get_context("spawn")) as pool:
        waiting = [
            pool.submit(evaluate, asked.folder / run["path"], run["seed"], asked.episodes, asked.device) for run in runs
        ]
        for run, answer in zip(runs, waiting, strict=True):
            found.setdefault(run["method"], {})[str(run["seed"])] = answer.result()
            print(run["method"], run["seed"], round(answer.result(), 2), flush=True)
            record = {"command": sys.argv, **surroundings(), "episodes": asked.episodes, "returns": found}
            (asked.folder / "sampled.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
