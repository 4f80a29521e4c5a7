"""Modules of the current folder under the names of others are never run by workers; the user's own are found there."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from mental_accounts.config import TrainConfig
from mental_accounts.data.behaviour_worker import Shard
from mental_accounts.data.shards import play_shards
from mental_accounts.data.tasks import imported_path
from mental_accounts.learning.parallel_envs import Environments
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.module_paths import find_own_modules, paths_for_workers
from mental_accounts.policy_options import ModelConfig
from mental_accounts.study.local import LocalLauncher
from mental_accounts.study.plan import Arm, Study
from mental_accounts.study.study_view import StudyView
from tests.learning import tiny_env
from tests.learning.conftest import aim_data
from tests.test_hostile_json import TINY

BORROWED = (
    "random", "torch", "numpy", "json", "gymnasium", "safetensors", "cloudpickle", "mental_accounts", "minari",
    "cuda", "dill",  # not installed: torch uses them where they are
)  # fmt: skip
TRAP = "import pathlib; pathlib.Path({marker!r}).write_text('run'); raise SystemExit('this must not be run')\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Full of traps, with an environment of the user's own among them."""
    place = tmp_path / "here"
    place.mkdir()
    for name in BORROWED:
        (place / f"{name}.py").write_text(TRAP.format(marker=str(tmp_path / "marker")))
    own = Path(tiny_env.__file__).read_text().replace("Aim-v0", "Own-v0")
    (place / "my_own_env.py").write_text(own)
    monkeypatch.chdir(place)
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    aim_data(20).save(imported_path("aim"))
    return place


def installed() -> list[str]:
    script = Path(sys.executable).with_name("mental-accounts")
    if not script.exists():
        pytest.skip("the package is not installed")
    return [str(script)]


def call(arguments: list[str]) -> None:
    done = subprocess.run(
        [*installed(), *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_processes_of_environments(folder: Path) -> None:
    call(["train", *TINY, "--env-id", "my_own_env:Own-v0", "--env-workers", "1", "--run", "one"])
    assert RunFolder(folder / "one").is_finished
    assert not (folder.parent / "marker").exists()


def test_processes_of_a_study(folder: Path) -> None:
    base = TrainConfig(
        task="imported/aim", env_id="my_own_env:Own-v0", device="cpu", batch_size=4, online_iterations=0,
        updates_per_pretrain_iteration=2, eval_episodes=2, env_workers=1,
        model=ModelConfig(hidden=8, layers=1, heads=1, context_length=2),
    )  # fmt: skip
    study = Study(folder / "out", ("imported/aim",), (Arm.parse("dt"),), (0,), base, "test")
    study.write(["test"])
    assert LocalLauncher(1).run(study.jobs, StudyView(1, 0)) == {}
    assert study.jobs[0].is_finished
    assert not (folder.parent / "marker").exists()


def test_processes_of_data(folder: Path) -> None:
    shard = Shard("Pendulum-v1", None, (-5.0, 2.0), 10, (0,))
    [arrays] = play_shards([shard], folder / "shards", 1, lambda steps: None)
    assert len(arrays["rewards"]) >= 10
    assert not (folder.parent / "marker").exists()


@pytest.mark.parametrize("first", ["", "here"])
def test_the_current_folder_comes_last_in_other_processes(
    first: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where this process looks there first, as with python -m and in notebooks."""
    path = [os.getcwd() if first else "", *(path for path in sys.path if path)]
    monkeypatch.setattr(sys, "path", path)
    assert paths_for_workers() == [*path[1:], os.getcwd()]
    monkeypatch.setattr(sys, "path", path[1:])
    assert paths_for_workers() == path[1:]
    find_own_modules()
    find_own_modules()
    assert sys.path == [*path[1:], os.getcwd()]
    envs = Environments(lambda: gymnasium.make("my_own_env:Own-v0"), 2, 1, pytest.fail)
    envs.reset([0, 1])
    envs.step(np.zeros((2, 1)), np.ones(2, bool), 0)
    envs.close()
    sys.modules.pop("my_own_env")
    gymnasium.registry.pop("Own-v0")
    assert not (folder.parent / "marker").exists()
