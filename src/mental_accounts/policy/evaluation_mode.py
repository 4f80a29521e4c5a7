"""A policy without dropout, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def in_evaluation_mode(module: nn.Module) -> Iterator[None]:
    """The module as after `eval()`, then as before. If it is in that mode already, its parts are not visited."""
    if not module.training:
        yield
        return
    module.eval()
    try:
        yield
    finally:
        module.train()
