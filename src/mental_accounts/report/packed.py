"""A whole comparison in one file, small enough to commit or send: gzip-compressed lines of JSON.

The first line is the study: study.json without its runs, and the settings and task facts of the first run, as the base.
Each further line is a run: its entry in study.json, its settings where they differ from the base, its summary, and its
metrics line by line. Nothing is rounded or left out: reading returns the values of the files, bit for bit, in the same
order. Policies and checkpoints are not included.

The same study gives the same bytes (with the same zlib). A packed file may come from a stranger: anything else is
refused in one line, and the unpacked size is limited (`most_unpacked`).
"""

import copy
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mental_accounts.errors import UsageError
from mental_accounts.fields import check_fields, shown
from mental_accounts.files import parse_json, write_atomically
from mental_accounts.report.study_files import PlannedRun, RunFiles, StudyFiles, check_entry, check_study

PACKED_FILE = "runs.jsonl.gz"
SUFFIX = ".jsonl.gz"
FORMAT, VERSION = "mental-accounts study", 1
LARGEST_LINE, LARGEST_UNPACKED = 2**23, 2**28
"""Limits in bytes for a run and for a study; an iteration takes about a thousand."""
ALWAYS_UNPACKED, LARGEST_RATIO = 2**24, 50
"""Larger files may unpack to this multiple of their size: ours grow fivefold, zeros a thousandfold."""
HEADER = {"format": "text", "version": "a whole number", "name": "text", "study": "an object", "base": "an object"}
LINE = {"planned": "an object", "config": "an object", "run": "an object or null"}
RUN = {"settings": "an object", "summary": "an object or null", "metrics": "a list"}
SETTINGS = {"made": "an object", "facts": "an object or null"}


def write_packed(files: StudyFiles, path: Path) -> int:
    """Pack a comparison; returns the number of runs. Missing runs stay missing, unfinished ones unfinished."""
    if not path.name.endswith(SUFFIX):
        raise UsageError(f"a packed file must be called NAME{SUFFIX}, got {path}")
    found: list[tuple[PlannedRun, RunFiles | None]] = []
    for planned in files.runs:
        name = f"{planned.entry['task']} {planned.entry['method']} seed {planned.entry['seed']}"
        try:
            found.append((planned, planned.read()))
        except FileNotFoundError:
            found.append((planned, None))
        except (ValueError, OSError) as error:
            raise UsageError(f"{name} cannot be packed: {error}; fix it, or delete its folder") from error
    runs = [run for _, run in found if run is not None]
    base = _settings(runs[0]) if runs else {"made": {}, "facts": None}
    header = {"format": FORMAT, "version": VERSION, "name": files.name, "study": files.study, "base": base}
    lines = [header, *(_line(planned.entry, run, base) for planned, run in found)]
    texts = [(json.dumps(line, separators=(",", ":")) + "\n").encode() for line in lines]
    data = gzip.compress(b"".join(texts), 9, mtime=0)
    if max(map(len, texts)) > LARGEST_LINE or sum(map(len, texts)) > most_unpacked(len(data)):
        raise UsageError(f"{path} cannot be written: {_too_large(len(data))}")
    write_atomically(path, data)
    return len(runs)


def read_packed(path: Path) -> StudyFiles:
    """The inverse of `write_packed`. Lines are read, and checked, one by one as their runs are requested."""
    lines = _lines(path)
    where, header = next(lines, (str(path), None))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise UsageError(f"{path} cannot be read: it is not a packed study")
    try:
        check_fields(header, HEADER, where)
        if header["version"] != VERSION:
            raise ValueError(f"{path} is of format {header['version']}, and this version reads {VERSION}: update it")
        study = check_study(header["study"], where)
        check_fields(header["base"], SETTINGS, where)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return StudyFiles(header["name"], study, _runs(lines, study, header["base"]))


def _runs(lines: Iterator[tuple[str, Any]], study: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[PlannedRun]:
    for where, line in lines:
        try:
            yield _planned_run(line, study, base, where)
        except ValueError as error:
            raise UsageError(str(error)) from error


def _planned_run(line: object, study: Mapping[str, Any], base: Mapping[str, Any], where: str) -> PlannedRun:
    table = check_fields(line, LINE, where)
    run = None if table["run"] is None else _unpacked(table["run"], base, where)
    made = base["made"] if run is None else run.made
    config = applied(made.get("config"), table["config"], where)
    entry = check_entry({**table["planned"], "config": config}, study, where)

    def read() -> RunFiles:
        if run is None:
            raise FileNotFoundError(f"{where} has no run")
        return run

    return PlannedRun(entry, None, read)


def _unpacked(line: object, base: Mapping[str, Any], where: str) -> RunFiles:
    run = check_fields(line, RUN, where)
    settings = check_fields(applied(base, run["settings"], where), SETTINGS, where)
    metrics = [check_fields(row, {}, f"{where}, metrics {number}") for number, row in enumerate(run["metrics"], 1)]
    return RunFiles(settings["made"], settings["facts"], run["summary"], metrics)


def _line(entry: Mapping[str, Any], run: RunFiles | None, base: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `_planned_run`."""
    made = base["made"] if run is None else run.made
    return {
        "planned": {name: value for name, value in entry.items() if name != "config"},
        "config": changes(made.get("config"), entry["config"]),  # usually none: runs are made as planned
        "run": None
        if run is None
        else {"settings": changes(base, _settings(run)), "summary": run.summary, "metrics": run.metrics},
    }


def _settings(run: RunFiles) -> dict[str, Any]:
    return {"made": run.made, "facts": run.facts}


def changes(base: Any, value: Any, path: str = "") -> dict[str, Any]:
    """The changes that turn `base` into `value`, by dotted path; the path "" is the whole value.

    Tables whose fields, or their order, differ from the base's are replaced as a whole.
    """
    alike = isinstance(base, Mapping) and isinstance(value, Mapping) and list(base) == list(value)
    if alike and all(name and "." not in name for name in value):
        inner = [changes(base[name], value[name], f"{path}.{name}" if path else name) for name in value]
        return {key: item for found in inner for key, item in found.items()}
    return {} if json.dumps(base) == json.dumps(value) else {path: value}  # 1, 1.0 and True are different here


def applied(base: Any, changed: Mapping[str, Any], where: str) -> Any:
    """The inverse of `changes`; the base is not modified."""
    found = copy.deepcopy(base)
    for path, value in changed.items():
        if not path:
            found = value
            continue
        *parents, name = path.split(".")
        table = found
        for parent in parents:
            table = table.get(parent) if isinstance(table, dict) else None
        if not isinstance(table, dict) or name not in table:
            raise ValueError(f"{where} cannot be read: it changes {shown(path)}, which the first line does not have")
        table[name] = value
    return found


def most_unpacked(size: int) -> int:
    """Largest unpacked size in bytes of a packed file of `size` bytes."""
    return min(max(ALWAYS_UNPACKED, LARGEST_RATIO * size), LARGEST_UNPACKED)


def _too_large(size: int) -> str:
    return f"a run has more than {LARGEST_LINE / 2**20:g} MiB, or all of it more than {most_unpacked(size) >> 20} MiB"


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    """The value of each line, with its position for errors; unpacks a limited number of bytes, line by line."""
    number = 0
    try:
        size = path.stat().st_size
        left = most_unpacked(size)
        with gzip.open(path) as file:
            while text := file.readline(min(LARGEST_LINE, left) + 1):
                if len(text) > min(LARGEST_LINE, left):
                    raise ValueError(f"{path} cannot be read: {_too_large(size)}")
                number, left = number + 1, left - len(text)
                yield f"{path}, line {number}", parse_json(text.decode("ascii"), f"{path}, line {number}")
    except UnicodeDecodeError:
        raise UsageError(f"{path}, line {number} cannot be read: it is not ASCII") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UsageError(f"{path} cannot be read: it is not a packed study, or it is damaged") from None
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
