"""The stack of layers in a PyTorch model, whose input is told the ledger."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from mental_accounts.integrations.attached import AttachedAccounts

STACKS = (nn.TransformerEncoder, nn.TransformerDecoder, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def stack_of(model: nn.Module, chosen: nn.Module | None) -> nn.Module:
    """The part of a model whose first argument has its tokens: the one chosen, or its only stack of layers."""
    if chosen is not None:
        if not any(part is chosen for part in model.modules()):
            raise ValueError(f"ledger_module must be a part of the model, got another {type(chosen).__name__}")
        return chosen
    found: dict[str, nn.Module] = {}
    for name, part in model.named_modules():
        if isinstance(part, STACKS) and not any(name == above or name.startswith(f"{above}.") for above in found):
            if "" in found:
                break
            found[name] = part
    lists = {name.rpartition(".")[0] for name in found}
    numbered = all(name.rpartition(".")[2].isdigit() for name in found)
    if not found or (len(found) > 1 and not (len(lists) == 1 and numbered)):
        raise ValueError(
            f"where {type(model).__name__} embeds its tokens is unknown: expected one TransformerEncoder or "
            f"TransformerDecoder, or a list of their layers, found {list(found) or 'none'}; give ledger_module=, the "
            "part of the model whose first argument has the tokens, (B, S, hidden)"
        )
    return next(iter(found.values()))


def hidden_size(stack: nn.Module) -> tuple[int, torch.device]:
    """The size of a stack's tokens, and its device."""
    for part in stack.modules():
        if isinstance(part, nn.MultiheadAttention):
            return part.embed_dim, part.out_proj.weight.device
        if isinstance(part, nn.LayerNorm):
            return part.normalized_shape[-1], part.weight.device
        if isinstance(part, nn.Linear):
            return part.in_features, part.weight.device
    raise ValueError(
        f"the hidden size of {type(stack).__name__} is unknown: it begins with neither attention nor LayerNorm nor "
        "Linear; give another ledger_module="
    )


class ToldStack:
    """A stack of layers whose tokens are told the ledger."""

    def __init__(self, stack: nn.Module, accounts: AttachedAccounts) -> None:
        self.call, self.accounts = stack.forward, accounts
        self.name = list(inspect.signature(type(stack).forward).parameters)[1]  # of its class: it may be shadowed
        attention = next((part for part in stack.modules() if isinstance(part, nn.MultiheadAttention)), None)
        self.batch_first = attention is None or attention.batch_first

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the stack's own forward, with the ledger added to its first argument."""
        if args:
            return self.call(self._told(args[0]), *args[1:], **kwargs)
        return self.call(**{**kwargs, self.name: self._told(kwargs[self.name])})

    def _told(self, tokens: Tensor) -> Tensor:
        """(B, S, hidden), (S, B, hidden) or (S, hidden) -> the same."""
        batched = tokens.ndim == 3
        turned = batched and not self.batch_first
        rows = tokens.transpose(0, 1) if turned else tokens if batched else tokens.unsqueeze(0)
        call = self.accounts.call
        added = self.accounts.added(rows.shape[1], rows.device, {} if call is None else call.arguments)
        if added is not None:
            rows = added.to_tokens(rows)
        return rows.transpose(0, 1) if turned else rows if batched else rows.squeeze(0)
