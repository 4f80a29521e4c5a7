"""Half-precision copies of the weights, for updates and acting under bf16 autocast.

Autocast casts every float32 weight down in the forward pass, and its gradient up in the backward pass: two small
kernels per weight. Here all weights are cast in one call and all gradients in another; while acting, once per rollout.
The numbers are the same, except for biases that one of our kernels would have added in float32.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class HalfWeights:
    """bf16 copies of the weights of all linear layers in a module; the float32 weights are still what is learned."""

    def __init__(self, module: nn.Module) -> None:
        layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
        places = [(layer, name) for layer in layers for name in ("weight", "bias")]
        self._places = [(layer, name) for layer, name in places if getattr(layer, name) is not None]
        self._weights: list[Tensor] = [getattr(layer, name) for layer, name in self._places]
        self._copies: list[Tensor] = [nn.Parameter(weight.detach().bfloat16()) for weight in self._weights]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Use fresh copies in place of the weights; afterwards the weights have the gradients of the copies."""
        for copy in self._copies:
            copy.grad = None  # left over from a failed backward
        self.refresh()
        with self.held():
            yield
        self._hand_over()

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights as they are now."""
        torch._foreach_copy_(self._copies, self._weights)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Use the copies as they are, in place of the weights."""
        self._put(self._copies)
        try:
            yield
        finally:
            self._put(self._weights)

    def _put(self, parameters: list[Tensor]) -> None:
        for (layer, name), parameter in zip(self._places, parameters, strict=True):
            setattr(layer, name, parameter)

    def _hand_over(self) -> None:
        """Cast the gradients of the copies up, as gradients of the weights."""
        reached = [pair for pair in zip(self._weights, self._copies, strict=True) if pair[1].grad is not None]
        if not reached:  # nothing was learned
            return
        wide = [torch.empty_like(weight) for weight, _ in reached]
        torch._foreach_copy_(wide, [copy.grad for _, copy in reached if copy.grad is not None])
        for (weight, copy), gradient in zip(reached, wide, strict=True):
            weight.grad, copy.grad = gradient, None
