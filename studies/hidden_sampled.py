"""Evaluate the policies of a study once more, with sampled actions: FOLDER/sampled.json, by method and seed.

    python studies/hidden_sampled.py FOLDER [--episodes 300] [--device cuda] [--workers 2]

A run evaluates with the mean action. For a policy that does not know which of 27 cells pays, that is the middle of them
all; a sampled action tries one.
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
from mental_accounts.report.study_files import read_study_folder


def evaluate(path: Path, seed: int, episodes: int, device: str) -> float:
    """The mean return of a run's policy."""
    result, _ = evaluate_policy(read_subject(path, None, None, device), episodes, seed, sample=True)
    return float(result["return_mean"])


def main() -> None:
    """Evaluate every policy of a study."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--episodes", type=int, default=300)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--workers", type=int, default=1)
    asked = arguments.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the workers
    planned = [(run.entry["method"], run.entry["seed"], run.folder) for run in read_study_folder(asked.folder).runs]
    runs = [
        (method, seed, place) for method, seed, place in planned if place is not None and (place / "policy").exists()
    ]
    found: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor(asked.workers, multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(evaluate, place, seed, asked.episodes, asked.device) for _, seed, place in runs]
        for (method, seed, _), answer in zip(runs, waiting, strict=True):
            found.setdefault(method, {})[str(seed)] = answer.result()
            print(method, seed, round(answer.result(), 2), flush=True)
            record = {"command": sys.argv, **surroundings(), "episodes": asked.episodes, "returns": found}
            (asked.folder / "sampled.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
