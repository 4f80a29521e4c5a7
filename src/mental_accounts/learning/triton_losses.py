"""The Triton kernels behind fused_losses.py. Imported only if Triton is available.

Both distributions have a kernel for the losses and one for their gradients, with the same arguments. A tile is some
rows, steps of a batch, with all dimensions of their actions.
"""
# mypy: ignore-errors

import triton
import triton.language as tl
from triton.language.extra import libdevice

LOG_ROOT_TAU = tl.constexpr(0.9189385332046727)  # log √(2π)
ROOT_HALF = tl.constexpr(0.7071067811865476)
MILLS = tl.constexpr(0.7978845608028654)  # √(2/π)
LOG_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def nothing_kernel(out):
    """To see whether kernels can be built."""
    tl.store(out, 0.0)


@triton.jit
def _read(mean, log_std, actions, mask, N, C: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, MASK: tl.constexpr):
    """A tile of rows: where its values are, which exist, which count, means, log σ and actions."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, D)
    exists = (row[:, None] < N) & (column[None, :] < C)
    at = row[:, None] * C + column[None, :]
    counts = exists
    if MASK:
        counts = counts & (tl.load(mask + row, mask=row < N, other=0) != 0)[:, None]
    mu = tl.load(mean + at, mask=exists, other=0.0)
    s = tl.load(log_std + at, mask=exists, other=0.0)
    u = tl.load(actions + at, mask=counts, other=0.0)  # a padded step may hold anything
    return at, exists, counts, mu, s, u


@triton.jit
def _write_sums(out, counts, weight, nll, entropy, held, C: tl.constexpr):
    """Sums over a tile's rows: loss, negative log-likelihood, entropy, constraint, and how many rows count."""
    first = tl.program_id(0) * 5
    tl.store(out + first, tl.sum(tl.where(counts, weight * (nll - held * entropy), 0.0)))
    tl.store(out + first + 1, tl.sum(tl.where(counts, nll, 0.0)))
    tl.store(out + first + 2, tl.sum(tl.where(counts, entropy, 0.0)))
    tl.store(out + first + 3, tl.sum(tl.where(counts, -weight * held * entropy, 0.0)))
    tl.store(out + first + 4, tl.sum(tl.where(counts, 1.0, 0.0)) / C)


@triton.jit
def _write_gradients(
    of_mean, of_log_std, at, exists, counts, gradients, count, multiplier, weight, nll_by_mean, nll_by_log_std,
    entropy_by_mean, entropy_by_log_std,
):  # fmt: skip
    """Gradients of the four means, weighted by `gradients` (4,), from those of each number; the weight is constant."""
    held, n = tl.load(multiplier), tl.load(count)
    g_loss, g_nll = tl.load(gradients), tl.load(gradients + 1)
    g_entropy, g_constraint = tl.load(gradients + 2), tl.load(gradients + 3)
    likelihood = g_loss * weight + g_nll
    spread = g_entropy - (g_loss + g_constraint) * weight * held
    by_mean = (likelihood * nll_by_mean + spread * entropy_by_mean) / n
    by_log_std = (likelihood * nll_by_log_std + spread * entropy_by_log_std) / n
    tl.store(of_mean + at, tl.where(counts, by_mean, 0.0), mask=exists)
    tl.store(of_log_std + at, tl.where(counts, by_log_std, 0.0), mask=exists)


# The clipped Gaussian.


@triton.jit
def _log_ndtr(x):
    """The logarithm of Φ(x), also far below 0."""
    t = x * ROOT_HALF
    far = tl.log(libdevice.erfcx(tl.where(x < -1.0, -t, 1.0)) * 0.5) - t * t
    return tl.where(x < -1.0, far, libdevice.log1p(-0.5 * libdevice.erfc(t)))


@triton.jit
def _density(x):
    """The standard normal density."""
    return tl.exp(-0.5 * x * x - LOG_ROOT_TAU)


@triton.jit
def clipped_losses_kernel(
    mean, log_std, actions, noise, mask, multiplier, out, N, margin,
    C: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """What `_write_sums` writes; the entropy is exact, and noise is not read."""
    _, _, counts, mu, s, u = _read(mean, log_std, actions, mask, N, C, D, ROWS, MASK)
    precision = tl.exp(-s)
    z = (u - mu) * precision
    sign = tl.where(u > 0.0, 1.0, tl.where(u < 0.0, -1.0, 0.0))
    tail = _log_ndtr((mu * sign - 1.0) * precision)
    nll = tl.where(tl.abs(u) < 1.0 - margin, 0.5 * z * z + LOG_ROOT_TAU + s, -tail)

    low, high = (-1.0 - mu) * precision, (1.0 - mu) * precision
    below, above = _log_ndtr(low), _log_ndtr(-high)
    inside = 1.0 - tl.exp(below) - tl.exp(above)
    edges = 0.5 * (low * _density(low) - high * _density(high))
    entropy = inside * (s + LOG_ROOT_TAU + 0.5) + edges - tl.exp(below) * below - tl.exp(above) * above
    _write_sums(out, counts, tl.exp(2.0 * s), nll, entropy, tl.load(multiplier), C)


@triton.jit
def clipped_gradients_kernel(
    mean, log_std, actions, noise, mask, multiplier, gradients, count, of_mean, of_log_std, N, margin,
    C: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """What `_write_gradients` writes."""
    at, exists, counts, mu, s, u = _read(mean, log_std, actions, mask, N, C, D, ROWS, MASK)
    precision = tl.exp(-s)
    z = (u - mu) * precision
    sign = tl.where(u > 0.0, 1.0, tl.where(u < 0.0, -1.0, 0.0))
    t = (mu * sign - 1.0) * precision
    ratio = MILLS / libdevice.erfcx(-t * ROOT_HALF)  # density over Φ
    is_inside = tl.abs(u) < 1.0 - margin
    nll_by_mean = tl.where(is_inside, -z, -ratio * sign) * precision
    nll_by_log_std = tl.where(is_inside, 1.0 - z * z, ratio * t)

    low, high = (-1.0 - mu) * precision, (1.0 - mu) * precision
    below, above = _log_ndtr(low), _log_ndtr(-high)
    inside = 1.0 - tl.exp(below) - tl.exp(above)
    by_low = _density(low) * (-s - LOG_ROOT_TAU - 1.0 - 0.5 * low * low - below)
    by_high = _density(high) * (s + LOG_ROOT_TAU + 1.0 + 0.5 * high * high + above)
    entropy_by_mean = -precision * (by_low + by_high)
    entropy_by_log_std = inside - low * by_low - high * by_high
    _write_gradients(
        of_mean, of_log_std, at, exists, counts, gradients, count, multiplier, tl.exp(2.0 * s), nll_by_mean,
        nll_by_log_std, entropy_by_mean, entropy_by_log_std,
    )  # fmt: skip


# The squashed Gaussian.


@triton.jit
def _log_squash(u):
    """log(1 - tanh²u), even where tanh u rounds to ±1."""
    size = tl.abs(u)
    return 2.0 * (LOG_2 - size - libdevice.log1p(tl.exp(-2.0 * size)))


@triton.jit
def _before_squashing(a, border):
    """The inverse of tanh, of actions that are kept off ±1."""
    return libdevice.atanh(tl.minimum(tl.maximum(a, border - 1.0), 1.0 - border))


@triton.jit
def squashed_losses_kernel(
    mean, log_std, actions, noise, mask, multiplier, out, N, border,
    C: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """What `_write_sums` writes; the entropy is of one sample, whose noise is given."""
    at, exists, counts, mu, s, a = _read(mean, log_std, actions, mask, N, C, D, ROWS, MASK)
    e = tl.load(noise + at, mask=exists, other=0.0)
    u = _before_squashing(a, border)
    z = (u - mu) * tl.exp(-s)
    nll = 0.5 * z * z + LOG_ROOT_TAU + s + _log_squash(u)
    entropy = 0.5 * e * e + LOG_ROOT_TAU + s + _log_squash(mu + tl.exp(s) * e)
    _write_sums(out, counts, 1.0, nll, entropy, tl.load(multiplier), C)


@triton.jit
def squashed_gradients_kernel(
    mean, log_std, actions, noise, mask, multiplier, gradients, count, of_mean, of_log_std, N, border,
    C: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """What `_write_gradients` writes."""
    at, exists, counts, mu, s, a = _read(mean, log_std, actions, mask, N, C, D, ROWS, MASK)
    e = tl.load(noise + at, mask=exists, other=0.0)
    precision, shift = tl.exp(-s), tl.exp(s) * e
    z = (_before_squashing(a, border) - mu) * precision
    by_mean = -2.0 * libdevice.tanh(mu + shift)  # of log(1 - tanh²u)
    _write_gradients(
        of_mean, of_log_std, at, exists, counts, gradients, count, multiplier, 1.0, -z * precision, 1.0 - z * z,
        by_mean, 1.0 + by_mean * shift,
    )  # fmt: skip
