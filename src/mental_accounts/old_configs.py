"""Configurations written by version 0.1: fields they lack take that version's values, not today's defaults."""

from collections.abc import Mapping
from typing import Any

ALWAYS_WRITTEN = {"hidden", "layers", "dropout", "max_timestep", "order_embedding", "gamma", "accounts"}
"""Network fields that version 0.1 always wrote."""


def fill_in_model(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a network; those that version 0.1 did not have yet get the values it effectively used.

    Version 0.1 wrote every field it had, and none called `likelihood`. Files of later versions, and handwritten files
    that leave out some of those fields too, are returned unchanged.
    """
    filled = dict(values)
    if isinstance(filled.get("accounts"), Mapping):
        filled["accounts"] = without_removed(filled["accounts"])
    if not ALWAYS_WRITTEN <= set(filled) or "likelihood" in filled:
        return filled
    filled = {"reward_input": "none", **filled, "likelihood": "squashed"}
    if isinstance(filled["accounts"], Mapping):
        filled["accounts"] = {"window_steps": 0, **filled["accounts"]}  # as many as the acting context
    return filled


def without_removed(accounts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of accounts without removed options; refused if one was in use."""
    kept = dict(accounts)
    if kept.pop("normalised", False) is not False:
        raise ValueError("accounts.normalised was an option of version 0.1 only: install that version to use this file")
    if kept.get("ledger_input") == "token":
        raise ValueError(
            "accounts.ledger_input 'token' was an option of version 0.1 only: install that version to use this file, "
            "or train with 'state'"
        )
    return kept


def rename_weights(tensors: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tensors under this version's names: in version 0.1 the accounts themselves were the books."""
    books = tuple(f"{prefix}accounts.{part}." for part in ("codebook", "transform", "state_codes", "baseline"))
    return {
        f"{prefix}accounts.books.{name.removeprefix(f'{prefix}accounts.')}" if name.startswith(books) else name: value
        for name, value in tensors.items()
    }
