"""Playing episodes with a trained policy."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mental_accounts.data.asked import is_far_outside
from mental_accounts.errors import UsageError
from mental_accounts.learning.episodes import Episode
from mental_accounts.learning.evaluation import Subject, evaluate_policy, read_subject, subject_of
from mental_accounts.learning.events import Message
from mental_accounts.learning.footprint import check_episodes
from mental_accounts.learning.make_env import EnvironmentLike, EnvironmentSource, environment_source
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_view import View, view_for
from mental_accounts.policy import DecisionTransformer
from mental_accounts.return_text import return_text
from mental_accounts.zoo import folder_of

if TYPE_CHECKING:
    from mental_accounts.front_door.run import Run


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    env_id: str
    """The environment's name."""
    target_return: float
    """The target return."""
    returns: tuple[float, ...]  # (episodes,)
    return_mean: float
    return_std: float
    length_mean: float
    length_std: float
    normalised_score: float | None = None
    """None unless the returns of a random policy and of an expert are known."""

    def __repr__(self) -> str:
        """What a person wants to know, without the return of every episode."""
        score = "" if self.normalised_score is None else f", normalised score {self.normalised_score:.1f}"
        return (
            f"Evaluation({self.env_id}: return {return_text(self.return_mean)} ± {return_text(self.return_std)} "
            f"over {len(self.returns)} episodes, length {self.length_mean:.1f}{score})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, as `mental-accounts evaluate --json` prints them."""
        names = ("return_mean", "return_std", "length_mean", "length_std")
        found = {name: getattr(self, name) for name in names}
        found |= {"returns": list(self.returns), "target_return": self.target_return}
        return found | ({} if self.normalised_score is None else {"normalised_score": self.normalised_score})


def evaluate(
    subject: "Run | DecisionTransformer | str | Path",
    *,
    env: EnvironmentLike | None = None,
    episodes: int = 10,
    target_return: float | None = None,
    seed: int = 0,
    sample: bool = False,
    device: str = "auto",
    progress: bool | None = None,
) -> Evaluation:
    """Play episodes in parallel with the mean action, or with sampled ones.

    `subject` is a run, its folder, the folder of a saved policy, or a policy. A policy needs `env` and `target_return`;
    a run knows them. Everything random follows from `seed`.
    """
    source = None if env is None else environment_source(env)
    if isinstance(subject, DecisionTransformer):
        if source is None or target_return is None:
            missing = "env=" if source is None else "target_return="
            raise UsageError(f"a policy does not know its environment or its target return: give {missing} too")
        asked = subject_of(subject, source, target_return)
        return play_asked(asked, episodes, seed, sample=sample, view=view_for(progress))[0]
    if not isinstance(subject, (str, Path)):  # a run
        source, subject = source or subject._env, subject.folder
    return evaluate_folder(
        Path(subject), source, episodes, target_return, seed, sample=sample, device=device, progress=progress
    )


def evaluate_folder(
    folder: Path,
    env: EnvironmentSource | None,
    episodes: int,
    target_return: float | None,
    seed: int,
    *,
    sample: bool,
    device: str,
    progress: bool | None,
) -> Evaluation:
    """As `evaluate`, for the folder of a run or of a saved policy."""
    subject = read_subject(folder, None, target_return, device, env=env)
    view = view_for(progress)
    for message in target_warnings(target_return, folder):
        view(message)
    return play_asked(subject, episodes, seed, sample=sample, view=view)[0]


def play_asked(subject: Subject, episodes: int, seed: int, *, sample: bool, view: View) -> tuple[Evaluation, Episode]:
    """The results of some episodes, and the first of them."""
    check_episodes(subject.policy.config, episodes, "--episodes")
    found, first = evaluate_policy(subject, episodes, seed, sample=sample, view=view)
    return Evaluation(subject.env_id, returns=tuple(found.pop("returns")), **found), first


def target_warnings(target_return: float | None, path: Path) -> list[Message]:
    """A warning if the target return is far outside the returns of the run's data."""
    folder = RunFolder(folder_of(path))
    if target_return is None or not (math.isfinite(target_return) and folder.is_run and folder.is_finished):
        return []
    data = folder.read_summary()["data"]
    if not is_far_outside(target_return, torch.tensor([data["return_min"], data["return_max"]])):
        return []
    known = f"{data['return_min']:.4g} to {data['return_max']:.4g}"
    return [Message("warning", f"the target return {target_return:g} is far outside the data's returns: {known}")]
