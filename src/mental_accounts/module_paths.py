"""The module search path: the user's own modules, in the current folder, always come last."""

import contextlib
import os
import sys


def find_own_modules() -> None:
    """Make modules in the current folder importable, for `--env-id my_module:My-v0`: last, so they shadow no other."""
    with contextlib.suppress(OSError):  # the folder may have been deleted
        if "" not in sys.path and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())


def paths_for_workers() -> list[str]:
    """The module search path for another process: as here, but with the current folder last."""
    here = {""}
    with contextlib.suppress(OSError):
        here.add(os.getcwd())
    others = [path for path in sys.path if path not in here]
    return others if len(others) == len(sys.path) else [*others, max(here)]
