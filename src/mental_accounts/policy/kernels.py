"""Fused kernels for GPUs: attention over a short context, residual + dropout + layer norm, and linear + ReLU.

A context of 20 steps is 59 tokens: one tile holds all of a head's logits, so that attention reads only its inputs and
writes only its outputs. All take and return half precision and compute in float32. Bias gradients are accumulated in
the same kernels. Random numbers come from a seed in device memory, so that a captured graph draws new ones at every
replay.
"""

from typing import Any

import torch
from torch import Tensor, library

try:
    from mental_accounts.policy import triton_kernels as compiled
except ImportError:  # no GPU build of PyTorch: then nothing here is used
    compiled = None  # type: ignore[assignment]

LONGEST = 128
"""Most tokens for which attention is one tile."""
WIDEST = 2048
"""Largest hidden size for which a row is one tile."""


def can_attend(asking: Tensor, tokens: int, heads: int) -> bool:
    """Whether `attend` supports these inputs: half precision on a GPU, few tokens, heads of size 16 to 128."""
    d = asking.shape[-1] // heads
    return _usable(asking) and tokens <= LONGEST and d in (16, 32, 64, 128)


def can_add_norm(y: Tensor, hidden: int) -> bool:
    """Whether `add_norm` supports y: half precision on a GPU, a hidden size that is a power of two."""
    return _usable(y) and 16 <= hidden <= WIDEST and hidden & (hidden - 1) == 0


def can_linear_relu(x: Tensor) -> bool:
    """Whether `linear_relu` supports x: half precision on a GPU."""
    return _usable(x)


def _usable(x: Tensor) -> bool:
    return compiled is not None and x.is_cuda and x.dtype == torch.bfloat16


def attend(
    q: Tensor, kv: Tensor, q_bias: Tensor, kv_bias: Tensor, mask: Tensor, seed: Tensor, heads: int, dropout: float
) -> Tensor:
    """softmax(q kᵀ / √d + mask) v with dropout on the weights: (B, R, H·d), (B, S, 2·H·d) -> (B, R, H·d).

    mask (B or 1, H or 1, R, S) is added in float32, and gets a gradient. Queries, keys and values are in the layout of
    linear layers: nothing is transposed. q and kv already include the biases q_bias (H·d,) and kv_bias (2·H·d,) of
    those layers; they are arguments only for their gradients, which are sums computed in the backward.
    """
    out: Tensor = _attend(q.contiguous(), kv.contiguous(), q_bias, kv_bias, mask, seed, heads, dropout)
    return out


def add_norm(
    x: Tensor, y: Tensor, offset: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, dropout: float, eps: float,
    full: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sum x + dropout(y + offset), and its layer norm by weight and bias, in float32 if `full`.

    x, y (..., C), offset, weight, bias (C,) -> (..., C), (..., C). The offset is the bias of the linear layer before y:
    its gradient costs nothing here.
    """
    added, normed, _, _ = _add_norm(x.contiguous(), y.contiguous(), offset, weight, bias, seed, dropout, eps, full)
    return added, normed


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max(0, x weightᵀ + bias): (..., C), (D, C), (D,) -> (..., D). Only the result is kept for the gradient."""
    out: Tensor = _linear_relu(x.contiguous(), weight.to(x.dtype), bias.to(x.dtype))
    return out


def _tile(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


def _strides(mask: Tensor) -> tuple[int, int, int, int]:
    """The strides of a mask, 0 in broadcast dimensions."""
    b, h, r, c = mask.stride()
    return (0 if mask.shape[0] == 1 else b), (0 if mask.shape[1] == 1 else h), r, c


def _sizes(q: Tensor, kv: Tensor, heads: int, dropout: float) -> tuple[int, int, dict[str, Any]]:
    R, S = q.shape[1], kv.shape[1]
    d = q.shape[2] // heads
    tile = {"BM": _tile(R), "BN": _tile(S)}
    warps = 8 if tile["BN"] > 64 else 4
    return R, S, {"H": heads, "D": d, **tile, "DROP": dropout > 0, "num_warps": warps}


@library.custom_op("mental_accounts::attend", mutates_args=())
def _attend(
    q: Tensor, kv: Tensor, q_bias: Tensor, kv_bias: Tensor, mask: Tensor, seed: Tensor, heads: int, dropout: float
) -> Tensor:
    R, S, sizes = _sizes(q, kv, heads, dropout)
    out = torch.empty_like(q)
    compiled.attend_kernel[(q.shape[0] * heads,)](
        q, kv, mask, seed, out, R, S, *_strides(mask), sizes["D"] ** -0.5, dropout, **sizes
    )
    return out


@_attend.register_fake
def _(
    q: Tensor, kv: Tensor, q_bias: Tensor, kv_bias: Tensor, mask: Tensor, seed: Tensor, heads: int, dropout: float
) -> Tensor:
    return torch.empty_like(q)


@library.custom_op("mental_accounts::attend_backward", mutates_args=())
def _attend_backward(
    g: Tensor, q: Tensor, kv: Tensor, mask: Tensor, seed: Tensor, heads: int, dropout: float, mask_grad: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    R, S, sizes = _sizes(q, kv, heads, dropout)
    dq, dkv, partial, dmask = _attend_gradients(q, kv, heads, mask_grad)
    compiled.attend_backward_kernel[(q.shape[0] * heads,)](
        g.contiguous(), q, kv, mask, seed, dq, dkv, partial, dmask, R, S, *_strides(mask),
        sizes["D"] ** -0.5, dropout, MASK=mask_grad, **sizes,
    )  # fmt: skip
    return dq, dkv, partial, dmask


@_attend_backward.register_fake
def _(
    g: Tensor, q: Tensor, kv: Tensor, mask: Tensor, seed: Tensor, heads: int, dropout: float, mask_grad: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _attend_gradients(q, kv, heads, mask_grad)


def _attend_gradients(q: Tensor, kv: Tensor, heads: int, mask_grad: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Empty gradients of queries, of keys and values, of their biases per window, and of the mask."""
    B, R, hidden = q.shape
    partial = torch.empty(B, 3 * hidden, device=q.device, dtype=torch.float32)
    shape = (B, heads, R, kv.shape[1]) if mask_grad else (1,)
    return torch.empty_like(q), torch.empty_like(kv), partial, partial.new_empty(shape)


def _attend_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, kv, q_bias, kv_bias, mask, seed, ctx.heads, ctx.dropout = inputs
    ctx.types = q_bias.dtype, kv_bias.dtype
    ctx.save_for_backward(q, kv, mask, seed)


def _attend_grad(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    q, kv, mask, seed = ctx.saved_tensors
    wanted = ctx.needs_input_grad[4]
    dq, dkv, partial, dmask = _attend_backward(g, q, kv, mask, seed, ctx.heads, ctx.dropout, wanted)
    of_q, of_kv = partial.sum(dim=0).split([q.shape[-1], kv.shape[-1]])
    of_mask = dmask.sum_to_size(mask.shape).to(mask.dtype) if wanted else None
    return dq, dkv, of_q.to(ctx.types[0]), of_kv.to(ctx.types[1]), of_mask, None, None, None


_attend.register_autograd(_attend_grad, setup_context=_attend_setup)


@library.custom_op("mental_accounts::add_norm", mutates_args=())
def _add_norm(
    x: Tensor, y: Tensor, offset: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, dropout: float, eps: float,
    full: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    C = y.shape[-1]
    N = y.numel() // C
    added = torch.empty_like(y)
    normed = torch.empty_like(y, dtype=torch.float32 if full else y.dtype)
    mean, rstd = (torch.empty(N, device=y.device, dtype=torch.float32) for _ in range(2))
    rows = _rows(C)
    compiled.add_norm_kernel[((N + rows - 1) // rows,)](
        x, y, offset, weight, bias, seed, added, normed, mean, rstd, N, dropout, eps,
        C=C, ROWS=rows, DROP=dropout > 0, num_warps=4,
    )  # fmt: skip
    return added, normed, mean, rstd


@_add_norm.register_fake
def _(
    x: Tensor, y: Tensor, offset: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, dropout: float, eps: float,
    full: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    N = y.numel() // y.shape[-1]
    mean, rstd = (torch.empty(N, device=y.device, dtype=torch.float32) for _ in range(2))
    return torch.empty_like(y), torch.empty_like(y, dtype=torch.float32 if full else y.dtype), mean, rstd


def _rows(C: int) -> int:
    """Rows per tile: for 512 columns as many as warps, so that a row's sums stay within its warp."""
    return max(1, 2048 // C)


PROGRAMS = 528
"""Programs in the backward of `add_norm`: four per multiprocessor of an H200 (132); each sums over many rows."""


def _programs(N: int, C: int) -> int:
    rows = _rows(C)
    return min(PROGRAMS, (N + rows - 1) // rows)


@library.custom_op("mental_accounts::add_norm_backward", mutates_args=())
def _add_norm_backward(
    g_added: Tensor, g_normed: Tensor, added: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, seed: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    C = added.shape[-1]
    N = added.numel() // C
    dx, dy = torch.empty_like(added), torch.empty_like(added)
    partial = torch.empty(_programs(N, C), 3, C, device=added.device, dtype=torch.float32)  # weight, bias, offset
    compiled.add_norm_backward_kernel[(len(partial),)](
        g_added.contiguous(), g_normed.contiguous(), added, weight, mean, rstd, seed, dx, dy, partial, N, dropout,
        C=C, ROWS=_rows(C), DROP=dropout > 0, num_warps=4,
    )  # fmt: skip
    return dx, dy, partial


@_add_norm_backward.register_fake
def _(
    g_added: Tensor, g_normed: Tensor, added: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, seed: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    C = added.shape[-1]
    partial = torch.empty(_programs(added.numel() // C, C), 3, C, device=added.device, dtype=torch.float32)
    return torch.empty_like(added), torch.empty_like(added), partial


def _add_norm_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    x, _, offset, weight, bias, seed, ctx.dropout, _, _ = inputs
    added, _, mean, rstd = output
    ctx.types = x.dtype, offset.dtype, weight.dtype, bias.dtype
    ctx.save_for_backward(added, weight, mean, rstd, seed)


def _add_norm_grad(ctx: Any, g_added: Tensor, g_normed: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    dx, dy, partial = _add_norm_backward(g_added, g_normed, *ctx.saved_tensors, ctx.dropout)
    dw, db, of_offset = partial.sum(dim=0).unbind()
    x, offset, weight, bias = ctx.types
    return dx.to(x), dy, of_offset.to(offset), dw.to(weight), db.to(bias), None, None, None, None


_add_norm.register_autograd(_add_norm_grad, setup_context=_add_norm_setup)


@library.custom_op("mental_accounts::linear_relu", mutates_args=())
def _linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    out = torch._addmm_activation(bias, x.view(-1, x.shape[-1]), weight.t())  # ReLU is part of the product's kernel
    return out.view(*x.shape[:-1], len(weight))


@_linear_relu.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], len(weight))


RELU_TILE = (16, 128)
RELU_PROGRAMS = 64
"""Programs in the backward of `linear_relu`, per 128 columns."""


@library.custom_op("mental_accounts::relu_backward", mutates_args=())
def _relu_backward(g: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    C = out.shape[-1]
    N = out.numel() // C
    rows, columns = RELU_TILE
    dy = torch.empty_like(out)
    partial = torch.empty(min(RELU_PROGRAMS, (N + rows - 1) // rows), C, device=out.device, dtype=torch.float32)
    compiled.relu_backward_kernel[((C + columns - 1) // columns, len(partial))](
        g.contiguous(), out, dy, partial, N, C=C, ROWS=rows, COLUMNS=columns, num_warps=4
    )
    return dy, partial


@_relu_backward.register_fake
def _(g: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    C = out.shape[-1]
    programs = min(RELU_PROGRAMS, (out.numel() // C + RELU_TILE[0] - 1) // RELU_TILE[0])
    return torch.empty_like(out), torch.empty(programs, C, device=out.device, dtype=torch.float32)


def _linear_relu_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output)


def _linear_relu_grad(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, out = ctx.saved_tensors
    dy, partial = _relu_backward(g, out)
    flat = dy.view(-1, dy.shape[-1])  # (N, D)
    dx = (flat @ weight).view(x.shape)
    return dx, flat.t() @ x.view(-1, x.shape[-1]), partial.sum(dim=0).to(weight.dtype)


_linear_relu.register_autograd(_linear_relu_grad, setup_context=_linear_relu_setup)
