"""The losses of a Gaussian policy in one kernel, and their gradients in another.

Written in PyTorch (objective.py) they are 100 (squashed) or 200 kernels (clipped) of a few numbers each, a good part of
a small policy's update. Compiled updates do not need this: the compiler fuses them, too.
"""

import subprocess
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mental_accounts.policy import ClippedGaussian, SquashedGaussian
from mental_accounts.policy.heads import BORDER, MARGIN

try:
    from mental_accounts.learning import triton_losses as compiled
except ImportError:  # no GPU build of PyTorch: then nothing here is used
    compiled = None  # type: ignore[assignment]

TILE = 256
"""Numbers of a tile: a small batch then still has several tiles."""


def can_fuse(predicted: ClippedGaussian | SquashedGaussian) -> bool:
    """Whether `fused_losses` supports these predictions: float32 on a GPU, outside torch.compile."""
    mean = predicted.mean
    fits = mean.is_cuda and mean.dtype == torch.float32 and not torch.compiler.is_compiling()
    return fits and compiled is not None and _can_build(mean.device)


@cache
def _can_build(device: torch.device) -> bool:
    """Whether Triton can build kernels here, for which it needs a C compiler; PyTorch's own need none."""
    try:
        compiled.nothing_kernel[(1,)](torch.empty(1, device=device))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, OSError, subprocess.SubprocessError):
        return False
    return True


def fused_losses(
    predicted: ClippedGaussian | SquashedGaussian,
    actions: Tensor,
    mask: Tensor | None,
    multiplier: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Loss, negative log-likelihood, entropy and constraint, (4,), as `Objective` defines them, means over real steps.

    Predictions and actions (B, K, dim), mask (B, K) bool; λ gets no gradient, and σ² as a weight has none. The
    entropy of a squashed Gaussian is that of one sample by the generator.
    """
    mean, noise = predicted.mean.contiguous(), None
    if isinstance(predicted, SquashedGaussian):
        noise = torch.randn(mean.shape, device=mean.device, generator=generator)
    losses: Tensor = _FusedLosses.apply(  # type: ignore[no-untyped-call]
        mean, predicted.log_std.contiguous(), actions.to(mean.dtype).contiguous(), noise,
        None if mask is None else mask.contiguous(), multiplier.detach(),
    )  # fmt: skip
    return losses


class _FusedLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        log_std: Tensor,
        actions: Tensor,
        noise: Tensor | None,
        mask: Tensor | None,
        multiplier: Tensor,
    ) -> Tensor:
        N, tiles, sizes = _tiles(mean, mask)
        kernel, edge = (
            (compiled.clipped_losses_kernel, MARGIN) if noise is None else (compiled.squashed_losses_kernel, BORDER)
        )
        out = mean.new_empty(tiles, 5)
        given = _given(mean, log_std, actions, noise, mask, multiplier)
        kernel[(tiles,)](*given, out, N, edge, **sizes)
        sums = out.sum(dim=0)
        count = sums[4].clamp(min=1)
        ctx.noise, ctx.mask = noise, mask
        ctx.save_for_backward(mean, log_std, actions, multiplier, count)
        return sums[:4] / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:
        mean, log_std, actions, multiplier, count = ctx.saved_tensors
        of_mean, of_log_std = torch.empty_like(mean), torch.empty_like(log_std)
        N, tiles, sizes = _tiles(mean, ctx.mask)
        kernel, edge = (
            (compiled.clipped_gradients_kernel, MARGIN)
            if ctx.noise is None
            else (compiled.squashed_gradients_kernel, BORDER)
        )
        given = _given(mean, log_std, actions, ctx.noise, ctx.mask, multiplier)
        kernel[(tiles,)](*given, gradients.contiguous(), count, of_mean, of_log_std, N, edge, **sizes)
        return of_mean, of_log_std, None, None, None, None


def _given(
    mean: Tensor, log_std: Tensor, actions: Tensor, noise: Tensor | None, mask: Tensor | None, multiplier: Tensor
) -> tuple[Tensor, ...]:
    """What all kernels are given first; a pointer that a kernel does not read points at the actions."""
    return mean, log_std, actions, actions if noise is None else noise, actions if mask is None else mask, multiplier


def _tiles(mean: Tensor, mask: Tensor | None) -> tuple[int, int, dict[str, Any]]:
    """How many rows there are, how many tiles they make, and the sizes that a kernel is made for."""
    C = mean.shape[-1]
    N, D = mean.numel() // C, 1 << (C - 1).bit_length()
    rows = max(1, TILE // D)
    return N, (N + rows - 1) // rows, {"C": C, "D": D, "ROWS": rows, "MASK": mask is not None}
