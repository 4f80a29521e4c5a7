"""What a reader may take of the machine for a file of a stranger: one line, two seconds, a gigabyte."""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import h5py  # noqa: F401  # before memory is limited

from mental_accounts import data
from mental_accounts.data import DataError
from tests.fresh_process import FreshProcess


def read_within_a_gigabyte(paths: list[Path], reader: str) -> None:
    status = Path("/proc/self/status").read_text().splitlines()
    begun = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (begun + 2**30, begun + 2**30))
    for path in paths:
        try:
            getattr(data, reader)(path)
            print("read")
        except DataError as error:
            print("MemoryError" if "allocate" in str(error) or "MemoryError" in str(error) else "refused")


def assert_refused_within_a_gigabyte(paths: list[Path], reader: str) -> None:
    done = FreshProcess(paths[0].parent, read_within_a_gigabyte, paths, reader)
    assert done.wait(120) == 0, done.stderr
    assert done.stdout.split() == ["refused"] * len(paths)


def assert_success_or_one_line(read: Callable[[Path], object], path: Path) -> None:
    begun = time.process_time()
    said = f"{path}: "
    try:
        read(path)
    except DataError as error:
        said = str(error)
    assert said.startswith(str(path))
    assert len(said.splitlines()) == 1
    assert time.process_time() - begun < 2
