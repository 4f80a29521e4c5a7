"""Freed memory stays with the process: an update's tensors meet no fresh pages."""

import resource
import sys
from pathlib import Path

import pytest
import torch

from mental_accounts.learning.freed_memory import keep_freed_memory
from tests.fresh_process import FreshProcess


def print_faults(kept: bool) -> None:
    assert not kept or keep_freed_memory()

    def take() -> int:
        for _ in range(20):
            torch.ones(12_000_000)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    take()
    before = take()
    print(take() - before)


@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc")
def test_freed_memory_is_kept(tmp_path: Path) -> None:
    faults = []
    for kept in (False, True):
        process = FreshProcess(tmp_path, print_faults, kept)
        assert process.wait(120) == 0, process.stderr
        faults.append(int(process.stdout))
    assert faults[1] < 0.2 * faults[0], faults
