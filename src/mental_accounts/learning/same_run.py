"""Checks that a resumed run is the one in its folder; and the summary of a finished run."""

from typing import Any

import torch

from mental_accounts.config import TrainConfig
from mental_accounts.errors import UsageError
from mental_accounts.learning.preparation import Preparation
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_progress import Progress
from mental_accounts.machine import own_memory
from mental_accounts.policy import DecisionTransformer
from mental_accounts.policy.policy_files import read_policy_config
from mental_accounts.policy_options import PolicyConfig


def record_task(folder: RunFolder, prepared: Preparation) -> None:
    """Record the task of a run; refuse data, or a task, other than those the run began with."""
    names = ("target_return", "exploration_return", "random_return", "expert_return")
    task = prepared.task
    facts: dict[str, Any] = {name: None if task is None else getattr(task, name) for name in names}
    facts |= {"env_id": prepared.env_id, "data": prepared.fingerprint()}
    if folder.has_begun and folder.read_task() != facts:
        raise UsageError(
            f"the data or the task of {folder.path} are not those that the run began with (version 0.1 chose other "
            "target returns for tasks without published ones); restore them, or start another run"
        )
    folder.write_task(facts)


def check_policy(folder: RunFolder, config: PolicyConfig) -> None:
    """Refuse to continue with a network other than the run's original one: settings derived from data may change."""
    path = folder.path / "policy"
    if not path.is_dir():
        return
    began, now = read_policy_config(path).to_dict(), config.to_dict()
    changed = [name for name, value in now.items() if began[name] != value]
    if changed:
        raise UsageError(
            f"{folder.path} began with another policy ({changed[0]}: {began[changed[0]]}, now "
            f"{now[changed[0]]}), perhaps by another version of this package; start another run"
        )


def summary_of(
    folder: RunFolder, config: TrainConfig, prepared: Preparation, progress: Progress, policy: DecisionTransformer
) -> dict[str, Any]:
    """The contents of summary.json."""
    evaluated = folder.last_evaluation()
    last, sampled = (evaluated.get(f"evaluation/return_mean_{how}") for how in ("gm", "sampled"))
    return {
        "task": config.task,
        "env_id": prepared.env_id,
        "method": config.method,
        "seed": config.seed,
        "iterations": progress.made,
        "updates": progress.updates,
        "env_steps": progress.env_steps,
        "seconds": progress.seconds,
        "parameters": sum(value.numel() for value in policy.parameters()),
        "steps_read": progress.updates * config.batch_size * steps_of_a_window(prepared),
        "memory": own_memory(),
        "gpu_memory": torch.cuda.max_memory_allocated(policy.device) if policy.device.type == "cuda" else None,
        "last_return": last,
        "sampled_return": sampled,
        "best_return": progress.best_return,
        "best_iteration": progress.best_iteration,
        "normalised_score": evaluated.get("evaluation/normalised_score"),
        "data": prepared.data.statistics().summary(),
        "warning": prepared.warning_about(last, sampled),
    }


def steps_of_a_window(prepared: Preparation) -> int:
    """The most steps that a window has in pretraining."""
    policy = prepared.policy
    if not policy.learns_episodes:
        return policy.context_length
    longest = int(prepared.data.lengths.max())
    return min(policy.episode_length if policy.is_recurrent else policy.context_length, longest)
