"""Repeated updates without host overhead: on a GPU one update is captured in a CUDA graph and replayed.

Launching an update's kernels one by one takes longer than running them. The graph holds everything, from drawing
windows to the step of λ; what changes from one update to the next (random numbers, learning rate, the live part of the
store) is in tensors that every replay reads again.
"""

import warnings
from collections.abc import Callable

import torch

from mental_accounts.data.windows import WindowSampler
from mental_accounts.learning.update import Updater
from mental_accounts.machine import is_out_of_memory

WARM_UPS = 3
"""Eager updates before the capture: they set up optimiser states and workspaces, and count as updates."""
AHEAD = 16
"""How many updates the host asks for at a time. It sleeps until all before them are done: asking for more would make it
wait for room in the driver's queue, which takes a whole core, where runs that share the GPU could play episodes."""


class RepeatedUpdate:
    """`step()` makes one update on windows from a sampler; captured on a GPU, eager elsewhere."""

    def __init__(self, updater: Updater, sampler: WindowSampler, say: Callable[[str], None]) -> None:
        self.updater, self.sampler, self.say = updater, sampler, say
        if updater.is_compiled:
            sampler.compile()
        self.wanted = updater.policy.device.type == "cuda"
        self.graph: torch.cuda.CUDAGraph | None = None
        self._asked: torch.cuda.Event | None = None
        self.made = 0

    def step(self) -> None:
        """One update."""
        if self.graph is None and self.wanted and self.made >= WARM_UPS:
            self._capture()
        if self.graph is not None:
            self.sampler.refresh()
            self.graph.replay()
            if self.made % AHEAD == 0:
                self._wait()
        elif self.wanted:
            self._on_side_stream()
        else:
            self._update()
        self.made += 1

    def _wait(self) -> None:
        """Sleep until the updates are done that were asked for before the last call."""
        if self._asked is not None:
            self._asked.synchronize()
        self._asked = torch.cuda.Event(blocking=True)
        self._asked.record()

    def _update(self) -> None:
        try:
            with warnings.catch_warnings():
                if self.updater.is_compiled and not self.made:  # compilers print advice meant for their developers
                    warnings.simplefilter("ignore")
                self.updater.learn_from(self.sampler)
        except Exception as error:
            if not self.updater.is_compiled or self.made or is_out_of_memory(error):
                raise
            self.say(f"updates cannot be compiled here ({_first_line(error)}); continuing without, more slowly")
            self.updater.uncompile()
            self.sampler.uncompile()
            self.updater.learn_from(self.sampler)

    def _on_side_stream(self) -> None:
        """One eager update on a side stream, as required before a capture."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._update()
        torch.cuda.current_stream().wait_stream(stream)

    def _capture(self) -> None:
        """Capture one update without running it."""
        self.sampler.store.pin_addresses()
        self.sampler.refresh()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.sampler.generator)
        try:
            with torch.cuda.graph(graph):
                self.updater.learn_from(self.sampler)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            self.wanted = False
            self.say(f"updates cannot be captured in a CUDA graph here ({error}); continuing without, more slowly")
            return
        self.graph = graph


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[0]
