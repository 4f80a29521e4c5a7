"""Where modules are looked for: the user's own, in the current folder, always last."""

import contextlib
import os
import sys


def find_own_modules() -> None:
    """Let modules of the current folder be found, for `--env-id my_module:My-v0`: last, so that they hide no other."""
    with contextlib.suppress(OSError):  # a folder that is gone has no modules
        if "" not in sys.path and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())


def paths_for_workers() -> list[str]:
    """Where another process is to look for modules: as here, but in the current folder last."""
    here = {""}
    with contextlib.suppress(OSError):
        here.add(os.getcwd())
    others = [path for path in sys.path if path not in here]
    return others if len(others) == len(sys.path) else [*others, max(here)]
