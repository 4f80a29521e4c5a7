"""Attention over long contexts on a GPU: a bias that depends only on the column, as two extra dimensions of the keys.

softmax(q kᵀ / √d + b) = softmax([q, 1] [k, √d b]ᵀ / √d), so that plain causal attention computes it, without a mask of
rows × columns or a gradient of that size. The bias is split into its high and low bits, one dimension each, so that
half precision does not round it. Padded columns have a bias so low that they get no attention.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mental_accounts.accounts.bias import TOKENS_PER_STEP

FROM = 768
"""Used beyond this many tokens: with 900 an update is faster if β is learned, and no slower otherwise."""
PADDED_BIAS = -1e4
"""The bias of padded columns."""
MORE = 8
"""Dimensions added to a head: flash attention wants a multiple of 8."""


def is_long(tokens: Tensor) -> bool:
    """Whether tokens (B, S, hidden) use this kind of attention."""
    return tokens.is_cuda and tokens.shape[1] > FROM


def column_mask(bias: Tensor | None, mask: Tensor | None, tokens: Tensor) -> Tensor:
    """Bias (..., B, 1 or heads, 1, S) and padding (B, K) as one row per window: (..., B or 1, 1 or heads, 1, S)."""
    B, S, _ = tokens.shape
    columns = torch.zeros(B, 1, 1, S, device=tokens.device) if bias is None else bias
    if mask is None:
        return columns
    there = mask.repeat_interleave(TOKENS_PER_STEP, dim=1)[:, None, None, :-1]  # (B, 1, 1, S)
    return torch.where(there, columns, PADDED_BIAS)


def is_by_column(mask: Tensor, rows: int) -> bool:
    """Whether a mask has one row for all: column bias and padding. Causality then comes from the attention kernel."""
    return mask.shape[-2] == 1 < rows


def attend_columns(q: Tensor, k: Tensor, v: Tensor, columns: Tensor, dropout: float) -> Tensor:
    """Causal attention with a bias on columns: (B, heads, S, d) each, (B or 1, heads or 1, 1, S) -> (B, heads, S, d).

    Rows of padded tokens differ from those with a dense mask; they are never read.
    """
    B, heads, S, d = k.shape
    scaled = (columns * math.sqrt(d)).float()
    high = scaled.to(k.dtype)
    low = (scaled - high.float()).detach().to(k.dtype)
    more = torch.stack([high, low], dim=-1).squeeze(2).expand(B, heads, S, 2)  # (B, heads, S, 2)
    k = torch.cat([k, F.pad(more, (0, MORE - 2))], dim=-1)
    q = torch.cat([q, F.pad(torch.ones_like(more), (0, MORE - 2))], dim=-1)
    out = F.scaled_dot_product_attention(q, k, F.pad(v, (0, MORE)), is_causal=True, dropout_p=dropout, scale=d**-0.5)
    return out[..., :d]
