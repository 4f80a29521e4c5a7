"""Accounts in Hugging Face models: DecisionTransformerModel, and GPT-2-style models over tokens.

The bias is added to the mask that each attention module is given, by hooks. So it reaches whatever attention the model
uses, eager, SDPA or a function registered with transformers' AttentionInterface, as long as that adds its mask.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mental_accounts.accounts import BiasScale, Codebook, RewardTransform, UpdateRule
from mental_accounts.integrations.attached import AttachedAccounts, Columns, check_arguments, mark
from mental_accounts.integrations.extras import check_library

Steps = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Tokens (B, K) of action columns -> their actions (B, K[, dim]) and rewards (B, K)."""

MASKLESS = ("flash", "flex", "paged")
"""Attention implementations, by how their names begin, that take no additive mask."""


def hugging_face_accounts(
    model: nn.Module,
    codebook: Codebook,
    rule: UpdateRule,
    beta: float | Tensor | BiasScale,
    *,
    transform: RewardTransform | None = None,
    clip: float | None = None,
    columns: Columns | None = None,
    steps: Steps | None = None,
) -> AttachedAccounts:
    """Attach accounts to a model of transformers 5.

    A DecisionTransformerModel is given actions and rewards in its own call, and padding by its attention_mask. A model
    over tokens (GPT2LMHeadModel and its like) needs `columns`, the tokens that are actions, and either `attractions=`
    in the call or `steps`, which reads actions and rewards off those tokens; `generate` then keeps live accounts.
    """
    check_library("transformers", "hugging_face_accounts")
    check_arguments(model, codebook, rule, beta)
    accounts = AttachedAccounts(codebook, rule, beta, transform=transform, clip=clip, columns=columns)
    decides = _is_decision_transformer(model)
    if not decides and columns is None:
        raise ValueError(
            f"{type(model).__name__} reads plain tokens: give columns=, a bool selector (S,) that is True at the "
            "tokens of actions, or every(period, offset)"
        )
    attention = attention_modules(model)
    check_attention(model)
    reader: _StepReader | _TokenReader
    reader = _StepReader(model, accounts) if decides else _TokenReader(model, accounts, steps)
    accounts.on_detach(model.register_forward_pre_hook(reader.before, with_kwargs=True).remove)
    accounts.on_detach(model.register_forward_hook(reader.after, always_call=True).remove)
    if isinstance(reader, _TokenReader):
        reader.follow_beams()
    bias_attention(attention, accounts)
    mark(model, accounts)
    return accounts


def bias_attention(modules: list[nn.Module], accounts: AttachedAccounts) -> None:
    """Have each attention module's mask carry the bias."""
    adder = _MaskAdder(accounts)
    for layer, module in enumerate(modules):
        accounts.on_detach(module.register_forward_pre_hook(adder.hook(layer, module), with_kwargs=True).remove)


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """The innermost modules whose forward takes an attention_mask, in order: one per layer."""

    def takes_mask(module: nn.Module) -> bool:
        return "attention_mask" in inspect.signature(module.forward).parameters

    found = [
        module
        for module in model.modules()
        if takes_mask(module)
        and not any(takes_mask(inner) for inner in module.modules() if inner is not module)
        and not getattr(module, "is_cross_attention", False)
    ]
    if not found or found == [model]:
        raise ValueError(
            f"the attention of {type(model).__name__} cannot take a bias: none of its parts takes an attention_mask; "
            "use a GPT-2-style model, or add column_bias to the attention logits yourself"
        )
    return found


def check_attention(model: nn.Module) -> None:
    """Refuse an attention implementation that cannot take a bias, and checkpointing that would forget it."""
    check_implementation(model)
    if any(getattr(part, "gradient_checkpointing", False) for part in model.modules()):
        raise ValueError(
            "gradient checkpointing runs attention again after the accounts moved on; call "
            "model.gradient_checkpointing_disable() first"
        )


def check_implementation(module: nn.Module) -> None:
    """Refuse an attention implementation that takes no additive mask."""
    chosen = str(getattr(getattr(module, "config", None), "_attn_implementation", None) or "eager")
    if chosen.startswith(MASKLESS):
        raise ValueError(
            f"the attention implementation {chosen!r} cannot take a bias: it takes no additive mask; call "
            "model.set_attn_implementation('sdpa') (or 'eager') first"
        )


def _is_decision_transformer(model: nn.Module) -> bool:
    from transformers import DecisionTransformerModel

    return isinstance(model, DecisionTransformerModel)


class _MaskAdder:
    """Adds the bias to masks, once for all layers that share mask and β."""

    def __init__(self, accounts: AttachedAccounts) -> None:
        self.accounts = accounts
        self._last: tuple[Tensor | None, Tensor, Tensor] | None = None

    def hook(self, layer: int, module: nn.Module) -> Callable[..., Any]:
        """A forward pre-hook for the attention module of one layer."""
        names = list(inspect.signature(module.forward).parameters)
        place = names.index("attention_mask")

        def add(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if self.accounts.is_quiet:
                return None
            check_implementation(module)  # it may have been changed since
            hidden = args[0] if args else kwargs[names[0]]
            mask = args[place] if len(args) > place else kwargs.get("attention_mask")
            added = self._added(layer, module, hidden, mask)
            if len(args) > place:
                return (*args[:place], added, *args[place + 1 :]), kwargs
            return args, {**kwargs, "attention_mask": added}

        return add

    def _added(self, layer: int, module: nn.Module, hidden: Tensor, mask: Tensor | None) -> Tensor:
        B, rows = hidden.shape[:2]
        if mask is not None and mask.ndim != 4:
            raise ValueError(
                f"the attention of {type(module).__name__} cannot take a bias: expected a mask (B, 1, rows, columns), "
                f"got {tuple(mask.shape)}; call model.set_attn_implementation('sdpa') (or 'eager') first"
            )
        columns = self.accounts.shown_columns if mask is None else mask.shape[-1]
        bias = self.accounts.bias(layer, B, columns)
        assert bias is not None  # hooks are silent otherwise
        if self._last is not None and self._last[0] is mask and self._last[1] is bias:
            return self._last[2]
        dtype = mask.dtype if mask is not None and mask.is_floating_point() else hidden.dtype
        if mask is None and getattr(module, "is_causal", True):  # what SDPA would do by itself
            mask_now = torch.ones(rows, columns, dtype=torch.bool, device=hidden.device).tril(columns - rows)
            added = torch.where(mask_now, bias.to(dtype), -torch.inf)
        elif mask is None:
            added = bias.to(dtype).expand(B, -1, rows, columns)
        elif mask.is_floating_point():
            added = mask + bias.to(dtype)
        else:
            added = torch.where(mask, bias.to(dtype), -torch.inf)
        self._last = (mask, bias, added)
        return added


class _StepReader:
    """Reads actions and rewards off the call of a DecisionTransformerModel."""

    def __init__(self, model: nn.Module, accounts: AttachedAccounts) -> None:
        self.accounts = accounts
        self.names = list(inspect.signature(model.forward).parameters)

    def before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the bias of this forward."""
        attractions = kwargs.pop("attractions", None)
        self.accounts.show(None)
        if not self.accounts.are_silent:
            given = {**dict(zip(self.names, args, strict=False)), **kwargs}
            actions, rewards = given.get("actions"), given.get("rewards")
            states = given["states"]
            K = states.shape[1]
            if rewards is not None and rewards.ndim == 3:
                rewards = rewards.squeeze(-1)
            columns = self.accounts.selector(3 * K)
            chosen = self.accounts.choose(attractions, actions, rewards, given.get("attention_mask"), columns)
            self.accounts.show(self.accounts.spread(chosen, 3 * K, states.device))
        return args, kwargs

    def after(self, *_: Any) -> None:
        """Forget it."""
        self.accounts.show(None)


class _TokenReader:
    """Reads a model over tokens, in one piece or piece by piece behind a cache."""

    def __init__(self, model: nn.Module, accounts: AttachedAccounts, steps: Steps | None) -> None:
        self.model, self.accounts, self.steps = model, accounts, steps
        self.names = list(inspect.signature(model.forward).parameters)
        self.seen: Tensor | None = None
        """What the columns so far carry, (B, columns)."""

    def before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the bias of this forward; behind a cache, post the new tokens to the live accounts."""
        attractions = kwargs.pop("attractions", None)
        self.accounts.show(None)
        if self.accounts.are_silent:
            return args, kwargs
        given = {**dict(zip(self.names, args, strict=False)), **kwargs}
        tokens = given.get("input_ids")
        sequences = given["inputs_embeds"] if tokens is None else tokens
        cache = given.get("past_key_values")
        before = 0 if cache is None else int(cache.get_seq_length())
        if attractions is None and self.steps is not None and tokens is not None:
            there = given.get("attention_mask")
            if there is not None and there.ndim == 2 and not bool(there.all()):
                raise ValueError(
                    "the sequence layout does not match the column selector: some tokens are padding, so that columns "
                    "mean different things in different sequences; give sequences of one length"
                )
            self.accounts.show(self._post(tokens, before))
            return args, kwargs
        S = before + sequences.shape[1]
        chosen = self.accounts.choose(attractions, None, None, None, self.accounts.selector(S))
        self.accounts.show(self.accounts.spread(chosen, S, sequences.device))
        return args, kwargs

    def after(self, *_: Any) -> None:
        """Forget it."""
        self.accounts.show(None)

    def follow_beams(self) -> None:
        """Have beam search sort the accounts together with the cache."""
        model: Any = self.model
        if hasattr(model, "_reorder_cache"):
            return

        def reorder(cache: Any, beams: Tensor) -> Any:
            cache.reorder_cache(beams)
            if self.seen is not None and self.accounts.ledger is not None:
                self.seen = self.seen[beams]
                self.accounts.ledger.attractions = self.accounts.ledger.attractions[beams]
            return cache

        model._reorder_cache = reorder
        self.accounts.on_detach(lambda: delattr(model, "_reorder_cache"))

    def _post(self, tokens: Tensor, before: int) -> Tensor:
        """Post the actions among new tokens (B, n) after `before` cached ones: what all columns carry, (B, S)."""
        assert self.steps is not None
        B, n = tokens.shape
        if before == 0:
            self.accounts.begin(B)
            self.seen = torch.zeros(B, 0, device=tokens.device)
        if self.seen is None or tuple(self.seen.shape) != (B, before):
            came = None if self.seen is None else tuple(self.seen.shape)
            raise ValueError(
                f"the cache holds {before} tokens of {B} sequences, but the accounts have seen {came}; begin with an "
                "empty cache while the accounts are attached"
            )
        is_action = self.accounts.selector(before + n)[before:].to(tokens.device)
        fresh = torch.zeros(B, n, device=tokens.device)
        if bool(is_action.any()):
            actions, rewards = self.steps(tokens[:, is_action])
            posted = [self.accounts.post(actions[:, t], rewards[:, t]) for t in range(actions.shape[1])]
            fresh[:, is_action] = torch.stack(posted, dim=1).to(fresh.dtype)
        self.seen = torch.cat([self.seen, fresh], dim=1)
        return self.seen
