"""Shared by all libraries: accounts attached to someone else's model, and the bias they add to its attention.

The accounts need the actions and their rewards. There are four ways to provide them, and a forward uses the first one
available: `attractions=` in the call; live accounts (`begin`, then `post` after every step); actions and rewards in the
call; windows given to `enter` before.
"""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from mental_accounts.accounts import (
    BiasScale,
    Books,
    Codebook,
    Ledger,
    RewardTransform,
    UpdateRule,
    column_bias,
    spread_columns,
)
from mental_accounts.accounts.precision import full_precision
from mental_accounts.checks import check_count, looking_is_free
from mental_accounts.integrations.posted import KEPT_STEPS, Posted
from mental_accounts.integrations.refusals import check_no_backward

Columns = Tensor | Callable[[int], Tensor]
"""Which columns are actions: a bool selector (S,), or a function from the number of columns S to one."""

ACCOUNT_ARGUMENTS = ("attractions", "actions", "rewards", "account_mask")
"""Arguments of a model's call that are for the accounts."""


@dataclass
class Call:
    """A running call of the model: its arguments for the accounts, and the values on its attention columns."""

    arguments: dict[str, Tensor | None]
    thread: int
    column_values: Tensor | None = None
    made: dict[object, Any] = field(default_factory=dict)
    """Biases and masks computed from the column values, for layers that share them."""


def every(period: int, offset: int) -> Callable[[int], Tensor]:
    """Action columns at a fixed offset in every step of `period` tokens: `every(3, 2)` for (return, state, action)."""
    check_count("period", period, 1)
    if check_count("offset", offset, 0) >= period:
        raise ValueError(f"offset must be below period = {period}, got {offset}")
    return lambda S: torch.arange(S) % period == offset


class AttachedAccounts:
    """Accounts attached to a model. Created by `hugging_face_accounts` and the like; a context manager.

    Leaving the context, or `detach()`, restores the model exactly. `beta` is a number, a tensor (see `column_bias` for
    its shapes) or a `BiasScale`; gradients reach it if it requires them. `transform` turns rewards into payoffs, `clip`
    limits the bias, `columns` says which tokens are actions.
    """

    def __init__(
        self,
        codebook: Codebook,
        rule: UpdateRule,
        beta: float | Tensor | BiasScale,
        *,
        transform: RewardTransform | None,
        clip: float | None,
        columns: Columns | None,
    ) -> None:
        self.books = Books(codebook, rule, transform)
        self.beta, self.clip = beta, clip
        self.columns: Columns = every(3, 2) if columns is None else columns
        self.ledger: Ledger | None = None
        """The live accounts, if any; if steps are read from tokens, those of the last call."""
        self._posted: Posted | None = None
        self._entered: Tensor | None = None
        self._calls: list[Call] = []
        self._undo: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __getstate__(self) -> dict[str, Any]:
        if self.is_attached:
            raise TypeError(
                "a model cannot be copied or pickled with accounts attached, since the copy would not share them: "
                "detach() them first, and attach them again afterwards"
            )
        return self.__dict__

    @property
    def is_attached(self) -> bool:
        """Whether the model still reads these accounts."""
        return bool(self._undo)

    def detach(self) -> None:
        """Restore the model exactly."""
        while self._undo:
            self._undo.pop()()

    # Actions and rewards.

    def enter(self, actions: Tensor, rewards: Tensor, mask: Tensor | None = None) -> Tensor:
        """Trace windows, (B, K[, dim]), (B, K) and mask (B, K); forwards read them from now on.

        Returns the attractions, (B, K). Accounts start at zero in each window; to carry balances over, trace whole
        trajectories with `rule.trace` and pass the window's part as `attractions=` in the call of the model.
        """
        self._entered = self.trace(actions, rewards, mask)
        return self._entered

    def trace(self, actions: Tensor, rewards: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attraction of each step's own code, right after it: (B, K[, dim]), (B, K) -> (B, K)."""
        books = self.books.to(actions.device)
        entry = books.route_step(actions)
        if entry.codes.shape[:2] != rewards.shape:
            raise ValueError(
                f"actions and rewards must be of the same windows (B, K), got {tuple(actions.shape)} and "
                f"{tuple(rewards.shape)}"
            )
        present = None if mask is None else mask.bool()
        return books.one_per_action(books.trace(entry, books.payoffs(rewards), present))

    def begin(self, num_actors: int, keep: int = KEPT_STEPS) -> Ledger:
        """Start live accounts for actors, at zero; forwards read them until `end`.

        If a sequence ends in an action token, that action counts as the one still to be chosen. `keep` is the largest
        number of actions in a sequence.
        """
        self.ledger = self.books.ledger(check_count("num_actors", num_actors, 1))
        self._posted = Posted(num_actors, check_count("keep", keep, 1))
        return self.ledger

    def post(self, actions: Tensor, rewards: Tensor, ended: Tensor | None = None) -> Tensor:
        """Enter every actor's last action and reward, (n[, dim]) and (n,); returns their balances, (n,).

        Where `ended` (n,) is True the actor begins a new episode: accounts at zero, and an empty history.
        """
        ledger, window = self._live()
        posted = self.post_to(ledger, actions, rewards)
        window.append(posted)
        if ended is not None:
            self.restart(ended)
        return posted

    def post_to(self, ledger: Ledger, actions: Tensor, rewards: Tensor) -> Tensor:
        """Enter actions (n[, dim]) and rewards (n,) in a ledger of this codebook and rule; returns balances, (n,)."""
        ledger.to(actions.device)
        books = self.books.to(actions.device)
        return books.one_per_action(books.post(ledger, books.route_step(actions), books.payoffs(rewards)))

    def restart(self, actors: Tensor) -> None:
        """Reset the live accounts and history of the actors where (n,) is True."""
        ledger, window = self._live()
        ledger.reset(actors.to(ledger.attractions.device))
        window.restart(actors)

    def end(self) -> None:
        """End the live accounts."""
        self.ledger = self._posted = None

    @property
    def are_live(self) -> bool:
        """Whether there are live accounts, started by `begin`."""
        return self._posted is not None

    # What attention reads.

    def live_window(self, K: int, pending: bool = True) -> Tensor | None:
        """The balances of the last K actions, (n, K); None without live accounts.

        `pending`: the last of them is still to be chosen, and is 0.
        """
        if not self.are_live:
            return None
        ledger, window = self._live()
        device = ledger.attractions.device
        return F.pad(window.last(K - 1, device), (0, 1)) if pending else window.last(K, device)

    def choose(
        self,
        columns: Tensor,
        attractions: Tensor | None = None,
        actions: Tensor | None = None,
        rewards: Tensor | None = None,
        account_mask: Tensor | None = None,
    ) -> Tensor:
        """The attractions (B, K) that a forward with these action columns reads; raises if there are none.

        If a sequence ends in an action column, that action is taken as still to be chosen.
        """
        if attractions is None and (self.are_live or actions is None or rewards is None):
            check_no_backward()  # the accounts may have changed since the forward pass
            attractions = self.live_window(int(columns.sum()), pending=bool(columns[-1]))
        if attractions is None and actions is not None and rewards is not None:
            attractions = self.trace(actions, rewards, account_mask)
        if attractions is None:
            attractions = self._entered
        if attractions is None:
            raise ValueError(
                "the accounts have no actions and rewards: give attractions= (or actions= and rewards=) in the call of "
                "the model, or call accounts.enter(actions, rewards) before it, or accounts.begin(num_actors) to act"
            )
        return attractions

    @property
    def were_entered(self) -> bool:
        """Whether windows were given by `enter`."""
        return self._entered is not None

    @property
    def are_silent(self) -> bool:
        """Whether β is zero and needs no gradient: the model is then left alone."""
        beta = self.beta() if isinstance(self.beta, BiasScale) else self.beta
        if not isinstance(beta, Tensor):
            return beta == 0
        learning = beta.requires_grad and torch.is_grad_enabled()
        return not learning and looking_is_free(beta) and not bool(beta.any())

    def open(self, **arguments: Tensor | None) -> Call:
        """Begin a call of the model, possibly nested, with these arguments for `choose`."""
        thread = 0 if torch.compiler.is_compiling() else threading.get_ident()
        self._calls.append(Call(arguments, thread))
        if len({call.thread for call in self._calls if call.thread}) > 1:
            raise RuntimeError("accounts serve one thread at a time: another is in a call of the model")
        return self._calls[-1]

    def close(self) -> None:
        """End the call."""
        self._calls.pop()

    @property
    def call(self) -> Call | None:
        """The current call of the model."""
        return self._calls[-1] if self._calls else None

    def shown_for(self, S: int, device: torch.device) -> Call:
        """The current call, with values on its S columns from its arguments; outside a call, from the accounts."""
        call = self.call or Call({}, 0)
        if call.column_values is None or call.column_values.shape[1] != S:
            call.column_values = self.spread(self.choose(self.selector(S), **call.arguments), S, device)
            call.made = {}
        return call

    def spread(self, attractions: Tensor, S: int, device: torch.device) -> Tensor:
        """Attractions (B, K) on the action columns of S tokens, zeros elsewhere: (B, S), on the model's device."""
        attractions, columns = attractions.to(device), self.selector(S).to(device)
        K = int(columns.sum())
        if attractions.ndim != 2 or attractions.shape[1] not in (K, K + 1):  # the last action may have no token
            raise ValueError(
                f"the sequence layout does not match the column selector: attractions have shape "
                f"{tuple(attractions.shape)}, expected (B, {K}) for {S} tokens with {K} action columns; "
                "give columns=, a bool selector (S,) that is True at the tokens of actions, or every(period, offset)"
            )
        if K == 0:
            return attractions.new_zeros(attractions.shape[0], S)
        return spread_columns(full_precision(attractions[:, :K]), columns)

    def selector(self, S: int) -> Tensor:
        """True at the action columns of S tokens, (S,)."""
        columns = self.columns(S) if callable(self.columns) else self.columns
        if columns.dtype != torch.bool or tuple(columns.shape) != (S,):
            raise ValueError(
                f"the sequence layout does not match the column selector: attention has {S} columns, but columns is "
                f"{columns.dtype} {tuple(columns.shape)}; expected bool ({S},), or every(period, offset) for any length"
            )
        return columns

    def bias(self, call: Call, layer: int, B: int, S: int) -> Tensor:
        """The bias on the logits of a layer with B sequences and S columns, (B, 1 or heads, 1, S)."""
        values = call.column_values
        if values is None or tuple(values.shape) != (B, S):
            shape = None if values is None else tuple(values.shape)
            raise ValueError(
                f"the sequence layout does not match the accounts: attention has {B} sequences of {S} columns, the "
                f"accounts have {shape}"
            )
        beta = self.beta() if isinstance(self.beta, BiasScale) else self.beta
        row = layer if isinstance(beta, Tensor) and beta.ndim == 2 and beta.shape[0] > 1 else 0
        made = ("bias", row, torch.is_grad_enabled())  # a layer may be frozen
        if made not in call.made:
            if isinstance(beta, Tensor) and beta.ndim == 2:
                beta = beta[row]
            everywhere = torch.ones(S, dtype=torch.bool, device=values.device)
            call.made[made] = column_bias(values, beta, self.clip, everywhere)
        found: Tensor = call.made[made]
        return found

    def on_detach(self, undo: Callable[[], object]) -> None:
        """Register how to undo a change to the model."""
        self._undo.append(undo)

    def _live(self) -> tuple[Ledger, Posted]:
        if self.ledger is None or self._posted is None:
            raise RuntimeError("there are no live accounts: call begin(num_actors) first")
        return self.ledger, self._posted


def pop_arguments(names: Collection[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor | None]:
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
