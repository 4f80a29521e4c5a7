"""Processes that begin with everything imported: forked from a server that has imported it, once for all tests.

Importing torch alone takes `python -c` two seconds of a core. These are processes of their own all the same: they may
be killed, and what they change, take or break is theirs.
"""

import contextlib
import multiprocessing
import multiprocessing.forkserver
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([
    "tests.fresh_process", "tests.fuzz.formats", "mental_accounts.cli", "mental_accounts.front_door.compare",
    "mental_accounts.front_door.train", "torch._dynamo", "torch.utils.tensorboard",
])  # fmt: skip


class FreshProcess:
    """`call(*arguments)` in a process of its own, in the environment of now; it prints to files of `folder`."""

    def __init__(self, folder: Path, call: Callable[..., object], *arguments: Any) -> None:
        self._out, self._errors = folder / "printed.txt", folder / "errors.txt"
        printed = (str(self._out), str(self._errors))
        self._process = SERVER.Process(target=_run, args=(dict(os.environ), printed, call, arguments))
        with contextlib.chdir(ROOT):  # where it finds the modules of tests
            multiprocessing.forkserver.ensure_running()
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        if self.poll() is None:
            os.kill(self._process.pid, number)

    def wait(self, seconds: float = 300) -> int:
        """The exit code; less than 0 for a signal, as subprocess has it."""
        self._process.join(seconds)
        assert self._process.exitcode is not None, f"not over after {seconds} s"
        return self._process.exitcode

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._errors.read_text()


def command(*arguments: str) -> None:
    """As `python -m mental_accounts` does."""
    from mental_accounts.cli import main

    sys.argv = ["mental-accounts", *arguments]
    sys.exit(main())


def _run(environment: dict[str, str], printed: tuple[str, str], call: Callable[..., object], arguments: Any) -> None:
    os.environ.clear()  # the server has that of its start
    os.environ.update(environment)
    tempfile.tempdir = None
    for descriptor, path in enumerate(printed, 1):
        with open(path, "w") as file:
            os.dup2(file.fileno(), descriptor)
    torch.set_num_threads(1)
    call(*arguments)
