"""Files that appear whole or not at all: written under a temporary name, flushed to the disk, renamed.

And JSON, which may come from strangers: read within bounds, and refused in one line.
"""

import contextlib
import errno
import io
import json
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LARGEST = 2**26
"""Bytes of a JSON file; ours have some thousand."""
LARGEST_LINES = 2**28
"""Bytes of one that has an object a line; a line of ours has about two thousand."""
DEEPEST = 50
"""Levels of lists and objects within each other; ours have four."""
RUNS_DEEP = 5
"""Levels from a folder of comparisons down to its runs."""
LONGEST_NUMBER = 300
"""Digits of a whole number: any of them is a float, too."""
ABANDONED_SECONDS = 24 * 3600
"""Temporary files older than this belong to nobody."""


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, renamed to it where the block succeeds and removed where it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.*.part"):  # a process that was killed could not remove its own
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
                left.unlink()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise named(error, path) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write one file, replacing what was there at the last moment."""
    with whole_file(path) as temporary:
        temporary.write_bytes(data)


def named(error: OSError, path: Path) -> OSError:
    """A full or failing disk with the file that could not be written; any other error as it is."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OSError(f"{path} could not be written: {error.strerror}; make room there first")
    if error.errno in (errno.EIO, errno.EROFS, errno.EFBIG):
        return OSError(f"{path} could not be written: {error.strerror}")
    return error


def read_text(path: Path, most: int = LARGEST) -> str:
    """The text of a plain file of at most so many bytes."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing")
    if not path.is_file():
        raise ValueError(f"{path} cannot be read: it is {'a folder' if path.is_dir() else 'no plain file'}")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path} cannot be read: it has more than {most / 2**20:.0f} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read: byte {error.start} is no UTF-8") from None


def read_json(path: Path, most: int = LARGEST) -> Any:
    """What a JSON file holds, or a ValueError of one line that names the file."""
    return parse_json(read_text(path, most), str(path))


def parse_json(text: str, where: str) -> Any:
    """What JSON says, or a ValueError of one line: also for what is too deep, too long, or said twice.

    NaN and Infinity are numbers here as they are for Python, which wrote them: whoever needs a finite one checks.
    """
    try:
        found = _DECODER.decode(text)
        if text.count("[") + text.count("{") > DEEPEST:
            _check_depth(found)
    except RecursionError:
        raise ValueError(f"{where} cannot be read: {_TOO_DEEP}") from None
    except json.JSONDecodeError as error:
        reason = f"{error}, it is not JSON" if text.strip() else "it is empty"
        raise ValueError(f"{where} cannot be read: {reason}") from None
    except ValueError as error:
        raise ValueError(f"{where} cannot be read: {error}") from None
    return found


def read_lines(path: Path) -> list[str]:
    """With their ends. Only a newline ends a line: JSON may hold what else does elsewhere."""
    return list(io.StringIO(read_text(path, LARGEST_LINES), newline="\n"))


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of all whole lines; a last one that was cut short is left out."""
    found = _parse_flat_lines(read_text(path, LARGEST_LINES))
    if found is not None:
        return found
    found = []
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        try:
            value = parse_json(line, where)
            if not isinstance(value, dict):
                raise ValueError(f"{where} cannot be read: it holds no JSON object")
            found.append(value)
        except ValueError:
            if line.endswith("\n"):
                raise
    return found


def _parse_flat_lines(text: str) -> list[dict[str, Any]] | None:
    """JSON that has an object of plain values a line, parsed at once, which is faster; None where it is something else.

    As many `{` and `}` as lines, at their beginnings and ends, leave no way for an object to span two of them.
    """
    lines = text.count("\n")
    counts = {text.count("{"), f"\n{text}".count("\n{"), text.count("}\n")}
    if counts != {lines} or not text.endswith("\n") or "[" in text:
        return None
    joined = text[:-1].replace("\n", ",\n")
    try:
        found: list[dict[str, Any]] = _DECODER.decode(f"[{joined}]")
    except ValueError:
        return None
    return found


_TOO_DEEP = f"lists and objects lie more than {DEEPEST} deep in each other"


def _fields_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the field {twice[:80]!r} is there twice")
    return found


def _whole_number(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} digits, {text[:20]}..., cannot be meant")
    return int(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_fields_once, parse_int=_whole_number)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST + 1):
        within: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                within += item.values()
            elif isinstance(item, list):
                within += item
        if not within:
            return
        level = within
    raise ValueError(_TOO_DEEP)


def data_name(text: str) -> str:
    """Text as a name of data: letters, digits, and . _ - in between."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")


def slug(text: str) -> str:
    """Text as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-")


def runs_within(folder: Path) -> str:
    """In words, how many runs lie in a folder, and one or two of them; empty if there are none."""
    for depth in range(1, RUNS_DEEP + 1):
        found = sorted(path.parent for path in folder.glob("*/" * depth + "config.json"))
        if found:
            these = " or ".join(map(str, found[:2]))
            return f"holds {len(found)} {'run' if len(found) == 1 else 'runs'}: give {these}"
    return ""
