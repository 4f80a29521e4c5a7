"""The cost of each form: an update and a step, at the sizes of a task's study, with all forms interleaved.

python studies/hidden_cost.py [hidden-arm | broken-halfcheetah | hopper-medium] [--device cuda] [--json FILE]
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hidden_forms import BROKEN, BROKEN_OPTIONS, MAIN, OBSERVED, OPTIONS, PAPERS, ROBOTS
from mental_accounts.config import TrainConfig
from mental_accounts.data.tasks import load_task
from mental_accounts.data.windows import WindowSampler
from mental_accounts.learning.capture import RepeatedUpdate
from mental_accounts.learning.preparation import prepare
from mental_accounts.learning.run_folder import surroundings
from mental_accounts.learning.update import Updater
from mental_accounts.policy import Actor, DecisionTransformer
from mental_accounts.presets import PRESETS
from mental_accounts.study.plan import Arm, with_changes

ENVIRONMENTS = 10
DATA_STEPS = 20_000
ROUND_SECONDS = 0.3
"""Approximate seconds of a form's updates, or steps, in one round."""


@dataclass(frozen=True)
class Setting:
    """The shared settings of a task's runs, and its forms."""

    preset: TrainConfig
    changes: Mapping[str, Any]
    forms: Mapping[str, str]


SETTINGS = {
    "hidden-arm": Setting(PRESETS["hidden"], PAPERS, {**MAIN, **OPTIONS}),
    "broken-halfcheetah": Setting(PRESETS["hidden"], ROBOTS, {**BROKEN, **BROKEN_OPTIONS}),
    "hopper-medium": Setting(PRESETS["converged"], {}, OBSERVED),
}


def make(task: str, label: str, device: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """A function that makes an update, and one that makes a step in all environments."""
    arm, setting = Arm.parse(label), SETTINGS[task]
    changes: dict[str, Any] = {"task": task, "method": arm.method, "device": device, "data_steps": DATA_STEPS}
    config = with_changes(setting.preset, {**setting.changes, **arm.changes, **changes})
    prepared = prepare(config, Path("none"))
    policy = DecisionTransformer(prepared.policy)
    data = prepared.data
    policy.fit_normalisation(data.observations, data.actions, data.rewards, 0)
    policy.to(device)
    store = data.to(device)
    if policy.accounts is not None:
        store.annotate_by(policy.accounts.books, policy.action_scale.to_unit, balances=policy.config.reads_ledger)
    generator = torch.Generator(device).manual_seed(0)
    sampler = WindowSampler(
        store, config.batch_size, policy.config.context_length, generator, policy.config.accounts.account_scope
    )
    repeated = RepeatedUpdate(Updater(policy, config), sampler, print)
    actor = Actor(policy, ENVIRONMENTS, sample=False, precision=config.precision)
    actor.begin(40.0, 0)
    observations, rewards, ended = (
        np.zeros((ENVIRONMENTS, data.observations.shape[1]), np.float32),
        np.ones(ENVIRONMENTS, np.float32),
        np.zeros(ENVIRONMENTS, bool),
    )

    def step() -> None:
        actor.act(observations)
        actor.record(rewards, ended)

    for _ in range(5):
        repeated.step()
    for _ in range(policy.config.context_length):
        step()
    return repeated.step, step


def timed(function: Callable[[], object], times: int, device: str) -> float:
    """Milliseconds per call."""
    begun = time.perf_counter()
    for _ in range(times):
        function()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begun) / times


def main() -> None:
    """Time all forms of a task."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("task", nargs="?", default="hidden-arm", choices=SETTINGS)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--rounds", type=int, default=8)
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    load_task(asked.task, DATA_STEPS)
    forms = SETTINGS[asked.task].forms
    made = {label: make(asked.task, label, asked.device) for label in forms}
    usual = dict(zip(("update", "step"), made["odt"], strict=True))
    times = {what: math.ceil(1e3 * ROUND_SECONDS / timed(one, 3, asked.device)) for what, one in usual.items()}
    rounds: dict[str, dict[str, list[float]]] = {label: {"update": [], "step": []} for label in forms}
    for _ in range(asked.rounds):
        for label, (update, step) in made.items():
            rounds[label]["update"].append(timed(update, times["update"], asked.device))
            rounds[label]["step"].append(timed(step, times["step"], asked.device))
    found = {}
    for label, values in rounds.items():
        row: dict[str, Any] = {f"{what}_ms": statistics.median(values[what]) for what in values}
        for what in values:
            ratios = [one / other for one, other in zip(values[what], rounds["odt"][what], strict=True)]
            row |= {f"{what}_ratio": statistics.median(ratios), f"{what}_range": [min(ratios), max(ratios)]}
        found[label] = row
        print(f"{forms[label]:50} {row['update_ms']:7.2f} ms ×{row['update_ratio']:.3f}"
              f"   step {row['step_ms']:6.2f} ms ×{row['step_ratio']:.3f}")  # fmt: skip
    if asked.json is not None:
        record = {"command": sys.argv, **surroundings(), "task": asked.task, "device": asked.device, "forms": found}
        asked.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
