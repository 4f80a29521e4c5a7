"""Windows of trajectories for training, sampled on the store's device: no loader workers, no synchronisation.

The distribution is ODT's: a trajectory with probability proportional to its length, a uniform first step, up to K steps
forward, padded on the left. That is the same as a uniform first step among all steps of the store.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import get_args

import torch
from torch import Tensor

from mental_accounts.account_options import AccountScope
from mental_accounts.accounts import Books, Entry
from mental_accounts.data.annotation import SNAPSHOT_STEPS, Annotation
from mental_accounts.data.endings import ENDING
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import DataError
from mental_accounts.policy.window import Window


@dataclass(frozen=True, eq=False)
class Transitions:
    """Windows, and the same windows one step later: what values are learned from.

    What followed the last step of a trajectory that was cut off may be known (`Trajectories.has_final`): it then has
    the last place of the later window, with no action or reward of its own. Otherwise that step is not known.
    """

    now: Window  # (B, K)
    following: Window  # (B, lead + K): the successor of each step, in its place; a blank one where none is known
    terminal: Tensor  # (B, K) bool: the step ended its trajectory in a terminal state
    known: Tensor  # (B, K) bool: a step to learn from that is terminal or has a known successor
    lead: int = 0  # steps before the first successor, from which a recurrent policy has its state


class WindowSampler:
    """Draws windows from a store: `sampler()` -> `Window`, or `sampler.transitions()` -> `Transitions`.

    `account_scope` says where accounts begin: with the trajectory (its stored attractions are read), or with the window
    (its codes and rewards are traced). `previous_rewards` adds the reward before each step, `previous_actions` the
    action, `previous_observations` the observation. `generator` is on the store's device.

    A call can be captured in a CUDA graph: register the generator with the graph and pin the store's addresses;
    replays then draw from the current contents of the store (changes to it are kernels on the current stream).
    """

    def __init__(
        self,
        store: Trajectories,
        batch_size: int,
        context_length: int,
        generator: torch.Generator,
        account_scope: AccountScope = "trajectory",
        *,
        previous_rewards: bool = False,
        previous_actions: bool = False,
        previous_observations: bool = False,
    ) -> None:
        if batch_size < 1 or context_length < 1:
            raise DataError(f"batch_size and context_length must be at least 1, got {batch_size} and {context_length}")
        if account_scope not in get_args(AccountScope):
            raise DataError(f"account_scope must be one of {list(get_args(AccountScope))}, got {account_scope!r}")
        if generator.device.type != store.device.type:
            raise DataError(
                f"the generator must be on the store's device, {store.device}, got one on {generator.device}; "
                f"make it with torch.Generator('{store.device}')"
            )
        if not len(store):
            raise DataError("windows cannot be sampled from an empty store; append a trajectory first")
        self.store, self.batch_size, self.context_length = store, batch_size, context_length
        self.generator, self.account_scope = generator, account_scope
        self.stride = context_length
        """Windows that begin so many steps apart have all steps, each once."""
        self.previous_rewards, self.previous_actions = previous_rewards, previous_actions
        self.previous_observations = previous_observations
        self._back = torch.arange(-context_length, 0, device=store.device)  # offsets from the window's end
        self.uncompile()

    def compile(self) -> None:
        """Fuse the kernels that read windows, starting with the next batch, which may raise."""
        self._read: Callable[[Tensor], Window] = torch.compile(self._read_drawn, dynamic=False)
        self._read_pairs: Callable[[Tensor], Transitions] = torch.compile(self._read_drawn_pairs, dynamic=False)

    def uncompile(self) -> None:
        """Return to unfused kernels."""
        self._read, self._read_pairs = self._read_drawn, self._read_drawn_pairs

    def __call__(self) -> Window:
        """One batch."""
        return self._read(self._draw())

    def transitions(self) -> Transitions:
        """One batch, with the step after each; the windows are those that `sampler()` would have drawn."""
        return self._read_pairs(self._draw())

    def refresh(self) -> None:
        """Take note of changes to the store; needed before a captured call is replayed. Here nothing has to be done."""

    def _draw(self) -> Tensor:
        device = self.store.storage.live.device
        return torch.rand(self.batch_size, generator=self.generator, device=device, dtype=torch.float64)

    def _read_drawn(self, draw: Tensor) -> Window:
        return self.at(self._rows(draw))

    def _read_drawn_pairs(self, draw: Tensor) -> Transitions:
        return self.transitions_at(self._rows(draw))

    def _rows(self, draw: Tensor) -> Tensor:
        live = self.store.storage.live
        return (draw * live[1]).long() + live[0]  # float64 below 1 times a count stays below the count

    def at(self, first: Tensor) -> Window:
        """The windows that begin at these rows of the store's storage, (B,) int64."""
        return self._window(first, *self._extent(first))

    def transitions_at(self, first: Tensor) -> Transitions:
        """As `at`, with the step after each."""
        length, offset = self._extent(first)
        columns, real = self.store.storage.columns, offset >= 0
        remaining = columns["remaining"].index_select(0, first)
        later = (remaining - 1).clamp(max=self.context_length)  # (B,): steps of the window that begins one later
        follows = real & (offset < later.unsqueeze(-1))
        row = torch.where(real, first.unsqueeze(-1) + offset, self.store.storage.blank)
        terminal = columns["terminal"][row]
        now, begin = self._window(first, length, offset), first + (remaining > 1)
        alone, ledger = remaining == 1, None  # at a last step there is no later one to begin with
        if self.account_scope == "trajectory":  # balances are those after it, nevertheless
            ledger = (begin, later + alone, offset + alone.unsqueeze(-1))
        following = self._window(begin, later, offset, ledger)
        there = follows.view(*follows.shape, *[1] * (now.actions.ndim - 2))
        following = replace(following, actions=torch.where(there, following.actions, now.actions))  # 0 may be no action
        known = self._close(now, following, first + length - 1, follows | terminal)
        return Transitions(now, following, terminal, known)

    def _close(self, now: Window, following: Window, last: Tensor, known: Tensor) -> Tensor:
        """Give windows that end with a trajectory what was seen after it, in place; which steps are known then, (B, K).

        last (B,): the rows of windows' last steps, which are in their last place. Nothing is left to return after it.
        """
        endings = self.store.endings
        if endings is None:
            return known
        row = self.store.storage.columns[ENDING].index_select(0, last)  # (B,): 0 where nothing is known to follow
        seen = {
            "observations": endings.observations.index_select(0, row),
            "timesteps": now.timesteps[:, -1] + 1,
            "action_masks": None if endings.action_masks is None else endings.action_masks.index_select(0, row),
            "previous_rewards": None if now.rewards is None else now.rewards[:, -1],
            "previous_observations": now.observations[:, -1],
            "previous_actions": now.actions[:, -1],
        }
        for name, values in seen.items():
            later = getattr(following, name)
            if later is not None and values is not None:
                closes = (row > 0).view(-1, *[1] * (values.ndim - 1))
                later[:, -1] = torch.where(closes, values, later[:, -1])
        return torch.cat([known[:, :-1], known[:, -1:] | (row > 0).unsqueeze(-1)], dim=1)

    def _extent(self, first: Tensor) -> tuple[Tensor, Tensor]:
        """How many steps windows have, (B,) int32, and the number of each step, (B, K): negative where padded."""
        length = self.store.storage.columns["remaining"].index_select(0, first).clamp(max=self.context_length)
        return length, self._back + length.unsqueeze(-1)

    def _window(
        self, first: Tensor, length: Tensor, offset: Tensor, ledger: tuple[Tensor, Tensor, Tensor] | None = None
    ) -> Window:
        """The steps number `offset` (B, K) of the `length` (B,) steps that begin at rows `first` (B,).

        Where the offset is `length` there is no step, but zeros; it is the last of its window, so no other sees them.
        `ledger`: another first, length and offset, by which balances are read.
        """
        columns, mask = self.store.storage.columns, offset >= 0
        there = mask & (offset < length.unsqueeze(-1))
        row = torch.where(there, first.unsqueeze(-1) + offset, self.store.storage.blank).flatten()  # (B·K,)
        shape = mask.shape

        def read(name: str, rows: Tensor = row) -> Tensor:
            column = columns[name]
            return column.index_select(0, rows).view(*shape, *column.shape[1:])  # (B, K, ...)

        rewards, timesteps, before = read("rewards"), read("timesteps").long(), row
        if self.previous_rewards or self.previous_actions or self.previous_observations:
            before = torch.where(timesteps.flatten() > 0, row - 1, self.store.storage.blank)
        codes = attractions = weights = balances = None
        allowed = read("action_masks") if "action_masks" in columns else None
        annotation = self.store.annotation
        if annotation is not None:
            codes = read("codes").long()
            weights = read("weights") if "weights" in columns else None
            if self.account_scope == "trajectory":
                attractions = read("attractions")
            else:
                books = annotation.books
                foregone = books.foregone_payoffs(read("foregone"), allowed) if books.foregone else None
                attractions = books.trace(Entry(codes, weights), read("payoffs"), mask, foregone)
            if annotation.keeps_balances:
                balances = self._balances(annotation, *(ledger or (first, length, offset)), mask)
        return Window(
            observations=read("observations"),
            actions=read("actions"),
            rewards=rewards,
            returns_to_go=read("returns_to_go"),
            timesteps=timesteps,
            mask=mask,
            codes=codes,
            attractions=attractions,
            weights=weights,
            balances=balances,
            previous_rewards=read("rewards", before) if self.previous_rewards else None,
            previous_observations=read("observations", before) if self.previous_observations else None,
            previous_actions=read("actions", before) if self.previous_actions else None,
            action_masks=allowed,
        )

    def _balances(self, annotation: Annotation, first: Tensor, length: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        """What a ledger tells before each step of windows, (B, K, ledger_size): a snapshot, and the steps since.

        first, length (B,): where windows begin and how many steps they have; offset (B, K): steps counted from there.
        """
        columns, blank = self.store.storage.columns, self.store.storage.blank
        books, M = annotation.books, len(annotation.books.tables) * annotation.books.num_codes
        began = columns["timesteps"].index_select(0, first).long()  # (B,)
        if self.account_scope == "window":
            start, since = torch.zeros(len(first), M, device=first.device), torch.zeros_like(began)
            reach = self.context_length
        else:
            block = began // SNAPSHOT_STEPS
            whole = (block + 1) * SNAPSHOT_STEPS <= began + columns["remaining"].index_select(0, first)
            block = block - (~whole).long()  # a trajectory's last block may be too short for a snapshot
            since = began - block.clamp(min=0) * SNAPSHOT_STEPS  # (B,) steps between the snapshot and the window
            place = torch.arange(SNAPSHOT_STEPS, device=first.device)
            rows = torch.where((block >= 0).unsqueeze(-1), (first - since).unsqueeze(-1) + place, blank)
            start = columns["snapshots"][rows].flatten(1)[:, :M]  # (B, tables · num_codes)
            reach = 2 * SNAPSHOT_STEPS - 1 + self.context_length
        run = torch.arange(reach, device=first.device)
        there = run < (since + length).unsqueeze(-1)  # (B, reach)
        rows = torch.where(there, (first - since).unsqueeze(-1) + run, blank)
        entry, share = self._arrivals(books, rows, there)
        asked = (since.unsqueeze(-1) + offset).clamp(min=0)  # (B, K)
        before = asked if self.account_scope == "window" else (began.unsqueeze(-1) + offset).clamp(min=0)
        allowed = columns["action_masks"][rows] if "action_masks" in columns else None
        foregone = books.foregone_payoffs(columns["foregone"][rows], allowed) if books.foregone else None
        told = books.told_before(start, entry, columns["payoffs"][rows], share, asked, before, foregone)
        return told.masked_fill(~mask.unsqueeze(-1), 0.0)

    def _arrivals(self, books: Books, rows: Tensor, there: Tensor) -> tuple[Entry, Tensor]:
        """What the rewards at these rows belong to, as `Books.arrivals`; accounts of trajectories have it stored."""
        columns = self.store.storage.columns
        late = "posted_" if books.reward_delay and self.account_scope == "trajectory" else ""
        codes = columns[f"{late}codes"][rows].long()
        entry = Entry(codes, columns[f"{late}weights"][rows] if "weights" in columns else None)
        if late:
            return entry, columns["share"][rows].masked_fill(~there, 0.0)
        return books.arrivals(entry, there)
