"""The replay buffer of online learning: initially the best offline trajectories, then the newest collected ones."""

from collections.abc import Sequence

from mental_accounts.data.trajectories import Trajectories
from mental_accounts.learning.episodes import Episode

MOST_STEPS = 4_000_000


class Replay:
    """At most `size` trajectories; first in, first out. The offline data are not changed."""

    def __init__(self, offline: Trajectories, size: int, longest: int) -> None:
        """Allocate room for `size` + 1 trajectories of up to `longest` steps, so that nothing has to move.

        The room is limited to MOST_STEPS: such long episodes are rare.
        """
        chosen = offline.best(size)
        steps, longest = int(offline.lengths[chosen].sum()), max(longest, int(offline.lengths[chosen].max()))
        self.size = size
        self.store = offline.select(chosen, capacity=min((size + 1) * longest, max(MOST_STEPS, 2 * steps + longest)))
        self.store.keep_endings(size + 1)

    def __len__(self) -> int:
        return len(self.store)

    def add(self, episodes: Sequence[Episode]) -> None:
        """Add new trajectories, and evict as many old ones as necessary."""
        for episode in episodes:
            self.store.append(
                episode.observations,
                episode.actions,
                episode.rewards,
                terminated=episode.terminated,
                truncated=episode.truncated,
                foregone=episode.foregone,
                action_masks=episode.action_masks,
                final_observation=episode.final_observation,
                final_mask=episode.final_mask,
            )
            if len(self.store) > self.size:
                self.store.evict(len(self.store) - self.size)
