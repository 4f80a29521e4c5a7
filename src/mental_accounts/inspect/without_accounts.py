"""A policy without its accounts: what it would have done at every step, and where that would have led.

*Without* means that the same policy, with the same weights and the same context, reads accounts that are empty: there
is no bias on its attention, and a ledger that it reads tells what an empty one does. It was trained with its accounts,
so this is not what a policy trained without them would do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mental_accounts.learning.episodes import Episode
from mental_accounts.learning.evaluation import Subject, play_subject
from mental_accounts.policy import Actor, DecisionTransformer, Window
from mental_accounts.policy.evaluation_mode import in_evaluation_mode
from mental_accounts.policy.heads import ActionDistribution, Categorical

Array = NDArray[Any]
WINDOWS_AT_ONCE = 128


@dataclass(frozen=True)
class WithoutAccounts:
    """One episode of T steps, as the policy would have acted without its accounts."""

    chosen: Array  # (T, dim) or (T,), in the environment's units: its action at every step, with its accounts
    actions: Array  # the same without them, in the same situations
    effect: Array  # (T,): how far the accounts moved the action, see `effect_of`
    played: Episode | None  # the episode from the same seed without accounts; None if episodes were not played

    @property
    def peak(self) -> int:
        """The step at which the accounts mattered most: the first with the largest effect."""
        return int(self.effect.argmax())


def empty_accounts(policy: DecisionTransformer, window: Window) -> Window:
    """The same window with accounts in which nothing was ever entered."""
    changed: dict[str, Tensor] = {}
    if window.attractions is not None:
        changed["attractions"] = torch.zeros_like(window.attractions)
    if window.balances is not None and policy.accounts is not None:
        books = policy.accounts.books
        told = books.told_by(books.ledger(1, window.balances.device))  # (1, ledger_size)
        changed["balances"] = told.to(window.balances.dtype).expand_as(window.balances)
    return replace(window, **changed)


def effect_of(one: ActionDistribution, other: ActionDistribution) -> Tensor:
    """How far apart two distributions of actions are, (B, 1, ...) each -> (B,).

    Box actions: the distance between the mean actions, with every dimension scaled to [-1, 1]. Discrete actions: the
    total variation between the probabilities, from 0 to 1, added up where an action is several numbers.
    """
    if isinstance(one, Categorical) and isinstance(other, Categorical):
        return (one.log_probs.exp() - other.log_probs.exp()).abs().sum(-1)[:, -1] / 2
    return (one.mode()[:, -1] - other.mode()[:, -1]).square().sum(-1).sqrt()


@torch.no_grad()
def without_accounts(policy: DecisionTransformer, window: Window, played: Episode | None) -> WithoutAccounts:
    """What the policy does in the T windows of an episode, and would do without its accounts."""
    chosen: list[Tensor] = []
    actions: list[Tensor] = []
    effects: list[Tensor] = []
    for first in range(0, len(window.timesteps), WINDOWS_AT_ONCE):
        part = window[first : first + WINDOWS_AT_ONCE]
        with_them, without = _predicted(policy, part), _predicted(policy, empty_accounts(policy, part))
        effects.append(effect_of(with_them, without))
        for found, distribution in ((chosen, with_them), (actions, without)):
            found.append(policy.action_scale.from_unit(distribution.mode()[:, -1]))
    kept, others, effect = (torch.cat(parts).cpu().numpy() for parts in (chosen, actions, effects))
    return WithoutAccounts(kept, others, effect, played)


def _predicted(policy: DecisionTransformer, window: Window) -> ActionDistribution:
    """The distribution of the last step's action, as in acting: without dropout."""
    with in_evaluation_mode(policy):
        return policy.forward(window, last_only=True)


def play_without_accounts(subject: Subject, episodes: int, seed: int) -> Sequence[Episode]:
    """As `play_subject`, in the same environments from the same seeds, by the policy without its accounts."""
    return play_subject(subject, episodes, seed, actor_kind=ActorWithoutAccounts)


class ActorWithoutAccounts(Actor):
    """Takes the mean action of a policy whose accounts are empty at every step."""

    captures = False

    @torch.no_grad()
    def act_eagerly(self, observations: np.ndarray, action_masks: np.ndarray | None = None) -> np.ndarray:
        """As `Actor`, without accounts."""
        self.context.observe(observations, action_masks)
        with self.in_precision():
            window = empty_accounts(self.policy, self.context.window())
            chosen = _predicted(self.policy, window).mode()[:, -1]
        actions: np.ndarray = self.context.choose(chosen).cpu().numpy()
        return actions
