"""A user's arguments, made into a configuration: an environment, data, a preset and changes to it."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from mental_accounts.changes import with_changes
from mental_accounts.config import TrainConfig
from mental_accounts.data.own_data import UNNAMED, read_file
from mental_accounts.data.tasks import FILES, find_task, known_names
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import UsageError
from mental_accounts.files import data_name
from mental_accounts.learning.make_env import EnvironmentLike, EnvironmentSource, environment_source
from mental_accounts.policy_options import Method
from mental_accounts.presets import PresetName, preset_of

DataLike = str | Path | Trajectories
MINARI_ID = re.compile(r"[\w-]+(/[\w-]+)*-v\d+")
SAID_BY = {"task": "data=", "env_id": "env=", "method": "method="}
"""Fields that have an argument of their own."""


@dataclass(frozen=True)
class Asked:
    """What is to be trained."""

    config: TrainConfig
    env: EnvironmentSource | None = None
    """The environment, if the configuration alone cannot make it."""
    data: Trajectories | None = None
    """The data, if no task names them; they are stored in the run folder."""


def asked_for(
    env: EnvironmentLike | None,
    data: DataLike | None,
    preset: PresetName | TrainConfig,
    method: Method | None,
    changes: Mapping[str, Any],
) -> Asked:
    """A configuration, with the objects it cannot name; invalid arguments are refused before anything is created."""
    for name, argument in SAID_BY.items():
        if name in changes:
            raise UsageError(f"{name} is not a change: give it as {argument}")
    source = None if env is None else environment_source(env)
    base = preset_of(preset)
    base = base.for_method(checked_method(base.method if method is None else method))
    given: dict[str, Any] = {} if source is None else {"env_id": source.name, "task": None}
    task, store = (None, None) if data is None else data_of(data)
    if task is not None:
        given["task"] = task
    if task is not None and source is None:
        base = base.for_task(task)
    if store is not None and "data_steps" not in changes:
        given["data_steps"] = None  # use all of them
    if store is not None and source is None and not store.info.get("env_id"):
        raise UsageError("the data do not say which environment they belong to: give env= too")
    return Asked(with_changes(base, {**given, **changes}), source, store)


def checked_method(method: Method) -> Method:
    """The method, if it exists."""
    known = get_args(Method)
    if method not in known:
        close = difflib.get_close_matches(str(method), known, n=1, cutoff=0.3)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"there is no method {method!r}; {hint}there are {', '.join(known)}")
    return method


def data_of(data: DataLike) -> tuple[str, Trajectories | None]:
    """The name of a task, and the trajectories if no task has them."""
    if isinstance(data, Trajectories):
        if len(data) == 0:
            raise UsageError("data holds no trajectory; append some first, or leave it out to train without data")
        return f"{_plain(data.info.get('name') or 'trajectories')}{UNNAMED}", data
    if not isinstance(data, (str, Path)):
        raise UsageError(
            "data must be the name of a task, a file (.hdf5, .pkl, .safetensors), a Minari id or ma.Trajectories, got "
            f"{type(data).__name__}; ma.Trajectories.from_steps(observations, actions, rewards, ...) takes arrays"
        )
    path = Path(data).expanduser()
    if isinstance(data, Path) or path.suffix.lower() in FILES:
        return f"{_plain(path.stem)}{UNNAMED}", read_file(path)
    if data not in known_names() and MINARI_ID.fullmatch(data) and "/" in data:
        data = f"minari/{data}"
    return find_task(data).name, None


def _plain(name: object) -> str:
    return data_name(str(name)) or "data"
