"""Steps entered in a ledger as they happen: a late reward under the action that it belongs to."""

import copy
from collections import deque
from typing import Self

import torch
from torch import Tensor

from mental_accounts.accounts import Books, Entry, Ledger


class LateEntries:
    """A ledger, and the entries of the last steps, whose rewards may still be to come (`books.reward_delay`)."""

    def __init__(self, books: Books, num_actors: int, device: torch.device | str | None = None) -> None:
        self.ledger: Ledger = books.ledger(num_actors, device)
        self._entries: deque[Entry] = deque(maxlen=books.reward_delay + 1)
        self._steps = torch.zeros(num_actors, dtype=torch.int64, device=device)
        """Steps of each actor's episode so far."""

    def post(self, books: Books, actions: Tensor, rewards: Tensor) -> Tensor:
        """Enter the rewards (n,) that came after these actions (n[, dim]); the actions' balances then, (n,)."""
        device = actions.device
        books.to(device)
        self.ledger.to(device)
        entry, payoffs = books.route_step(actions), books.payoffs(rewards)
        if not books.reward_delay:
            return books.one_per_action(books.post(self.ledger, entry, payoffs))
        self._entries.append(entry)
        self._steps = self._steps.to(device) + 1
        age = torch.where(self._steps > books.reward_delay, books.reward_delay, -1)
        books.post(self.ledger, self._entries[0], payoffs.to(device), age=age)
        return books.one_per_action(self.ledger.read(entry.codes))

    def restart(self, actors: Tensor) -> None:
        """Empty accounts for the actors where (n,) is True, to whom no earlier reward will come."""
        self.ledger.reset(actors.to(self.ledger.attractions.device))
        self._steps = self._steps.masked_fill(actors.to(self._steps.device), 0)

    def sort(self, actors: Tensor) -> None:
        """Reorder: index i gets the accounts of actor `actors[i]`."""
        self.ledger.sort(actors)
        self._steps = self._steps[actors]
        for place, entry in enumerate(self._entries):
            self._entries[place] = Entry(entry.codes[actors])

    def copy(self) -> Self:
        """One that goes on by itself."""
        made = copy.copy(self)
        made.ledger, made._entries = copy.deepcopy(self.ledger), self._entries.copy()
        return made
