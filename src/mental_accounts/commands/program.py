"""How this program was called, so that what it advises can be pasted."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

NAME = "mental-accounts"


def command(arguments: Sequence[str]) -> str:
    """A command that can be pasted, also where this one was called by its path."""
    program = NAME
    if shutil.which(NAME) is None:
        called = shlex.quote(sys.argv[0])
        program = called if Path(sys.argv[0]).name == NAME else f"{shlex.quote(sys.executable)} -m mental_accounts"
    return f"{program} {shlex.join(arguments)}"
