"""Inspecting attention: the logits of every layer as computed in a forward, separate from the bias."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mental_accounts.accounts import attention_drift, range_drift_bound
from mental_accounts.policy.decision_transformer import DecisionTransformer
from mental_accounts.policy.evaluation_mode import in_evaluation_mode
from mental_accounts.policy.long_attention import PADDED_BIAS, is_by_column
from mental_accounts.policy.transformer import Attention
from mental_accounts.policy.window import Window


@dataclass(frozen=True)
class LayerAttention:
    """One layer. Rows are its query tokens: all 3K - 1, or in the last layer the K states."""

    logits: Tensor  # (B, heads, rows, S), -inf where masked
    bias: Tensor  # (B, heads or 1, rows, S), 0 where masked

    def drift(self) -> Tensor:
        """How far the bias moves each row's attention, (B, heads, rows)."""
        return attention_drift(self.logits, self.bias)

    def bound(self) -> Tensor:
        """The sharp bound on the drift of each row, (B, heads or 1, rows)."""
        return range_drift_bound(self.bias)


@torch.no_grad()
def attention_of(policy: DecisionTransformer, window: Window) -> list[LayerAttention]:
    """The attention of every layer for a window, without dropout."""
    if policy.transformer is None:
        raise ValueError(f"method {policy.config.method} has no attention to inspect: it has no transformer")
    layers: list[LayerAttention] = []

    def look(module: Attention, inputs: tuple[Any, ...]) -> None:
        asking, tokens, mask, _ = inputs
        B, rows, hidden = asking.shape
        d = hidden // module.heads
        q = module.query(asking).view(B, rows, module.heads, d).transpose(1, 2)
        k = module.key_value(tokens)[..., :hidden].view(B, -1, module.heads, d).transpose(1, 2)
        if is_by_column(mask, rows):
            causal = torch.ones(rows, rows, dtype=torch.bool, device=mask.device).tril()
            mask = torch.where(causal & (mask > PADDED_BIAS / 2), mask, -math.inf)
        hidden_from = mask == -math.inf
        logits = (q @ k.transpose(-1, -2) / math.sqrt(d)).float().masked_fill(hidden_from, -math.inf)
        layers.append(LayerAttention(logits, mask.masked_fill(hidden_from, 0.0)))

    parts = [part for part in policy.modules() if isinstance(part, Attention)]
    hooks = [part.register_forward_pre_hook(look) for part in parts]
    try:
        with in_evaluation_mode(policy):
            policy(window)
    finally:
        for hook in hooks:
            hook.remove()
    logits, bias = layers[-1].logits, layers[-1].bias
    if logits.shape[-2] == logits.shape[-1]:  # long contexts: all tokens are queries
        states = policy.transformer.states
        layers[-1] = LayerAttention(logits[..., states, :], bias[..., states, :])
    return layers
