"""The user's own data under a name: a file (D4RL's HDF5 layout, a Decision Transformer `.pkl`, or what
`Trajectories.save` wrote), or a Minari data set.
"""

import re
from collections.abc import Callable
from pathlib import Path

from mental_accounts.data.d4rl import read_d4rl
from mental_accounts.data.minari import read_minari
from mental_accounts.data.pickles import read_pickle
from mental_accounts.data.robots import ROBOTS
from mental_accounts.data.tasks import FILES, HDF5, PICKLE, STORE, imported_path
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import DataError
from mental_accounts.files import data_name

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def import_data(
    source: str,
    name: str | None = None,
    env_id: str | None = None,
    time_limit: int | None = None,
    check: Callable[[Trajectories], None] = lambda store: None,
) -> tuple[str, Trajectories]:
    """Read `source`, a file or a Minari id, into the cache; returns the task's name, `imported/NAME`, and the data.

    `name` defaults to that of the file. `env_id` is the Gymnasium environment; it is guessed from names such as
    `hopper_medium-v2.hdf5`. `time_limit` splits trajectories of HDF5 files that have no `timeouts`. `check` is called
    with the data before they are kept.
    """
    path = Path(source).expanduser()
    kind = path.suffix.lower()
    if env_id is not None:
        _check_environment(env_id)
    if time_limit is not None and kind not in HDF5:
        raise DataError(f"a time limit is for HDF5 files without `timeouts`, not for {source}; leave it out")
    name = name or data_name(path.stem if kind in FILES else source)
    if not NAME.fullmatch(name):
        raise DataError(f"a name must be made of letters, digits, dots, dashes and underscores, got {name!r}")
    store = read_source(source, time_limit)
    check(store)
    store.info["env_id"] = env_id or store.info["env_id"]
    store.info["name"] = f"imported/{name}"
    store.save(imported_path(name))
    return f"imported/{name}", store


def read_source(source: str, time_limit: int | None = None) -> Trajectories:
    """The trajectories of a file or a Minari id; `info["env_id"]` is their environment, if the name reveals it."""
    path = Path(source).expanduser()
    kind = path.suffix.lower()
    if kind in HDF5:
        store = read_d4rl(path, time_limit=time_limit)
    elif kind in PICKLE:
        store = read_pickle(path)
    elif kind in STORE:
        store = Trajectories.load(path)
    elif path.exists():
        raise DataError(f"{path}: expected a file that ends in one of {', '.join(FILES)}, or a Minari id")
    else:
        store = read_minari(source)
    known = next(
        (f"{robot.env}-v4" for robot in ROBOTS.values() if re.match(rf"{robot.name}(?![a-z])", path.name)), None
    )
    store.info["env_id"] = store.info.get("env_id") or known
    return store


def _check_environment(env_id: str) -> None:
    """Refuse a name that stands for no environment, here or in the user's own modules."""
    import gymnasium  # the data alone need no environments

    from mental_accounts.environments.env_names import resolved

    try:
        found = resolved(env_id)
        if isinstance(found, str):
            gymnasium.spec(found.rpartition(":")[2])
    except (ValueError, gymnasium.error.Error) as error:
        raise DataError(f"there is no environment {env_id}: {error}") from error
