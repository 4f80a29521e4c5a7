"""Finished studies, written by hand: folders as `compare` leaves them."""

import json
from collections.abc import Callable
from pathlib import Path

from mental_accounts.config import TrainConfig
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.policy_options import WITH_ACCOUNTS
from mental_accounts.report.runs import SAMPLED, SEVEN
from mental_accounts.study.plan import Arm, Study

Value = Callable[[str, str, int, str, int], float]
"""task, method, seed, metric, iteration -> value"""


def write_study(
    folder: Path,
    value: Value,
    *,
    tasks: tuple[str, ...] = ("hopper-medium",),
    methods: tuple[str, ...] = ("odt", "ewa-vq-odt"),
    seeds: int = 5,
    iterations: int = 4,
    data_per_seed: bool = False,
    pretraining: int = 0,
    sampled: bool = False,
) -> Study:
    base = TrainConfig(pretrain_iterations=0, online_iterations=iterations, eval_every=1)
    study = Study(folder, tasks, tuple(map(Arm.parse, methods)), tuple(range(seeds)), base, "test", data_per_seed)
    study.write(["mental-accounts", "compare", "--task", *tasks])
    for job in study.jobs:
        run = RunFolder(job.path)
        lines = []
        for n in range(iterations):
            line = {"iteration": n + 1, "updates": 10 * (n + 1)}
            line |= {"phase": "online", "env_steps": 100 * (n + 1 - pretraining)}
            line |= {"phase": "pretrain", "env_steps": 0} if n < pretraining else {}
            line |= {name: value(job.task, job.arm.label, job.seed, name, n) for name in SEVEN}
            line |= {"time/training": 2.0}
            if job.arm.method == "ewa-vq-odt":
                line |= {"accounts/drift_mean": 0.01, "accounts/drift_max": 0.02, "accounts/drift_bound": 0.03}
            if job.arm.method in WITH_ACCOUNTS:
                line |= {"accounts/codes_used": 9}
            if job.config.improve == "td3":
                line |= {"values/policy_mean": 12.5, "values/td_error": 0.25 + job.seed, "values/gradient_share": 0.4}
                line |= {"values/overestimation": -1.5} if n else {}  # not while pretraining
            lines.append(line)
        lines[-1] |= {SAMPLED: value(job.task, job.arm.label, job.seed, SAMPLED, 0)} if sampled else {}
        (job.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        last = lines[-1]["evaluation/return_mean_gm"]
        run.write_summary(
            {"iterations": iterations, "last_return": last, "best_return": last, "normalised_score": last / 30,
             "seconds": 12.0, "data": {"return_mean": 1000.0}}
        )  # fmt: skip
    return study
