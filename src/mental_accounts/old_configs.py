"""Configurations that version 0.1 wrote: what they left unsaid is what that version did, not today's defaults."""

from collections.abc import Mapping
from typing import Any

ALWAYS_WRITTEN = {"hidden", "layers", "dropout", "max_timestep", "order_embedding", "gamma", "accounts"}
"""Fields of a network that version 0.1 wrote without exception."""


def fill_in_model(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a network, with those that version 0.1 did not know as it had them.

    It wrote every field it knew, and none called `likelihood`. Files of later versions, and those written by hand that
    leave out some of the rest too, are taken as they are.
    """
    filled = dict(values)
    if isinstance(filled.get("accounts"), Mapping):
        filled["accounts"] = without_removed(filled["accounts"])
    if not ALWAYS_WRITTEN <= set(filled) or "likelihood" in filled:
        return filled
    filled["likelihood"] = "squashed"
    if isinstance(filled["accounts"], Mapping):
        filled["accounts"] = {"window_steps": 0, **filled["accounts"]}  # as many as are seen
    return filled


def without_removed(accounts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of accounts without options that are gone; refused where they were used."""
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
    """Tensors by the names that this version gives them: the books of version 0.1 were the accounts themselves."""
    books = tuple(f"{prefix}accounts.{part}." for part in ("codebook", "transform", "state_codes", "baseline"))
    return {
        f"{prefix}accounts.books.{name.removeprefix(f'{prefix}accounts.')}" if name.startswith(books) else name: value
        for name, value in tensors.items()
    }
