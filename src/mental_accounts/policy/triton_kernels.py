"""The Triton kernels behind kernels.py. Imported only if Triton is available."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def _kept(seed, at, dropout):
    """The dropout factor at each position: 0, or 1 / (1 - dropout). A function of the seed and the position alone.

    A multiplicative hash of 32 bits, keyed at both ends. Philox, behind tl.rand, needs ten times as many instructions,
    which dominated these kernels.
    """
    key = tl.load(seed).to(tl.uint32)
    x = at.to(tl.uint32) * 0x9E3779B9 + key
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B + key * 0x85EBCA6B
    return tl.where(x >= tl.cast(dropout * 4294967296.0, tl.uint32), 1.0 / (1.0 - dropout), 0.0)


@triton.jit
def _weights(
    q, kv, mask, seed, b, h, pid, R, S, mask_b, mask_h, mask_r, mask_c, scale, dropout,
    H: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Queries, keys, values, attention weights, and their dropout factors, of one head."""
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    at_q = (b * R + rows[:, None]) * (H * D) + h * D + inner[None, :]
    at_k = (b * S + columns[:, None]) * (2 * H * D) + h * D + inner[None, :]
    queries = tl.load(q + at_q, mask=rows[:, None] < R, other=0.0)
    keys = tl.load(kv + at_k, mask=columns[:, None] < S, other=0.0)
    values = tl.load(kv + at_k + H * D, mask=columns[:, None] < S, other=0.0)
    there = (rows[:, None] < R) & (columns[None, :] < S)
    at_mask = b * mask_b + h * mask_h + rows[:, None] * mask_r + columns[None, :] * mask_c
    logits = tl.dot(queries, tl.trans(keys)) * scale + tl.load(mask + at_mask, mask=there, other=0.0)
    logits = tl.where(columns[None, :] < S, logits, float("-inf"))
    weights = tl.exp(logits - tl.max(logits, axis=1)[:, None])
    weights = weights / tl.sum(weights, axis=1)[:, None]
    kept = tl.full((BM, BN), 1.0, tl.float32)
    if DROP:
        kept = _kept(seed, pid * (BM * BN) + rows[:, None] * BN + columns[None, :], dropout)
    return queries, keys, values, weights, kept


@triton.jit
def attend_kernel(
    q, kv, mask, seed, out, R, S, mask_b, mask_h, mask_r, mask_c, scale, dropout,
    H: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """One head of one window: logits, softmax, dropout and the weighted sum of values in one tile."""
    pid = tl.program_id(0).to(tl.int64)
    b, h = pid // H, pid % H
    _, _, values, weights, kept = _weights(
        q, kv, mask, seed, b, h, pid, R, S, mask_b, mask_h, mask_r, mask_c, scale, dropout, H, D, BM, BN, DROP
    )
    mixed = tl.dot((weights * kept).to(values.dtype), values)
    rows, inner = tl.arange(0, BM), tl.arange(0, D)
    at = (b * R + rows[:, None]) * (H * D) + h * D + inner[None, :]
    tl.store(out + at, mixed.to(values.dtype), mask=rows[:, None] < R)


@triton.jit
def attend_backward_kernel(
    g, q, kv, mask, seed, dq, dkv, partial, dmask, R, S, mask_b, mask_h, mask_r, mask_c, scale, dropout,
    H: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DROP: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Recompute the same tile, and the gradients from it."""
    pid = tl.program_id(0).to(tl.int64)
    b, h = pid // H, pid % H
    queries, keys, values, weights, kept = _weights(
        q, kv, mask, seed, b, h, pid, R, S, mask_b, mask_h, mask_r, mask_c, scale, dropout, H, D, BM, BN, DROP
    )
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    at_q = (b * R + rows[:, None]) * (H * D) + h * D + inner[None, :]
    at_k = (b * S + columns[:, None]) * (2 * H * D) + h * D + inner[None, :]
    grad = tl.load(g + at_q, mask=rows[:, None] < R, other=0.0)
    of_values = tl.dot(tl.trans((weights * kept).to(grad.dtype)), grad)
    tl.store(dkv + at_k + H * D, of_values.to(grad.dtype), mask=columns[:, None] < S)
    at = partial + b * (3 * H * D) + h * D + inner  # entries beyond the tokens are 0 in all sums
    tl.store(at + 2 * H * D, tl.sum(of_values, axis=0))
    of_weights = tl.dot(grad, tl.trans(values)) * kept
    of_logits = weights * (of_weights - tl.sum(weights * of_weights, axis=1)[:, None])
    if MASK:
        there = (rows[:, None] < R) & (columns[None, :] < S)
        tl.store(dmask + pid * R * S + rows[:, None] * S + columns[None, :], of_logits, mask=there)
    half = (of_logits * scale).to(grad.dtype)
    of_queries = tl.dot(half, keys)
    tl.store(dq + at_q, of_queries.to(grad.dtype), mask=rows[:, None] < R)
    tl.store(at, tl.sum(of_queries, axis=0))
    tl.store(dkv + at_k, tl.dot(tl.trans(half), queries).to(grad.dtype), mask=columns[:, None] < S)
    tl.store(at + H * D, tl.zeros((D,), tl.float32))  # a constant added to all keys does not change the softmax


@triton.jit
def add_norm_kernel(
    x, y, offset, weight, bias, seed, added, normed, mean, rstd, N, dropout, eps,
    C: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Some rows: the sum, its mean and deviation, the norm."""
    rows, inner = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, C)
    at, there = rows[:, None] * C + inner[None, :], rows[:, None] < N
    more = tl.load(y + at, mask=there, other=0.0).to(tl.float32) + tl.load(offset + inner).to(tl.float32)[None, :]
    if DROP:
        more *= _kept(seed, at, dropout)
    sums = tl.load(x + at, mask=there, other=0.0).to(tl.float32) + more
    half = sums.to(added.dtype.element_ty)
    tl.store(added + at, half, mask=there)
    sums = half.to(tl.float32)  # as the next layers read it
    centre = tl.sum(sums, axis=1) / C
    apart = sums - centre[:, None]
    scale = 1.0 / tl.sqrt(tl.sum(apart * apart, axis=1) / C + eps)
    w, shift = tl.load(weight + inner).to(tl.float32), tl.load(bias + inner).to(tl.float32)
    result = apart * scale[:, None] * w[None, :] + shift[None, :]
    tl.store(normed + at, result.to(normed.dtype.element_ty), mask=there)
    tl.store(mean + rows, centre, mask=rows < N)
    tl.store(rstd + rows, scale, mask=rows < N)


@triton.jit
def add_norm_backward_kernel(
    g_added, g_normed, added, weight, mean, rstd, seed, dx, dy, partial, N, dropout,
    C: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Many rows, block by block; gradients of weight, bias and offset are accumulated."""
    pid, inner = tl.program_id(0), tl.arange(0, C)
    w = tl.load(weight + inner).to(tl.float32)
    of_weight, of_bias, of_offset = (
        tl.zeros((ROWS, C), tl.float32),
        tl.zeros((ROWS, C), tl.float32),
        tl.zeros((ROWS, C), tl.float32),
    )
    for block in range(pid, tl.cdiv(N, ROWS), tl.num_programs(0)):
        rows = tl.cast(block, tl.int64) * ROWS + tl.arange(0, ROWS)
        at, there = rows[:, None] * C + inner[None, :], rows[:, None] < N
        centre = tl.load(mean + rows, mask=rows < N, other=0.0)
        scale = tl.load(rstd + rows, mask=rows < N, other=0.0)
        sums = tl.load(added + at, mask=there, other=0.0).to(tl.float32)
        standard = (sums - centre[:, None]) * scale[:, None]
        grad = tl.load(g_normed + at, mask=there, other=0.0).to(tl.float32)
        of_weight += grad * standard
        of_bias += grad
        through = grad * w[None, :]
        first, second = tl.sum(through, axis=1) / C, tl.sum(through * standard, axis=1) / C
        total = scale[:, None] * (through - first[:, None] - standard * second[:, None])
        total += tl.load(g_added + at, mask=there, other=0.0).to(tl.float32)
        tl.store(dx + at, total.to(dx.dtype.element_ty), mask=there)
        if DROP:
            total *= _kept(seed, at, dropout)
        of_offset += total
        tl.store(dy + at, total.to(dy.dtype.element_ty), mask=there)
    tl.store(partial + pid * (3 * C) + inner, tl.sum(of_weight, axis=0))
    tl.store(partial + pid * (3 * C) + C + inner, tl.sum(of_bias, axis=0))
    tl.store(partial + pid * (3 * C) + 2 * C + inner, tl.sum(of_offset, axis=0))


@triton.jit
def relu_backward_kernel(
    g, out, dy, partial, N,
    C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Some columns of many rows: the gradient where the output was above 0, and its sum over the rows."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for block in range(tl.program_id(1), tl.cdiv(N, ROWS), tl.num_programs(1)):
        rows = tl.cast(block, tl.int64) * ROWS + tl.arange(0, ROWS)
        at, there = rows[:, None] * C + columns[None, :], (rows[:, None] < N) & (columns[None, :] < C)
        grad = tl.load(g + at, mask=there, other=0.0)
        grad = tl.where(tl.load(out + at, mask=there, other=0.0) <= 0, 0.0, grad)
        tl.store(dy + at, grad, mask=there)
        sums += grad.to(tl.float32)
    tl.store(partial + tl.program_id(1) * C + columns, tl.sum(sums, axis=0), mask=columns < C)
