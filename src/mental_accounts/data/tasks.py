"""The table of tasks: what each name means, and `load_task`, which returns its trajectories.

Examples of names:

    hopper-medium, hopper-random      built-in: rolled out on this machine, nothing to download
    hidden-arm                        a task with a hidden context, rolled out here by adaptive policies
    hidden-arm:dim=4/ucb              the same with other settings, by one of those policies (hidden_tasks.py)
    d4rl/hopper-medium-v2             D4RL's file, downloaded into the cache
    minari/mujoco/hopper/medium-v0    a Minari data set, local or downloaded; any other Minari id works too
    imported/NAME                     data imported by `mental-accounts data import`
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch import Tensor

from mental_accounts.action_spec import ActionSpec
from mental_accounts.data.asked import asked_returns
from mental_accounts.data.builtin import KINDS, builtin_path, make_builtin
from mental_accounts.data.d4rl import fetch_d4rl, read_d4rl
from mental_accounts.data.hidden_data import hidden_facts, hidden_path, make_hidden
from mental_accounts.data.hidden_tasks import hidden_names, hidden_task, is_hidden
from mental_accounts.data.minari import installed_minari, read_minari
from mental_accounts.data.robots import ROBOTS, Robot
from mental_accounts.data.tensor_files import cache_folder
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import DataError

Returns = TypeVar("Returns", Tensor, float)
Source = Literal["builtin", "hidden", "d4rl", "minari", "imported"]


@dataclass(frozen=True)
class Published:
    """Statistics of D4RL's data set of that name, version 2, of its finished trajectories.

    Returns and steps of medium and medium-replay are from a public log of the Decision Transformer's conversion script.
    The trajectory counts of walker2d-medium and of the experts are from memory, not from such a log, and medium-expert
    is computed from its two halves: check them against the data before you rely on them.
    """

    steps: int
    trajectories: int
    return_mean: float
    return_std: float
    return_max: float


HDF5, PICKLE, STORE = (".hdf5", ".h5"), (".pkl", ".pickle"), (".safetensors",)
FILES = (*HDF5, *PICKLE, *STORE)
"""Endings of files that can be imported."""
PUBLISHED = {
    "hopper-medium": Published(999_906, 2186, 1422.06, 378.95, 3222.36),
    "hopper-medium-replay": Published(402_000, 2041, 467.30, 511.03, 3192.93),
    "hopper-medium-expert": Published(1_999_400, 3213, 2089.88, 1039.96, 3759.08),
    "walker2d-medium": Published(999_995, 1190, 2852.09, 1095.44, 4226.94),
    "walker2d-medium-replay": Published(302_000, 1093, 682.70, 895.96, 4132.00),
    "walker2d-medium-expert": Published(1_999_209, 2190, 3796.57, 1312.28, 5011.69),
    "halfcheetah-medium": Published(1_000_000, 1000, 4770.33, 355.75, 5309.38),
    "halfcheetah-medium-replay": Published(202_000, 202, 3093.29, 1680.69, 4985.14),
    "halfcheetah-medium-expert": Published(2_000_000, 2000, 7713.38, 2970.24, 11252.04),
}


@dataclass(frozen=True)
class Task:
    """A data set, its environment, and the paper's settings for it."""

    name: str
    """Its name in `load_task`."""
    source: Source
    """Where the trajectories come from."""
    dataset: str
    """Its name at the source."""
    env_id: str | None
    """The Gymnasium environment: version 4 for D4RL's data, 5 for built-in and Minari's. None if unknown."""
    target_return: float | None = None
    """The target return in evaluation. None: `load_task` derives one from the data (asked.py)."""
    exploration_return: float | None = None
    """The target return while exploring; None: as above."""
    random_return: float | None = None
    """The return of a random policy: a normalised score of 0."""
    expert_return: float | None = None
    """The return of an expert: a normalised score of 100."""
    context_length: int = 20
    """K: steps in the context in training."""
    eval_context_length: int = 20
    """Steps in the context while acting."""
    timestep_embedding: bool = False
    """Whether tokens carry an embedding of the absolute timestep. On small data it leads to memorisation."""
    return_scale: float | None = None
    """Returns-to-go are multiplied by this; None: 1 over the largest in the data."""
    size: int | None = None
    """Default number of steps of built-in data: as many as D4RL has."""
    published: Published | None = None
    """D4RL's statistics of the data set of that name; None: unknown to us, as for random."""
    made_by: str | None = None
    """Who made the data, in words, where names do not say it."""
    scored: str = "0: a random policy; 100: an expert"
    """What normalised scores of 0 and 100 mean, in words."""


ROBOT_RETURN_SCALE = 0.001
"""ODT's, for all robots."""


def _table() -> dict[str, Task]:
    tasks = []
    for robot in ROBOTS.values():
        for kind in KINDS:
            data = f"{robot.name}-{kind}"
            published = PUBLISHED.get(data)
            size = 1_000_000 if published is None else round(published.steps, -3)
            tasks.append(_task(data, "builtin", data, robot, f"{robot.env}-v5", size=size, published=published))
            name = f"d4rl/{data}-v2"
            tasks.append(_task(name, "d4rl", f"{data}-v2", robot, f"{robot.env}-v4", published=published))
        for kind in ("simple", "medium", "expert"):
            data = f"mujoco/{robot.name}/{kind}-v0"
            tasks.append(_task(f"minari/{data}", "minari", data, robot, f"{robot.env}-v5"))
    tasks += [_hidden_task(name) for name in hidden_names()]
    return {task.name: task for task in sorted(tasks, key=lambda task: task.source)}  # stable: robots keep their order


def _task(
    name: str,
    source: Source,
    dataset: str,
    robot: Robot | None,
    env_id: str | None,
    size: int | None = None,
    published: Published | None = None,
) -> Task:
    task = Task(name, source, dataset, env_id, size=size, published=published)
    if robot is None:
        return task
    return replace(
        task,
        target_return=robot.target_return,
        exploration_return=robot.exploration_return,
        random_return=robot.random_return,
        expert_return=robot.expert_return,
        eval_context_length=robot.eval_context_length,
        timestep_embedding=robot.timestep_embedding,
        return_scale=ROBOT_RETURN_SCALE,
    )


def _hidden_task(name: str) -> Task:
    found = hidden_task(name)
    returns = found.returns
    return Task(
        found.name, "hidden", found.name, found.env_id, target_return=returns.target,
        exploration_return=returns.exploration, random_return=returns.random, expert_return=returns.expert,
        context_length=5, eval_context_length=5, return_scale=returns.scale, size=200_000, made_by=found.made_by,
        scored=found.scored,
    )  # fmt: skip


TASKS = _table()
"""Every task with a name of its own. `minari/<id>`, `imported/<name>` and hidden tasks with settings work too."""


def find_task(name: str) -> Task:
    """The task of that name; an unknown name is an error with suggestions."""
    if name in TASKS:
        return TASKS[name]
    if is_hidden(name):
        return _hidden_task(name)
    prefix, _, rest = name.partition("/")
    if prefix == "minari" and rest:
        return _task(name, "minari", rest, None, None)
    if prefix == "imported" and rest in imported_names():
        return _task(name, "imported", rest, None, None)
    if Path(name).suffix.lower() in FILES:
        raise DataError(
            f"{name!r} is a file, not the name of a task: `mental-accounts data import {name} --name mine --env ENV` "
            "makes it the task imported/mine (in Python: ma.train(env, data=FILE))"
        )
    close = difflib.get_close_matches(name, known_names(), n=4, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "`mental-accounts data list` shows all"
    raise DataError(f"there is no task {name!r}; {hint}")


def load_task(
    name: str, size: int | None = None, seed: int = 0, *, workers: int | None = None
) -> tuple[Task, Trajectories]:
    """The task and its trajectories, which are made or downloaded first if they are not on this machine yet.

    Built-in data are rolled out from `seed` until there are `size` steps (default: as many as D4RL has), by `workers`
    processes (default: one per core). From other data, whole trajectories are drawn by `seed` until there are `size`
    steps (default: all).
    """
    task = find_task(name)
    if size is not None and size < 1:
        raise DataError(f"size must be at least 1 step, got {size}")
    if task.source == "builtin":
        robot, _, kind = task.dataset.partition("-")
        assert task.size is not None
        return task, make_builtin(robot, kind, size or task.size, seed, workers=workers)
    if task.source == "hidden":
        assert task.size is not None
        assert task.env_id is not None
        store = make_hidden(task.name, task.env_id, hidden_task(task.name).maker, size or task.size, seed)
        return complete(task, store), store
    if task.source == "d4rl":
        robot_name = task.dataset.partition("-")[0]
        dim = ROBOTS[robot_name].action_dim
        spec = ActionSpec("box", dim, (-1.0,) * dim, (1.0,) * dim)
        info = {"name": name, "env_id": task.env_id}
        store = read_d4rl(fetch_d4rl(task.dataset), action_spec=spec, info=info)
    elif task.source == "minari":
        store = read_minari(task.dataset)
    else:
        store = Trajectories.load(imported_path(task.dataset))
    return complete(task, store), store if size is None else part_of(store, size, seed)


def has_to_be_made(name: str, size: int | None = None, seed: int = 0) -> bool:
    """Whether `load_task` would have to roll out the data, which takes a while."""
    task = find_task(name)
    if task.source == "builtin":
        robot, _, kind = task.dataset.partition("-")
        assert task.size is not None
        return not builtin_path(robot, kind, size or task.size, seed).exists()
    if task.source == "hidden":
        assert task.size is not None
        assert task.env_id is not None
        facts = hidden_facts(task.env_id, hidden_task(task.name).maker, size or task.size, seed)
        return not hidden_path(task.name, facts).exists()
    return False


def complete(task: Task, store: Trajectories) -> Task:
    """Fill in what only the data determine: the environment, and target returns if none are published."""
    env_id = task.env_id or store.info.get("env_id")
    if task.target_return is not None:
        return replace(task, env_id=env_id)
    robot = next((robot for robot in ROBOTS.values() if env_id and env_id.startswith(f"{robot.env}-")), None)
    if robot is not None:
        return _task(task.name, task.source, task.dataset, robot, env_id)
    asked = asked_returns(store.returns)
    return replace(task, env_id=env_id, target_return=asked.evaluation, exploration_return=asked.exploration)


def normalised_score(task: Task, returns: Tensor | float) -> Tensor:
    """D4RL's score, 100 · (return - random) / (expert - random): (...) -> (...)."""
    if task.random_return is None or task.expert_return is None:
        raise DataError(
            f"{task.name} has no normalisation constants; use replace(task, random_return=, expert_return=)"
        )
    return score_between(torch.as_tensor(returns, dtype=torch.float64), task.random_return, task.expert_return)


def score_between(returns: Returns, random: float, expert: float) -> Returns:
    """Returns on a scale where the random policy has 0 and the expert 100."""
    return 100 * (returns - random) / (expert - random)


def imported_path(name: str) -> Path:
    """The path of an imported data set."""
    return cache_folder() / "imported" / f"{name}.safetensors"


def imported_names() -> list[str]:
    """The data sets imported on this machine."""
    return sorted(path.stem for path in (cache_folder() / "imported").glob("[!.]*.safetensors"))


def known_names() -> list[str]:
    """The names in the table, of imported data, and of local Minari data sets."""
    more: Iterable[str] = [f"imported/{name}" for name in imported_names()]
    local = [f"minari/{dataset}" for dataset in installed_minari()]
    return [*TASKS, *more, *(name for name in local if name not in TASKS)]


def part_of(store: Trajectories, size: int, seed: int) -> Trajectories:
    """Whole trajectories, drawn by `seed`, until there are `size` steps."""
    order = torch.randperm(len(store), generator=torch.Generator().manual_seed(seed))
    before = store.lengths[order].cumsum(0) - store.lengths[order]
    return store.select(order[before < size].sort().values)
