"""Looking at a policy while it acts: what its accounts hold at every step, and what they do to its attention.

    subject = read_subject(Path("runs/..."), None, None)
    recording = record(subject, episodes=3)
    recording.episodes[0].accounts.balances    # (T, codes)
    recording.episodes[0].drift                # (T, layers, heads)

The attention is that of the row which decides on the action: at every step the last state token's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mental_accounts.accounts import Entry, attention_drift, drift_bound, paper_drift_bound, range_drift_bound
from mental_accounts.config import PolicyConfig
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import UsageError
from mental_accounts.inspect.episode_accounts import (
    Codes,
    EpisodeAccounts,
    accounts_of,
    entry_of,
    keep_codes,
    payoffs_of,
    posted_codes,
)
from mental_accounts.learning.episodes import Episode, as_episodes
from mental_accounts.learning.evaluation import Subject, play_subject
from mental_accounts.policy import DecisionTransformer
from mental_accounts.policy.accounting import Accounting
from mental_accounts.policy.attention_probe import attention_of
from mental_accounts.policy.context import keep_in_range

Array = NDArray[Any]
WINDOWS_AT_ONCE = 128


@dataclass(frozen=True)
class EpisodeRecord:
    """One episode of T steps, seen through a context of K steps: S = 3K - 1 tokens."""

    observations: Array  # (T, state)
    actions: Array  # (T, dim) or (T,), in the environment's units
    rewards: Array  # (T,)
    returns_to_go: Array  # (T,): what the policy was still asked for
    terminated: bool
    truncated: bool
    logits: Array  # (T, layers, heads, S) of the row that decides, without the bias; -inf where there is no step yet
    bias: Array  # (T, layers, heads, S): what the accounts add to these logits
    clipped: Array  # (T, layers, heads) bool: whether the bias was at its clip
    accounts: EpisodeAccounts | None  # None for a policy without accounts

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
        """Softmax of the logits with the bias, as the policy computes it, (T, layers, heads, S)."""
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
    context: int  # K: steps seen while acting
    source: str  # "played" or "recorded"
    scope: str  # where accounts begin: "trajectory" or "window"; "" without accounts
    clip: float | None  # ε at which the bias is clipped, if it is
    codes: Codes | None  # None for a policy without accounts
    episodes: tuple[EpisodeRecord, ...]
    token_kinds: str = "Rsa"  # the tokens of a step: R for return, L for ledger, s for state, a for action

    def tokens(self, step: int) -> list[str]:
        """Names of the S columns at a step, by `token_kinds` and step; "" where there is no step yet."""
        steps = range(step - self.context + 1, step + 1)
        names = [f"{kind}_{t}" if t >= 0 else "" for t in steps for kind in self.token_kinds]
        return names[:-1]


def record(
    subject: Subject, episodes: int = 1, seed: int = 0, *, recorded: Trajectories | Sequence[Episode] | None = None
) -> Recording:
    """Play episodes, the very ones of `evaluate_policy` with that seed, and look at every step.

    `recorded` episodes are read instead of played (the first `episodes` of them): the policy looks at them as if it had
    acted so itself, asked for the subject's target return.
    """
    policy = subject.policy
    if not policy.config.is_sequence_model:
        raise UsageError(
            f"a policy of method {policy.config.method} has no attention and no accounts to look at: it sees the state "
            "alone; `mental-accounts evaluate` plays it"
        )
    if recorded is None:
        played: Sequence[Episode] = play_subject(subject, episodes, seed)
    else:
        if episodes < 1:
            raise UsageError(f"episodes must be at least 1, got {episodes}")
        played = _checked(subject, recorded)[:episodes]
    accounts, codes = policy.accounts, None
    if accounts is not None:
        posted = [posted_codes(accounts, entry_of(policy, accounts, episode)).cpu().numpy() for episode in played]
        codes = keep_codes(policy, accounts, posted)
    seen = tuple(_look(policy, episode, subject.target_return, codes) for episode in played)
    return Recording(
        subject.env_id,
        policy.config.method,
        subject.target_return,
        policy.config.acting_context,
        "played" if recorded is None else "recorded",
        "" if accounts is None else accounts.config.account_scope,
        None if accounts is None else accounts.config.bias_clip,
        codes,
        seen,
        "RLsa" if policy.config.tokens_per_step == 4 else "Rsa",
    )


@torch.no_grad()
def _look(policy: DecisionTransformer, episode: Episode, target_return: float, codes: Codes | None) -> EpisodeRecord:
    rewards = torch.from_numpy(episode.rewards).to(policy.device)
    returns = _returns_to_go(rewards, target_return, policy.config)
    accounts, held = policy.accounts, None
    if accounts is not None and codes is not None:
        held = accounts_of(policy, accounts, episode, codes.numbers)
    windows = acting_windows(policy, episode, returns)
    logits, bias = [], []
    for first in range(0, len(episode), WINDOWS_AT_ONCE):
        part = {name: value[first : first + WINDOWS_AT_ONCE] for name, value in windows.items()}
        layers = attention_of(policy, **part)
        logits.append(torch.stack([layer.logits[:, :, -1] for layer in layers], dim=1))  # the last state asks last
        biases = [layer.bias[:, :, -1].expand(logits[-1][:, 0].shape) for layer in layers]
        bias.append(torch.stack(biases, dim=1))
    added = torch.cat(bias).float().cpu().numpy()  # (T, layers, heads, S)
    clip = None if accounts is None else accounts.config.bias_clip
    at_clip = np.zeros(added.shape[:-1], bool) if clip is None else (np.abs(added) >= np.float32(clip)).any(axis=-1)
    return EpisodeRecord(
        episode.observations,
        episode.actions,
        episode.rewards,
        returns.cpu().numpy(),
        episode.terminated,
        episode.truncated,
        torch.cat(logits).cpu().numpy(),
        added,
        at_clip,
        held,
    )


@torch.no_grad()
def acting_windows(policy: DecisionTransformer, episode: Episode, returns_to_go: Tensor) -> dict[str, Tensor]:
    """The windows that a `Context` shows the policy at each step of an episode, all at once: (T, K, ...) each."""
    steps, mask = _last_steps(len(episode), policy.config.acting_context, policy.device)
    windows = {
        "observations": torch.from_numpy(episode.observations).to(policy.device)[steps],
        "actions": torch.from_numpy(np.asarray(episode.actions)).to(policy.device)[steps],
        "returns_to_go": returns_to_go[steps],
        "timesteps": steps,
        "mask": mask,
    }
    if policy.config.reads_rewards:
        rewards = torch.from_numpy(episode.rewards).to(policy.device)
        windows["previous_rewards"] = torch.nn.functional.pad(rewards, (1, 0))[steps]
    if policy.accounts is not None:
        windows |= _account_windows(policy, policy.accounts, episode, steps, mask)
    return windows


def _last_steps(T: int, K: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The numbers of the last K steps at each of T, (T, K), and which of them are there."""
    steps = torch.arange(T, device=device).unsqueeze(1) + torch.arange(1 - K, 1, device=device)
    return steps.clamp(min=0), steps >= 0


def _account_windows(
    policy: DecisionTransformer, accounts: Accounting, episode: Episode, steps: Tensor, mask: Tensor
) -> dict[str, Tensor]:
    entry, payoffs = entry_of(policy, accounts, episode), payoffs_of(policy, accounts, episode)
    K = steps.shape[1]
    by_window = accounts.config.account_scope == "window"
    if by_window:
        steps, mask = _last_steps(len(episode), policy.config.account_window, policy.device)
    seen = Entry(entry.codes[steps], None if entry.weights is None else entry.weights[steps])
    found = {"codes": seen.codes}
    if seen.weights is not None:
        found["weights"] = seen.weights
    if by_window:
        found["attractions"] = accounts.trace_entries(seen, payoffs[steps], mask)
    else:
        whole = Entry(entry.codes.unsqueeze(0), None if entry.weights is None else entry.weights.unsqueeze(0))
        found["attractions"] = accounts.trace_entries(whole, payoffs.unsqueeze(0)).squeeze(0)[steps]
    if policy.config.reads_ledger:
        if by_window:
            found["ledgers"] = accounts.ledgers_of_windows(seen, payoffs[steps], mask)
        else:
            found["ledgers"] = _ledgers(accounts, entry, payoffs)[steps].masked_fill(~mask.unsqueeze(-1), 0.0)
    return {name: value[:, -K:] for name, value in found.items()}


def _ledgers(accounts: Accounting, entry: Entry, payoffs: Tensor) -> Tensor:
    """All balances before each step of an episode, (T, num_codes)."""
    ledger, held = accounts.ledger(1, payoffs.device), []
    for t in range(len(payoffs)):
        held.append(ledger.attractions[0].clone())
        weights = None if entry.weights is None else entry.weights[t : t + 1]
        accounts.post(ledger, Entry(entry.codes[t : t + 1], weights), payoffs[t : t + 1])
    return torch.stack(held)


def _returns_to_go(rewards: Tensor, target_return: float, config: PolicyConfig) -> Tensor:
    """What is still asked for before each step, (T,), as a `Context` counts it down."""
    target = torch.tensor(target_return, dtype=torch.float32, device=rewards.device)
    asked = [target]
    for reward in rewards[:-1].float():
        asked.append((asked[-1] - reward) / config.gamma)
    return keep_in_range(torch.stack(asked), target, config.return_range)


def _checked(subject: Subject, recorded: Trajectories | Sequence[Episode]) -> list[Episode]:
    """Recorded episodes, if they are the policy's kind."""
    episodes = as_episodes(recorded) if isinstance(recorded, Trajectories) else list(recorded)
    if not episodes:
        raise UsageError("there is no recorded episode to look at")
    config = subject.policy.config
    wanted = (config.state_dim,), () if config.action.is_discrete else (config.action.size,)
    came = episodes[0].observations.shape[1:], episodes[0].actions.shape[1:]
    if came != wanted:
        raise UsageError(
            f"the recorded episodes do not fit the policy: it has observations and actions of shape {wanted[0]} and "
            f"{wanted[1]}, they have {came[0]} and {came[1]}; give episodes of {subject.env_id}"
        )
    return episodes


def _softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    attention: Array = weights / weights.sum(axis=-1, keepdims=True)
    return attention
