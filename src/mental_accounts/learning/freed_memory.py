"""Memory freed by tensors, kept for the next ones.

An update on a CPU allocates and frees hundreds of megabytes. By default glibc returns large blocks to the system at
once, which then has to provide zeroed pages again: an eighth of an update.
"""

import contextlib
import ctypes
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""Parameters of mallopt(3)."""
PIECE = 2**31 - 1
"""Allocations up to this many bytes come from the heap, and this many bytes may stay there unused."""
LARGEST_BEFORE = 32 * 2**20
"""The limit in older versions of glibc."""
PAD = 2**26
"""The heap grows by this many bytes."""


def keep_freed_memory() -> bool:
    """Ask glibc to keep freed memory; returns whether it will. For programs: it affects the whole process."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        from_heap = mallopt(MMAP_THRESHOLD, PIECE) or mallopt(MMAP_THRESHOLD, LARGEST_BEFORE)
        return bool(from_heap and mallopt(TRIM_THRESHOLD, PIECE) and mallopt(TOP_PAD, PAD))
    return False
