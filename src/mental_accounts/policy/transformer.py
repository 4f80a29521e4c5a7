"""The backbone: pre-norm transformer blocks that share one additive attention mask.

The mask contains causality, padding and the account bias, and is built once per forward. (In long contexts on a GPU it
has a single row, and causality comes from the kernel: long_attention.py.) Only what is read is computed: actions are
predicted from state tokens, so in the last block only these are queries, pass the MLP and are normalised; while acting,
only the last one.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mental_accounts.accounts.bias import TOKENS_PER_STEP
from mental_accounts.policy.dropout import draws_fast, drop
from mental_accounts.policy.half_precision import as_autocast
from mental_accounts.policy.kernels import add_norm, attend, can_add_norm, can_attend, can_linear_relu, linear_relu
from mental_accounts.policy.long_attention import attend_columns, is_by_column
from mental_accounts.policy_options import PolicyConfig


class Attention(nn.Module):
    """Multi-head attention with an additive mask; the output projection is applied in the residual sum."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.query = nn.Linear(config.hidden, config.hidden)
        self.key_value = nn.Linear(config.hidden, 2 * config.hidden)
        self.output = nn.Linear(config.hidden, config.hidden)

    def forward(self, asking: Tensor, tokens: Tensor, mask: Tensor, seed: Tensor) -> Tensor:
        """(B, rows, hidden), (B, S, hidden), mask (B or 1, heads or 1, rows or 1, S) -> (B, rows, hidden)."""
        B, rows, hidden = asking.shape
        dropout = self.dropout if self.training else 0.0
        by_column = is_by_column(mask, rows)
        if not by_column and can_attend(asking, tokens.shape[1], self.heads):
            q_bias, kv_bias = self.query.bias, self.key_value.bias
            q = F.linear(asking, self.query.weight, q_bias.detach())  # `attend` computes the gradients of the biases
            kv = F.linear(tokens, self.key_value.weight, kv_bias.detach())
            return attend(q, kv, q_bias, kv_bias, mask, seed, self.heads, dropout)
        queries, keys_values = self.query(asking), self.key_value(tokens)
        q = queries.view(B, rows, self.heads, -1).transpose(1, 2)  # (B, heads, rows, d)
        k, v = keys_values.view(B, tokens.shape[1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)  # (B, heads, S, d)
        if by_column:
            mixed: Tensor = attend_columns(q, k, v, mask, dropout)
        elif draws_fast(q) and (dropout > 0 or (q.requires_grad and q.dtype == torch.bfloat16)):
            # On a CPU, PyTorch's fused attention is slow to draw dropout masks, and up to seven times slower in bf16.
            logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2) + mask.to(q.dtype)
            mixed = drop(torch.softmax(logits, dim=-1), dropout) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype), dropout_p=dropout)
        return mixed.transpose(1, 2).reshape(B, rows, hidden)


class Block(nn.Module):
    """The parts of x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        inner = config.inner or 4 * config.hidden
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.hidden)
        self.mlp = nn.Sequential(nn.Linear(config.hidden, inner), nn.ReLU(), nn.Linear(inner, config.hidden))

    @property
    def narrow(self) -> nn.Linear:
        """The second map of the MLP."""
        layer = self.mlp[2]
        assert isinstance(layer, nn.Linear)
        return layer

    def widen(self, normed: Tensor) -> Tensor:
        """The MLP up to its second map: (B, rows, hidden) -> (B, rows, inner)."""
        layer = self.mlp[0]
        assert isinstance(layer, nn.Linear)
        if can_linear_relu(normed):
            return linear_relu(normed, layer.weight, layer.bias)
        widened: Tensor = layer(normed)
        return widened.relu_()


class Transformer(nn.Module):
    """Tokens -> the final state of every state token."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden)
        self.states = slice(1, None, TOKENS_PER_STEP)  # (return, state, action, return, state, ...)

    def forward(self, tokens: Tensor, masks: Sequence[Tensor], *, last_only: bool = False) -> Tensor:
        """(B, 3K - 1, hidden) and one mask per block -> (B, K, hidden), or (B, 1, hidden): the last state alone.

        A residual sum and the next layer's norm are one step; under autocast, sums are in half precision too.
        """
        seeds = self._seeds(tokens.device)
        blocks = [block for block in self.blocks if isinstance(block, Block)]
        norms = [*(block.attention_norm for block in blocks[1:]), self.norm]  # of the layer after each block
        x: Tensor = as_autocast(tokens)
        normed: Tensor = as_autocast(blocks[0].attention_norm(tokens))
        for place, (block, mask, norm) in enumerate(zip(blocks, masks, norms, strict=True)):
            rows = slice(None) if norm is not self.norm else slice(-1, None) if last_only else self.states
            if is_by_column(mask, normed.shape[1]):  # all tokens must be queries
                mixed = block.attention(normed, normed, mask, seeds[3 * place])[:, rows]
            else:
                mixed = block.attention(normed[:, rows], normed, mask[:, :, rows], seeds[3 * place])
            output = block.attention.output
            x, normed = self._add_norm(x[:, rows], mixed, output, block.mlp_norm, seeds[3 * place + 1])
            x, normed = self._add_norm(x, block.widen(normed), block.narrow, norm, seeds[3 * place + 2])
        return normed

    def _add_norm(
        self, x: Tensor, inner: Tensor, layer: nn.Linear, norm: nn.LayerNorm, seed: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The sum x + dropout(layer(inner)), and its norm."""
        dropout = self.dropout if self.training else 0.0
        if can_add_norm(inner, layer.out_features):
            y = F.linear(inner, layer.weight)
            return add_norm(x, y, layer.bias, norm.weight, norm.bias, seed, dropout, norm.eps, full=norm is self.norm)
        y = layer(inner)
        x = x.to(y.dtype) + drop(y, dropout)
        return x, norm(x) if norm is self.norm else as_autocast(norm(x))

    def _seeds(self, device: torch.device) -> Tensor:
        """Seeds of the fused kernels' dropout, three per block."""
        count = 3 * len(self.blocks)
        if device.type == "cuda" and self.training and self.dropout > 0:
            return torch.randint(2**31 - 1, (count,), device=device)
        return torch.zeros(count, device=device, dtype=torch.int64)


def attention_mask(K: int, mask: Tensor | None, device: torch.device) -> Tensor:
    """Causality and padding as one additive mask for 3K - 1 tokens: (B or 1, 1, S, S), -inf where masked.

    mask (B, K) is True at real steps. A padded token attends only to itself, since softmax needs at least one column.
    """
    S = TOKENS_PER_STEP * K - 1
    causal = torch.ones(S, S, dtype=torch.bool, device=device).tril()
    if mask is None:
        allowed = causal.unsqueeze(0)
    else:
        there = mask.repeat_interleave(TOKENS_PER_STEP, dim=1)[:, :-1].unsqueeze(1)  # (B, 1, S)
        allowed = causal & (there | torch.eye(S, dtype=torch.bool, device=device))
    return torch.zeros(allowed.shape, device=device).masked_fill(~allowed, -math.inf).unsqueeze(1)
