"""The actions and rewards behind attached accounts: whole windows, or live ones, step by step."""

import torch
import torch.nn.functional as F
from torch import Tensor

from mental_accounts.accounts import Books, Entry, Ledger
from mental_accounts.checks import check_count, check_finite, looking_is_free
from mental_accounts.integrations.late_entries import LateEntries
from mental_accounts.integrations.posted import KEPT_STEPS, Posted


class AccountSteps:
    """Windows given by `enter`, and live accounts: `begin`, then `post` after every step."""

    def __init__(self, books: Books, tells: bool) -> None:
        self.books = books
        self.tells = tells
        """Whether what the ledger tells is read, beside balances of actions."""
        self.ledger: Ledger | None = None
        """The live accounts, if any; if steps are read from tokens, those of the last call."""
        self._live_steps: tuple[LateEntries, Posted, Posted] | None = None
        self._entered: Tensor | None = None
        self._entered_told: Tensor | None = None

    # Windows.

    def enter(self, actions: Tensor, rewards: Tensor, mask: Tensor | None = None) -> Tensor:
        """Trace windows, (B, K[, dim]), (B, K) and mask (B, K); forwards read them from now on.

        Returns the attractions, (B, K). Accounts start at zero in each window; to carry balances over, trace whole
        trajectories with `rule.trace` (and `accounts.told`) and pass the window's part as `attractions=` (and
        `ledger=`) in the call of the model.
        """
        self._entered = self.trace(actions, rewards, mask)
        self._entered_told = self.told(actions, rewards, mask) if self.tells else None
        return self._entered

    def trace(self, actions: Tensor, rewards: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attraction of each step's own code, right after it: (B, K[, dim]), (B, K) -> (B, K)."""
        entry, payoffs, present = self._steps_of(actions, rewards, mask)
        books = self.books
        return books.one_per_action(books.trace(entry, payoffs, None if mask is None else present))

    @torch.no_grad()
    def told(self, actions: Tensor, rewards: Tensor, mask: Tensor | None = None) -> Tensor:
        """What the ledger tells before each step, and after the last: (B, K[, dim]), (B, K) -> (B, K + 1, ledger_size).

        Accounts start at zero. The rewards (B, K) are those that came after each step; with `reward_delay` d, the one
        of step t belongs to the action of step t - d. mask (B, K): True at real steps, in one run.
        """
        entry, payoffs, present = self._steps_of(actions, rewards, mask)
        codes = F.pad(entry.codes, (*[0, 0] * len(self.books.code_shape), 0, 1))  # one more step, never entered
        payoffs, present = F.pad(payoffs.float(), (0, 1)), F.pad(present, (0, 1), value=True)
        with torch.autocast(payoffs.device.type, enabled=False):
            return self.books.told_in_windows(Entry(codes), payoffs, present)

    def _steps_of(self, actions: Tensor, rewards: Tensor, mask: Tensor | None) -> tuple[Entry, Tensor, Tensor]:
        """The entries and payoffs of windows, 0 at padding, and where they are real."""
        books = self.books.to(actions.device)
        present = torch.ones_like(rewards, dtype=torch.bool) if mask is None else mask.bool()
        if mask is not None and present.shape == actions.shape[:2]:
            actions = torch.where(present.view(*present.shape, *[1] * (actions.ndim - 2)), actions, 0)
        entry = books.route_step(actions)
        if entry.codes.shape[:2] != rewards.shape:
            raise ValueError(
                f"actions and rewards must be of the same windows (B, K), got {tuple(actions.shape)} and "
                f"{tuple(rewards.shape)}"
            )
        if mask is not None:
            rewards = rewards.masked_fill(~present, 0.0)
        if looking_is_free(rewards):
            check_finite("rewards", rewards)
        return entry, books.payoffs(rewards), present

    # Live.

    def begin(self, num_actors: int, keep: int = KEPT_STEPS) -> Ledger:
        """Start live accounts for actors, at zero; forwards read them until `end`.

        If a sequence ends in an action token, that action counts as the one still to be chosen. `keep` is the largest
        number of actions in a sequence.
        """
        n, keep = check_count("num_actors", num_actors, 1), check_count("keep", keep, 1)
        told = Posted(n, keep + 1, (self.books.ledger_size,))
        entries = LateEntries(self.books, n)
        self._live_steps, self.ledger = (entries, Posted(n, keep), told), entries.ledger
        return self.ledger

    def post(self, actions: Tensor, rewards: Tensor, ended: Tensor | None = None) -> Tensor:
        """Enter every actor's last action and the reward that came, (n[, dim]) and (n,); returns balances, (n,).

        Where `ended` (n,) is True the actor begins a new episode: accounts at zero, and an empty history. With
        `reward_delay` d, the reward is entered under the action of d steps ago; the first d of an episode are dropped.
        """
        entries, balances, told = self._live()
        posted = entries.post(self.books, actions, rewards)
        balances.append(posted)
        if self.tells:
            told.append(self.books.told_by(entries.ledger).clone())
        if ended is not None:
            self.restart(ended)
        return posted

    def restart(self, actors: Tensor) -> None:
        """Reset the live accounts and history of the actors where (n,) is True."""
        for part in self._live():
            part.restart(actors)

    def end(self) -> None:
        """End the live accounts."""
        self.ledger = self._live_steps = None

    @property
    def are_live(self) -> bool:
        """Whether there are live accounts, started by `begin`."""
        return self._live_steps is not None

    @property
    def were_entered(self) -> bool:
        """Whether windows were given by `enter`."""
        return self._entered is not None

    def live_window(self, K: int, pending: bool = True) -> Tensor | None:
        """The balances of the last K actions, (n, K); None without live accounts.

        `pending`: the last of them is still to be chosen, and is 0.
        """
        if not self.are_live:
            return None
        entries, balances, _ = self._live()
        device = entries.ledger.attractions.device
        return F.pad(balances.last(K - 1, device), (0, 1)) if pending else balances.last(K, device)

    def live_told(self, ago: Tensor) -> Tensor:
        """What the live ledgers told so many posts ago, (P,) -> (n, P, ledger_size); 0 ago: what they tell now."""
        entries, _, told = self._live()
        span = int(ago.max()) + 1
        window = told.last(span, entries.ledger.attractions.device)  # (n, span, ledger_size)
        return window[:, span - 1 - ago]

    def _live(self) -> tuple[LateEntries, Posted, Posted]:
        if self._live_steps is None:
            raise RuntimeError("there are no live accounts: call begin(num_actors) first")
        return self._live_steps
