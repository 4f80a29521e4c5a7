"""Files from strangers: whatever is in them, a command ends with exit code 0 or 2 and a few lines, and nothing else.

pytest tests/fuzz              # a few damaged files of each format
pytest tests/fuzz -m fuzz      # 400 of each
"""

import json
from pathlib import Path

import pytest

from tests.fresh_process import FreshProcess
from tests.fuzz import fuzz_process
from tests.fuzz.formats import FORMATS

MANY = 400
SLOW = {
    "policy.json",
    "weights",
    "config.json",
    "task.json",
    "metrics.jsonl",
    "checkpoint, state",
    "checkpoint, tensors",
    "trajectories of a run",
}
"""These are read by commands that play or train a little where the damage does no harm."""


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    check(name, 15 if name in SLOW else 40, tmp_path)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    check(name, MANY, tmp_path)


def check(name: str, count: int, tmp_path: Path) -> None:
    process = FreshProcess(tmp_path, fuzz_process.main, name, tmp_path, 0, count)
    code, lines = process.wait(3600), process.stdout.splitlines()
    assert code == 0, f"the process ended in {lines[-1:]}: {process.stderr[-2000:]}"
    cases = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(cases) == count
    broken = [case for case in cases if case["broken"]]
    print(f"{name}: {count} files, {sum(case['code'] == 2 for case in cases)} refused, {len(broken)} broke the rule")
    assert not broken, f"{len(broken)} of {count}, the first: {broken[:5]}"
