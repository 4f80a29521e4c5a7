"""What all libraries share: accounts beside a model that is not ours, and the bias they make for its attention.

A model has to be told what was done and what it earned. There are four ways, and a forward reads the first that is
there: `attractions=` in the call; live accounts (`begin`, then `post` after every step); actions and rewards in the
call; what was given by `enter` before.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from mental_accounts.accounts import (
    BiasScale,
    CanonicalLedger,
    Codebook,
    Ledger,
    RewardTransform,
    UpdateRule,
    column_bias,
    spread_columns,
)
from mental_accounts.accounts.checks import check_count, looking_is_free
from mental_accounts.accounts.precision import full_precision
from mental_accounts.integrations.posted import KEPT_STEPS, Posted

Columns = Tensor | Callable[[int], Tensor]
"""Which columns are actions: a bool selector (S,), or a function from the number of columns S to one."""


def every(period: int, offset: int) -> Callable[[int], Tensor]:
    """Action columns at a fixed place in every step of `period` tokens: `every(3, 2)` for (return, state, action)."""
    check_count("period", period, 1)
    if check_count("offset", offset, 0) >= period:
        raise ValueError(f"offset must be below period = {period}, got {offset}")
    return lambda S: torch.arange(S) % period == offset


class AttachedAccounts:
    """Accounts attached to a model. Made by `hugging_face_accounts` and its like; a context manager.

    Leaving the context, or `detach()`, gives the model back exactly as it was. `beta` is a number, a tensor
    (`column_bias` says which shapes) or a `BiasScale`; gradients reach it where it requires them. `transform` makes
    payoffs of rewards, `clip` limits the bias, `columns` says which tokens are actions.
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
        self.codebook, self.rule, self.beta = codebook, rule, beta
        self.transform = RewardTransform() if transform is None else transform
        self.clip = clip
        self.columns: Columns = every(3, 2) if columns is None else columns
        self.ledger: Ledger | None = None
        """The live accounts, while there are any."""
        self._posted: Posted | None = None
        self._entered: Tensor | None = None
        self._told: dict[str, Tensor | None] = {}
        self.is_open = False
        """Whether the call of the model is running."""
        self._column_values: Tensor | None = None
        self._made: dict[int, Tensor] = {}
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
        """Give the model back exactly as it was."""
        while self._undo:
            self._undo.pop()()

    # What was done and what it earned.

    def enter(self, actions: Tensor, rewards: Tensor, mask: Tensor | None = None) -> Tensor:
        """Trace windows, (B, K[, dim]), (B, K) and mask (B, K); forwards read them from now on.

        Gives the attractions, (B, K). Accounts start at zero in each window; to go on from before, trace whole
        trajectories with `rule.trace` and give the window's part as `attractions=` in the call of the model.
        """
        self._entered = self.trace(actions, rewards, mask)
        return self._entered

    def trace(self, actions: Tensor, rewards: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attraction of each step's own code, right after it: (B, K[, dim]), (B, K) -> (B, K)."""
        codes = self._route(actions)
        if codes.shape[:2] != rewards.shape:
            raise ValueError(
                f"actions and rewards must be of the same windows (B, K), got {tuple(actions.shape)} and "
                f"{tuple(rewards.shape)}"
            )
        present = None if mask is None else mask.bool()
        num_codes = self.codebook.num_codes
        return self._one_per_action(self.rule.trace(codes, self._payoffs(rewards), mask=present, num_codes=num_codes))

    def begin(self, num_actors: int, keep: int = KEPT_STEPS) -> Ledger:
        """Live accounts for actors that act now, at zero; forwards read them until `end`.

        Where a sequence ends in an action's token, that action counts as the one still to be chosen. `keep` is the
        largest number of actions that a sequence may have.
        """
        self.ledger = self.rule.ledger(self.codebook.num_codes, (check_count("num_actors", num_actors, 1),))
        self._posted = Posted(num_actors, check_count("keep", keep, 1))
        return self.ledger

    def post(self, actions: Tensor, rewards: Tensor, ended: Tensor | None = None) -> Tensor:
        """Enter what every actor just did and earned, (n[, dim]) and (n,); gives its accounts, (n,).

        Where `ended` (n,) is True the actor begins a new episode: accounts at zero, and nothing to read.
        """
        if self.ledger is None or self._posted is None:
            raise RuntimeError("there are no live accounts: call begin(num_actors) first")
        self.ledger.to(actions.device)
        posted = self._one_per_action(self.ledger.post(self._route(actions), self._payoffs(rewards)))
        if ended is not None:
            self.ledger.reset(ended)
        self._posted.append(posted, ended)
        return posted

    def sort(self, actors: Tensor) -> None:
        """Have the live accounts of place i be those of actor `actors[i]`, (n,), as beam search does."""
        if self.ledger is not None and self._posted is not None:
            self.ledger.attractions = self.ledger.attractions[actors]
            if isinstance(self.ledger, CanonicalLedger):
                self.ledger.experience = self.ledger.experience[actors]
            self._posted.sort(actors)

    def end(self) -> None:
        """No live accounts any more."""
        self.ledger = self._posted = None

    # What attention reads.

    def live_window(self, K: int, pending: bool = True) -> Tensor | None:
        """The accounts of the last K actions, (n, K); None without live accounts.

        `pending`: the last of them is still to be chosen, and reads 0.
        """
        if self.ledger is None or self._posted is None:
            return None
        device = self.ledger.attractions.device
        return F.pad(self._posted.last(K - 1, device), (0, 1)) if pending else self._posted.last(K, device)

    def choose(
        self,
        columns: Tensor,
        attractions: Tensor | None = None,
        actions: Tensor | None = None,
        rewards: Tensor | None = None,
        account_mask: Tensor | None = None,
    ) -> Tensor:
        """The attractions (B, K) that a forward with these action columns reads; says what is missing without any.

        A sequence that ends in an action column is taken for one whose last action is still to be chosen.
        """
        if attractions is None:
            attractions = self.live_window(int(columns.sum()), pending=bool(columns[-1]))
        if attractions is None and actions is not None and rewards is not None:
            attractions = self.trace(actions, rewards, account_mask)
        if attractions is None:
            attractions = self._entered
        if attractions is None:
            raise ValueError(
                "the accounts know no actions and rewards: give attractions= (or actions= and rewards=) in the call of "
                "the model, or call accounts.enter(actions, rewards) before it, or accounts.begin(num_actors) to act"
            )
        return attractions

    @property
    def were_entered(self) -> bool:
        """Whether `enter` told of windows."""
        return self._entered is not None

    @property
    def are_silent(self) -> bool:
        """Whether β is zero and nothing wants its gradient: the model is then left alone."""
        beta = self.beta() if isinstance(self.beta, BiasScale) else self.beta
        if not isinstance(beta, Tensor):
            return beta == 0
        learning = beta.requires_grad and torch.is_grad_enabled()
        return not learning and looking_is_free(beta) and not bool(beta.any())

    def show(self, column_values: Tensor | None) -> None:
        """What the columns of the forward that begins now carry, (B, S); None: nothing."""
        self._column_values = column_values
        self._made = {}

    def open(self, **told: Tensor | None) -> None:
        """The call of the model begins; what it told of its steps, by `choose`'s names, is for `show_for`."""
        self._told = told
        self.is_open = True
        self.show(None)

    def close(self) -> None:
        """The call of the model is over."""
        self._told = {}
        self.is_open = False
        self.show(None)

    def show_for(self, S: int, device: torch.device) -> None:
        """Have columns carry what was told, where attention has S of them; outside of a call, what they stand at."""
        if not self.is_open or self._column_values is None or self._column_values.shape[1] != S:
            self.show(self.spread(self.choose(self.selector(S), **self._told), S, device))

    @property
    def is_quiet(self) -> bool:
        """Whether the forward that runs now has no bias."""
        return self._column_values is None

    @property
    def shown_columns(self) -> int:
        """Columns of the forward that runs now."""
        return 0 if self._column_values is None else self._column_values.shape[1]

    def spread(self, attractions: Tensor, S: int, device: torch.device) -> Tensor:
        """Attractions (B, K) on the action columns of S tokens, zeros elsewhere: (B, S), where the model is."""
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

    def bias(self, layer: int, B: int, S: int) -> Tensor | None:
        """What is added to the logits of a layer with B sequences and S columns, (B, 1 or heads, 1, S)."""
        if self._column_values is None:
            return None
        if tuple(self._column_values.shape) != (B, S):
            raise ValueError(
                f"the sequence layout does not match the accounts: attention has {B} sequences of {S} columns, the "
                f"accounts have {tuple(self._column_values.shape)}"
            )
        beta = self.beta() if isinstance(self.beta, BiasScale) else self.beta
        row = layer if isinstance(beta, Tensor) and beta.ndim == 2 and beta.shape[0] > 1 else 0
        if row not in self._made:
            if isinstance(beta, Tensor) and beta.ndim == 2:
                beta = beta[row]
            everywhere = torch.ones(S, dtype=torch.bool, device=self._column_values.device)
            self._made[row] = column_bias(self._column_values, beta, self.clip, everywhere)
        return self._made[row]

    def on_detach(self, undo: Callable[[], object]) -> None:
        """Remember how to take back what was changed."""
        self._undo.append(undo)

    def _route(self, actions: Tensor) -> Tensor:
        return self.codebook.to(actions.device).route(actions)

    def _payoffs(self, rewards: Tensor) -> Tensor:
        payoffs: Tensor = self.transform.to(rewards.device)(rewards)
        return payoffs

    def _one_per_action(self, attractions: Tensor) -> Tensor:
        """A product codebook gives an action several accounts; attention reads their mean."""
        return attractions.mean(dim=-1) if self.codebook.code_shape else attractions
