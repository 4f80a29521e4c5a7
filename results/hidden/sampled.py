"""Evaluate the policies of a study once more, with sampled actions: FOLDER/sampled.json, by method and seed.

    python sampled.py FOLDER [--episodes 300] [--device cuda]

`compare` evaluates with the mean action. Of a policy that does not know which of 27 cells pays, that is the middle of
them all; a sample tries something.
"""

import argparse
import json
import sys
from pathlib import Path

from mental_accounts.learning.evaluation import evaluate_policy, read_subject
from mental_accounts.learning.run_folder import surroundings


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--episodes", type=int, default=300)
    arguments.add_argument("--device", default="cpu")
    asked = arguments.parse_args()
    found: dict[str, dict[str, float]] = {}
    for run in json.loads((asked.folder / "study.json").read_text())["runs"]:
        if not (asked.folder / run["path"] / "policy").exists():
            continue
        subject = read_subject(asked.folder / run["path"], None, None, asked.device)
        result, _ = evaluate_policy(subject, asked.episodes, run["seed"], sample=True)
        found.setdefault(run["method"], {})[str(run["seed"])] = result["return_mean"]
        print(run["method"], run["seed"], round(result["return_mean"], 2), flush=True)
        record = {"command": sys.argv, **surroundings(), "returns": found}
        (asked.folder / "sampled.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
