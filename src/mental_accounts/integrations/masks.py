"""The bias in the masks of transformers' attention modules.

Hooks add it to the mask of each module. So it works with any attention implementation, eager, SDPA or a function
registered with transformers' AttentionInterface, that adds its mask to the logits.
"""

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mental_accounts.integrations.attached import AttachedAccounts
from mental_accounts.integrations.calls import Call
from mental_accounts.integrations.refusals import CHECKPOINTING, check_scale, refuse_outside

MASKLESS = ("flash", "flex", "paged")
"""Parts of the names of attention implementations that take no additive mask."""

CACHES = ("past_key_values", "layer_past", "past_key_value")
"""Names of the cache argument of attention modules."""


def bias_attention(model: nn.Module, accounts: AttachedAccounts) -> None:
    """Add the bias to the mask of each attention module in a transformers model; or refuse the model."""
    attention = _attention_modules(model)
    _check_implementation(model)
    _check_layers(model)
    check_scale(accounts.beta, len(attention), _number_of_heads(model))
    checkpointing = [part for part in model.modules() if hasattr(part, "gradient_checkpointing")]
    _refuse_checkpointing(checkpointing)
    for layer, module in enumerate(attention):
        hook = _MaskHook(accounts, layer, module, checkpointing)
        accounts.on_detach(module.register_forward_pre_hook(hook, with_kwargs=True).remove)


def _attention_modules(model: nn.Module) -> list[nn.Module]:
    """The innermost modules whose forward takes an attention_mask, in order: one per layer."""

    def takes_mask(module: nn.Module) -> bool:
        return "attention_mask" in inspect.signature(module.forward).parameters

    found = [
        module
        for module in model.modules()
        if takes_mask(module)
        and not isinstance(module, nn.Embedding)  # OPT computes positions from the mask
        and not any(takes_mask(inner) for inner in module.modules() if inner is not module)
        and not getattr(module, "is_cross_attention", False)
    ]
    if not found or found == [model]:
        raise ValueError(
            f"the attention of {type(model).__name__} cannot take a bias: none of its parts takes an attention_mask; "
            "use a GPT-2-style model, or add column_bias to the attention logits yourself"
        )
    return found


def _number_of_heads(model: nn.Module) -> int | None:
    """From its configuration; None if that does not say."""
    heads = getattr(getattr(model, "config", None), "num_attention_heads", None)
    return heads if isinstance(heads, int) else None


def _refuse_checkpointing(parts: list[Any]) -> None:
    """Refuse a model that recomputes its layers in the backward pass."""
    if any(part.gradient_checkpointing for part in parts):
        raise ValueError(f"{CHECKPOINTING} (model.gradient_checkpointing_disable())")


def _check_implementation(module: nn.Module) -> None:
    """Refuse an attention implementation that takes no additive mask."""
    chosen = _implementation(module)
    if any(word in chosen for word in MASKLESS):
        raise ValueError(
            f"the attention implementation {chosen!r} cannot take a bias: it takes no additive mask; call "
            "model.set_attn_implementation('sdpa') (or 'eager') first"
        )


def _implementation(module: nn.Module) -> str:
    return str(getattr(getattr(module, "config", None), "_attn_implementation", None) or "eager")


def _check_layers(model: nn.Module) -> None:
    """Refuse layers other than attention over tokens: no bias reaches their memory."""
    for name in ("layer_types", "layers_block_type", "block_types"):
        kinds = getattr(getattr(model, "config", None), name, None) or ()
        others = sorted({str(kind) for kind in kinds if "attention" not in str(kind) or "linear" in str(kind)})
        if others:
            raise ValueError(
                f"{type(model).__name__} has layers without attention ({', '.join(others)}), which accounts cannot "
                "bias; use a model with attention in every layer"
            )


class _MaskHook:
    """A forward pre-hook for the attention module of one layer: adds the bias to its mask."""

    def __init__(self, accounts: AttachedAccounts, layer: int, module: nn.Module, checkpointing: list[Any]) -> None:
        self.accounts, self.layer, self.checkpointing = accounts, layer, checkpointing
        self.names = list(inspect.signature(module.forward).parameters)
        self.place = self.names.index("attention_mask")

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The arguments of the attention, with the bias in the mask."""
        call = self.accounts.call
        if call is None and self.accounts.has_bias:
            refuse_outside(module)
        if call is None or call.column_values is None:
            return None
        _check_implementation(module)  # may have changed since
        if self.layer == 0:
            _refuse_checkpointing(self.checkpointing)  # may have been switched on
        given = {**dict(zip(self.names, args, strict=False)), **kwargs}
        cache = next((given[name] for name in CACHES if given.get(name) is not None), None)
        added = self._added(call, module, given[self.names[0]], given.get("attention_mask"), cache)
        if len(args) > self.place:
            return (*args[: self.place], added, *args[self.place + 1 :]), kwargs
        return args, {**kwargs, "attention_mask": added}

    def _added(self, call: Call, module: nn.Module, hidden: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        """The mask plus the bias, (B, 1 or heads, rows, columns); computed once for layers that share mask and β."""
        assert call.column_values is not None
        B, rows = hidden.shape[:2]
        shown = call.column_values.shape[1]
        if mask is not None and (mask.ndim != 4 or (mask.dtype == torch.bool and _implementation(module) == "eager")):
            raise ValueError(
                f"the attention of {type(module).__name__} cannot take a bias: expected a mask (B, 1, rows, columns) "
                f"that is added to the logits, got {mask.dtype} {tuple(mask.shape)}; call "
                "model.set_attn_implementation('sdpa') (or 'eager') first, if the model has it"
            )
        columns = _columns(module, cache, shown) if mask is None else mask.shape[-1]
        bias = self.accounts.bias(call, self.layer, B, _seen_columns(module, cache, shown, columns))
        last = call.made.get("mask")
        if last is not None and last[0] is mask and last[1] is bias and last[2] == columns:
            made: Tensor = last[3]
            return made
        dtype = mask.dtype if mask is not None and mask.is_floating_point() else hidden.dtype
        aligned = F.pad(bias, (0, columns - shown)) if columns > shown else bias[..., shown - columns :]
        aligned = aligned.to(dtype)
        if mask is None and getattr(module, "is_causal", True):  # what SDPA would do by itself
            mask_now = torch.ones(rows, columns, dtype=torch.bool, device=hidden.device).tril(shown - rows)
            added = torch.where(mask_now, aligned, -torch.inf)
        elif mask is None:
            added = aligned.expand(B, -1, rows, columns)
        elif mask.is_floating_point():
            added = mask + aligned
        else:
            added = torch.where(mask, aligned, -torch.inf)
        call.made["mask"] = (mask, bias, columns, added)
        return added


def _cache_layer(module: nn.Module, cache: Any) -> Any:
    """An attention module's part of a cache; None if it is empty."""
    own, shared = getattr(module, "layer_idx", None), getattr(module, "kv_shared_layer_index", None)
    place, layers = (own or 0) if shared is None else shared, getattr(cache, "layers", ())
    return layers[place] if place < len(layers) else None


def _columns(module: nn.Module, cache: Any, shown: int) -> int:
    """Columns of attention without a mask: those the accounts know, or all slots of a static cache."""
    return getattr(_cache_layer(module, cache), "max_cache_len", shown)


def _seen_columns(module: nn.Module, cache: Any, shown: int, columns: int) -> int:
    """`shown`, if the cache explains the different number of columns: empty slots at its end, or a sliding window.

    Any other layout is unknown to the accounts; `columns` is then returned unchanged for them to refuse.
    """
    layer = _cache_layer(module, cache)
    explains = "max_cache_len" if columns > shown else "is_sliding"
    return shown if getattr(layer, explains, False) else columns
