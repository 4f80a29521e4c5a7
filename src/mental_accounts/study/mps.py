"""NVIDIA's Multi-Process Service (MPS): kernels of several runs on a GPU side by side, instead of taking turns.

It is used where it is there, and never needed: where it cannot be started or does not answer, runs take turns.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
USUAL_PIPES = Path("/tmp/nvidia-mps")
"""Where a service is that somebody else has started."""
SECONDS = 30
"""How long it may take to start, to answer and to end."""
PROBE = """
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
sys.exit(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
"""
"""A program that begins to use the first GPU; its exit code is not 0 if it cannot."""


@contextlib.contextmanager
def multi_process_service(*, wanted: bool = True) -> Iterator[dict[str, str]]:
    """Start the service, and end it afterwards; yields the environment variables of processes that are to use it.

    None where it is not wanted, not there, or does not work; and where one is running already, which is used anyway.
    """
    control = shutil.which(CONTROL)
    if not wanted or control is None or PIPES in os.environ or USUAL_PIPES.exists():
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="mental-accounts-mps-", ignore_cleanup_errors=True) as place:
        environ = {PIPES: f"{place}/pipe", LOGS: f"{place}/log"}
        for folder in environ.values():
            Path(folder).mkdir()
        try:
            works = _ends_well([control, "-d"], environ) and _ends_well([sys.executable, "-c", PROBE], environ)
            yield environ if works else {}
        finally:
            _ends_well([control], environ, told=f"quit -t {SECONDS // 3}\n")


def _ends_well(command: list[str], environ: dict[str, str], told: str = "") -> bool:
    """Whether a program ends in time, with exit code 0."""
    try:
        done = subprocess.run(
            command,
            env=os.environ | environ,
            input=told,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
            start_new_session=True,  # Ctrl-C is for us: we end it
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
