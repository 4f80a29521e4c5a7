"""A call of someone else's model: what it says to the accounts, and what they show it."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mental_accounts.integrations.ledger_input import Added

Arguments = dict[str, Tensor | None]
"""Arguments of a call for the accounts, by name."""

ACCOUNT_ARGUMENTS = ("attractions", "ledger", "actions", "rewards", "account_mask")
"""Arguments of a model's call that are for the accounts."""


@dataclass
class Call:
    """A running call of the model: its arguments for the accounts, and what they show it."""

    arguments: Arguments
    thread: int
    column_values: Tensor | None = None
    """The values on its attention columns, (B, S)."""
    added: Added | None = None
    """What is yet to be added to the embeddings of its tokens."""
    made: dict[object, Any] = field(default_factory=dict)
    """Biases and masks computed from the column values, for layers that share them."""

    def take(self, embedded: Tensor) -> Tensor:
        """The embeddings with what was yet to be added to them."""
        added, self.added = self.added, None
        return embedded if added is None else added.to_tokens(embedded)


def pop_arguments(names: Collection[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The arguments of a call for the accounts, removed from `kwargs` unless the model itself has a parameter so named.

    names: the model's own parameters.
    """
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    found = {name: given.get(name) if name in names else kwargs.pop(name, None) for name in ACCOUNT_ARGUMENTS}
    if (found["actions"] is None) != (found["rewards"] is None):
        if "actions" not in names and "rewards" not in names:
            alone = "rewards" if found["actions"] is None else "actions"
            raise ValueError(f"actions= and rewards= belong together, got {alone}= alone")
        found |= {"actions": None, "rewards": None}  # they are for the model alone
    return found
