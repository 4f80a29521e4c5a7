"""The command line: `mental-accounts COMMAND`. The commands themselves are in commands/."""

import contextlib
import difflib
import importlib
import importlib.metadata
import io
import itertools
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from mental_accounts.commands.comparing import Compare, ReportCommand, Reproduce, usual_compare
from mental_accounts.commands.data import Data
from mental_accounts.commands.exporting import Export
from mental_accounts.commands.inspecting import Inspect
from mental_accounts.commands.program import NAME, one_line
from mental_accounts.commands.training import Evaluate, Resume, Train, starting_point
from mental_accounts.commands.zoo_table import Zoo
from mental_accounts.errors import BrokenEnvironmentError, CheckpointError, DivergenceError, UsageError
from mental_accounts.learning.signals import StopSignal
from mental_accounts.module_paths import find_own_modules

USAGE_ERROR = 2
BAD_INPUT = (ValueError, OSError, ImportError, UsageError, CheckpointError)
FAILED = (BrokenEnvironmentError, DivergenceError)


@dataclass(frozen=True)
class Version:
    """Print the version of this package, like `--version`."""

    def execute(self) -> int:
        """Print the version."""
        print(f"mental-accounts {importlib.metadata.version('mental-accounts')}")
        return 0


AfterTrain = (
    Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Export, tyro.conf.subcommand("export")]
)
AfterCompare = (
    Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[ReportCommand, tyro.conf.subcommand("report")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Zoo, tyro.conf.subcommand("zoo")]
    | Annotated[Version, tyro.conf.subcommand("version")]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns the exit code: 0 on success; 2 on a usage error, with one line on standard error; 1 if an environment failed
    or training diverged; 3 if some runs of a comparison failed; 130 or 143 if interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given in (["--version"], ["version"]):
            return Version().execute()
        check_given(given)
        # The defaults of `train` and `compare` come from the given preset (or config.json).
        train = Annotated[Train, tyro.conf.subcommand("train", default=starting_point(given))]
        compare = Annotated[Compare, tyro.conf.subcommand("compare", default=usual_compare(given))]
        commands = train | AfterTrain | compare | AfterCompare
        try:
            command = tyro.cli(commands, prog=NAME, args=given)
        except SystemExit as stop:
            if stop.code == USAGE_ERROR:
                print(_hint(commands, given), file=sys.stderr)
            raise
        importlib.import_module("torch")  # it tries modules that are not installed: first, lest it find the user's own
        find_own_modules()
        code: int = command.execute()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        print("interrupted", file=sys.stderr)
        return 128 + (stop.signal_number if isinstance(stop, StopSignal) else signal.SIGINT)
    except (*FAILED, *BAD_INPUT) as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return 1 if isinstance(error, FAILED) else 2


def _hint(commands: Any, given: Sequence[str]) -> str:
    """Where to read on after a usage error; with options that are spelled nearly like unknown ones."""
    words = list(itertools.takewhile(lambda word: not word.startswith("-"), given))[: 2 if given[:1] == ["data"] else 1]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown), contextlib.suppress(SystemExit):
        tyro.cli(commands, prog=NAME, args=[*words, "--help"])
    text, command = shown.getvalue(), " ".join([NAME, *words])
    if not text.startswith(f"usage: {command} "):  # there is no such command
        return f"All commands: {NAME} --help"
    known = set(re.findall(r"--[a-z][\w.-]*", text))
    asked = dict.fromkeys(word.partition("=")[0].replace("_", "-") for word in given if word.startswith("--"))
    near = [difflib.get_close_matches(flag, known, n=1) for flag in asked if flag not in known]
    meant = " ".join(flag for found in near for flag in found)
    return f"{f'Did you mean {meant}? ' if meant else ''}All options: {command} --help"


def check_given(given: Sequence[str]) -> None:
    """Refuse a flag with an empty value: an empty path would mean the current folder."""
    for place, text in enumerate(given):
        flag, attached, value = text.partition("=")
        if not text or (attached and not value and flag.startswith("--")):
            name = flag or next((word for word in reversed(given[:place]) if word.startswith("--")), "an argument")
            raise UsageError(f"{name} is given nothing; say what is meant, or leave it out")
