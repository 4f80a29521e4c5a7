"""Training a policy: a new run, or one that was stopped."""

import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from mental_accounts.config import Method, TrainConfig
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
            that the data belong to.
        data: a task's name (`mental-accounts data list`), a file (.hdf5, .pkl, .safetensors), a Minari id, or
            `ma.Trajectories`, which are kept in the folder of the run. None: online from scratch, beginning with
            episodes of random actions; with env None too: the task of the preset.
        preset: where to start from: quick, paper, odt, converged, hidden, or a TrainConfig.
        method: bc, dt, odt or ewa-vq-odt. None: the preset's.
        run: the folder of the run; None: runs/<what>-<method>-<seed>-<time>.
        callbacks: called with every event (`ma.IterationEnded`, ...); one that returns `ma.STOP` stops the run.
        progress: True shows how it goes, False nothing; None: shown in a terminal, elsewhere warnings alone.
        tracker: wandb or trackio, to log there too.
        changes: fields of TrainConfig: lr=3e-4, model={"hidden": 64}, or hidden=64 where one field has that name.

    Returns:
        The run, finished, or as it was when a callback stopped it.
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
    """Go on with a run that was stopped, exactly where it was: it ends with the numbers of one that was not.

    `env` is needed where the run began with a function, or with a class of a script or a notebook.
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
    """A folder for a run that begins in the block; where it fails before there is anything to keep, nothing is left."""
    folder = RunFolder(path or _new_path(asked.config))
    if folder.path.exists() and not folder.path.is_dir():
        raise UsageError(f"run must be a folder, but {folder.path} is a file")
    if folder.has_begun:
        folder.check_config(asked.config)
        raise UsageError(f"{folder.path} holds a run already; go on with ma.resume({str(folder.path)!r})")
    before = set(folder.path.iterdir()) if folder.path.is_dir() else None
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.write_config(asked.config, command)
        if asked.data is not None:
            asked.data.to("cpu").save(folder.offline_data)
        yield folder
    except Exception:
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
    """Train until the end, or until a callback stops it; interrupted by a signal, it raises after a checkpoint."""
    view(Message("note", f"run folder: {folder.path}"))
    keep_freed_memory()
    try:
        Trainer(config, folder, view, tracker, callbacks=callbacks, env=env).run()
    except StoppedRunError as stop:
        view(Message("note", f"{stop}; go on with ma.resume({str(folder.path)!r})"))


@contextlib.contextmanager
def _raising_signals() -> Iterator[None]:
    """Ctrl-C is KeyboardInterrupt to Python, also where a run wrote a checkpoint first."""
    try:
        yield
    except InterruptedRunError as stop:
        signal_ = StopSignal(stop.signal_number)
        signal_.add_note("the run wrote a checkpoint first; go on with ma.resume(folder)")
        raise signal_ from stop


def _new_path(config: TrainConfig) -> Path:
    subject = slug((config.task or config.env_id or "run").removesuffix(UNNAMED).replace(":", "-"))
    name = f"{subject}-{config.method}-{config.seed}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = Path("runs") / name, 2
    while path.exists():  # several in one second
        path, number = Path("runs") / f"{name}-{number}", number + 1
    return path
