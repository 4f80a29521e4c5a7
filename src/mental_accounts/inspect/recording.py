"""Recording a policy while it acts: its account balances at every step, and their effect on its attention.

    subject = read_subject(Path("runs/..."), None, None)
    recording = record(subject, episodes=3)
    recording.episodes[0].accounts.balances    # (T, codes)
    recording.episodes[0].drift                # (T, layers, heads)
    recording.episodes[0].without.actions      # (T, dim): what it would have done without its accounts

The recorded attention is that of the row that predicts the action: at every step, the last state token's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mental_accounts.accounts import attention_drift, drift_bound, paper_drift_bound, range_drift_bound
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import UsageError
from mental_accounts.inspect.episode_accounts import (
    Codes,
    EpisodeAccounts,
    accounts_of,
    keep_codes,
    posted_codes,
)
from mental_accounts.inspect.episode_values import EpisodeValues, values_of
from mental_accounts.inspect.without_accounts import WithoutAccounts, play_without_accounts, without_accounts
from mental_accounts.learning.critic_files import PolicyCritics
from mental_accounts.learning.episodes import Episode, as_episodes
from mental_accounts.learning.evaluation import Subject, play_subject
from mental_accounts.policy import DecisionTransformer, Window
from mental_accounts.policy.attention_probe import attention_of

Array = NDArray[Any]
WINDOWS_AT_ONCE = 128
TOKEN_KINDS = "Rsa"


@dataclass(frozen=True)
class EpisodeRecord:
    """One episode of T steps; the policy has a context of K steps, S = 3K - 1 tokens."""

    observations: Array  # (T, state)
    actions: Array  # (T, dim) or (T,), in the environment's units
    rewards: Array  # (T,)
    returns_to_go: Array  # (T,): as the policy read them
    terminated: bool
    truncated: bool
    logits: Array  # (T, layers, heads, S) of the predicting row, without the bias; -inf before the first step
    bias: Array  # (T, layers, heads, S): added to these logits by the accounts; zeros without a bias
    clipped: Array  # (T, layers, heads) bool: whether the bias was at its clip
    accounts: EpisodeAccounts | None  # None for a policy without accounts
    values: EpisodeValues | None = None  # None for a policy without critics
    without: WithoutAccounts | None = None  # what it would have done without its accounts; None if it has none

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def total(self) -> float:
        """Its return."""
        return float(self.rewards.sum(dtype=np.float64))

    @cached_property
    def attention_without(self) -> Array:
        """Softmax of the logits, (T, layers, heads, S)."""
        return _softmax(self.logits.astype(np.float64))

    @cached_property
    def attention_with(self) -> Array:
        """Softmax of the logits plus the bias, as in the policy, (T, layers, heads, S)."""
        return _softmax(self.logits.astype(np.float64) + self.bias)

    @cached_property
    def drift(self) -> Array:
        """How far the bias moves attention, in total variation, (T, layers, heads)."""
        return attention_drift(*map(torch.from_numpy, (self.logits.astype(np.float64), self.bias))).numpy()

    @cached_property
    def sharp_bound(self) -> Array:
        """The sharp bound given the bias itself, tanh(range / 4), (T, layers, heads)."""
        return range_drift_bound(torch.from_numpy(self.bias.astype(np.float64))).numpy()

    @cached_property
    def epsilon(self) -> Array:
        """The largest bias by absolute value, (T, layers, heads)."""
        size: Array = np.abs(self.bias).max(axis=-1)
        return size

    @property
    def size_bound(self) -> Array:
        """The sharp bound given only the size of the bias, tanh(ε / 2), (T, layers, heads)."""
        return drift_bound(torch.from_numpy(self.epsilon.astype(np.float64))).numpy()

    @property
    def paper_bound(self) -> Array:
        """The paper's bound, tanh(ε), (T, layers, heads)."""
        return paper_drift_bound(torch.from_numpy(self.epsilon.astype(np.float64))).numpy()


@dataclass(frozen=True)
class Recording:
    """Some episodes of one policy."""

    env_id: str
    method: str
    target_return: float
    context: int  # K: steps in the context while acting
    source: str  # "played" or "recorded"
    scope: str  # where accounts begin: "trajectory" or "window"; "" without accounts
    has_bias: bool  # whether the accounts bias the attention; ledger-odt has accounts and no bias
    reads_ledger: bool  # whether the policy reads its ledger
    clip: float | None  # ε at which the bias is clipped, if it is
    codes: Codes | None  # None for a policy without accounts
    episodes: tuple[EpisodeRecord, ...]
    discount: float | None = None  # γ of the critics; None for a policy without critics

    def tokens(self, step: int) -> list[str]:
        """Names of the S columns at a step: R for return, s for state, a for action; "" before the first step."""
        steps = range(step - self.context + 1, step + 1)
        names = [f"{kind}_{t}" if t >= 0 else "" for t in steps for kind in TOKEN_KINDS]
        return names[:-1]


def record(
    subject: Subject,
    episodes: int = 1,
    seed: int = 0,
    *,
    recorded: Trajectories | Sequence[Episode] | None = None,
    critics: PolicyCritics | None = None,
) -> Recording:
    """Play episodes, the same ones as `evaluate_policy` with that seed, and record every step.

    With `recorded`, episodes are read instead of played (the first `episodes` of them): the policy reads them as if it
    had taken these actions itself, with the subject's target return. `critics` are those of the policy, as
    `read_critics` reads them: with them, every step has its value.
    """
    policy = subject.policy
    if not policy.config.is_transformer:
        raise UsageError(
            f"a policy of method {policy.config.method} has no attention and no accounts to inspect: it is "
            f"{'a recurrent network' if policy.config.is_recurrent else 'an MLP that reads only the state'}; use "
            "`mental-accounts evaluate` to play it"
        )
    others: Sequence[Episode | None] = ()
    if recorded is None:
        played: Sequence[Episode] = play_subject(subject, episodes, seed)
        others = play_without_accounts(subject, episodes, seed) if policy.accounts is not None else ()
    else:
        if episodes < 1:
            raise UsageError(f"episodes must be at least 1, got {episodes}")
        played = _checked(subject, recorded)[:episodes]
    accounts, codes = policy.accounts, None
    if accounts is not None:
        posted = [posted_codes(policy, accounts.books, episode).cpu().numpy() for episode in played]
        codes = keep_codes(policy.action_scale, accounts.books, posted)
    records = tuple(
        _record_episode(policy, episode, subject.target_return, codes, critics, other)
        for episode, other in zip(played, others or [None] * len(played), strict=True)
    )
    return Recording(
        subject.env_id,
        policy.config.method,
        subject.target_return,
        policy.config.acting_context,
        "played" if recorded is None else "recorded",
        "" if accounts is None else accounts.config.account_scope,
        policy.config.has_bias,
        policy.config.reads_ledger,
        None if accounts is None else accounts.config.bias_clip,
        codes,
        records,
        None if critics is None else critics.discount,
    )


@torch.no_grad()
def _record_episode(
    policy: DecisionTransformer,
    episode: Episode,
    target_return: float,
    codes: Codes | None,
    critics: PolicyCritics | None,
    other: Episode | None,
) -> EpisodeRecord:
    window, balances = acting_windows(policy, episode, target_return, None if codes is None else codes.numbers)
    logits, bias = [], []
    for first in range(0, len(episode), WINDOWS_AT_ONCE):
        layers = attention_of(policy, window[first : first + WINDOWS_AT_ONCE])
        logits.append(torch.stack([layer.logits[:, :, -1] for layer in layers], dim=1))  # the last state's row
        biases = [layer.bias[:, :, -1].expand(logits[-1][:, 0].shape) for layer in layers]
        bias.append(torch.stack(biases, dim=1))
    added = torch.cat(bias).float().cpu().numpy()  # (T, layers, heads, S)
    accounts, held = policy.accounts, None
    clip = None if accounts is None else accounts.config.bias_clip
    at_clip = np.zeros(added.shape[:-1], bool) if clip is None else (np.abs(added) >= np.float32(clip)).any(axis=-1)
    if accounts is not None and balances is not None:
        held = accounts_of(policy, accounts.books, episode, balances.cpu().numpy())
    return EpisodeRecord(
        episode.observations,
        episode.actions,
        episode.rewards,
        window.returns_to_go[:, -1].cpu().numpy(),
        episode.terminated,
        episode.truncated,
        torch.cat(logits).cpu().numpy(),
        added,
        at_clip,
        held,
        None if critics is None else values_of(policy, critics, episode, window),
        None if accounts is None else without_accounts(policy, window, other),
    )


@torch.no_grad()
def acting_windows(
    policy: DecisionTransformer, episode: Episode, target_return: float, numbers: Array | None = None
) -> tuple[Window, Tensor | None]:
    """The policy's windows at each of an episode's T steps, B = T, from a `Context`; and the balances after each step.

    The context is driven as in acting, with the actions of the episode. Balances (T, C) are those of the codes
    `numbers` (C,); None without accounts.
    """
    context = policy.context(1, target_return)
    windows, balances = [], []
    actions = np.asarray(episode.actions)
    kept = None if numbers is None else torch.from_numpy(numbers).to(policy.device)
    for t in range(len(episode)):
        masks = None if episode.action_masks is None else episode.action_masks[t : t + 1]
        context.observe(episode.observations[t : t + 1], masks)
        if kept is not None and t:
            balances.append(context.balances_now()[:, kept].clone())
        shown = context.window().tensors()
        windows.append({name: value.clone() for name, value in shown.items()})
        foregone = None if episode.foregone is None else episode.foregone[t : t + 1]
        context.record(episode.rewards[t : t + 1], np.zeros(1, bool), actions[t : t + 1], foregone)
    context.settle(None)
    if kept is not None:
        balances.append(context.balances_now()[:, kept].clone())
    stacked = Window(**{name: torch.cat([window[name] for window in windows]) for name in windows[0]})
    return stacked, torch.cat(balances) if balances else None


def _checked(subject: Subject, recorded: Trajectories | Sequence[Episode]) -> list[Episode]:
    """Recorded episodes, if they fit the policy."""
    episodes = as_episodes(recorded) if isinstance(recorded, Trajectories) else list(recorded)
    if not episodes:
        raise UsageError("there is no recorded episode to inspect")
    config = subject.policy.config
    wanted = (config.state_dim,), config.action.shape
    given = episodes[0].observations.shape[1:], episodes[0].actions.shape[1:]
    if given != wanted:
        raise UsageError(
            f"the recorded episodes do not fit the policy: it has observations and actions of shape {wanted[0]} and "
            f"{wanted[1]}, they have {given[0]} and {given[1]}; give episodes of {subject.env_id}"
        )
    return episodes


def _softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    attention: Array = weights / weights.sum(axis=-1, keepdims=True)
    return attention
