"""Accounts in plain PyTorch: TransformerEncoder, TransformerEncoderLayer, MultiheadAttention, or a model built of them.

The bias is added to the float mask of every self-attention. PyTorch's fused inference path skips the attention modules,
so it is off while there is a bias; if β is zero nothing changes, and the fused path stays on. Attention that is called
without the model's own forward (`policy.act`, `policy.encoder`) reads live accounts, or windows given to `enter`. What
the ledger tells is added to the input of the stack of layers.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from mental_accounts.accounts import BiasScale, Codebook, RewardTransform, UpdateRule
from mental_accounts.integrations.attached import AttachedAccounts
from mental_accounts.integrations.calls import pop_arguments
from mental_accounts.integrations.columns import Columns
from mental_accounts.integrations.ledger_input import LedgerTokens, Weights
from mental_accounts.integrations.refusals import check_arguments, check_scale, mark
from mental_accounts.integrations.torch_stacks import ToldStack, hidden_size, stack_of


def torch_accounts(
    model: nn.Module,
    codebook: Codebook,
    rule: UpdateRule,
    beta: float | Tensor | BiasScale | None = None,
    *,
    transform: RewardTransform | None = None,
    clip: float | None = None,
    columns: Columns | None = None,
    ledger_input: LedgerTokens = "none",
    channels: Sequence[str] = ("balance",),
    reward_delay: int = 0,
    ledger_weights: Weights | None = None,
    ledger_module: nn.Module | None = None,
) -> AttachedAccounts:
    """Attach accounts to a model built of PyTorch's own modules: to all attention except a decoder's cross-attention.

    The model's call then also takes `actions=` (B, K[, dim]) and `rewards=` (B, K), with `account_mask=` (B, K) if
    windows are padded, or `attractions=` (B, K), unless `accounts.enter` or `accounts.begin` was called before.
    `columns` says which tokens are actions; by default tokens are (return, state, action) per step.

    `ledger_input="state"` adds what the ledger tells (`channels`) to the token right before each action; see
    `hugging_face_accounts`. It is added to the input of the model's encoder or decoder, or of the first of its layers;
    `ledger_module` names another part, whose first argument has the tokens, (B, S, hidden).
    """
    check_arguments(model, codebook, rule, beta)
    modules = [] if beta is None else self_attention_modules(model)
    accounts = AttachedAccounts(
        codebook, rule, beta, transform=transform, clip=clip, columns=columns, ledger_input=ledger_input,
        channels=channels, reward_delay=reward_delay, ledger_weights=ledger_weights,
    )  # fmt: skip
    stack = stack_of(model, ledger_module) if accounts.tells else None
    for module in modules:
        check_scale(beta, len(modules), module.num_heads)
    for layer, module in enumerate(modules):
        _replace_forward(module, _BiasedAttention(module, layer, accounts).forward, accounts)
    for part in model.modules():
        if isinstance(part, (nn.TransformerEncoder, nn.TransformerEncoderLayer)):
            _replace_forward(part, _SlowEncoder(part, accounts).forward, accounts)
    if stack is not None:
        with accounts.attaching():
            accounts.map_into(model, *hidden_size(stack))
        _replace_forward(stack, ToldStack(stack, accounts).forward, accounts)
    _replace_forward(model, _Reader(model, accounts).forward, accounts)
    mark(model, accounts)
    return accounts


def self_attention_modules(model: nn.Module) -> list[nn.MultiheadAttention]:
    """Every MultiheadAttention of a model, in order, except a decoder's cross-attention."""
    memory = {
        id(part.multihead_attn) for part in model.modules() if isinstance(part, nn.TransformerDecoderLayer)
    }  # fmt: skip
    found = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention) and id(m) not in memory]
    if not found:
        raise ValueError(
            f"the attention of {type(model).__name__} cannot take a bias: it has no torch.nn.MultiheadAttention; use "
            "hugging_face_accounts for models of transformers, or add column_bias to the attention logits yourself"
        )
    for module in found:
        if module.bias_k is not None or module.add_zero_attn:
            raise ValueError(
                "the attention cannot take a bias: add_bias_kv and add_zero_attn add columns that no selector knows"
            )
    return found


def _replace_forward(module: nn.Module, forward: Callable[..., Any], accounts: AttachedAccounts) -> None:
    """Shadow a module's forward. A hook would do, but hooks disable PyTorch's fused path altogether."""
    earlier = module.__dict__.get("forward")
    module.forward = forward

    def restore() -> None:
        del module.forward
        if earlier is not None:
            module.forward = earlier

    accounts.on_detach(restore)


@contextmanager
def _without_fast_path() -> Iterator[None]:
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class _Reader:
    """The model's own forward, which now also takes arguments for the accounts."""

    def __init__(self, model: nn.Module, accounts: AttachedAccounts) -> None:
        self.call, self.accounts = model.forward, accounts
        self.names = list(inspect.signature(model.forward).parameters)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the model's own forward; actions, rewards, attractions and account_mask are for the accounts."""
        found = pop_arguments(self.names, args, kwargs)
        if self.accounts.are_silent:
            return self.call(*args, **kwargs)
        try:
            self.accounts.open(**found)
            with _without_fast_path() if self.accounts.has_bias else nullcontext():
                return self.call(*args, **kwargs)
        finally:
            self.accounts.close()


class _SlowEncoder:
    """An encoder or one of its layers, which may be called directly: never uses the fused path."""

    def __init__(self, module: nn.Module, accounts: AttachedAccounts) -> None:
        self.call, self.accounts = module.forward, accounts

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the module's own forward."""
        if self.accounts.call is not None or not self.accounts.has_bias:
            return self.call(*args, **kwargs)
        with _without_fast_path():
            return self.call(*args, **kwargs)


class _BiasedAttention:
    """One MultiheadAttention whose mask carries the bias."""

    def __init__(self, module: nn.MultiheadAttention, layer: int, accounts: AttachedAccounts) -> None:
        self.module, self.layer, self.accounts = module, layer, accounts
        self.call = module.forward
        self.signature = inspect.signature(module.forward)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As MultiheadAttention.forward, with the bias in attn_mask."""
        if not self.accounts.has_bias:
            return self.call(*args, **kwargs)
        given = self.signature.bind(*args, **kwargs).arguments
        query, key = given["query"], given["key"]
        batched = query.ndim == 3
        sequence = 1 if self.module.batch_first and batched else 0
        B = query.shape[1 - sequence] if batched else 1
        rows, S = query.shape[sequence], key.shape[sequence]
        bias = self.accounts.bias(self.accounts.shown_for(S, query.device), self.layer, B, S)
        heads = self.module.num_heads
        full = bias.to(query.dtype).expand(B, heads, rows, S).reshape(B * heads, rows, S)
        mask = given.get("attn_mask")
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, dtype=query.dtype, device=mask.device).masked_fill(mask, -torch.inf)
        given["attn_mask"] = full if mask is None else mask + full
        padding = given.get("key_padding_mask")
        if padding is not None and padding.dtype == torch.bool:  # both masks must have the same type
            zeros = torch.zeros(padding.shape, dtype=query.dtype, device=padding.device)
            given["key_padding_mask"] = zeros.masked_fill(padding, -torch.inf)
        given["is_causal"] = False  # with this hint PyTorch would ignore the mask
        return self.call(**given)
