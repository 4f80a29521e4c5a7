import os
import signal
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from hypothesis import settings

import build_site

# CI runners are slow and noisy: examples are bounded by number, not by time; failures repeat.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("default")

# The tensors are small, and threads that wait for each other on a busy machine are slow: here and in other processes.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# What a script starts in the background ignores Ctrl-C, and so do the processes that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
)


@pytest.fixture(params=["cpu", CUDA])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug on a test, and runs that keep a checkpoint of every update wait seconds for the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The documentation site, built once for all processes of a test run."""
    lacking = build_site.missing()
    if lacking is not None:
        pytest.skip(lacking)
    shared = tmp_path_factory.getbasetemp()
    folder = (shared if worker_id == "master" else shared.parent) / "site"
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "index.html").exists():
            build_site.build(folder)
    return folder
