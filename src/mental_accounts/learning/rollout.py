"""Acting in environments: whole episodes, played in parallel."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mental_accounts.action_masks import random_action
from mental_accounts.errors import DivergenceError
from mental_accounts.learning.episodes import Episode
from mental_accounts.learning.parallel_envs import Environments
from mental_accounts.learning.seeds import derive
from mental_accounts.learning.stepping import Array, Board
from mental_accounts.policy import Actor
from mental_accounts.policy.evaluation_mode import in_evaluation_mode

TOLD = ("foregone", "action_masks")
"""What only some environments tell."""
BEFORE = {"observations", "action_masks"}
"""What is known before an action."""
FIRST_ROOM = 1024
"""Initial capacity of a log, in steps."""


def play(
    actor: Actor,
    environments: Environments,
    target_return: float,
    seed: int,
    *,
    on_step: Callable[[], None] = lambda: None,
) -> list[Episode]:
    """One episode in every environment, together.

    Everything random follows from `seed`. `on_step` is called before each step of all environments; it may raise.
    """
    environments.reset(_seeds(seed, len(environments)))
    actor.begin(target_return, derive(seed, "actions"))
    board = environments.board
    log = _Log(board)
    with in_evaluation_mode(actor.policy):
        while not log.over.all():
            on_step()
            actions = actor.act(board.observations, board.action_masks)
            if not np.isfinite(actions).all():
                raise DivergenceError(f"the policy's actions are no longer finite, in step {log.t}: training diverged")
            log.before_step()
            environments.step(actions, ~log.over, log.t)
            log.after_step()
            actions[:] = board.actions
            actor.record(board.rewards, log.over, actions, board.foregone)
    return log.episodes(actions.dtype)


def play_randomly(environments: Environments, seed: int) -> list[Episode]:
    """One episode of uniformly random (allowed) actions in every environment. They must all be in this process."""
    spaces = [environments.envs[i].action_space for i in range(len(environments))]
    for i, space in enumerate(spaces):
        space.seed(derive(seed, "actions", i))
    environments.reset(_seeds(seed, len(environments)))
    masks = environments.board.action_masks
    log = _Log(environments.board)
    while not log.over.all():
        log.before_step()
        if masks is None:
            actions = [space.sample() for space in spaces]
        else:
            actions = [random_action(space, mask) for space, mask in zip(spaces, masks, strict=True)]
        environments.step(np.stack(actions), ~log.over, log.t)
        log.after_step()
    return log.episodes(spaces[0].dtype)


def _seeds(seed: int, n: int) -> list[int]:
    return [derive(seed, "environment", i) for i in range(n)]


class _Log:
    """n unfinished episodes, recorded from the board. Its arrays double when they are full."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.t = 0
        self.over = np.zeros_like(board.active)
        self._lengths = np.zeros(len(self.over), dtype=np.int64)
        self._terminated, self._truncated = np.zeros_like(self.over), np.zeros_like(self.over)
        told = {"observations": board.observations, "actions": board.actions, "rewards": board.rewards}
        told |= {name: value for name in TOLD if (value := getattr(board, name)) is not None}
        self._columns = {name: np.empty((FIRST_ROOM, *value.shape), value.dtype) for name, value in told.items()}

    def before_step(self) -> None:
        if self.t == len(self._columns["rewards"]):
            self._columns = {
                name: np.concatenate([values, np.empty_like(values)]) for name, values in self._columns.items()
            }
        for name in BEFORE & self._columns.keys():
            self._columns[name][self.t] = getattr(self._board, name)

    def after_step(self) -> None:
        board = self._board
        for name, values in self._columns.items():
            if name not in BEFORE:
                values[self.t] = getattr(board, name)
        self.t += 1
        self._lengths += board.active
        self._terminated |= board.terminated
        self._truncated |= board.truncated
        np.logical_or(self._terminated, self._truncated, out=self.over)

    def episodes(self, action_type: Any) -> list[Episode]:
        columns = self._columns
        return [
            Episode(
                columns["observations"][:T, i].copy(),
                columns["actions"][:T, i].astype(action_type),
                columns["rewards"][:T, i].copy(),
                bool(self._terminated[i]),
                bool(self._truncated[i] and not self._terminated[i]),
                **{name: columns[name][:T, i].copy() for name in TOLD if name in columns},
                **self._seen_after(i),
            )
            for i, T in enumerate(self._lengths.tolist())
        ]

    def _seen_after(self, i: int) -> dict[str, Array]:
        """What was seen after the last step of an episode that was cut off; environments that are over keep it."""
        board = self._board
        if self._terminated[i] or not self._truncated[i]:
            return {}
        if board.final_masks is None:
            return {"final_observation": board.observations[i].copy()}
        if not board.final_masks[i].any():  # what could be done then is not known
            return {}
        return {"final_observation": board.observations[i].copy(), "final_mask": board.final_masks[i].copy()}
