"""What a reader may take of the machine for a file of a stranger: one line, two seconds, a gigabyte."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mental_accounts.data import DataError

PROGRAM = """
import resource, sys
import h5py
import mental_accounts.data as data
begun = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (begun + 2**30, begun + 2**30))
for path in sys.argv[2:]:
    try:
        getattr(data, sys.argv[1])(path)
        print("read")
    except data.DataError as error:
        print("MemoryError" if "allocate" in str(error) or "MemoryError" in str(error) else "refused")
"""


def assert_refused_within_a_gigabyte(paths: list[Path], reader: str) -> None:
    arguments = [sys.executable, "-c", PROGRAM, reader, *map(str, paths)]
    done = subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
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
