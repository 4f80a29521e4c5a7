"""Built-in data: behaviour policies that are shipped with the package, rolled out on the user's machine.

After D4RL's definitions: *medium* is played by a half-trained policy, *medium-replay* by the ladder of policies on the
way there (its foot acts at random) in the proportions of training, *medium-expert* half by each of the two, *random* by
uniformly random actions, which need no file. The data depend on (task, size, seed, versions of the libraries and of the
policies) and on nothing else: not on the number of processes that play, nor on how often they were interrupted.
"""

import hashlib
import importlib.metadata
import json
import shutil
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mental_accounts.action_spec import ActionSpec
from mental_accounts.data.behaviour_worker import Shard
from mental_accounts.data.data_checks import shown_names
from mental_accounts.data.progress import progress_bar
from mental_accounts.data.robots import ROBOTS
from mental_accounts.data.shards import Arrays, play_shards
from mental_accounts.data.storage import check_memory
from mental_accounts.data.tensor_files import cache_folder
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import DataError
from mental_accounts.extras import how_to_install
from mental_accounts.fields import check_fields, shown
from mental_accounts.files import read_json
from mental_accounts.folder_lock import in_turn
from mental_accounts.spaces import action_spec_of, state_dim_of

SHARD_STEPS = 5_000
"""Steps that one process plays before it hands them over: what a crash may cost. A part of what the data depend on."""

BEHAVIOURS = Path(__file__).parent / "behaviours"
"""The policies that are shipped: `manifest.json`, and a folder of safetensors files per robot."""

TRAINED = ("medium", "medium-replay", "medium-expert")
"""Played by policies that are shipped."""

KINDS = (*TRAINED, "random")


@dataclass(frozen=True)
class Share:
    """One policy's part of a data set."""

    file: Path | None
    """None for uniformly random actions."""
    weight: float
    """Its share of the steps; those of a data set add up to 1."""


@dataclass(frozen=True)
class Recipe:
    """How a built-in data set is made."""

    env_id: str
    log_std_range: tuple[float, float]
    shares: tuple[Share, ...]
    digest: str
    """Of the policies' files and weights."""


def recipe_of(robot: str, kind: str, folder: Path | None = None) -> Recipe:
    """For a robot such as `hopper` and one of KINDS; all but `random` are read from the manifest in `folder`."""
    if kind == "random" and robot in ROBOTS:
        return _uniform(robot)
    folder = folder or BEHAVIOURS
    path = folder / "manifest.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, the package was installed without its behaviour policies")
    manifest = check_fields(read_json(path), {"tasks": "an object", "log_std_range": "a list"}, str(path))
    entry = manifest["tasks"].get(robot)
    if entry is None or kind not in TRAINED:
        known = shown_names(sorted(manifest["tasks"]))
        raise DataError(f"built-in data exist for {known} × {list(KINDS)}, got {robot!r}, {kind!r}")
    parts = _parts(entry, robot, kind, f"{path}, {robot},")
    total = sum(part["weight"] for part in parts)
    shares = []
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        file = None if part["file"] is None else folder / part["file"]
        share = Share(file, part["weight"] / total)
        digest.update(b"random" if file is None else _read_policy(file, part.get("sha256"), path))
        digest.update(f"{share.weight:.6f}".encode())
        shares.append(share)
    bounds = dict(zip(("low", "high"), manifest["log_std_range"], strict=False))
    check_fields(bounds, dict.fromkeys(("low", "high"), "a finite number"), f"{path}, log_std_range,")
    log_std_range = float(bounds["low"]), float(bounds["high"])
    return Recipe(entry["env_id"], log_std_range, tuple(shares), digest.hexdigest())


def _uniform(robot: str) -> Recipe:
    """Random actions throughout: there is no policy to be read."""
    digest = hashlib.blake2b(b"random", digest_size=8).hexdigest()
    return Recipe(f"{ROBOTS[robot].env}-v5", (0.0, 0.0), (Share(None, 1.0),), digest)


def _parts(entry: object, robot: str, kind: str, where: str) -> list[dict[str, Any]]:
    """The policies of a data set with their weights."""
    needed = {"replay": "a list"} if kind == "medium-replay" else {"medium": "an object"}
    found = check_fields(entry, {"env_id": "text", **needed}, where)
    if kind == "medium":
        parts = [found["medium"] | {"weight": 1.0}]
    elif kind == "medium-replay":
        parts = found["replay"]
    else:
        expert = check_fields(found.get("expert", {}), {}, f"{where} expert,")
        if not expert.get("met"):
            raise DataError(f"{robot}-medium-expert: no expert was reached when the behaviour policies were trained")
        parts = [found["medium"] | {"weight": 0.5}, expert | {"weight": 0.5}]
    for part in parts:
        check_fields(part, {"file": "text or null", "weight": "a finite number"}, f"{where} {kind},")
        check_fields({"sha256": None, **part}, {"sha256": "text or null"}, f"{where} {kind},")
        if part["weight"] <= 0:
            raise DataError(f"{where} {kind}, cannot be read: weight must be above 0, got {part['weight']}")
        file = Path(part["file"] or "")
        if file.is_absolute() or ".." in file.parts:
            raise DataError(f"{where} {kind}, cannot be read: file must lie beside it, got {shown(part['file'])}")
    if not parts:
        raise DataError(f"{where} {kind}, cannot be read: it names no policy")
    return parts


def _read_policy(file: Path, sha256: str | None, manifest: Path) -> bytes:
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file, though {manifest} names it")
    data = file.read_bytes()
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise DataError(f"{file}: the file is not the one that {manifest} describes; install the package again")
    return data


def make_builtin(
    robot: str, kind: str, size: int, seed: int = 0, *, workers: int | None = None, folder: Path | None = None
) -> Trajectories:
    """Whole episodes, until there are `size` steps: from the cache, or rolled out now by `workers` processes.

    Without `workers` there is one a core. Interrupted work is taken up again where it stopped. `folder` holds other
    behaviour policies than the shipped ones.
    """
    for name, value, least in (("steps", size, 1), ("seed", seed, 0), ("workers", workers or 1, 1)):
        if value < least:
            raise DataError(f"{name} must be at least {least}, got {value}")
    recipe = recipe_of(robot, kind, folder)
    facts = _facts(recipe, size, seed)
    path = cached_path(f"{robot}-{kind}", facts)
    if (cached := _cached(path)) is not None:
        return cached
    with in_turn(path):
        cached = _cached(path)
        return _roll_out(f"{robot}-{kind}", recipe, facts, path, workers) if cached is None else cached


def builtin_path(robot: str, kind: str, size: int, seed: int) -> Path:
    """Where a data set of the shipped behaviour policies lies once it is made."""
    return cached_path(f"{robot}-{kind}", _facts(recipe_of(robot, kind), size, seed))


def _facts(recipe: Recipe, size: int, seed: int) -> dict[str, Any]:
    """All that determines a data set, beside its name."""
    kept = {"env_id": recipe.env_id, "size": size, "seed": seed}
    return kept | {"behaviours": recipe.digest, "versions": _versions()}


def _cached(path: Path) -> Trajectories | None:
    """A data set that has been made before; a damaged file is removed."""
    if not path.exists():
        return None
    try:
        return Trajectories.load(path)
    except DataError as error:
        warnings.warn(f"{error} (done: it is made again now)", stacklevel=3)
        path.unlink(missing_ok=True)
        return None


def _roll_out(name: str, recipe: Recipe, facts: dict[str, Any], path: Path, workers: int | None) -> Trajectories:
    """Play a data set, and keep it."""
    size = facts["size"]
    obs_dim, spec = _spaces(recipe.env_id)
    _check_room(size * 4 * (obs_dim + spec.size + 4), path)
    unfinished = path.with_suffix(".shards")
    shards = _plan(name, recipe, size, facts["seed"])
    with progress_bar(f"playing {name}", size) as advance:
        played = play_shards([shard for shard, _ in shards], unfinished, workers, advance)
    arrays = _whole_episodes(played, [due for _, due in shards])
    store = Trajectories.from_steps(
        *(arrays[name] for name in ("observations", "actions", "rewards")),
        lengths=arrays["lengths"],
        terminated=arrays["terminated"],
        truncated=arrays["truncated"],
        final_observations=arrays.get("final_observations"),
        action_spec=spec,
        info={"name": name, "source": "builtin", **facts},
        where=name,
    )
    store.save(path)
    shutil.rmtree(unfinished, ignore_errors=True)
    return store


def cached_path(name: str, facts: dict[str, Any]) -> Path:
    """Where a data set lies once it is made."""
    text = json.dumps({"name": name, "shard_steps": SHARD_STEPS, **facts}, sort_keys=True)
    key = hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
    return cache_folder() / "builtin" / name / f"{facts['size']}-steps-seed-{facts['seed']}-{key}.safetensors"


def _versions() -> dict[str, str]:
    try:
        return {name: importlib.metadata.version(name) for name in ("gymnasium", "mujoco", "numpy")}
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"rolling out built-in data needs MuJoCo: {how_to_install('mujoco')}") from None


def _spaces(env_id: str) -> tuple[int, ActionSpec]:
    """The size of an observation, and the action space."""
    import gymnasium

    env = gymnasium.make(env_id, disable_env_checker=True)
    found = state_dim_of(env.observation_space), action_spec_of(env.action_space)
    env.close()
    return found


def _plan(name: str, recipe: Recipe, size: int, seed: int) -> list[tuple[Shard, int]]:
    """The shards, and how many steps of the data set are due once each is in."""
    planned: list[tuple[Shard, int]] = []
    due, weight = 0, 0.0
    for number, share in enumerate(recipe.shares):
        weight += share.weight
        quota = round(size * weight) if number < len(recipe.shares) - 1 else size
        for begin in range(due, quota, SHARD_STEPS):
            steps = min(SHARD_STEPS, quota - begin)
            entropy = (seed, zlib.crc32(name.encode()), number, (begin - due) // SHARD_STEPS)
            file = None if share.file is None else str(share.file)
            planned.append((Shard(recipe.env_id, file, recipe.log_std_range, steps, entropy), begin + steps))
        due = quota
    return planned


def _whole_episodes(played: list[Arrays], due: list[int]) -> Arrays:
    """Of each shard the first episodes until as many steps are there as are due: a shard's last one runs over."""
    kept: list[Arrays] = []
    have = 0
    for arrays, target in zip(played, due, strict=True):
        ends = np.cumsum(arrays["lengths"])
        episodes = min(int(np.searchsorted(ends, target - have)) + 1, len(ends)) if target > have else 0
        steps = int(ends[episodes - 1]) if episodes else 0
        sizes = {"observations": steps, "actions": steps, "rewards": steps}
        kept.append({name: array[: sizes.get(name, episodes)] for name, array in arrays.items()})
        have += steps
    names = [name for name in kept[0] if all(name in arrays for arrays in kept)]  # older shards have no final ones
    return {name: np.concatenate([arrays[name] for arrays in kept]) for name in names}


def _check_room(nbytes: int, path: Path) -> None:
    """Say before anything is played that memory or disk are too small for data of so many bytes."""
    check_memory(3 * nbytes, "cpu")  # the shards, them put together, the store
    path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path.parent).free
    if 2 * nbytes > free:  # the shards and the file that is made of them
        raise OSError(
            f"{path.parent}: {2 * nbytes / 1e9:.2f} GB are needed there, but only {free / 1e9:.2f} GB are free; "
            "ask for fewer steps, or set MENTAL_ACCOUNTS_CACHE to a folder on another disk"
        )
