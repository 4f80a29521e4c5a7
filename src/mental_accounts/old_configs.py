"""Configurations that version 0.1 wrote: what they left unsaid is what that version did, not today's defaults."""

from collections.abc import Mapping
from typing import Any


def fill_in_model(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a network, with those that version 0.1 did not know as it had them.

    It wrote every field it knew, `gamma` among them, and none called `likelihood`. Files of later versions, and those
    written by hand that leave both out, are taken as they are.
    """
    filled = dict(values)
    if "gamma" not in filled or "likelihood" in filled:
        return filled
    filled["likelihood"] = "squashed"
    accounts = filled.get("accounts")
    if isinstance(accounts, Mapping) and accounts.get("account_scope") == "window":
        seen = filled.get("eval_context_length") or filled.get("context_length")
        filled["accounts"] = {"window_steps": seen, **accounts}
    return filled
