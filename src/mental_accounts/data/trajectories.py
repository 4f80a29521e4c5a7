"""One store of trajectories: flat tensors, one row per step, on the CPU or entirely on a GPU.

What it does, one call per line:

    store = Trajectories.from_steps(observations, actions, rewards, lengths=..., terminated=..., truncated=...)
    store.annotate(codebook, rule, reward_transform)      # codes and attractions of every step
    store.slice(3).returns_to_go                          # (T,), a view
    store.append(observations, actions, rewards, terminated=True)
    store.evict(1)                                        # the oldest
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mental_accounts.accounts import Books, Codebook, RewardTransform, UpdateRule
from mental_accounts.action_spec import ActionSpec
from mental_accounts.data.annotation import Annotation
from mental_accounts.data.data_checks import Steps, Values, checked_steps
from mental_accounts.data.description import Statistics, returns_to_go, statistics_of
from mental_accounts.data.storage import Column, StepStorage, check_memory
from mental_accounts.data.tensor_files import read_tensors, write_tensors
from mental_accounts.errors import DataError
from mental_accounts.fields import config_from_dict
from mental_accounts.spaces import ActionScale


@dataclass(frozen=True, repr=False, eq=False)
class Trajectory:
    """One trajectory of T steps; the tensors are views into the store, valid until it changes."""

    observations: Tensor  # (T, obs)
    actions: Tensor  # (T, act), or (T,) int64 where actions are discrete
    rewards: Tensor  # (T,)
    timesteps: Tensor  # (T,) int32
    returns_to_go: Tensor  # (T,)
    codes: Tensor | None  # (T,) or (T, groups); None before the store is annotated
    attractions: Tensor | None  # (T,) or (T, groups)
    terminated: bool
    truncated: bool
    foregone: Tensor | None = None  # (T, actions): the rewards of all actions, where they are known

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
    ) -> None:
        """An empty store with room for `capacity` steps; `action_dim` None means discrete actions.

        With `foregone`, every step has the rewards of that many actions.
        """
        if not 0.0 < gamma <= 1.0:
            raise DataError(f"gamma must be in (0, 1], got {gamma!r}")
        self.gamma, self.action_spec, self.info = gamma, action_spec, dict(info or {})
        self.annotation: Annotation | None = None
        self.storage = StepStorage(_columns(obs_dim, action_dim, foregone), capacity, device)
        self.version = 0
        """How often trajectories were added or removed, for those who remember where they are."""
        self._evicted = 0  # steps dropped so far: trajectories remember where they begin, counted from the very first
        self._begins: list[int] = []
        self._lengths: list[int] = []
        self._returns: list[float] = []
        self._terminated: list[bool] = []
        self._truncated: list[bool] = []

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
        where: str = "data",
    ) -> "Trajectories":
        """Concatenated whole trajectories: (N, obs), (N, act) or (N,), (N,); one length and flags for each.

        `foregone` (N, actions) are the rewards of all discrete actions at each step, if the environment told them
        (`info["foregone"]`). `where` names the data in errors. `capacity` is in steps; by default there is room for
        these only, and the store grows when more are appended.
        """
        steps = checked_steps(
            observations, actions, rewards, lengths, terminated, truncated, where=where, action_spec=action_spec,
            foregone=foregone,
        )  # fmt: skip
        action_dim = steps.actions.shape[1] if steps.actions.ndim == 2 else None
        room = len(steps) if capacity is None else capacity
        store = cls(
            steps.observations.shape[1],
            action_dim,
            room,
            gamma=gamma,
            action_spec=action_spec,
            info=info,
            device=device,
            foregone=None if steps.foregone is None else steps.foregone.shape[1],
        )
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
        """(N, act) float32 in the environment's own units, or (N,) int64; a view."""
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
        codes, attractions, foregone = self.codes, self.attractions, self.foregone
        return Trajectory(
            **found,
            codes=None if codes is None else codes[begin:end],
            attractions=None if attractions is None else attractions[begin:end],
            terminated=self._terminated[i],
            truncated=self._truncated[i],
            foregone=None if foregone is None else foregone[begin:end],
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
        )
        expected = self.storage.schema()
        for name in ("observations", "actions", *(["foregone"] if self.foregone is not None else [])):
            given = getattr(steps, name)
            if given is None:
                raise DataError("appended trajectory: foregone rewards are missing, which the store's other steps have")
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
            made = annotation.annotate(seen, taken, paid, self.lengths, self.foregone)
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

    def without_foregone(self) -> "Trajectories":
        """The same trajectories without the rewards of actions not taken; the store itself if it has none."""
        if self.foregone is None:
            return self
        twin = self.select(torch.arange(len(self)))
        del twin.storage.columns["foregone"]
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
        tensors = {"observations": self.observations, "actions": self.actions, "rewards": self.rewards}
        tensors |= {"lengths": self.lengths, "terminated": self.terminated, "truncated": self.truncated}
        if self.foregone is not None:
            tensors["foregone"] = self.foregone
        spec = None if self.action_spec is None else asdict(self.action_spec)
        facts = {"gamma": self.gamma, "info": self.info, "action_spec": spec, "summary": self.statistics().summary()}
        write_tensors(Path(path), tensors, facts)

    @classmethod
    def load(cls, path: Path | str, device: torch.device | str = "cpu", gamma: float | None = None) -> "Trajectories":
        """Read a file written by `save`; refuses files that are truncated, modified, or something else.

        `gamma` replaces the saved one.
        """
        path = Path(path)
        if path.exists():  # in memory a row also has timesteps, remaining and returns-to-go
            check_memory(path.stat().st_size, device)
        tensors, facts = read_tensors(path, required=_SAVED)
        saved, spec = facts.get("gamma", 1.0), facts.get("action_spec")
        try:
            action_spec = None if spec is None else config_from_dict(ActionSpec, spec)
            if isinstance(saved, bool) or not isinstance(saved, (int, float)) or not 0.0 < saved <= 1.0:
                raise ValueError("gamma must be a number in (0, 1]")
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{path}: its header is wrong ({error}); delete it and make it again") from None
        return cls.from_steps(
            *(tensors[name] for name in ("observations", "actions", "rewards")),
            lengths=tensors["lengths"],
            terminated=tensors["terminated"],
            truncated=tensors["truncated"],
            action_spec=action_spec,
            gamma=saved if gamma is None else gamma,
            info=facts.get("info"),
            device=device,
            foregone=tensors.get("foregone"),
            where=str(path),
        )

    # Internals.

    def _extend(self, steps: Steps) -> None:
        lengths, rewards = steps.lengths, steps.rewards.double()
        begins = lengths.cumsum(0) - lengths
        timesteps = torch.arange(len(steps)) - torch.repeat_interleave(begins, lengths)
        remaining = torch.repeat_interleave(lengths, lengths) - timesteps
        rows = {
            "observations": steps.observations,
            "actions": steps.actions,
            "rewards": steps.rewards,
            "timesteps": timesteps,
            "remaining": remaining,
            "terminal": torch.repeat_interleave(steps.terminated, lengths) & (remaining == 1),
            "returns_to_go": returns_to_go(rewards, remaining, self.gamma),
        }
        if steps.foregone is not None:
            rows["foregone"] = steps.foregone
        if self.annotation is not None:
            told = (steps.observations, steps.actions, steps.rewards)
            observations, actions, paid = (values.to(self.device) for values in told)
            foregone = None if steps.foregone is None else steps.foregone.to(self.device)
            rows |= self.annotation.annotate(observations, actions, paid, lengths, foregone)
        before = self._evicted + self.storage.count
        self.storage.extend(rows, len(steps))
        self.version += 1
        self._begins += (begins + before).tolist()
        self._lengths += lengths.tolist()
        self._returns += np.add.reduceat(rewards.numpy(), begins.numpy()).tolist()
        self._terminated += steps.terminated.tolist()
        self._truncated += steps.truncated.tolist()

    def _twin(self, storage: StepStorage, chosen: "list[int] | range") -> "Trajectories":
        """The chosen trajectories, whose steps are contiguous in this storage."""
        twin = object.__new__(Trajectories)
        twin.gamma, twin.action_spec, twin.info = self.gamma, self.action_spec, dict(self.info)
        twin.annotation = None if self.annotation is None else self.annotation.to(storage.device)
        twin.storage, twin.version, twin._evicted = storage, 0, 0
        twin._lengths = [self._lengths[i] for i in chosen]
        twin._begins = [0, *np.cumsum(twin._lengths).tolist()][: len(twin._lengths)]
        twin._returns = [self._returns[i] for i in chosen]
        twin._terminated = [self._terminated[i] for i in chosen]
        twin._truncated = [self._truncated[i] for i in chosen]
        return twin

    def _refuse_empty(self, what: str) -> None:
        if not len(self):
            raise DataError(f"{what}: the store holds no trajectory yet")


_SAVED = ("observations", "actions", "rewards", "lengths", "terminated", "truncated")


def _columns(obs_dim: int, action_dim: int | None, foregone: int | None) -> dict[str, Column]:
    """The columns of a step. `remaining` counts the steps to the trajectory's end, including the step itself.

    `terminal` is True at a trajectory's last step, if it ended in a terminal state.
    """
    columns = {
        "observations": Column((obs_dim,), torch.float32),
        "actions": Column((), torch.int64) if action_dim is None else Column((action_dim,), torch.float32),
        "rewards": Column((), torch.float32),
        "timesteps": Column((), torch.int32),
        "remaining": Column((), torch.int32),
        "terminal": Column((), torch.bool),
        "returns_to_go": Column((), torch.float32),
    }
    return columns if foregone is None else columns | {"foregone": Column((foregone,), torch.float32)}
