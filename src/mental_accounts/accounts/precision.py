"""Accounts keep full precision: neither `model.half()` nor autocast may round borders, balances or payoffs."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar

import torch
from torch import Tensor, nn

P = ParamSpec("P")
Owner = TypeVar("Owner")
Result = TypeVar("Result")


class FullPrecisionModule(nn.Module):
    """A module whose buffers follow the model to its device, but keep their type when the model is cast."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = self._buffers[name]
            if old is not None and new is not None and new.dtype != old.dtype:
                self._buffers[name] = old.to(new.device)
        return self


def without_autocast(
    method: Callable[Concatenate[Owner, Tensor, P], Result],
) -> Callable[Concatenate[Owner, Tensor, P], Result]:
    """Run a method with autocast off on the device of its first tensor."""

    @wraps(method)
    def run(self: Owner, first: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        if not isinstance(first, Tensor):
            raise TypeError(f"{method.__name__} expects a tensor first, got {type(first).__name__}")
        with torch.autocast(first.device.type, enabled=False):
            return method(self, first, *args, **kwargs)

    return run


def full_precision(values: Tensor) -> Tensor:
    """float64 stays, everything else becomes float32."""
    return values if values.dtype == torch.float64 else values.float()
