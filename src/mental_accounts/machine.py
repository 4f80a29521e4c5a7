"""What this machine has: cores, memory and devices, and words for what is too large for it."""

import contextlib
import math
import os
import resource
import sys
from pathlib import Path

import torch

from mental_accounts.errors import NoRoomError, UsageError

CONTAINER = Path("/sys/fs/cgroup")
FULL = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator: can't allocate memory",
)
"""How libraries say that memory is full."""


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def most_threads() -> int:
    """How many threads a process should take at most: as many as `OMP_NUM_THREADS` says, else one for each core."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else usable_cores()


def available_memory() -> int:
    """Bytes that new processes may take: of the machine, and of the container where there is one."""
    left = [_of_machine()]
    with contextlib.suppress(OSError, ValueError, KeyError):  # `max` where the container has no limit
        most, taken = (int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current"))
        counts = dict(line.split() for line in (CONTAINER / "memory.stat").read_text().splitlines())
        cached = int(counts["active_file"]) + int(counts["inactive_file"])  # given back when it is asked for
        left.append(most - taken + cached)
    return max(0, min(left))


def own_memory() -> int:
    """Bytes that this process takes; what several processes share counts in part for each."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _of_machine() -> int:
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it followed from, says that memory is full: the machine's, or a GPU's."""
    if error is None:
        return False
    kinds = (MemoryError, torch.OutOfMemoryError, NoRoomError)
    says_so = isinstance(error, kinds) or any(text in str(error) for text in FULL)
    return says_so or is_out_of_memory(error.__context__)


def in_words(count: int) -> str:
    """Bytes for people: 3.2 GB."""
    for unit, size in (("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("TB", 10**12)):
        if count < 1000 * size:
            return f"{count / size:.1f} {unit}"
    return f"{roughly(count // 10**12)} TB"


def roughly(count: int) -> str:
    """A whole number for people, however large: 1,234, or 10^30."""
    return f"{count:,}" if count < 10**9 else f"10^{int(math.log10(count))}"


def choose_device(name: str) -> torch.device:
    """The device that is meant: a GPU where there is one, for auto."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise UsageError(f"device must be auto, cpu or cuda, got {name!r}")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device must be auto, cpu, cuda or one of several, as in cuda:1, got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("device cuda was asked for, but there is none; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"device {name} was asked for, but the last one is cuda:{torch.cuda.device_count() - 1}")
    return device


def use_device(name: str) -> torch.device:
    """As `choose_device`; one of several GPUs becomes the current one, which graphs and kernels of our own run on."""
    device = choose_device(name)
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return device
