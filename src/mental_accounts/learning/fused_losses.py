"""The losses of a clipped Gaussian in one kernel, and their gradients in another.

Written in PyTorch (objective.py) they are some 200 kernels of a few numbers each, two fifths of a small policy's
update. Compiled updates do not need this: the compiler fuses them, too.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mental_accounts.policy import ClippedGaussian
from mental_accounts.policy.heads import MARGIN

try:
    from mental_accounts.learning import triton_losses as compiled
except ImportError:  # no GPU build of PyTorch: then nothing here is used
    compiled = None  # type: ignore[assignment]

TILE = 256
"""Numbers of a tile: a small batch then still has several tiles."""


def can_fuse(predicted: ClippedGaussian) -> bool:
    """Whether `fused_losses` supports these predictions: float32 on a GPU, outside torch.compile."""
    mean = predicted.mean
    return compiled is not None and mean.is_cuda and mean.dtype == torch.float32 and not torch.compiler.is_compiling()


def fused_losses(predicted: ClippedGaussian, actions: Tensor, mask: Tensor | None, multiplier: Tensor) -> Tensor:
    """Loss, negative log-likelihood, entropy and constraint, (4,), as `Objective` defines them, means over real steps.

    Predictions and actions (B, K, dim), mask (B, K) bool; λ gets no gradient, and σ² as a weight has none.
    """
    losses: Tensor = _FusedLosses.apply(  # type: ignore[no-untyped-call]
        predicted.mean.contiguous(), predicted.log_std.contiguous(), actions.to(predicted.mean.dtype).contiguous(),
        None if mask is None else mask.contiguous(), multiplier.detach(),
    )  # fmt: skip
    return losses


class _FusedLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, log_std: Tensor, actions: Tensor, mask: Tensor | None, multiplier: Tensor
    ) -> Tensor:
        N, tiles, sizes = _tiles(mean, mask)
        out = mean.new_empty(tiles, 5)
        compiled.clipped_losses_kernel[(tiles,)](
            mean, log_std, actions, actions if mask is None else mask, multiplier, out, N, MARGIN, **sizes
        )
        sums = out.sum(dim=0)
        count = sums[4].clamp(min=1)
        ctx.mask = mask
        ctx.save_for_backward(mean, log_std, actions, multiplier, count)
        return sums[:4] / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:
        mean, log_std, actions, multiplier, count = ctx.saved_tensors
        mask, of_mean, of_log_std = ctx.mask, torch.empty_like(mean), torch.empty_like(log_std)
        N, tiles, sizes = _tiles(mean, mask)
        compiled.clipped_gradients_kernel[(tiles,)](
            mean, log_std, actions, actions if mask is None else mask, multiplier, gradients.contiguous(), count,
            of_mean, of_log_std, N, MARGIN, **sizes,
        )  # fmt: skip
        return of_mean, of_log_std, None, None, None


def _tiles(mean: Tensor, mask: Tensor | None) -> tuple[int, int, dict[str, Any]]:
    """How many rows there are, how many tiles they make, and the sizes that a kernel is made for."""
    C = mean.shape[-1]
    N, D = mean.numel() // C, 1 << (C - 1).bit_length()
    rows = max(1, TILE // D)
    return N, (N + rows - 1) // rows, {"C": C, "D": D, "ROWS": rows, "MASK": mask is not None}
