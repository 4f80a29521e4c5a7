"""Playing episodes with a trained policy: of a run folder, or a saved policy with the name of an environment."""

import importlib.util
import os
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mental_accounts.data.tasks import score_between
from mental_accounts.errors import UsageError
from mental_accounts.extras import how_to_install
from mental_accounts.learning.env_spaces import spaces_of
from mental_accounts.learning.episodes import Episode
from mental_accounts.learning.events import Message, StageBegan, StepDone
from mental_accounts.learning.make_env import EnvironmentSource, longest_episode
from mental_accounts.learning.parallel_envs import PACES, Environments
from mental_accounts.learning.rollout import play
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_view import SilentView, View
from mental_accounts.learning.seeds import derive
from mental_accounts.learning.stepping import Environment
from mental_accounts.machine import use_device
from mental_accounts.policy import Actor, DecisionTransformer
from mental_accounts.policy.policy_files import read_policy_config
from mental_accounts.policy.run_policy import policy_folder
from mental_accounts.zoo import folder_of

FRAMES_PER_SECOND = 30
VIDEO_WRITERS = {".gif": ("imageio",), ".mp4": ("imageio", "imageio_ffmpeg")}
"""The libraries that write a video of a kind."""


@dataclass(frozen=True)
class Subject:
    """A policy with its environment and target return."""

    policy: DecisionTransformer
    env_id: str
    target_return: float
    scale: tuple[float, float] | None
    """The returns of a random policy and of an expert, if known."""
    env: EnvironmentSource | None = None
    """How to make the environment, if its id is not enough."""

    def make_env(self, **kwargs: Any) -> Environment:
        """One environment."""
        return (self.env or EnvironmentSource(self.env_id))(**kwargs)


def read_subject(
    path: Path,
    env_id: str | None,
    target_return: float | None,
    device: str = "auto",
    *,
    env: EnvironmentSource | None = None,
) -> Subject:
    """A run folder has everything; a saved policy on its own needs an environment and a target return.

    `env` makes the environment, if an id is not enough.
    """
    folder, saved, scale = RunFolder(folder_of(path)), policy_folder(path), None
    if folder.is_run:
        facts = folder.read_task()
        env_id = env_id or facts["env_id"]
        target_return = folder.target_return() if target_return is None else target_return
        if facts["expert_return"] is not None:
            scale = facts["random_return"], facts["expert_return"]
    if env_id is None and env is None:
        raise UsageError(f"{path} does not say which environment the policy is for; give --env-id (in Python: env=)")
    if target_return is None:
        raise UsageError(
            f"{path} does not say which return to target; give --target-return (in Python: target_return=)"
        )
    source = env or EnvironmentSource(str(env_id))
    if read_policy_config(saved).encoder is not None:
        source().close()  # its module may register the encoder
    policy = DecisionTransformer.load(saved, use_device(device))
    return subject_of(policy, source, target_return, scale)


def subject_of(
    policy: DecisionTransformer,
    env: EnvironmentSource,
    target_return: float,
    scale: tuple[float, float] | None = None,
) -> Subject:
    """A policy with its environment; refused if they do not fit."""
    example = env()
    spaces, known = spaces_of(example), policy.config
    example.close()
    if (known.state_dim, known.action) != (spaces.state_dim, spaces.action):
        raise UsageError(
            f"the policy does not fit {env.name}: it has observations of size {known.state_dim} and {known.action}, "
            f"the environment has {spaces.state_dim} and {spaces.action}"
        )
    return Subject(policy, env.name, target_return, scale, env)


def play_subject(
    subject: Subject,
    episodes: int,
    seed: int = 0,
    *,
    sample: bool = False,
    view: View | None = None,
    actor_kind: type[Actor] = Actor,
) -> list[Episode]:
    """Whole episodes, played in parallel. Everything random follows from `seed`."""
    if episodes < 1:
        raise UsageError(f"episodes must be at least 1, got {episodes}")
    pace = PACES[subject.policy.device.type]
    with view or SilentView() as shown:

        def warn(text: str) -> None:
            shown(Message("warning", text))

        told = {"foregone": subject.policy.config.enters_foregone, "masks": subject.policy.config.action_masks}
        with closing(Environments(subject.make_env, episodes, None, warn, pace, **told)) as environments:
            actor = actor_kind(subject.policy, episodes, sample=sample, say=warn)
            shown(StageBegan("playing", longest_episode(next(iter(environments.envs.values())))))
            return play(
                actor,
                environments,
                subject.target_return,
                derive(seed, "evaluate"),
                on_step=(lambda: shown(StepDone())) if shown.follows_steps else lambda: None,
            )


def environment_seed(seed: int, place: int) -> int:
    """The seed with which `play_subject` resets the environment of episode number `place`."""
    return derive(derive(seed, "evaluate"), "environment", place)


def evaluate_policy(
    subject: Subject, episodes: int, seed: int = 0, *, sample: bool = False, view: View | None = None
) -> tuple[dict[str, Any], Episode]:
    """Returns and lengths of some episodes, and the first of them."""
    played = play_subject(subject, episodes, seed, sample=sample, view=view)
    returns, lengths = np.array([episode.total for episode in played]), np.array([len(episode) for episode in played])
    result: dict[str, Any] = {
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "length_mean": float(lengths.mean()),
        "length_std": float(lengths.std()),
        "returns": returns.tolist(),
        "target_return": subject.target_return,
    }
    if subject.scale is not None:
        result["normalised_score"] = score_between(float(returns.mean()), *subject.scale)
    return result, played[0]


def check_video(path: Path) -> None:
    """Raise before anything is played if the video cannot be made."""
    if path.suffix not in VIDEO_WRITERS:
        raise UsageError(f"the video must be an .mp4 or a .gif file, got {path}")
    missing = [name for name in VIDEO_WRITERS[path.suffix] if importlib.util.find_spec(name) is None]
    if missing:
        other = "; a .gif needs less" if path.suffix == ".mp4" and "imageio" not in missing else ""
        needed = " and ".join(name.replace("_", "-") for name in missing)
        raise UsageError(f"an {path.suffix} video needs {needed}: {how_to_install('video')}{other}")
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # read when MuJoCo is first imported: rendering without a screen


def film(subject: Subject, episode: Episode, seed: int, path: Path) -> None:
    """Replay the actions of `evaluate_policy`'s first episode, and render them."""
    import imageio.v3 as imageio  # comes with the mujoco extra

    env = subject.make_env(render_mode="rgb_array")
    try:
        env.reset(seed=environment_seed(seed, 0))
        frames = [env.render()]
        for action in episode.actions:
            env.step(action)
            frames.append(env.render())
    except Exception as error:
        raise UsageError(f"{subject.env_id} cannot be rendered here: {error!r}") from error
    finally:
        env.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures = [np.asarray(frame) for frame in frames]
    if path.suffix == ".gif":
        imageio.imwrite(path, pictures, duration=1000 / FRAMES_PER_SECOND, loop=0)
        return
    even = [picture[: len(picture) // 2 * 2, : picture.shape[1] // 2 * 2] for picture in pictures]  # as H.264 needs
    imageio.imwrite(path, even, plugin="FFMPEG", fps=FRAMES_PER_SECOND, macro_block_size=2)
