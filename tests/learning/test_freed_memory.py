"""Freed memory stays with the process: an update's tensors meet no fresh pages."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from mental_accounts.learning.freed_memory import keep_freed_memory
kept = {kept}
assert not kept or keep_freed_memory()
def take():
    for _ in range(20):
        torch.ones(12_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
take()
before = take()
print(take() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc")
def test_freed_memory_is_kept() -> None:
    faults = []
    for kept in (False, True):
        script = SCRIPT.format(kept=kept)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        faults.append(int(done.stdout))
    assert faults[1] < 0.2 * faults[0], faults
