"""How wide should a policy sample? Returns of a study's policies with their σ times 0 (the mean action) to 1.

    python studies/hidden_spread.py FOLDER [--task hidden-arm] [--episodes 100] [--json FILE]

Box actions only. Beside the returns stands the mean σ that each policy gives while it plays its mean action.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mental_accounts.learning.evaluation import play_subject, read_subject
from mental_accounts.learning.run_folder import surroundings
from mental_accounts.policy import Actor, ClippedGaussian, SquashedGaussian
from mental_accounts.report.study_files import read_study_folder

SCALES = (0.0, 0.25, 0.5, 0.75, 1.0)


class NarrowActor(Actor):
    """Samples with σ times a factor, and remembers the policy's own."""

    captures = False

    def __init__(self, *given: Any, scale: float, stds: list[float], **named: Any) -> None:
        super().__init__(*given, **named)
        self.scale, self.stds = scale, stds

    def act_eagerly(self, observations: np.ndarray, action_masks: np.ndarray | None = None) -> np.ndarray:
        """As any actor's, from a narrower distribution."""
        with torch.no_grad(), self.in_precision():
            found = self.policy.act_distribution(observations, self.context, action_masks)
            assert isinstance(found, (SquashedGaussian, ClippedGaussian))
            self.stds.append(float(found.log_std.exp().mean()))
            narrow = replace(found, log_std=found.log_std + math.log(self.scale)) if self.scale else found
            chosen = narrow.sample(self.generator) if self.scale else found.mode()
            actions: np.ndarray = self.context.choose(chosen[:, -1]).cpu().numpy()
        return actions


def measure(path: Path, episodes: int, seed: int) -> dict[str, Any]:
    """The mean return of a run's policy by the factor of its σ, and its mean σ."""
    subject, stds = read_subject(path, None, None, "cpu"), {scale: list[float]() for scale in SCALES}
    returns = {}
    for scale in SCALES:
        kind: Any = partial(NarrowActor, scale=scale, stds=stds[scale])
        played = play_subject(subject, episodes, seed, sample=scale > 0, actor_kind=kind)
        returns[str(scale)] = float(np.mean([episode.total for episode in played]))
    return {"returns": returns, "std": float(np.mean(stds[SCALES[0]]))}


def table(policies: Mapping[str, Mapping[str, Mapping[str, Any]]], words: Mapping[str, str]) -> str:
    """Means over seeds, by method; some methods have words of their own."""
    lines = [f"| method | seeds | mean σ | {' | '.join(f'σ × {scale:g}' for scale in SCALES)} |"]
    lines.append("|---|---:|---:|" + "---:|" * len(SCALES))
    for method, by_seed in policies.items():
        stds = [found["std"] for found in by_seed.values()]
        means = [np.mean([found["returns"][str(scale)] for found in by_seed.values()]) for scale in SCALES]
        cells = [
            words.get(method, f"`{method}`"),
            str(len(by_seed)),
            f"{np.mean(stds):.2f}",
            *(f"{mean:.1f}" for mean in means),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Play every policy of a study on a task."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--task", default="hidden-arm")
    arguments.add_argument("--episodes", type=int, default=100)
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, Any]] = {}
    for run in read_study_folder(asked.folder).runs:
        method, seed, place = run.entry["method"], run.entry["seed"], run.folder
        if run.entry["task"] == asked.task and place is not None and (place / "policy").exists():
            found.setdefault(method, {})[str(seed)] = measure(place, asked.episodes, seed)
            print(method, seed, found[method][str(seed)], file=sys.stderr, flush=True)
    print(table(found, {}))
    if asked.json is not None:
        record = {"command": sys.argv, **surroundings(), "task": asked.task, "episodes": asked.episodes}
        asked.json.write_text(json.dumps(record | {"policies": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
