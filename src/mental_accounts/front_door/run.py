"""A run in Python: the contents of its folder, and what can be done with it."""

from pathlib import Path
from typing import Any

from mental_accounts.config import TrainConfig
from mental_accounts.errors import UsageError
from mental_accounts.files import runs_within
from mental_accounts.front_door.evaluate import Evaluation, evaluate_folder
from mental_accounts.learning.make_env import EnvironmentLike, EnvironmentSource, environment_source
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.policy import DecisionTransformer
from mental_accounts.zoo import folder_of


class Run:
    """A run on disk, finished or not; everything is read from its folder on demand.

    `env` is the environment, if it has no name that the folder could record.
    """

    def __init__(self, folder: str | Path, env: EnvironmentLike | EnvironmentSource | None = None) -> None:
        self.folder = folder_of(folder)
        """The folder of the run."""
        self._files = RunFolder(self.folder)
        if not self._files.is_run:
            there = runs_within(self.folder)
            raise UsageError(
                f"{folder} is not a run, but {there}" if there else f"{folder} holds no run: config.json is missing"
            )
        self._env = env if isinstance(env, EnvironmentSource) or env is None else environment_source(env)
        self._policy: DecisionTransformer | None = None

    def __repr__(self) -> str:
        state = "finished" if self.is_finished else "not finished"
        return f"Run({str(self.folder)!r}, {state}, {len(self.metrics)} iterations)"

    @property
    def config(self) -> TrainConfig:
        """The configuration of the run."""
        return self._files.read_config()

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete; if not, `ma.resume(run)` continues it."""
        return self._files.is_finished

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One row per iteration; docs/metrics.md defines every number."""
        return self._files.read_metrics()

    @property
    def returns(self) -> list[float]:
        """The mean return of every evaluation so far."""
        name = "evaluation/return_mean_gm"
        return [row[name] for row in self.metrics if name in row]

    @property
    def summary(self) -> dict[str, Any] | None:
        """The last and the best return, and more; None before the run is finished."""
        return self._files.read_summary() if self.is_finished else None

    @property
    def policy(self) -> DecisionTransformer:
        """The policy of the last checkpoint, on the CPU; read once."""
        if self._policy is None:
            self._policy = DecisionTransformer.from_run(self.folder)
        return self._policy

    def evaluate(
        self,
        *,
        episodes: int = 10,
        target_return: float | None = None,
        seed: int = 0,
        sample: bool = False,
        device: str = "auto",
        progress: bool | None = None,
    ) -> Evaluation:
        """Play episodes with the policy; as `ma.evaluate`."""
        return evaluate_folder(
            self.folder, self._env, episodes, target_return, seed, sample=sample, device=device, progress=progress
        )
