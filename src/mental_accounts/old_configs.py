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
    if not ALWAYS_WRITTEN <= set(filled) or "likelihood" in filled:
        return filled
    filled["likelihood"] = "squashed"
    if isinstance(filled["accounts"], Mapping):
        filled["accounts"] = {"window_steps": 0, **filled["accounts"]}  # as many as are seen
    return filled
