"""Windows that begin at an episode's first step, for policies that learn from whole episodes.

An episode of up to `length` steps is one piece. A longer one is cut into pieces of `length` steps, the last of which
may be shorter. All pieces are equally likely to be drawn, so all steps are equally likely to be learned from; with
steps drawn uniformly, and the episodes around them, those of long episodes would be learned from more often.

A recurrent policy would begin a later piece with an empty state, which it never has there while acting. So up to
`carried` steps before a piece are read with it: they are part of its window, but not learned from.
"""

from dataclasses import replace

import torch
from torch import Tensor

from mental_accounts.account_options import AccountScope
from mental_accounts.checks import looking_is_free
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.data.windows import Transitions, WindowSampler
from mental_accounts.policy.window import Window
from mental_accounts.policy_options import PolicyConfig


class EpisodeSampler(WindowSampler):
    """Draws episodes, or pieces of them, as `WindowSampler` draws windows.

    With `lead`, `transitions` has successors with the steps that led up to them, from which a recurrent policy has its
    state; by default those in windows that begin one step later, as a transformer reads them.

    On a CPU windows are as long as the longest one of their batch; elsewhere they have all columns, so that a call can
    be captured in a CUDA graph. Before it is replayed, call `refresh`.
    """

    def __init__(
        self,
        store: Trajectories,
        batch_size: int,
        length: int,
        generator: torch.Generator,
        account_scope: AccountScope = "trajectory",
        *,
        carried: int = 0,
        lead: bool = False,
        previous_rewards: bool = False,
        previous_actions: bool = False,
        previous_observations: bool = False,
    ) -> None:
        super().__init__(
            store,
            batch_size,
            carried + length,
            generator,
            account_scope,
            previous_rewards=previous_rewards,
            previous_actions=previous_actions,
            previous_observations=previous_observations,
        )
        self.carried, self.lead, self.stride = carried, lead, length
        self._starts = torch.empty(0, dtype=torch.int64, device=store.device)
        self._count = torch.zeros((), dtype=torch.int64, device=store.device)
        self._version = -1

    def refresh(self) -> None:
        """Find where pieces begin, if the store has changed; in place, unless it has moved."""
        store = self.store
        if self._version == store.version:
            return
        if len(self._starts) != store.storage.capacity:
            self._starts = torch.zeros(store.storage.capacity, dtype=torch.int64, device=store.device)
        pieces = (store.lengths + self.stride - 1) // self.stride  # (trajectories,)
        number = torch.arange(int(pieces.sum())) - torch.repeat_interleave(pieces.cumsum(0) - pieces, pieces)
        starts = torch.repeat_interleave(store.first_rows, pieces) + self.stride * number
        self._starts[: len(starts)].copy_(starts)
        self._count.fill_(len(starts))
        self._version = store.version

    def _draw(self) -> Tensor:
        self.refresh()
        return super()._draw()

    def _rows(self, draw: Tensor) -> Tensor:
        return self._starts.index_select(0, (draw * self._count).long())

    def at(self, first: Tensor) -> Window:
        """The pieces that begin at these rows of the store's storage, (B,) int64, with the steps carried into them."""
        begin = self._begin(first)
        length, offset = self._extent(first)
        return self._marked(self._window(begin, length, offset), offset, first - begin)

    def transitions_at(self, first: Tensor) -> Transitions:
        """As `at`, with the step after each."""
        if not self.lead:
            return super().transitions_at(first)
        columns, blank = self.store.storage.columns, self.store.storage.blank
        begin = self._begin(first)
        length, offset = self._extent(first)
        remaining = columns["remaining"].index_select(0, begin)
        later = torch.minimum(remaining, length + 1)  # (B,): the steps of the window, and the one after it
        following = self._window(begin, later, torch.cat([offset[:, :1], offset + 1], dim=1))  # (B, 1 + K)
        now = self._marked(self._window(begin, length, offset), offset, first - begin)
        assert now.counted is not None
        row = torch.where(now.counted, begin.unsqueeze(-1) + offset, blank)
        terminal = columns["terminal"][row]
        follows = now.counted & (offset + 1 < later.unsqueeze(-1))
        known = self._close(now, following, begin + length - 1, follows | terminal)
        return Transitions(now, following, terminal, known, lead=1)

    def _begin(self, first: Tensor) -> Tensor:
        """The first rows of windows, given those of their pieces, (B,)."""
        if not self.carried:
            return first
        return first - self.store.storage.columns["timesteps"].index_select(0, first).clamp(max=self.carried)

    def _extent(self, first: Tensor) -> tuple[Tensor, Tensor]:
        piece = self.store.storage.columns["remaining"].index_select(0, first).clamp(max=self.stride)
        length = piece + (first - self._begin(first)).to(piece.dtype)
        columns = int(length.max()) if looking_is_free(length) else self.context_length
        return length, self._back[-columns:] + length.unsqueeze(-1)

    def _marked(self, window: Window, offset: Tensor, carried: Tensor) -> Window:
        """The window without the steps carried into it among those to learn from; `carried` (B,) is their number."""
        return replace(window, learned=offset >= carried.unsqueeze(-1)) if self.carried else window


def sampler_for(
    policy: PolicyConfig, store: Trajectories, batch_size: int, generator: torch.Generator, longest: int = 0
) -> WindowSampler:
    """Windows with all that a policy reads, as it learns from them.

    `longest` is the most steps that an episode may have which is appended to the store later.
    """
    scope = policy.accounts.account_scope
    read = {"previous_rewards": policy.reads_rewards, "previous_observations": policy.reads_advantages}
    if not policy.learns_episodes:
        return WindowSampler(store, batch_size, policy.context_length, generator, scope, **read)
    longest = max(longest, int(store.lengths.max()))
    if not policy.is_recurrent:
        length = min(policy.context_length, longest)
        return EpisodeSampler(store, batch_size, length, generator, scope, **read)
    length = min(policy.episode_length, longest)
    return EpisodeSampler(
        store,
        batch_size,
        length,
        generator,
        carried=length if longest > length else 0,
        lead=True,
        previous_rewards=policy.reads_rewards,
        previous_actions=True,
        previous_observations=policy.reads_advantages,
    )
