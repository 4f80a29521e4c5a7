"""How this program was called, with what, and commands that can be pasted; and text for a terminal."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

NAME = "mental-accounts"
MOST_WORDS = 4000
"""Longest error in characters; some list every possible choice."""


def command(arguments: Sequence[str]) -> str:
    """A command that can be pasted, even if this one was called by its path."""
    program = NAME
    if shutil.which(NAME) is None:
        called = shlex.quote(sys.argv[0])
        program = called if Path(sys.argv[0]).name == NAME else f"{shlex.quote(sys.executable)} -m mental_accounts"
    return f"{program} {shlex.join(arguments)}"


def value_of(arguments: Sequence[str], flag: str) -> str | None:
    """What a flag was given, as `--flag value` or `--flag=value`; None if it was not, the last if it was twice."""
    found = None
    for place, text in enumerate(arguments):
        name, attached, value = text.partition("=")
        if name == flag:
            found = value if attached else "".join(arguments[place + 1 : place + 2])
    return found


def one_line(text: str) -> str:
    """Text for a terminal: one line, of limited length, without control characters."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return plain if len(plain) <= MOST_WORDS else f"{plain[:MOST_WORDS]}..."
