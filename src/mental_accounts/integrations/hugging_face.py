"""Accounts in Hugging Face models: DecisionTransformerModel, and GPT-2-style models over tokens.

A reader intercepts the call of the model and sets the values on its columns, which masks.py adds to the attention, and
what the ledger adds to its tokens.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from mental_accounts.accounts import BiasScale, Codebook, RewardTransform, UpdateRule
from mental_accounts.extras import check_library
from mental_accounts.integrations.attached import AttachedAccounts
from mental_accounts.integrations.calls import Call, pop_arguments
from mental_accounts.integrations.columns import Columns
from mental_accounts.integrations.embeddings import add_after, add_before, check_all_added, embedding_of
from mental_accounts.integrations.late_entries import LateEntries
from mental_accounts.integrations.ledger_input import Added, LedgerTokens, Weights
from mental_accounts.integrations.masks import bias_attention
from mental_accounts.integrations.refusals import check_arguments, mark, refuse_outside

Steps = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Tokens (B, K) of action columns -> their actions (B, K[, dim]) and rewards (B, K)."""


def hugging_face_accounts(
    model: nn.Module,
    codebook: Codebook,
    rule: UpdateRule,
    beta: float | Tensor | BiasScale | None = None,
    *,
    transform: RewardTransform | None = None,
    clip: float | None = None,
    columns: Columns | None = None,
    steps: Steps | None = None,
    ledger_input: LedgerTokens = "none",
    channels: Sequence[str] = ("balance",),
    reward_delay: int = 0,
    ledger_weights: Weights | None = None,
) -> AttachedAccounts:
    """Attach accounts to a model of transformers 5: a bias (`beta`), a ledger in its input (`ledger_input`), or both.

    A DecisionTransformerModel gets actions and rewards in its own call, and padding from its attention_mask. A model
    over tokens (GPT2LMHeadModel and the like) needs `columns`, the tokens that are actions, and their rewards:
    `actions=` and `rewards=` (with `account_mask=` (B, K) if windows are padded) or `attractions=` and `ledger=` in the
    call, or `steps`, which reads actions and rewards from those tokens; `generate` then keeps live accounts.

    `ledger_input="state"` adds what the ledger tells, through a learned linear map, to the token right before each
    action (the state's, in a decision transformer); a selector like `columns` chooses other tokens. `channels` are what
    it tells of each code. `reward_delay`: how many steps late rewards are. The map is the submodule `ledger_input`, and
    is saved with the model; `ledger_weights` (the folder, or a state_dict) reads it when attached again.
    """
    check_library("transformers", "hugging_face_accounts")
    check_arguments(model, codebook, rule, beta)
    accounts = AttachedAccounts(
        codebook, rule, beta, transform=transform, clip=clip, columns=columns, ledger_input=ledger_input,
        channels=channels, reward_delay=reward_delay, ledger_weights=ledger_weights,
    )  # fmt: skip
    decides = _is_decision_transformer(model)
    if not decides and columns is None:
        raise ValueError(
            f"{type(model).__name__} reads plain tokens: give columns=, a bool selector (S,) that is True at the "
            "tokens of actions, or every(period, offset)"
        )
    with accounts.attaching():
        if beta is not None:
            bias_attention(model, accounts)
        if accounts.tells:
            _add_ledger(model, accounts, decides)
    reader: _StepReader | _TokenReader
    reader = _StepReader(model, accounts) if decides else _TokenReader(model, accounts, steps)
    accounts.on_detach(model.register_forward_pre_hook(reader.before, with_kwargs=True).remove)
    accounts.on_detach(model.register_forward_hook(reader.succeeded).remove)
    accounts.on_detach(model.register_forward_hook(reader.after, always_call=True).remove)
    if isinstance(reader, _TokenReader):
        accounts.on_detach(reader.forget)
    mark(model, accounts)
    return accounts


def _add_ledger(model: Any, accounts: AttachedAccounts, decides: bool) -> None:
    """Give the model the map, and let its embeddings add what the ledger tells."""
    from transformers import PreTrainedModel

    embedding: Any = model.embed_ln if decides else embedding_of(model)
    hidden = int(embedding.weight.shape[-1])
    accounts.map_into(model, hidden, embedding.weight.device)
    (add_before if decides else add_after)(embedding, accounts)

    def refuse(part: nn.Module, *_: object) -> None:
        if accounts.call is None:
            refuse_outside(part)

    for part in model.modules():
        if part is not model and isinstance(part, PreTrainedModel):
            accounts.on_detach(part.register_forward_pre_hook(refuse).remove)


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
            self.accounts.prepare(call, 3 * K, states.device, found)
        return args, kwargs

    def succeeded(self, model: nn.Module, *_: object) -> None:
        """All that the ledger tells was read."""
        check_all_added(model, self.accounts)

    def after(self, *_: Any) -> None:
        """End the call."""
        self.accounts.close()


@dataclass
class _Stream:
    """A sequence, piece by piece: the values on its columns so far, (B, columns), and its accounts."""

    values: Tensor
    entries: LateEntries

    def sort(self, beams: Tensor) -> None:
        """Reorder: index i gets the entry of `beams[i]`."""
        self.values = self.values[beams]
        self.entries.sort(beams)


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
            self._read = (self._go_on(call, tokens, before, cache), cache)
            return args, kwargs
        self.accounts.prepare(call, before + sequences.shape[1], sequences.device, found, before)
        if tokens is None:
            return self._with_embeddings(call.take(sequences), args, kwargs)
        return args, kwargs

    def succeeded(self, model: nn.Module, _: object, output: Any) -> None:
        """Keep the values read from the tokens, with the cache that holds them."""
        check_all_added(model, self.accounts)
        if self._read is None:
            return
        stream, cache = self._read
        self._read, self.accounts.ledger = None, stream.entries.ledger
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

    def _with_embeddings(self, embedded: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The arguments of the call, with these inputs_embeds."""
        place = self.names.index("inputs_embeds")
        if place < len(args):
            return (*args[:place], embedded, *args[place + 1 :]), kwargs
        return args, {**kwargs, "inputs_embeds": embedded}

    def _go_on(self, call: Call, tokens: Tensor, before: int, cache: Any) -> _Stream:
        """The stream with new tokens (B, n) after `before` cached ones; sets what the call is shown."""
        accounts = self.accounts
        B, n = tokens.shape
        stream = self._stream(B, before, cache, tokens.device)
        is_action = accounts.selector(before + n)
        new = is_action[before:].to(tokens.device)
        fresh, entries = torch.zeros(B, n, device=tokens.device), stream.entries
        told = [accounts.books.told_by(entries.ledger).clone()] if accounts.tells else []
        if bool(new.any()):
            assert self.steps is not None
            entries = entries.copy()  # the call may yet fail
            actions, rewards = self.steps(tokens[:, new])
            posted = []
            for t in range(actions.shape[1]):
                posted.append(entries.post(accounts.books, actions[:, t], rewards[:, t]))
                told += [accounts.books.told_by(entries.ledger).clone()] if accounts.tells else []
            fresh[:, new] = torch.stack(posted, dim=1).to(fresh.dtype)
        made = _Stream(torch.cat([stream.values, fresh], dim=1), entries)
        if accounts.has_bias:
            call.column_values = made.values
        if accounts.ledger_input is not None:
            where, step = accounts.ledger_input.places(before + n, is_action)
            where, step = where[where >= before] - before, step[where >= before] - int(is_action[:before].sum())
            if len(where):
                shown = torch.stack(told, dim=1)[:, step.to(tokens.device)]  # (B, P, ledger_size)
                call.added = Added(where.to(tokens.device), accounts.ledger_input.map(shown))
        return made

    def _stream(self, B: int, before: int, cache: Any, device: torch.device) -> _Stream:
        """The stream of B sequences after `before` cached tokens."""
        if before == 0:
            entries = LateEntries(self.accounts.books.to(device), B, device)
            return _Stream(torch.zeros(B, 0, device=device), entries)
        found = self.streams.get(cache)
        if found is None or tuple(found.values.shape) != (B, before):
            known = "none of them" if found is None else f"{found.values.shape[1]} of {found.values.shape[0]}"
            raise ValueError(
                f"the cache holds {before} tokens of {B} sequences, but the accounts have read {known}: begin with "
                "an empty cache while the accounts are attached, and generate without prompt_lookup_num_tokens or "
                "an assistant model, which discard tokens"
            )
        return found
