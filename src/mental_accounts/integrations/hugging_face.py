"""Accounts in Hugging Face models: DecisionTransformerModel, and GPT-2-style models over tokens.

A reader intercepts the call of the model and sets the values on its columns; masks.py adds them to the attention.
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from mental_accounts.accounts import BiasScale, Codebook, Ledger, RewardTransform, UpdateRule
from mental_accounts.extras import check_library
from mental_accounts.integrations.attached import AttachedAccounts, Columns, pop_arguments
from mental_accounts.integrations.masks import bias_attention
from mental_accounts.integrations.refusals import check_arguments, mark

Steps = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Tokens (B, K) of action columns -> their actions (B, K[, dim]) and rewards (B, K)."""


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

    A DecisionTransformerModel gets actions and rewards in its own call, and padding from its attention_mask. A model
    over tokens (GPT2LMHeadModel and the like) needs `columns`, the tokens that are actions, and their rewards:
    `actions=` and `rewards=` (with `account_mask=` (B, K) if windows are padded) or `attractions=` in the call, or
    `steps`, which reads actions and rewards from those tokens; `generate` then keeps live accounts.
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
    bias_attention(model, accounts)
    reader: _StepReader | _TokenReader
    reader = _StepReader(model, accounts) if decides else _TokenReader(model, accounts, steps)
    accounts.on_detach(model.register_forward_pre_hook(reader.before, with_kwargs=True).remove)
    accounts.on_detach(model.register_forward_hook(reader.after, always_call=True).remove)
    if isinstance(reader, _TokenReader):
        accounts.on_detach(model.register_forward_hook(reader.succeeded).remove)
        accounts.on_detach(reader.forget)
    mark(model, accounts)
    return accounts


def _is_decision_transformer(model: nn.Module) -> bool:
    from transformers import DecisionTransformerModel

    return isinstance(model, DecisionTransformerModel)


def _shows_padding(mask: Any, before: int) -> bool:
    """Whether some token is padding, according to a model's mask: (B, S), or already expanded for attention.

    In an expanded mask, padding does not attend to itself; tokens after `before` others are never padding.
    """
    if mask is None or isinstance(mask, dict):
        return any(_shows_padding(one, before) for one in (mask or {}).values())
    if mask.ndim == 2:
        return not bool(mask.all())
    attended = mask > torch.finfo(mask.dtype).min / 2 if mask.is_floating_point() else mask
    return before == 0 and not bool(attended.diagonal(dim1=-2, dim2=-1).all())


class _StepReader:
    """Reads actions and rewards from the call of a DecisionTransformerModel."""

    def __init__(self, model: nn.Module, accounts: AttachedAccounts) -> None:
        self.accounts = accounts
        self.names = list(inspect.signature(model.forward).parameters)

    def before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute the bias of this forward."""
        call = self.accounts.open()
        found = pop_arguments(self.names, args, kwargs)
        if not self.accounts.are_silent:
            given = {**dict(zip(self.names, args, strict=False)), **kwargs}
            states, rewards = given["states"], found["rewards"]
            K = states.shape[1]
            if rewards is not None and rewards.ndim == 3:
                found["rewards"] = rewards.squeeze(-1)
            if found["account_mask"] is None:
                found["account_mask"] = given.get("attention_mask")
            chosen = self.accounts.choose(self.accounts.selector(3 * K), **found)
            call.column_values = self.accounts.spread(chosen, 3 * K, states.device)
        return args, kwargs

    def after(self, *_: Any) -> None:
        """End the call."""
        self.accounts.close()


@dataclass
class _Stream:
    """A sequence, piece by piece: the values on its columns so far, (B, columns), and its accounts."""

    values: Tensor
    ledger: Ledger

    def sort(self, beams: Tensor) -> None:
        """Reorder: index i gets the entry of `beams[i]`."""
        self.values = self.values[beams]
        self.ledger.sort(beams)


class _TokenReader:
    """Reads the calls of a model over tokens, with whole sequences or piece by piece with a cache."""

    def __init__(self, model: nn.Module, accounts: AttachedAccounts, steps: Steps | None) -> None:
        self.accounts, self.steps = accounts, steps
        self.names = list(inspect.signature(model.forward).parameters)
        self.streams: WeakKeyDictionary[Any, _Stream] = WeakKeyDictionary()
        """The stream whose keys and values each cache holds."""
        self._read: tuple[_Stream, Any] | None = None
        """The stream and cache of the current call."""

    def before(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute the bias of this forward; with a cache, continue the accounts of the cached tokens."""
        self._read = None
        call = self.accounts.open()
        found = pop_arguments(self.names, args, kwargs)
        if self.accounts.are_silent:
            return args, kwargs
        given = {**dict(zip(self.names, args, strict=False)), **kwargs}
        tokens = given.get("input_ids")
        sequences = given.get("inputs_embeds") if tokens is None else tokens
        if sequences is None:
            raise ValueError(
                f"the call of {type(model).__name__} has neither input_ids nor inputs_embeds, so the accounts cannot "
                "read its tokens: attach them to the part whose call has"
            )
        cache = given.get("past_key_values")
        before = 0 if cache is None else int(cache.get_seq_length())
        from_tokens = not self.accounts.are_live and all(value is None for value in found.values())
        if self.steps is not None and tokens is not None and from_tokens:
            if _shows_padding(given.get("attention_mask"), before):
                raise ValueError(
                    "the sequence layout does not match the column selector: some tokens are padding, so columns "
                    "mean different things in different sequences; give sequences of one length"
                )
            stream = self._go_on(tokens, before, cache)
            self._read = (stream, cache)
            call.column_values = stream.values
            return args, kwargs
        S = before + sequences.shape[1]
        chosen = self.accounts.choose(self.accounts.selector(S), **found)
        call.column_values = self.accounts.spread(chosen, S, sequences.device)
        return args, kwargs

    def succeeded(self, _: nn.Module, __: object, output: Any) -> None:
        """Keep the values read from the tokens, with the cache that holds them."""
        if self._read is None:
            return
        stream, cache = self._read
        self._read, self.accounts.ledger = None, stream.ledger
        parts = output if isinstance(output, tuple) else (getattr(output, "past_key_values", None),)
        cache = next((part for part in (cache, *parts) if hasattr(part, "get_seq_length")), None)
        if cache is not None:
            if cache not in self.streams:
                self._follow(cache)
            self.streams[cache] = stream

    def after(self, *_: Any) -> None:
        """End the call."""
        self.accounts.close()

    def forget(self) -> None:
        """Restore all caches."""
        for cache in list(self.streams):
            cache.__dict__.pop("reorder_cache", None)
        self.streams.clear()

    def _follow(self, cache: Any) -> None:
        """Let beam search reorder the accounts together with their cache, without keeping the cache alive."""
        kept = ref(cache)

        def reorder_cache(beams: Tensor) -> None:
            cache: Any = kept()
            type(cache).reorder_cache(cache, beams)
            self.streams[cache].sort(beams)

        cache.reorder_cache = reorder_cache

    def _go_on(self, tokens: Tensor, before: int, cache: Any) -> _Stream:
        """The stream with new tokens (B, n) after `before` cached ones."""
        assert self.steps is not None
        B, n = tokens.shape
        if before == 0:
            ledger = self.accounts.books.ledger(B, tokens.device)
            stream = _Stream(torch.zeros(B, 0, device=tokens.device), ledger)
        else:
            found = self.streams.get(cache)
            if found is None or tuple(found.values.shape) != (B, before):
                known = "none of them" if found is None else f"{found.values.shape[1]} of {found.values.shape[0]}"
                raise ValueError(
                    f"the cache holds {before} tokens of {B} sequences, but the accounts have read {known}: begin with "
                    "an empty cache while the accounts are attached, and generate without prompt_lookup_num_tokens or "
                    "an assistant model, which discard tokens"
                )
            stream = found
        is_action = self.accounts.selector(before + n)[before:].to(tokens.device)
        fresh, ledger = torch.zeros(B, n, device=tokens.device), stream.ledger
        if bool(is_action.any()):
            ledger = copy.deepcopy(ledger)  # the call may yet fail
            actions, rewards = self.steps(tokens[:, is_action])
            posted = [self.accounts.post_to(ledger, actions[:, t], rewards[:, t]) for t in range(actions.shape[1])]
            fresh[:, is_action] = torch.stack(posted, dim=1).to(fresh.dtype)
        return _Stream(torch.cat([stream.values, fresh], dim=1), ledger)
