"""Shared by all libraries: accounts attached to someone else's model, the bias they add to its attention, and the
ledger they add to its tokens.

The accounts need the actions and their rewards. There are four ways to provide them, and a forward uses the first one
available: `attractions=` (and `ledger=`) in the call; live accounts (`begin`, then `post` after every step); actions
and rewards in the call; windows given to `enter` before.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn

from mental_accounts.accounts import (
    BiasScale,
    Books,
    Codebook,
    RewardTransform,
    UpdateRule,
    column_bias,
    spread_columns,
)
from mental_accounts.accounts.precision import full_precision
from mental_accounts.checks import looking_is_free
from mental_accounts.integrations.account_steps import AccountSteps
from mental_accounts.integrations.calls import Arguments, Call
from mental_accounts.integrations.columns import Columns, every
from mental_accounts.integrations.ledger_input import (
    Added,
    LedgerInput,
    LedgerMap,
    LedgerTokens,
    Weights,
    add_map,
    check_ledger_input,
)
from mental_accounts.integrations.refusals import check_no_backward


class AttachedAccounts(AccountSteps):
    """Accounts attached to a model. Created by `hugging_face_accounts` and the like; a context manager.

    Leaving the context, or `detach()`, restores the model exactly. `beta` is a number, a tensor (see `column_bias` for
    its shapes), a `BiasScale`, or None for no bias; gradients reach it if it requires them. `transform` turns rewards
    into payoffs, `clip` limits the bias, `columns` says which tokens are actions.
    """

    def __init__(
        self,
        codebook: Codebook,
        rule: UpdateRule,
        beta: float | Tensor | BiasScale | None,
        *,
        transform: RewardTransform | None,
        clip: float | None,
        columns: Columns | None,
        ledger_input: LedgerTokens,
        channels: Sequence[str],
        reward_delay: int,
        ledger_weights: Weights | None,
    ) -> None:
        tells = check_ledger_input(ledger_input, channels, ledger_weights)
        if beta is None and not tells:
            raise ValueError("the accounts would do nothing: give beta, for a bias, or ledger_input='state', or both")
        super().__init__(Books(codebook, rule, transform, channels=channels, reward_delay=reward_delay), tells)
        self.beta, self.clip = beta, clip
        self.columns: Columns = every(3, 2) if columns is None else columns
        self._ledger_tokens, self._ledger_weights = ledger_input, ledger_weights
        self.ledger_input: LedgerInput | None = None
        """The map of the ledger, and the tokens that it is added to, if any."""
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

    @contextmanager
    def attaching(self) -> Iterator[None]:
        """While the model is being changed: if it cannot be after all, restore it."""
        try:
            yield
        except BaseException:
            self.detach()
            raise

    # What the model reads.

    def choose(self, columns: Tensor, given: Arguments) -> Tensor:
        """The attractions (B, K) that a forward with these action columns reads; raises if there are none.

        If a sequence ends in an action column, that action is taken as still to be chosen. `given`: the arguments of
        the call.
        """
        attractions, actions, rewards = (given.get(name) for name in ("attractions", "actions", "rewards"))
        if attractions is None and (self.are_live or actions is None or rewards is None):
            check_no_backward()  # the accounts may have changed since the forward pass
            attractions = self.live_window(int(columns.sum()), pending=self._is_pending(columns))
        if attractions is None and actions is not None and rewards is not None:
            attractions = self.trace(actions, rewards, given.get("account_mask"))
        if attractions is None:
            attractions = self._entered
        if attractions is None:
            raise ValueError(_nothing("attractions"))
        return attractions

    def choose_told(self, columns: Tensor, steps: Tensor, given: Arguments) -> Tensor:
        """What the ledger tells before these steps (P,) of a sequence with these action columns: (B, P, ledger_size).

        As `choose`: from the same sources, in the same order.
        """
        ledger, actions, rewards = (given.get(name) for name in ("ledger", "actions", "rewards"))
        if ledger is None and (self.are_live or actions is None or rewards is None):
            check_no_backward()
            if self.are_live:
                return self.live_told(int(columns.sum()) - int(self._is_pending(columns)) - steps)
        if ledger is None and actions is not None and rewards is not None:
            ledger = self.told(actions, rewards, given.get("account_mask"))
        if ledger is None:
            ledger = self._entered_told
        if ledger is None:
            raise ValueError(_nothing("ledger"))
        needed, size = int(steps.max()) + 1, self.books.ledger_size
        if ledger.ndim != 3 or ledger.shape[1] < needed or ledger.shape[2] != size:
            raise ValueError(
                f"the sequence layout does not match the accounts: ledger has shape {tuple(ledger.shape)}, expected "
                f"(B, {needed} or more, {size}): what the ledger tells before each of {needed} steps"
            )
        return ledger[:, steps.to(ledger.device)]

    def prepare(self, call: Call, S: int, device: torch.device, found: Arguments, first: int = 0) -> None:
        """Set what a call is shown: values on its S columns, and what is added to its tokens from `first` on."""
        columns = self.selector(S)
        if self.has_bias:
            call.column_values = self.spread(self.choose(columns, found), S, device)
        call.added = self.added(S, device, found, first)

    def added(self, S: int, device: torch.device, found: Arguments, first: int = 0) -> Added | None:
        """What is added to the tokens of a sequence of S, from `first` on; None if there is nothing."""
        if self.ledger_input is None:
            return None
        columns = self.selector(S)
        where, steps = self.ledger_input.places(S, columns)
        where, steps = where[where >= first] - first, steps[where >= first]
        if not len(where):
            return None
        told = self.choose_told(columns, steps, found)
        return Added(where.to(device), self.ledger_input.map(told.to(device)))

    @property
    def ledger_map(self) -> LedgerMap | None:
        """The map of `ledger_input`, if any: a part of the model while the accounts are attached."""
        return None if self.ledger_input is None else self.ledger_input.map

    def map_into(self, model: nn.Module, hidden: int, device: torch.device | None) -> None:
        """Give the model the map to embeddings of size `hidden`."""
        made = LedgerMap(self.books, hidden, device)
        self.on_detach(add_map(model, made, self._ledger_weights))
        self.ledger_input = LedgerInput(self._ledger_tokens, self.columns, made)

    @property
    def has_bias(self) -> bool:
        """Whether attention is biased: β is there, and not zero without a need of gradients."""
        beta = self.beta() if isinstance(self.beta, BiasScale) else self.beta
        if not isinstance(beta, Tensor):
            return beta is not None and beta != 0
        learning = beta.requires_grad and torch.is_grad_enabled()
        return learning or not looking_is_free(beta) or bool(beta.any())

    @property
    def are_silent(self) -> bool:
        """Whether there is neither a bias nor a ledger to add: the model is then left alone."""
        return self.ledger_input is None and not self.has_bias

    def _is_pending(self, columns: Tensor) -> bool:
        """Whether the last action of a sequence with these action columns is still to be chosen."""
        if not bool(columns[-1]) or self.ledger_input is None:
            return bool(columns[-1])
        _, steps = self.ledger_input.places(len(columns), columns)
        return not len(steps) or int(steps[-1]) < int(columns.sum())  # else its last token is told of it

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
            call.column_values = self.spread(self.choose(self.selector(S), call.arguments), S, device)
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
        assert beta is not None
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


def _nothing(name: str) -> str:
    """What to do if a forward has nothing to read."""
    return (
        f"the accounts have no actions and rewards: give {name}= (or actions= and rewards=) in the call of the model, "
        "or call accounts.enter(actions, rewards) before it, or accounts.begin(num_actors) to act"
    )
