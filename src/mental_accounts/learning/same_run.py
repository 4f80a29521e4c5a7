"""What a run began with, and how it ended: a resumed run must be the one that its folder holds."""

from typing import Any

from mental_accounts.config import PolicyConfig, TrainConfig
from mental_accounts.errors import UsageError
from mental_accounts.learning.preparation import Preparation
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_progress import Progress
from mental_accounts.policy.policy_files import read_policy_config


def record_task(folder: RunFolder, prepared: Preparation) -> None:
    """Write down what the task came to; other data, or another task, than the run began with are refused."""
    names = ("target_return", "exploration_return", "random_return", "expert_return")
    task = prepared.task
    facts: dict[str, Any] = {name: None if task is None else getattr(task, name) for name in names}
    facts |= {"env_id": prepared.env_id, "data": prepared.fingerprint()}
    if folder.has_begun and folder.read_task() != facts:
        raise UsageError(
            f"the data or the task of {folder.path} are not those that the run began with (version 0.1 asked "
            "for other returns where no table says which); bring them back, or start another run"
        )
    folder.write_task(facts)


def check_policy(folder: RunFolder, config: PolicyConfig) -> None:
    """Refuse to go on with another network than the run began with: what follows from data may come out anew."""
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


def summary_of(folder: RunFolder, config: TrainConfig, prepared: Preparation, progress: Progress) -> dict[str, Any]:
    """What summary.json says."""
    evaluated = folder.last_evaluation()
    last = evaluated.get("evaluation/return_mean_gm")
    return {
        "task": config.task,
        "env_id": prepared.env_id,
        "method": config.method,
        "seed": config.seed,
        "iterations": progress.iteration,
        "updates": progress.updates,
        "env_steps": progress.env_steps,
        "seconds": progress.seconds,
        "last_return": last,
        "best_return": progress.best_return,
        "best_iteration": progress.best_iteration,
        "normalised_score": evaluated.get("evaluation/normalised_score"),
        "data": prepared.data.statistics().summary(),
        "warning": prepared.warning_about(last),
    }
