"""The cost of each form: an update and a step, at the sizes of a study, with all forms interleaved.

python studies/hidden_cost.py hidden-arm --device cuda --json FILE      # the forms of results/hidden
python studies/hidden_cost.py q1 --json results/evidence/q1-cost.json   # those of a question of the protocol
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

import questions
from hidden_forms import BROKEN, BROKEN_OPTIONS, MAIN, OBSERVED, OPTIONS, PAPERS, ROBOTS
from mental_accounts.config import TrainConfig
from mental_accounts.data.episode_windows import sampler_for
from mental_accounts.data.tasks import load_task
from mental_accounts.learning.capture import RepeatedUpdate
from mental_accounts.learning.preparation import prepare
from mental_accounts.learning.run_folder import surroundings
from mental_accounts.learning.update import Updater
from mental_accounts.policy import Actor, DecisionTransformer
from mental_accounts.presets import PRESETS
from mental_accounts.study.plan import Arm, parse_changes, with_changes

ENVIRONMENTS = 10
DATA_STEPS = 20_000
ROUND_SECONDS = 0.3
"""Approximate seconds of a form's updates, or steps, in one round."""


@dataclass(frozen=True)
class Setting:
    """The shared settings of a study's runs, and its forms."""

    task: str
    preset: TrainConfig
    changes: Mapping[str, Any]
    forms: Mapping[str, str]


def asked_by(question: str, name: str) -> Setting:
    """A study of the protocol, on the first of its tasks."""
    call, words = questions.STUDIES[question][name], questions.WORDS[question]
    forms = {method: words[method] for method in call.methods}
    return Setting(call.tasks[0], PRESETS[call.preset], parse_changes(call.changes), forms)


SETTINGS = {
    "hidden-arm": Setting("hidden-arm", PRESETS["hidden"], PAPERS, {**MAIN, **OPTIONS}),
    "broken-halfcheetah": Setting("broken-halfcheetah", PRESETS["hidden"], ROBOTS, {**BROKEN, **BROKEN_OPTIONS}),
    "hopper-medium": Setting("hopper-medium", PRESETS["converged"], {}, OBSERVED),
    "q1": asked_by("q1", "hidden"),
    "q4": asked_by("q4", "broken"),
}


def make(setting: Setting, label: str, device: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """A function that makes an update, and one that makes a step in all environments."""
    arm = Arm.parse(label)
    shared = {**setting.changes, "task": setting.task, "device": device, "data_steps": DATA_STEPS}
    config = with_changes(with_changes(setting.preset, shared).for_method(arm.method), arm.changes)
    prepared = prepare(config, Path("none"))
    policy = DecisionTransformer(prepared.policy)
    data = prepared.data
    policy.fit_normalisation(data.observations, data.actions, data.rewards, 0)
    policy.to(device)
    store = data.to(device)
    if policy.accounts is not None:
        store.annotate_by(policy.accounts.books, policy.action_scale.to_unit, balances=policy.config.reads_ledger)
    generator = torch.Generator(device).manual_seed(0)
    sampler = sampler_for(policy.config, store, config.batch_size, generator)
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
    """Time all forms of a study."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("study", nargs="?", default="hidden-arm", choices=SETTINGS)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--rounds", type=int, default=8)
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    setting = SETTINGS[asked.study]
    load_task(setting.task, DATA_STEPS)
    forms = setting.forms
    made = {label: make(setting, label, asked.device) for label in forms}
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
        record = {"command": sys.argv, **surroundings(), "task": setting.task, "device": asked.device, "forms": found}
        asked.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
