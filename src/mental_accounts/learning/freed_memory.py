"""Memory that tensors gave back, kept for the next ones.

An update on a CPU takes and gives back hundreds of megabytes. By default glibc returns large pieces to the system at
once, which then hands out zeroed pages anew: an eighth of an update.
"""

import contextlib
import ctypes
import sys

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""Of mallopt(3)."""
PIECE = 2**31 - 1
"""Bytes up to which memory comes from the heap, and may stay there unused."""
LARGEST_BEFORE = 32 * 2**20
"""What older versions of glibc allow for that."""
PAD = 2**26
"""Bytes that the heap grows by."""


def keep_freed_memory() -> bool:
    """Ask glibc to keep what this process frees; whether it will. For programs: it changes the whole process."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        from_heap = mallopt(MMAP_THRESHOLD, PIECE) or mallopt(MMAP_THRESHOLD, LARGEST_BEFORE)
        return bool(from_heap and mallopt(TRIM_THRESHOLD, PIECE) and mallopt(TOP_PAD, PAD))
    return False
