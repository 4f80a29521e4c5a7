"""Files that appear whole or not at all: written under a temporary name, flushed to the disk, renamed."""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

ABANDONED_SECONDS = 24 * 3600
"""Temporary files older than this belong to nobody."""


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, renamed to it where the block succeeds and removed where it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.*.part"):  # a process that was killed could not remove its own
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
                left.unlink()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write one file, replacing what was there at the last moment."""
    with whole_file(path) as temporary:
        temporary.write_bytes(data)


def slug(text: str) -> str:
    """Text as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-")
