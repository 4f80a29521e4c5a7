"""train, resume, evaluate."""

import json
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, get_args

import tyro

from mental_accounts.commands.program import command, value_of
from mental_accounts.config import TrainConfig
from mental_accounts.errors import BrokenEnvironmentError, InterruptedRunError, UsageError
from mental_accounts.learning.loggers import Tracker
from mental_accounts.learning.run_folder import RunFolder, read_config_file
from mental_accounts.policy_options import Method
from mental_accounts.presets import PRESETS, PresetName
from mental_accounts.return_text import return_text
from mental_accounts.zoo import folder_of


@dataclass(frozen=True)
class Train:
    """Train a policy: offline on a task's data, then online in its environment.

    By default: built-in hopper-medium, preset quick.

    Example: `train --task walker2d-medium-replay --method odt --preset converged --seed 3`.

    Online from scratch, in any Gymnasium environment: `train --preset online --env-id CartPole-v1`.
    """

    preset: PresetName = "quick"
    """Where to start from; every other field can then be set."""
    config: Path | None = None
    """A config.json of another run to start from, instead of a preset."""
    run: Path | None = None
    """The folder of the run; None: runs/<task>-<method>-<seed>-<time>."""
    tracker: Tracker = "none"
    """Log to Weights & Biases or trackio too."""
    settings: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=lambda: PRESETS["quick"])
    """All that can be chosen."""

    def execute(self) -> int:
        """Train until the end, or until interrupted."""
        from mental_accounts.front_door.given import Asked
        from mental_accounts.front_door.train import new_run

        if self.run is not None and RunFolder(self.run).has_begun:
            raise UsageError(f"{self.run} holds a run already; go on with: {command(['resume', str(self.run)])}")
        with new_run(Asked(self.settings), self.run, ["mental-accounts", *sys.argv[1:]]) as folder:
            return _train(folder, self.settings, self.tracker)


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped, exactly where it was."""

    run: tyro.conf.Positional[Path]
    """The folder of the run."""
    tracker: Tracker = "none"
    """Log to Weights & Biases or trackio too."""

    def execute(self) -> int:
        """Train until the end, or until interrupted."""
        folder = RunFolder(self.run)
        return _train(folder, folder.read_config(), self.tracker)


@dataclass(frozen=True)
class Evaluate:
    """Play episodes with a trained policy and say how it did."""

    subject: tyro.conf.Positional[Path]
    """The folder of a run, or of a saved policy."""
    episodes: int = 10
    """Episodes to play, in parallel."""
    seed: int = 0
    """Of environments and actions."""
    target_return: float | None = None
    """The return to ask for; None: the run's own."""
    sample: bool = False
    """Sample actions, instead of taking the mean."""
    env_id: str | None = None
    """The environment; needed for a bare policy, which does not know it."""
    device: str = "auto"
    """auto: a GPU where there is one."""
    video: Path | None = None
    """Write the first episode as a video (.mp4, or .gif)."""
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print the numbers as JSON."""

    def execute(self) -> int:
        """Play and print."""
        from rich.console import Console

        from mental_accounts.front_door.evaluate import play_asked, target_warnings
        from mental_accounts.learning.evaluation import check_video, film, read_subject
        from mental_accounts.learning.run_view import make_view

        if self.video is not None:
            check_video(self.video)
        subject = read_subject(self.subject, self.env_id, self.target_return, self.device)
        view = make_view(Console(stderr=True))
        for message in target_warnings(self.target_return, self.subject):
            view(message)
        result, first = play_asked(subject, self.episodes, self.seed, sample=self.sample, view=view)
        if self.as_json:
            print(json.dumps(result.to_dict()))
        else:
            mean, spread = return_text(result.return_mean), return_text(result.return_std)
            print(
                f"{subject.env_id}: return {mean} ± {spread}, length "
                f"{result.length_mean:.1f}, episodes: {self.episodes}, asking for {subject.target_return:g}"
            )
            if result.normalised_score is not None:
                print(f"normalised score {result.normalised_score:.1f}")
        if self.video is not None:
            film(subject, first, self.seed, self.video)
            print(f"first episode: {self.video}", file=sys.stderr)
        return 0


def starting_point(arguments: list[str]) -> Train:
    """The defaults of `train`: those of the preset or config.json that the arguments name."""
    flags = {name.partition("=")[0] for name in arguments}
    if arguments[:1] == ["train"] and {"--preset", "--config"} <= flags:
        raise UsageError("give --preset or --config, not both: each says where to start from")
    named = {flag: value_of(arguments, flag) for flag in ("--preset", "--config", "--method", "--task")}
    preset: PresetName = next((known for known in PRESETS if known == named["--preset"]), "quick")
    method: Method | None = next((known for known in get_args(Method) if known == named["--method"]), None)
    path = folder_of(named["--config"]) if named["--config"] else None
    settings = PRESETS[preset]
    if path is not None:
        settings = read_config_file(path / "config.json" if path.is_dir() else path)
    if (task := named["--task"]) not in (None, "", "None") and "--env-id" not in flags:
        settings = settings.for_task(str(task))
    return Train(preset=preset, config=path, settings=settings.for_method(method or settings.method))


def _train(folder: RunFolder, settings: TrainConfig, tracker: Tracker) -> int:
    from mental_accounts.front_door.train import train_folder
    from mental_accounts.learning.run_view import make_view

    try:
        train_folder(folder, settings, make_view(), tracker)
    except (InterruptedRunError, KeyboardInterrupt) as stop:
        number = getattr(stop, "signal_number", signal.SIGINT)
        what = stop if isinstance(stop, InterruptedRunError) else "stopped at once, without another checkpoint"
        print(f"{what}; go on with: {command(['resume', str(folder.path)])}", file=sys.stderr)
        return 128 + number
    except (OSError, BrokenEnvironmentError) as error:
        if not folder.has_begun:
            raise
        words = f"{error}; once that is mended, go on with: {command(['resume', str(folder.path)])}"
        if isinstance(error, OSError):
            raise OSError(words) from error
        raise BrokenEnvironmentError(words, error.place) from error
    summary = folder.read_summary()
    if summary["last_return"] is not None:
        score = summary["normalised_score"]
        scored = "" if score is None else f" (normalised score {score:.1f})"
        data = summary["data"]
        sampled = summary.get("sampled_return")  # a finished run may be older
        also = "" if sampled is None else f"; with sampled actions {return_text(sampled)}"
        last, best = (return_text(summary[name]) for name in ("last_return", "best_return"))
        print(f"last return {last}{scored}, best {best}{also}")
        whose = "random play" if settings.task is None else "the data"
        mean, spread, most = (return_text(data[f"return_{name}"]) for name in ("mean", "std", "max"))
        print(f"{whose}: {mean} ± {spread}, best {most}")
    print(f"policy: {folder.path / 'policy'}   play it: {command(['evaluate', str(folder.path)])}")
    return 0
