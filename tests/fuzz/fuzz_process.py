"""Reads damaged files in turn and says which rule each broke: fuzz_process.py FORMAT FOLDER FIRST COUNT.

A process of its own: what ends it, or takes its memory, ends nothing else. Before each case its number is written, so
that a crash has a name; after it a line of JSON.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

MOST_SECONDS, MOST_LINES, MOST_BYTES = 10, 6, 2**30
ROOM = 4 * 2**30
"""Address space beyond what is there when it begins: protects the machine. What keeps the rule never reaches it."""


def main(name: str, place: Path, first: int, count: int) -> None:
    """Cases `first` to `first + count` of a format; each follows from its number alone."""
    import mental_accounts.cli
    from tests.fuzz.formats import FORMATS, good_folder

    warnings.simplefilter("ignore")
    _keep_data_in(place / "good")
    path = good_folder(name, place / "good")
    good, known = path.read_bytes(), _files(place / "good")
    folder = place / "case"
    _keep_data_in(folder)
    shutil.copytree(place / "good", folder, dirs_exist_ok=True)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = _read(mental_accounts.cli.main, FORMATS[name].command(folder))  # a good one: memory that any takes
    assert code == 0, f"a good file is refused: {name}"
    _limit_memory()
    for case in range(first, first + count):
        print(f"case {case}", flush=True)
        rng = random.Random(f"{name} {case}")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(place / "good", folder)
        damaged = folder / path.relative_to(place / "good")
        damaged.write_bytes(FORMATS[name].mutate(good, rng))
        before, peak = hashlib.sha256(damaged.read_bytes()).digest(), _peak()
        out, err, began = io.StringIO(), io.StringIO(), time.monotonic()
        signal.alarm(3 * MOST_SECONDS)
        broken = []
        arguments: list[str] | int = []
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                arguments = FORMATS[name].command(folder)
                code = _read(mental_accounts.cli.main, arguments)
        except BaseException as error:
            code = -1
            broken.append(
                f"{type(error).__name__}: {str(error)[:200]} at {traceback.extract_tb(error.__traceback__)[-1]}"
            )
        signal.alarm(0)
        said = err.getvalue()
        broken += [f"exit code {code}: {said[-300:]}"] * (not broken and code not in (0, 2))
        broken += ["a traceback"] * ("Traceback" in said)
        broken += [f"{len(said.splitlines())} lines"] * (len(said.splitlines()) > MOST_LINES)
        broken += [f"{time.monotonic() - began:.0f} s"] * (time.monotonic() - began > MOST_SECONDS)
        broken += [f"{(_peak() - peak) / 1e6:.0f} MB"] * (_peak() - peak > MOST_BYTES)
        is_input = isinstance(arguments, int) or "resume" not in arguments
        if is_input and hashlib.sha256(damaged.read_bytes()).digest() != before:
            broken.append("the input was changed")
        stray = {file for file in _files(folder) - known if file.parts[0] not in ("cache", "run")}
        broken += [f"wrote {stray}"] * bool(stray)
        print(json.dumps({"case": case, "code": code, "broken": broken}), flush=True)


def _keep_data_in(folder: Path) -> None:
    os.environ |= {"MENTAL_ACCOUNTS_CACHE": str(folder / "cache"), "MINARI_DATASETS_PATH": str(folder / "minari")}


def _read(run: object, arguments: list[str] | int) -> int:
    """The exit code of a command, or of what was read without one."""
    if isinstance(arguments, int):
        return arguments
    try:
        return run(arguments)  # type: ignore[operator]
    except SystemExit as stop:
        return int(stop.code or 0)


def _files(folder: Path) -> set[Path]:
    return {file.relative_to(folder) for file in folder.rglob("*") if file.is_file()}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limit_memory() -> None:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
