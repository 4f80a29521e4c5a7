"""Training a policy: a new run, or the rest of a stopped one."""

import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from mental_accounts.config import TrainConfig
from mental_accounts.data.own_data import UNNAMED
from mental_accounts.errors import InterruptedRunError, StoppedRunError, UsageError
from mental_accounts.files import slug
from mental_accounts.front_door.given import Asked, DataLike, asked_for
from mental_accounts.front_door.run import Run
from mental_accounts.learning.callbacks import Callback, check_callbacks
from mental_accounts.learning.events import Message
from mental_accounts.learning.freed_memory import keep_freed_memory
from mental_accounts.learning.loggers import Tracker, check_tracker
from mental_accounts.learning.make_env import EnvironmentLike, EnvironmentSource, environment_source
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_view import View, view_for
from mental_accounts.learning.signals import StopSignal
from mental_accounts.learning.trainer import Trainer
from mental_accounts.policy_options import Method
from mental_accounts.presets import PresetName


def train(
    env: EnvironmentLike | None = None,
    data: DataLike | None = None,
    *,
    preset: PresetName | TrainConfig = "quick",
    method: Method | None = None,
    run: str | Path | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    progress: bool | None = None,
    tracker: Tracker = "none",
    **changes: Any,
) -> Run:
    """Train a policy: offline on data, then online in an environment.

    Args:
        env: a Gymnasium id, a gymnasium.Env class, a function that makes an environment, or an EnvSpec. None: the one
            of the data.
        data: a task's name (`mental-accounts data list`), a file (.hdf5, .pkl, .safetensors), a Minari id, or
            `ma.Trajectories`, which are stored in the run folder. None: online from scratch, beginning with
            episodes of random actions; if env is None too: the task of the preset.
        preset: where to start from: quick, paper, odt, converged, hidden, td3, online, demo, or a TrainConfig.
        method: bc, gru, dt, odt, ewa-vq-odt (the paper's) or ledger-odt. None: the preset's.
        run: the folder of the run; None: runs/<what>-<method>-<seed>-<time>.
        callbacks: called with every event (`ma.IterationEnded`, ...); one that returns `ma.STOP` stops the run.
        progress: True shows progress, False nothing; None: progress in a terminal, elsewhere warnings only.
        tracker: wandb or trackio, to log there too.
        changes: fields of TrainConfig: lr=3e-4, model={"hidden": 64}, or hidden=64 if the name is unambiguous.

    Returns:
        The run: finished, or stopped by a callback.
    """
    asked = asked_for(env, data, preset, method, changes)
    chosen = check_callbacks(callbacks)
    check_tracker(tracker)
    with _raising_signals(), new_run(asked, run, ["python", *sys.argv]) as folder:
        train_folder(folder, asked.config, view_for(progress), tracker, chosen, asked.env)
    return Run(folder.path, asked.env)


def resume(
    run: Run | str | Path,
    *,
    env: EnvironmentLike | EnvironmentSource | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    progress: bool | None = None,
    tracker: Tracker = "none",
) -> Run:
    """Continue a stopped run exactly where it stopped: its results are those of an uninterrupted run.

    `env` is needed if the run began with a function, or with a class defined in a script or a notebook.
    """
    known = run if isinstance(run, Run) else Run(run)
    source = known._env if env is None else env
    source = source if source is None or isinstance(source, EnvironmentSource) else environment_source(source)
    chosen, folder = check_callbacks(callbacks), RunFolder(known.folder)
    with _raising_signals():
        train_folder(folder, folder.read_config(), view_for(progress), tracker, chosen, source)
    return Run(folder.path, source)


@contextlib.contextmanager
def new_run(asked: Asked, path: str | Path | None, command: list[str]) -> Iterator[RunFolder]:
    """A folder for a run that begins in the block; removed again if the run fails before it has saved anything."""
    folder = RunFolder(path or _new_path(asked.config))
    if folder.path.exists() and not folder.path.is_dir():
        raise UsageError(f"run must be a folder, but {folder.path} is a file")
    if folder.has_begun:
        folder.check_config(asked.config)
        raise UsageError(f"{folder.path} already holds a run; continue it with ma.resume({str(folder.path)!r})")
    before = set(folder.path.iterdir()) if folder.path.is_dir() else None
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.write_config(asked.config, command)
        if asked.data is not None:
            asked.data.to("cpu").save(folder.offline_data)
        yield folder
    except Exception:  # whatever it is, it is raised again
        if not folder.has_begun:
            _clear(folder.path, before)
        raise


def _clear(path: Path, before: set[Path] | None) -> None:
    """Remove what was not there before; the folder too, if it was not."""
    if before is None:
        shutil.rmtree(path, ignore_errors=True)
        return
    for item in set(path.iterdir()) - before:
        if item.is_dir():
            shutil.rmtree(item, ignore_errors=True)
        else:
            item.unlink(missing_ok=True)


def train_folder(
    folder: RunFolder,
    config: TrainConfig,
    view: View,
    tracker: Tracker,
    callbacks: Sequence[Callback] = (),
    env: EnvironmentSource | None = None,
) -> None:
    """Train to the end, or until a callback stops the run; a signal makes it raise after a checkpoint."""
    keep_freed_memory()
    try:
        Trainer(config, folder, view, tracker, callbacks=callbacks, env=env).run()
    except StoppedRunError as stop:
        view(Message("note", f"{stop}; continue with ma.resume({str(folder.path)!r})"))


@contextlib.contextmanager
def _raising_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt for Ctrl-C, as Python does, even after the run wrote a checkpoint."""
    try:
        yield
    except InterruptedRunError as stop:
        signal_ = StopSignal(stop.signal_number)
        signal_.add_note("the run wrote a checkpoint first; continue with ma.resume(folder)")
        raise signal_ from stop


def _new_path(config: TrainConfig) -> Path:
    subject = slug((config.task or config.env_id or "run").removesuffix(UNNAMED).replace(":", "-"))
    name = f"{subject}-{config.method}-{config.seed}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = Path("runs") / name, 2
    while path.exists():  # several runs started in one second
        path, number = Path("runs") / f"{name}-{number}", number + 1
    return path
