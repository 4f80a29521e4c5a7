"""What a store of trajectories holds, to be read: columns of all steps, tables of all trajectories, slices."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mental_accounts.data.annotation import Annotation
from mental_accounts.data.description import Statistics, statistics_of
from mental_accounts.data.endings import Endings, SeenAfter
from mental_accounts.data.storage import StepStorage
from mental_accounts.data.trajectory import Trajectory
from mental_accounts.data.trajectory_table import TrajectoryTable
from mental_accounts.errors import DataError


class StoreContents:
    """The reading half of `Trajectories`."""

    storage: StepStorage
    annotation: Annotation | None
    endings: Endings | None
    _table: TrajectoryTable

    def __len__(self) -> int:
        """The number of trajectories."""
        return len(self._table)

    def __iter__(self) -> Iterator[Trajectory]:
        return (self.slice(i) for i in range(len(self)))

    def __repr__(self) -> str:
        actions = tuple(self.actions.shape)
        return (
            f"Trajectories({len(self)} trajectories, observations={tuple(self.observations.shape)}, actions={actions}, "
            f"annotated={self.annotation is not None}, device={self.device}, {self.nbytes / 1e6:.1f} MB)"
        )

    @property
    def steps(self) -> int:
        """The total number of steps."""
        return self.storage.count

    @property
    def device(self) -> torch.device:
        return self.storage.device

    @property
    def nbytes(self) -> int:
        """Memory of all columns, including room for later steps."""
        return self.storage.nbytes + (0 if self.endings is None else self.endings.nbytes)

    @property
    def discrete(self) -> bool:
        return self.actions.ndim == 1

    @property
    def observations(self) -> Tensor:
        """(N, obs) float32, a view."""
        return self.storage.rows("observations")

    @property
    def actions(self) -> Tensor:
        """(N, act) float32 in the environment's own units, or (N,) or (N, numbers) int64; a view."""
        return self.storage.rows("actions")

    @property
    def rewards(self) -> Tensor:
        """(N,) float32, a view."""
        return self.storage.rows("rewards")

    @property
    def timesteps(self) -> Tensor:
        """(N,) int32, each step's index in its trajectory; a view."""
        return self.storage.rows("timesteps")

    @property
    def returns_to_go(self) -> Tensor:
        """(N,) float32, g_t = Σ_{τ >= t} γ^(τ-t) r_τ over the whole trajectory; a view."""
        return self.storage.rows("returns_to_go")

    @property
    def foregone(self) -> Tensor | None:
        """(N, actions) float32, the rewards of all actions at each step, a view; None if they are not known."""
        return self.storage.rows("foregone") if "foregone" in self.storage.columns else None

    @property
    def action_masks(self) -> Tensor | None:
        """(N, values) bool, the actions allowed at each step, a view; None if they are not known."""
        return self.storage.rows("action_masks") if "action_masks" in self.storage.columns else None

    @property
    def codes(self) -> Tensor | None:
        """(N,) or (N, groups) of a small integer type, a view; None before `annotate`."""
        return self.storage.rows("codes") if self.annotation is not None else None

    @property
    def attractions(self) -> Tensor | None:
        """(N,) or (N, groups) float32, traced over the whole trajectory; a view; None before `annotate`."""
        return self.storage.rows("attractions") if self.annotation is not None else None

    @property
    def lengths(self) -> Tensor:
        """(trajectories,) int64, on the CPU."""
        return torch.tensor(self._table.lengths, dtype=torch.int64)

    @property
    def returns(self) -> Tensor:
        """(trajectories,) float64, undiscounted, on the CPU."""
        return torch.tensor(self._table.returns, dtype=torch.float64)

    @property
    def first_returns_to_go(self) -> Tensor:
        """(trajectories,) float32, on the CPU: the return-to-go at the first step; the return, if γ is 1."""
        begins = self.first_rows - self.storage.first
        return self.returns_to_go[begins.to(self.device)].cpu()

    @property
    def first_rows(self) -> Tensor:
        """(trajectories,) int64, on the CPU: the row of each trajectory's first step in the storage."""
        return torch.tensor(self._table.begins, dtype=torch.int64) + (self.storage.first - self._table.dropped)

    @property
    def terminated(self) -> Tensor:
        """(trajectories,) bool, on the CPU: ended in a terminal state."""
        return torch.tensor(self._table.terminated, dtype=torch.bool)

    @property
    def truncated(self) -> Tensor:
        """(trajectories,) bool, on the CPU: cut off."""
        return torch.tensor(self._table.truncated, dtype=torch.bool)

    @property
    def has_final(self) -> Tensor:
        """(trajectories,) bool, on the CPU: cut off, and what was seen after the last step is known."""
        return torch.tensor(self._table.endings, dtype=torch.int64) > 0

    @property
    def final_observations(self) -> Tensor | None:
        """(trajectories, obs) float32, a copy: seen after the last steps, NaN where not known; None if none is."""
        found = None if self.endings is None else self.endings.observations[self._table.endings]
        return None if found is None else found.masked_fill(~self.has_final.to(self.device).unsqueeze(-1), torch.nan)

    @property
    def final_masks(self) -> Tensor | None:
        """(trajectories, values) bool, a copy: the actions allowed after the last steps; None if they are not known."""
        masks = None if self.endings is None else self.endings.action_masks
        return None if masks is None else masks[self._table.endings]

    @property
    def seen_after(self) -> SeenAfter | None:
        """The last steps of which it is known what was seen after them, as rows of `observations`, and what it was."""
        if self.endings is None:
            return None
        known = self.has_final
        rows = (self.first_rows - self.storage.first + self.lengths - 1)[known].to(self.device)
        at = torch.tensor(self._table.endings, dtype=torch.int64)[known].to(self.device)
        return SeenAfter(rows, self.endings.observations.index_select(0, at))

    def slice(self, i: int) -> Trajectory:
        """Trajectory i as views; negative numbers count from the newest."""
        begin = self.rows_of(i)[0] - self.storage.first
        end = begin + self._table.lengths[i]
        names = ["observations", "actions", "rewards", "timesteps", "returns_to_go"]
        found = {name: self.storage.rows(name)[begin:end] for name in names}
        codes, attractions, foregone, masks = self.codes, self.attractions, self.foregone, self.action_masks
        ending = self._table.endings[i]
        ended = self.endings if ending else None
        return Trajectory(
            **found,
            codes=None if codes is None else codes[begin:end],
            attractions=None if attractions is None else attractions[begin:end],
            terminated=self._table.terminated[i],
            truncated=self._table.truncated[i],
            foregone=None if foregone is None else foregone[begin:end],
            action_masks=None if masks is None else masks[begin:end],
            final_observation=None if ended is None else ended.observations[ending],
            final_mask=None if ended is None or ended.action_masks is None else ended.action_masks[ending],
        )

    def rows_of(self, i: int) -> tuple[int, int]:
        """The first row of trajectory i in the storage, and how many rows it has."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"trajectory {i} was requested, but there are {len(self)}")
        return self.storage.first + self._table.begins[i] - self._table.dropped, self._table.lengths[i]

    def best(self, n: int) -> Tensor:
        """The indices of the n trajectories with the highest returns (fewer where there are fewer), worst first.

        Worst first, so that a first-in-first-out replay made of them forgets the worst first.
        """
        return self.returns.argsort(stable=True)[max(0, len(self) - n) :]

    def statistics(self) -> Statistics:
        """Counts, returns, and the mean and standard deviation of states over steps."""
        self._refuse_empty("statistics")
        return statistics_of(self.steps, self.returns)

    def _refuse_empty(self, what: str) -> None:
        if not len(self):
            raise DataError(f"{what}: the store holds no trajectory yet")
