"""How many runs have room on this machine at a time: by its cores, and by memory, measured once runs tell theirs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mental_accounts.machine import available_memory, in_words, usable_cores
from mental_accounts.study.plan import Job

GIBIBYTE = 2**30
HEADROOM = 0.9
"""The share of free memory that runs may take."""


@dataclass(frozen=True)
class Footprint:
    """The most memory that a run has taken so far, in bytes."""

    host: int
    gpu: int

    def __or__(self, other: "Footprint") -> "Footprint":
        """The larger of both, in each."""
        return Footprint(max(self.host, other.host), max(self.gpu, other.gpu))


GUESSED = Footprint(host=2 * GIBIBYTE, gpu=4 * GIBIBYTE)
"""Until a run has told."""


@dataclass(frozen=True)
class Room:
    """What was free when the study began."""

    cores: int
    host: int
    gpu: int | None
    """None: no run uses a GPU."""

    @classmethod
    def for_jobs(cls, jobs: Sequence[Job]) -> "Room":
        """What this machine has free now."""
        uses_gpu = torch.cuda.is_available() and any(job.config.device != "cpu" for job in jobs)
        return cls(usable_cores(), available_memory(), torch.cuda.mem_get_info()[0] if uses_gpu else None)

    def runs(self, each: Footprint = GUESSED) -> int:
        """How many runs of this footprint there is room for, at least 1."""
        limits = [self.cores, int(HEADROOM * self.host / each.host)]
        if self.gpu is not None and each.gpu:
            limits.append(int(HEADROOM * self.gpu / each.gpu))
        return max(1, min(limits))

    def describe(self, each: Footprint) -> str:
        """What limits the number of runs, in words."""
        found = f"{self.cores} cores, {in_words(self.host)} free, a run takes {in_words(each.host)}"
        return found if self.gpu is None else f"{found}; GPU {in_words(self.gpu)} free, {in_words(each.gpu)} a run"
