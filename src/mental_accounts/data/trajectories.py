"""One store of trajectories: flat tensors, one row per step, on the CPU or entirely on a GPU.

What it does, one call per line:

    store = Trajectories.from_steps(observations, actions, rewards, lengths=..., terminated=..., truncated=...)
    store.annotate(codebook, rule, reward_transform)      # codes and attractions of every step
    store.slice(3).returns_to_go                          # (T,), a view
    store.append(observations, actions, rewards, terminated=True)
    store.evict(1)                                        # the oldest
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mental_accounts.accounts import Books, Codebook, RewardTransform, UpdateRule
from mental_accounts.action_spec import ActionSpec
from mental_accounts.data.annotation import Annotation
from mental_accounts.data.data_checks import Steps, Values, checked_steps
from mental_accounts.data.endings import ENDING, ENDING_COLUMN, Endings, SeenAfter
from mental_accounts.data.final_steps import FinalSteps, checked_final, one_row
from mental_accounts.data.step_columns import columns_for, columns_of, rows_of_steps
from mental_accounts.data.storage import Column, StepStorage, check_memory
from mental_accounts.data.store_contents import StoreContents
from mental_accounts.data.trajectory_files import read_trajectories, write_trajectories
from mental_accounts.data.trajectory_table import TrajectoryTable
from mental_accounts.errors import DataError
from mental_accounts.spaces import ActionScale

TOLD = {"foregone": "foregone rewards", "action_masks": "action masks"}
"""Columns of what only some environments tell, and words for them."""


class Trajectories(StoreContents):
    """Whole trajectories, the oldest first.

    `gamma` discounts the returns-to-go, which are computed in hindsight over each whole trajectory. `action_spec` is
    the environment's action space, if known: actions outside it are refused. `info` describes the source of the data;
    it is saved too.

    Of trajectories that were cut off, the observation after the last step may be known: critics then learn from that
    step, too. It takes a row of its own for each of them, and memory only if there are any.
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
        final_observations: Values | None = None,
        final_masks: Values | None = None,
        where: str = "data",
    ) -> "Trajectories":
        """Concatenated whole trajectories: (N, obs), (N, act) or (N,), (N,); one length and flags for each.

        `foregone` (N, actions) are the rewards of all discrete actions at each step, if the environment told them
        (`info["foregone"]`); `action_masks` (N, actions) say which of them were allowed (`info["action_mask"]` before
        each step). `final_observations` (trajectories, obs) were seen after the last steps of those that did not
        terminate, with a row of NaN where that is not known; `final_masks` (trajectories, actions) are of the same
        moment. `where` names the data in errors. `capacity` is in steps; by default there is room for these only, and
        the store grows when more are appended.
        """
        steps = checked_steps(
            observations, actions, rewards, lengths, terminated, truncated, where=where, action_spec=action_spec,
            foregone=foregone, action_masks=action_masks,
        )  # fmt: skip
        final = checked_final(final_observations, final_masks, steps, action_spec, where)
        _check_gamma(gamma)
        storage = StepStorage(columns_for(steps), len(steps) if capacity is None else capacity, device)
        store = cls._around(storage, gamma, action_spec, info)
        store._extend(steps, final)
        return store

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
        final_observation: Values | None = None,
        final_mask: Values | None = None,
    ) -> None:
        """Append one trajectory: (T, obs), (T, act) or (T,), (T,). It is annotated like the others.

        `final_observation` (obs,) was seen after its last step, and `final_mask` (actions,) is of that moment; they
        count if it did not terminate. If there is no room after the newest, all trajectories move to the front; if
        there is none at all the store grows, unless its addresses are pinned.
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
        told = (one_row(final_observation), one_row(final_mask))
        self._extend(steps, checked_final(*told, steps, self.action_spec, "appended trajectory"))

    def evict(self, n: int = 1) -> None:
        """Remove the n oldest trajectories."""
        if not 0 <= n <= len(self):
            raise DataError(f"cannot evict {n} of {len(self)} trajectories")
        if self.endings is not None:
            self.endings.drop(self._table.endings[:n])
        self.storage.drop(self._table.drop(n))
        self.version += 1

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` steps in total; moves to new memory if there is less."""
        self.storage.reserve(capacity)
        self.version += 1

    def keep_endings(self, room: int) -> None:
        """Make room for what was seen after the last steps of so many trajectories; before addresses are pinned."""
        if self.endings is None:
            if self.storage.pinned:
                raise DataError(
                    "a final observation came, but the store has no room for any and its addresses are pinned for a "
                    "captured graph; make room with keep_endings before"
                )
            masks = self.storage.columns.get("action_masks")
            values = None if masks is None else masks.shape[1]
            self.storage.add(ENDING, ENDING_COLUMN)
            self.endings = Endings(self.observations.shape[1], values, device=self.device)
        self.endings.reserve(room)

    def pin_addresses(self) -> None:
        """Guarantee that no tensor moves from now on, for a CUDA graph that reads them: a full store is then an error.

        (Eager samplers look the tensors up at every call and need no such guarantee.)
        """
        self.storage.pinned = True
        if self.endings is not None:
            self.endings.pinned = True

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
            told = (self.foregone, self.action_masks, self.seen_after)
            made = annotation.annotate(seen, taken, paid, self.lengths, *told)
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
        begins = (self.first_rows - self.storage.first)[chosen]
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
        if name == "action_masks" and twin.endings is not None:
            twin.endings.action_masks = None
        return twin

    def allowing_all(self, values: int) -> "Trajectories":
        """The same trajectories with action masks that allow all of so many values; the store itself if it has any."""
        if self.action_masks is not None:
            return self
        twin = self.select(torch.arange(len(self)))
        twin.storage.add("action_masks", Column((values,), torch.bool))
        twin.storage.rows("action_masks").fill_(True)
        if twin.endings is not None:
            twin.endings.allow_all(values)
        return twin

    def to(self, device: torch.device | str) -> "Trajectories":
        """The store itself if it is on that device, else a copy there; raises first if memory is too small."""
        target = torch.empty(0, device=device).device
        if target == self.device or (target.type == self.device.type == "cpu"):
            return self
        twin = self._twin(self.storage.to(target), list(range(len(self))))
        if twin.endings is not None and self.endings is not None:
            twin.endings.reserve(self.endings.room)
        return twin

    # Files.

    def save(self, path: Path | str) -> None:
        """Write one safetensors file, atomically. Codes and attractions are not saved."""
        self._refuse_empty("save")
        tables = {"lengths": self.lengths, "terminated": self.terminated, "truncated": self.truncated}
        facts = {"gamma": self.gamma, "info": self.info, "summary": self.statistics().summary()}
        write_trajectories(Path(path), self.storage, tables, facts, self.action_spec, self._final())

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
        store._enter(steps, 0, found.final)
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
        self.annotation = self.endings = None
        self.version = 0
        """How often trajectories were added or removed, for those who remember where they are."""
        self._table = TrajectoryTable()

    def _extend(self, steps: Steps, final: FinalSteps | None) -> None:
        rows = rows_of_steps(steps, self.gamma)
        if self.annotation is not None:
            told = (steps.observations, steps.actions, steps.rewards)
            observations, actions, paid = (values.to(self.device) for values in told)
            foregone = None if steps.foregone is None else steps.foregone.to(self.device)
            allowed = None if steps.action_masks is None else steps.action_masks.to(self.device)
            after = None
            if final is not None:
                last = steps.lengths.cumsum(0)[final.trajectories] - 1
                after = SeenAfter(last.to(self.device), final.observations.to(self.device))
            rows |= self.annotation.annotate(observations, actions, paid, steps.lengths, foregone, allowed, after)
        if final is not None:  # what may be refused comes before anything is changed
            self._endings_for(final)
        before = self.storage.count
        self.storage.extend(rows, len(steps))
        self._enter(steps, before, final)

    def _endings_for(self, final: FinalSteps) -> Endings:
        """The endings, with room for these."""
        self.keep_endings(0)
        assert self.endings is not None
        self.endings.make_room(len(final))
        return self.endings

    def _enter(self, steps: Steps, before: int, final: FinalSteps | None) -> None:
        """Enter the trajectories of these steps, which lie behind `before` others; no last step has an ending yet."""
        endings = [0] * len(steps.lengths)
        if final is not None:
            rows = self._endings_for(final).enter(final)
            for place, row in zip(final.trajectories.tolist(), rows, strict=True):
                endings[place] = row
            last = steps.lengths.cumsum(0)[final.trajectories] - 1 + (self.storage.first + before)
            self._mark_endings(last, rows)
        self.version += 1
        self._table.enter(steps, before, endings)

    def _mark_endings(self, last: Tensor, rows: list[int]) -> None:
        """Write the rows of endings to the last steps of trajectories, which are these rows of the storage."""
        found = torch.tensor(rows, dtype=torch.int32).to(self.device)
        self.storage.columns[ENDING].index_copy_(0, last.to(self.device), found)

    def _twin(self, storage: StepStorage, chosen: list[int]) -> "Trajectories":
        """The chosen trajectories, whose steps are contiguous in this storage."""
        twin = self._around(storage, self.gamma, self.action_spec, self.info)
        twin.annotation = None if self.annotation is None else self.annotation.to(storage.device)
        twin._table = self._table.select(chosen)
        if self.endings is not None:
            rows = [row for row in (self._table.endings[i] for i in chosen) if row]
            twin.endings = self.endings.select(rows, storage.device)
            twin._mark_endings(twin.first_rows + twin.lengths - 1, twin._table.endings)
        return twin

    def _final(self) -> FinalSteps | None:
        """What is known of the ends of trajectories; on the CPU."""
        known, after = self.has_final, self.seen_after
        if after is None or not bool(known.any()):
            return None
        masks = self.final_masks
        return FinalSteps(
            known.nonzero().squeeze(-1), after.observations.cpu(), None if masks is None else masks.cpu()[known]
        )


def _check_gamma(gamma: float) -> None:
    if not 0.0 < gamma <= 1.0:
        raise DataError(f"gamma must be in (0, 1], got {gamma!r}")
