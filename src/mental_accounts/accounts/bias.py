"""Attractions -> a bias on the attention logits of action-token columns, and how far it can move attention.

Tokens are (return, state, action) per step unless a boolean selector of the action columns says otherwise. A bias
broadcasts over logits of shape (B, heads, rows, columns); it is added before masking and softmax (Eq. 10).
"""

import math
from typing import overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mental_accounts.accounts.precision import full_precision
from mental_accounts.checks import check_count, check_number, check_positive, looking_is_free

TOKENS_PER_STEP = 3


def column_bias(
    A: Tensor, beta: float | Tensor = 0.05, clip: float | None = None, columns: Tensor | None = None
) -> Tensor:
    """B[n, h, :, i] = β A_{j_t(i)}(t(i)) on action columns i, 0 elsewhere (Eq. 10), clipped to ±clip.

    A (B, K) -> (B, 1, 1, 3K). β is a number, or a tensor: () for one scale, (heads,) for one per head, giving
    (B, heads, 1, 3K), or (layers, heads) for one per layer and head, giving (layers, B, heads, 1, 3K); a size of 1
    shares the scale. Gradients reach β. For another layout give `columns` (S,), True at the K action columns.
    """
    if A.ndim != 2:
        raise ValueError(f"A must have shape (B, K), got {tuple(A.shape)}")
    return _scaled(spread_columns(full_precision(A), columns)[:, None, None, :], beta, clip)


def now_bias(A: Tensor, beta: float | Tensor = 0.05, clip: float | None = None) -> Tensor:
    """The bias where accounts are read `now`: A (B, K, K) from `rule.read_now` -> (B, 1, 3K, 3K).

    The return and state rows of step t read the balances after step t-1 (the reward of step t is not known yet), its
    action row those after step t. β and clip as in `column_bias`. The action is the last token of a step.
    """
    if A.ndim != 3 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"A must have shape (B, K, K), got {tuple(A.shape)}")
    after = full_precision(A)
    before = F.pad(after, (0, 0, 1, 0))[:, :-1]  # row t: after step t-1
    rows = torch.stack([before] * (TOKENS_PER_STEP - 1) + [after], dim=2).flatten(1, 2)  # (B, 3K, K)
    return _scaled(spread_columns(rows)[:, None], beta, clip)


def spread_columns(values: Tensor, columns: Tensor | None = None) -> Tensor:
    """Put K values on the action columns of a token sequence, zeros elsewhere: (..., K) -> (..., 3K) or (..., S)."""
    if columns is None:
        return F.pad(values.unsqueeze(-1), (TOKENS_PER_STEP - 1, 0)).flatten(-2)
    if columns.dtype != torch.bool or columns.ndim != 1:
        raise ValueError(f"columns must be a bool selector (S,), got {columns.dtype} {tuple(columns.shape)}")
    K = values.shape[-1]
    if looking_is_free(columns) and int(columns.sum()) != K:
        raise ValueError(f"columns must select as many columns as there are attractions, {K}, got {int(columns.sum())}")
    place = (columns.cumsum(0) - 1).clamp(0, K - 1)
    return torch.where(columns, values.index_select(-1, place), 0.0)


class BiasScale(nn.Module):
    """β as part of a model: fixed or learned, shared or one per layer and/or head.

    `forward()` gives β with shape (), (heads,) or (layers, heads or 1), as `column_bias` takes it.
    """

    beta: Tensor

    def __init__(
        self, initial: float = 0.05, learned: bool = False, layers: int | None = None, heads: int | None = None
    ) -> None:
        check_number("beta", initial, -math.inf, math.inf, closed=False)
        shape: tuple[int, ...] = () if heads is None else (check_count("heads", heads, 1),)
        if layers is not None:
            shape = (check_count("layers", layers, 1), *(shape or (1,)))
        super().__init__()
        value = torch.full(shape, float(initial))
        if learned:
            self.beta = nn.Parameter(value)
        else:
            self.register_buffer("beta", value)

    def forward(self) -> Tensor:
        """The current scale."""
        return self.beta


def attention_drift(logits: Tensor, bias: Tensor) -> Tensor:
    """How far a bias moves attention: total variation ½ Σ |softmax(z + b) - softmax(z)| per row.

    logits (..., rows, columns), -inf where masked, and a bias that broadcasts to them -> (..., rows). A row with every
    column masked has no drift: 0.
    """
    logits = full_precision(logits)
    biased = torch.softmax(logits + bias.to(logits.dtype), dim=-1)
    drift = (biased - torch.softmax(logits, dim=-1)).abs().sum(dim=-1) / 2
    return drift.masked_fill((logits == -math.inf).all(dim=-1), 0.0)


@overload
def drift_bound(epsilon: float) -> float: ...
@overload
def drift_bound(epsilon: Tensor) -> Tensor: ...
def drift_bound(epsilon: float | Tensor) -> float | Tensor:
    """The sharp bound on the drift under any bias with |b| <= ε: tanh(ε / 2)."""
    return torch.tanh(epsilon / 2) if isinstance(epsilon, Tensor) else math.tanh(_size(epsilon) / 2)


@overload
def paper_drift_bound(epsilon: float) -> float: ...
@overload
def paper_drift_bound(epsilon: Tensor) -> Tensor: ...
def paper_drift_bound(epsilon: float | Tensor) -> float | Tensor:
    """The paper's bound (its Lemma): tanh(ε). Valid, but twice as wide as necessary for small ε."""
    return torch.tanh(epsilon) if isinstance(epsilon, Tensor) else math.tanh(_size(epsilon))


def range_drift_bound(bias: Tensor) -> Tensor:
    """The sharp bound given the bias itself: tanh((max b - min b) / 4) per row, (..., columns) -> (...).

    Adding a constant to all logits changes nothing, so only the range matters. Leave masked columns out (or set them
    to 0, as for padding).
    """
    bias = full_precision(bias)
    return torch.tanh((bias.amax(dim=-1) - bias.amin(dim=-1)) / 4)


def _scaled(attractions: Tensor, beta: float | Tensor, clip: float | None) -> Tensor:
    """β · A with β's heads (and layers) as dimensions of their own, clipped: A (B, 1, rows, S)."""
    if clip is not None:
        check_positive("clip", clip)
    if isinstance(beta, Tensor):
        if beta.ndim > 2:
            raise ValueError(f"beta must have shape (), (heads,) or (layers, heads), got {tuple(beta.shape)}")
        if beta.ndim == 2:
            beta = beta[:, None, :, None, None]  # (layers, 1, heads, 1, 1)
        elif beta.ndim == 1:
            beta = beta[:, None, None]  # (heads, 1, 1)
    else:
        check_number("beta", beta, -math.inf, math.inf, closed=False)
    bias = attractions * beta
    return bias if clip is None else bias.clamp(-clip, clip)


def _size(epsilon: float) -> float:
    return check_number("epsilon", epsilon, 0.0, math.inf, closed=True)
