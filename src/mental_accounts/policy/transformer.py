"""The backbone: pre-norm transformer blocks that share one additive attention mask.

The mask carries causality, padding and the account bias, and is built once per forward. Only what is read is computed:
actions are predicted from state tokens, so that in the last block only these ask, pass the MLP and are normalised.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mental_accounts.config import PolicyConfig


class Attention(nn.Module):
    """Multi-head attention with an additive mask."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.query = nn.Linear(config.hidden, config.hidden)
        self.key_value = nn.Linear(config.hidden, 2 * config.hidden)
        self.output = nn.Linear(config.hidden, config.hidden)

    def forward(self, asking: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B, rows, hidden), (B, S, hidden), mask (B or 1, heads or 1, rows, S) -> (B, rows, hidden)."""
        B, rows, hidden = asking.shape
        q = self.query(asking).view(B, rows, self.heads, -1).transpose(1, 2)  # (B, heads, rows, d)
        k, v = (
            self.key_value(tokens).view(B, tokens.shape[1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        )  # (B, heads, S, d)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype), dropout_p=dropout)
        output: Tensor = self.output(mixed.transpose(1, 2).reshape(B, rows, hidden))
        return output


class Block(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x)). With `rows` only those tokens go on."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        inner = config.inner or 4 * config.hidden
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.hidden)
        self.mlp = nn.Sequential(nn.Linear(config.hidden, inner), nn.ReLU(), nn.Linear(inner, config.hidden))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor, rows: slice = slice(None)) -> Tensor:
        """(B, S, hidden), mask (B or 1, heads or 1, S, S) -> (B, len(rows), hidden)."""
        normed = self.attention_norm(x)
        x = x[:, rows] + self.dropout(self.attention(normed[:, rows], normed, mask[:, :, rows]))
        output: Tensor = x + self.dropout(self.mlp(self.mlp_norm(x)))
        return output


class Transformer(nn.Module):
    """Tokens -> the final state of every state token."""

    STATES = slice(1, None, 3)  # (return, state, action, return, state, ...)

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden)

    def forward(self, tokens: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """(B, 3K - 1, hidden) and one mask per block -> (B, K, hidden)."""
        *first, last = zip(self.blocks, masks, strict=True)
        for block, mask in first:
            tokens = block(tokens, mask)
        block, mask = last
        states: Tensor = self.norm(block(tokens, mask, rows=self.STATES))
        return states


def attention_mask(K: int, mask: Tensor | None, device: torch.device) -> Tensor:
    """Causality and padding as one additive mask for 3K - 1 tokens: (B or 1, 1, S, S), -inf where not to look.

    mask (B, K) is True where a step is there. A padded token sees itself alone: it has to see something.
    """
    S = 3 * K - 1
    causal = torch.ones(S, S, dtype=torch.bool, device=device).tril()
    if mask is None:
        seen = causal.unsqueeze(0)
    else:
        there = mask.repeat_interleave(3, dim=1)[:, :-1].unsqueeze(1)  # (B, 1, S)
        seen = causal & (there | torch.eye(S, dtype=torch.bool, device=device))
    return torch.zeros(seen.shape, device=device).masked_fill(~seen, -math.inf).unsqueeze(1)
