"""One process at a time writes a folder or a file."""

import contextlib
import fcntl
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from mental_accounts.errors import UsageError


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process may write the folder; the lock goes with its process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UsageError(f"{folder} is being written by {holder}; wait for it, or choose another folder") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        yield


@contextlib.contextmanager
def in_turn(file: Path) -> Iterator[None]:
    """Only one process makes the file; others wait here, and find it made. The lock goes with its process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    path = file.with_name(f".{file.name}.lock")
    while True:
        with path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists() or not os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                continue  # whoever held it before us has removed it
            try:
                yield
            finally:
                path.unlink()
            return
