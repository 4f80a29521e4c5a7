"""One store of trajectories: flat tensors, one row per step, on the CPU or entirely on a GPU.

What it does, one call per line:

    store = Trajectories.from_steps(observations, actions, rewards, lengths=..., terminated=..., truncated=...)
    store.annotate(codebook, rule, reward_transform)      # codes and attractions of every step
    store.slice(3).returns_to_go                          # (T,), a view
    store.append(observations, actions, rewards, terminated=True)
    store.evict(1)                                        # the oldest
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mental_accounts.accounts import Books, Codebook, RewardTransform, UpdateRule
from mental_accounts.action_spec import ActionSpec
from mental_accounts.data.annotation import Annotation
from mental_accounts.data.data_checks import Steps, Values, checked_steps
from mental_accounts.data.description import Statistics, statistics_of
from mental_accounts.data.step_columns import columns_for, columns_of, rows_of_steps
from mental_accounts.data.storage import Column, StepStorage, check_memory
from mental_accounts.data.trajectory_files import read_trajectories, write_trajectories
from mental_accounts.errors import DataError
from mental_accounts.spaces import ActionScale

TOLD = {"foregone": "foregone rewards", "action_masks": "action masks"}
"""Columns of what only some environments tell, and words for them."""


@dataclass(frozen=True, repr=False, eq=False)
class Trajectory:
    """One trajectory of T steps; the tensors are views into the store, valid until it changes."""

    observations: Tensor  # (T, obs)
    actions: Tensor  # (T, act); (T,) or (T, numbers) int64 where actions are discrete
    rewards: Tensor  # (T,)
    timesteps: Tensor  # (T,) int32
    returns_to_go: Tensor  # (T,)
    codes: Tensor | None  # (T,) or (T, groups); None before the store is annotated
    attractions: Tensor | None  # (T,) or (T, groups)
    terminated: bool
    truncated: bool
    foregone: Tensor | None = None  # (T, actions): the rewards of all actions, where they are known
    action_masks: Tensor | None = None  # (T, values) bool: the actions that were allowed, where they are known

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        shown = []
        for item in fields(self):
            value = getattr(self, item.name)
            shown.append(f"{item.name}={tuple(value.shape) if isinstance(value, Tensor) else value}")
        return f"Trajectory({', '.join(shown)})"


class Trajectories:
    """Whole trajectories, the oldest first.

    `gamma` discounts the returns-to-go, which are computed in hindsight over each whole trajectory. `action_spec` is
    the environment's action space, if known: actions outside it are refused. `info` describes the source of the data;
    it is saved too.
    """

    annotation: Annotation | None

    def __init__(
        self,
        obs_dim: int,
        action_dim: int | None,
        capacity: int,
        *,
        gamma: float = 1.0,
        action_spec: ActionSpec | None = None,
        info: Mapping[str, Any] | None = None,
        device: torch.device | str = "cpu",
        foregone: int | None = None,
        action_masks: int | None = None,
    ) -> None:
        """An empty store with room for `capacity` steps; `action_dim` None means discrete actions.

        With `foregone`, every step has the rewards of that many actions; with `action_masks`, so many flags.
        """
        _check_gamma(gamma)
        whole = action_spec is not None and action_spec.kind == "multi-discrete"
        columns = columns_of(obs_dim, action_dim, foregone, action_masks, whole=whole)
        self._begin(StepStorage(columns, capacity, device), gamma, action_spec, info)

    @classmethod
    def from_steps(
        cls,
        observations: Values,
        actions: Values,
        rewards: Values,
        *,
        lengths: Values,
        terminated: Values,
        truncated: Values,
        action_spec: ActionSpec | None = None,
        gamma: float = 1.0,
        capacity: int | None = None,
        device: torch.device | str = "cpu",
        info: Mapping[str, Any] | None = None,
        foregone: Values | None = None,
        action_masks: Values | None = None,
        where: str = "data",
    ) -> "Trajectories":
        """Concatenated whole trajectories: (N, obs), (N, act) or (N,), (N,); one length and flags for each.

        `foregone` (N, actions) are the rewards of all discrete actions at each step, if the environment told them
        (`info["foregone"]`); `action_masks` (N, actions) say which of them were allowed (`info["action_mask"]` before
        each step). `where` names the data in errors. `capacity` is in steps; by default there is room for
        these only, and the store grows when more are appended.
        """
        steps = checked_steps(
            observations, actions, rewards, lengths, terminated, truncated, where=where, action_spec=action_spec,
            foregone=foregone, action_masks=action_masks,
        )  # fmt: skip
        _check_gamma(gamma)
        storage = StepStorage(columns_for(steps), len(steps) if capacity is None else capacity, device)
        store = cls._around(storage, gamma, action_spec, info)
        store._extend(steps)
        return store

    # Contents.

    def __len__(self) -> int:
        """The number of trajectories."""
        return len(self._lengths)

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
        return self.storage.nbytes

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
        return torch.tensor(self._lengths, dtype=torch.int64)

    @property
    def returns(self) -> Tensor:
        """(trajectories,) float64, undiscounted, on the CPU."""
        return torch.tensor(self._returns, dtype=torch.float64)

    @property
    def first_returns_to_go(self) -> Tensor:
        """(trajectories,) float32, on the CPU: the return-to-go at the first step; the return, if γ is 1."""
        begins = self.first_rows - self.storage.first
        return self.returns_to_go[begins.to(self.device)].cpu()

    @property
    def first_rows(self) -> Tensor:
        """(trajectories,) int64, on the CPU: the row of each trajectory's first step in the storage."""
        return torch.tensor(self._begins, dtype=torch.int64) + (self.storage.first - self._evicted)

    @property
    def terminated(self) -> Tensor:
        """(trajectories,) bool, on the CPU: ended in a terminal state."""
        return torch.tensor(self._terminated, dtype=torch.bool)

    @property
    def truncated(self) -> Tensor:
        """(trajectories,) bool, on the CPU: cut off."""
        return torch.tensor(self._truncated, dtype=torch.bool)

    def slice(self, i: int) -> Trajectory:
        """Trajectory i as views; negative numbers count from the newest."""
        begin = self.rows_of(i)[0] - self.storage.first
        end = begin + self._lengths[i]
        names = ["observations", "actions", "rewards", "timesteps", "returns_to_go"]
        found = {name: self.storage.rows(name)[begin:end] for name in names}
        codes, attractions, foregone, masks = self.codes, self.attractions, self.foregone, self.action_masks
        return Trajectory(
            **found,
            codes=None if codes is None else codes[begin:end],
            attractions=None if attractions is None else attractions[begin:end],
            terminated=self._terminated[i],
            truncated=self._truncated[i],
            foregone=None if foregone is None else foregone[begin:end],
            action_masks=None if masks is None else masks[begin:end],
        )

    def rows_of(self, i: int) -> tuple[int, int]:
        """The first row of trajectory i in the storage, and how many rows it has."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"trajectory {i} was requested, but there are {len(self)}")
        return self.storage.first + self._begins[i] - self._evicted, self._lengths[i]

    def best(self, n: int) -> Tensor:
        """The indices of the n trajectories with the highest returns (fewer where there are fewer), worst first.

        Worst first, so that a first-in-first-out replay made of them forgets the worst first.
        """
        return self.returns.argsort(stable=True)[max(0, len(self) - n) :]

    def statistics(self) -> Statistics:
        """Counts, returns, and the mean and standard deviation of states over steps."""
        self._refuse_empty("statistics")
        return statistics_of(self.steps, self.returns)

    # Changes.

    def append(
        self,
        observations: Values,
        actions: Values,
        rewards: Values,
        *,
        terminated: bool,
        truncated: bool = False,
        foregone: Values | None = None,
        action_masks: Values | None = None,
    ) -> None:
        """Append one trajectory: (T, obs), (T, act) or (T,), (T,). It is annotated like the others.

        If there is no room after the newest, all trajectories move to the front; if there is none at all the store
        grows, unless its addresses are pinned.
        """
        steps = checked_steps(
            observations,
            actions,
            rewards,
            [len(rewards)],
            [terminated],
            [truncated],
            where="appended trajectory",
            action_spec=self.action_spec,
            foregone=foregone if self.foregone is not None else None,
            action_masks=action_masks if self.action_masks is not None else None,
        )
        expected = self.storage.schema()
        for name in ("observations", "actions", *(name for name in TOLD if name in expected)):
            given = getattr(steps, name)
            if given is None:
                raise DataError(f"appended trajectory: {TOLD[name]} are missing, which the store's other steps have")
            if tuple(given.shape[1:]) != expected[name].shape or given.dtype != expected[name].dtype:
                raise DataError(
                    f"appended trajectory: {name} must be {expected[name].dtype} (T, *{expected[name].shape}) like the "
                    f"store's, got {given.dtype} {tuple(given.shape)}"
                )
        self._extend(steps)

    def evict(self, n: int = 1) -> None:
        """Remove the n oldest trajectories."""
        if not 0 <= n <= len(self):
            raise DataError(f"cannot evict {n} of {len(self)} trajectories")
        dropped = sum(self._lengths[:n])
        self.storage.drop(dropped)
        self._evicted += dropped
        self.version += 1
        for table in (self._begins, self._lengths, self._returns, self._terminated, self._truncated):
            del table[:n]

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` steps in total; moves to new memory if there is less."""
        self.storage.reserve(capacity)
        self.version += 1

    def pin_addresses(self) -> None:
        """Guarantee that no tensor moves from now on, for a CUDA graph that reads them: a full store is then an error.

        (Eager samplers look the tensors up at every call and need no such guarantee.)
        """
        self.storage.pinned = True

    def annotate(
        self,
        codebook: Codebook,
        rule: UpdateRule,
        reward_transform: RewardTransform | None = None,
        to_unit: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Route and trace every trajectory, including all that are appended later.

        `reward_transform` turns rewards into payoffs (None: raw). `to_unit` maps actions to [-1, 1]; by default the
        store's action space does, if known. Annotating again overwrites in place.
        """
        self.annotate_by(Books(codebook, rule, reward_transform), to_unit)

    def annotate_by(
        self, books: Books, to_unit: Callable[[Tensor], Tensor] | None = None, *, balances: bool = False
    ) -> None:
        """As `annotate`, with any books; with `balances`, windows have all balances before each of their steps."""
        if to_unit is None and self.action_spec is not None:
            to_unit = ActionScale(self.action_spec).to(self.device).to_unit
        if books.foregone and self.foregone is None:
            raise DataError(
                'the accounts enter foregone payoffs, but the data have none: they need info["foregone"] of every step '
                "(Trajectories.from_steps(..., foregone=...)); or set accounts.foregone to False"
            )
        annotation = Annotation(books, to_unit, balances).to(self.device)
        made: dict[str, Tensor] = {}
        if self.steps:
            seen, taken, paid = self.observations, self.actions, self.rewards
            made = annotation.annotate(seen, taken, paid, self.lengths, self.foregone, self.action_masks)
        for name, column in annotation.columns.items():
            self.storage.add(name, column)
        self.annotation = annotation
        for name, values in made.items():
            self.storage.rows(name).copy_(values)

    # Copies.

    def select(self, indices: Tensor, capacity: int | None = None) -> "Trajectories":
        """A new store of these trajectories, in this order, with room for `capacity` steps (default: no more)."""
        chosen = [int(i) for i in indices]
        lengths = self.lengths[chosen]
        count = int(lengths.sum())
        begins = torch.tensor([self._begins[i] - self._evicted for i in chosen], dtype=torch.int64)
        shift = torch.repeat_interleave(begins - (lengths.cumsum(0) - lengths), lengths)
        rows = (torch.arange(count) + shift).to(self.device)
        storage = StepStorage(self.storage.schema(), max(1, count if capacity is None else capacity), self.device)
        storage.extend({name: self.storage.rows(name).index_select(0, rows) for name in self.storage.columns}, count)
        return self._twin(storage, chosen)

    def without(self, name: Literal["foregone", "action_masks"]) -> "Trajectories":
        """The same trajectories without what only some environments tell; the store itself if it has none."""
        if name not in self.storage.columns:
            return self
        twin = self.select(torch.arange(len(self)))
        del twin.storage.columns[name]
        return twin

    def allowing_all(self, values: int) -> "Trajectories":
        """The same trajectories with action masks that allow all of so many values; the store itself if it has any."""
        if self.action_masks is not None:
            return self
        twin = self.select(torch.arange(len(self)))
        twin.storage.add("action_masks", Column((values,), torch.bool))
        twin.storage.rows("action_masks").fill_(True)
        return twin

    def to(self, device: torch.device | str) -> "Trajectories":
        """The store itself if it is on that device, else a copy there; raises first if memory is too small."""
        target = torch.empty(0, device=device).device
        if target == self.device or (target.type == self.device.type == "cpu"):
            return self
        return self._twin(self.storage.to(target), range(len(self)))

    # Files.

    def save(self, path: Path | str) -> None:
        """Write one safetensors file, atomically. Codes and attractions are not saved."""
        self._refuse_empty("save")
        tables = {"lengths": self.lengths, "terminated": self.terminated, "truncated": self.truncated}
        facts = {"gamma": self.gamma, "info": self.info, "summary": self.statistics().summary()}
        write_trajectories(Path(path), self.storage, tables, facts, self.action_spec)

    @classmethod
    def load(cls, path: Path | str, device: torch.device | str = "cpu", gamma: float | None = None) -> "Trajectories":
        """Read a file written by `save`; refuses files that are truncated, modified, or something else.

        `gamma` replaces the saved one. On a CPU the file is mapped, not copied: processes that load the same one share
        its memory. Later changes of the store are not written to it.
        """
        path = Path(path)
        if path.exists():
            check_memory(path.stat().st_size, device)
        found = read_trajectories(path)
        steps, gamma = found.steps, found.gamma if gamma is None else gamma
        _check_gamma(gamma)
        storage = found.storage
        if storage is None or gamma != found.gamma:
            storage = StepStorage(columns_for(steps), len(steps))
            storage.extend(rows_of_steps(steps, gamma), len(steps))
        store = cls._around(storage, gamma, found.action_spec, found.info)
        store._enter(steps, 0)
        return store.to(device)

    # Internals.

    @classmethod
    def _around(
        cls, storage: StepStorage, gamma: float, action_spec: ActionSpec | None, info: Mapping[str, Any] | None
    ) -> "Trajectories":
        """A store of this storage, whose trajectories are yet to be told."""
        store = object.__new__(cls)
        store._begin(storage, gamma, action_spec, info)
        return store

    def _begin(
        self, storage: StepStorage, gamma: float, action_spec: ActionSpec | None, info: Mapping[str, Any] | None
    ) -> None:
        self.storage, self.gamma, self.action_spec, self.info = storage, gamma, action_spec, dict(info or {})
        self.annotation = None
        self.version = 0
        """How often trajectories were added or removed, for those who remember where they are."""
        self._evicted = 0  # steps dropped so far: trajectories remember where they begin, counted from the very first
        self._begins: list[int] = []
        self._lengths: list[int] = []
        self._returns: list[float] = []
        self._terminated: list[bool] = []
        self._truncated: list[bool] = []

    def _extend(self, steps: Steps) -> None:
        rows = rows_of_steps(steps, self.gamma)
        if self.annotation is not None:
            told = (steps.observations, steps.actions, steps.rewards)
            observations, actions, paid = (values.to(self.device) for values in told)
            foregone = None if steps.foregone is None else steps.foregone.to(self.device)
            allowed = None if steps.action_masks is None else steps.action_masks.to(self.device)
            rows |= self.annotation.annotate(observations, actions, paid, steps.lengths, foregone, allowed)
        before = self._evicted + self.storage.count
        self.storage.extend(rows, len(steps))
        self._enter(steps, before)

    def _enter(self, steps: Steps, before: int) -> None:
        """Enter the trajectories of these steps; so many steps came before them."""
        begins = steps.lengths.cumsum(0) - steps.lengths
        self.version += 1
        self._begins += (begins + before).tolist()
        self._lengths += steps.lengths.tolist()
        self._returns += np.add.reduceat(steps.rewards.double().numpy(), begins.numpy()).tolist()
        self._terminated += steps.terminated.tolist()
        self._truncated += steps.truncated.tolist()

    def _twin(self, storage: StepStorage, chosen: "list[int] | range") -> "Trajectories":
        """The chosen trajectories, whose steps are contiguous in this storage."""
        twin = self._around(storage, self.gamma, self.action_spec, self.info)
        twin.annotation = None if self.annotation is None else self.annotation.to(storage.device)
        twin._lengths = [self._lengths[i] for i in chosen]
        twin._begins = [0, *np.cumsum(twin._lengths).tolist()][: len(twin._lengths)]
        twin._returns = [self._returns[i] for i in chosen]
        twin._terminated = [self._terminated[i] for i in chosen]
        twin._truncated = [self._truncated[i] for i in chosen]
        return twin

    def _refuse_empty(self, what: str) -> None:
        if not len(self):
            raise DataError(f"{what}: the store holds no trajectory yet")


def _check_gamma(gamma: float) -> None:
    if not 0.0 < gamma <= 1.0:
        raise DataError(f"gamma must be in (0, 1], got {gamma!r}")
