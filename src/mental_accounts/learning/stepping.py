"""Resetting and stepping environments, with every result checked; in this process or in a worker.

`python stepping.py SOCKET MEMORY` is a worker. It is run by its path and imports only NumPy and Gymnasium: no waiting
for torch (unless an environment's own module imports it), and no need for the caller's script to guard its `__main__`,
as with multiprocessing. Commands arrive through the socket; actions and results are exchanged on a `Board` in shared
memory.
"""

import contextlib
import json
import math
import mmap
import os
import pickle
import select
import sys
import time
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from mental_accounts.action_masks import checked_masks, choices_of, mask_of
from mental_accounts.errors import BrokenEnvironmentError

Array = NDArray[Any]
Environment = gymnasium.Env[Any, Any]

RESET, STEP = b"reset", b"step"
LARGEST_REWARD = 1e18
"""With this limit, returns of any length and their squares are finite in float32."""
RAISED = (Exception, SystemExit)
"""What an environment may raise. An environment that calls exit counts as broken; it must not end the run silently."""
_yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))  # not every system has it


def _place(error: BaseException) -> str:
    """Where an exception was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}"


def layout_of(n: int, env: Environment, *, foregone: bool = False, masks: bool = False) -> np.dtype[Any]:
    """The shared memory of n environments like this one, as one record; wide enough to hold any action exactly.

    With `foregone`, it has room for the rewards of all (discrete) actions; with `masks`, for which of them are allowed.
    """
    action = env.action_space
    told: list[tuple[str, Any, tuple[int, ...]]] = []
    if foregone:
        told.append(("foregone", np.float32, (n, int(action.n))))  # type: ignore[attr-defined]
    if masks:
        told += [(name, np.bool_, (n, sum(choices_of(action)))) for name in ("action_masks", "final_masks")]
    is_box = isinstance(action, gymnasium.spaces.Box)
    return np.dtype(
        [
            ("actions", np.float64 if is_box else np.int64, (n, *(action.shape or ()))),
            ("seeds", np.int64, (n,)),
            ("t", np.int64, (1,)),
            ("observations", np.float32, (n, *(env.observation_space.shape or ()))),
            ("rewards", np.float32, (n,)),
            ("active", np.bool_, (n,)),
            ("terminated", np.bool_, (n,)),
            ("truncated", np.bool_, (n,)),
            *told,
        ],
        align=True,
    )


class Board:
    """The data exchanged between a policy and n environments: each side reads what the other writes."""

    def __init__(self, layout: np.dtype[Any], memory: Any = None) -> None:
        record = np.zeros(1, layout)[0] if memory is None else np.frombuffer(memory, layout, count=1)[0]
        self.seeds: Array = record["seeds"]  # (n,): for a reset
        self.t: Array = record["t"]  # (1,): the step, for errors
        self.active: Array = record["active"]  # (n,): which environments to step
        self.actions: Array = record["actions"]  # (n, dim) or (n,): chosen; after the step, those actually taken
        self.observations: Array = record["observations"]  # (n, state)
        self.rewards: Array = record["rewards"]  # (n,)
        self.terminated: Array = record["terminated"]  # (n,)
        self.truncated: Array = record["truncated"]  # (n,)
        self.foregone: Array | None = None  # (n, actions): the rewards of all actions, where they are wanted
        if "foregone" in (layout.names or ()):
            self.foregone = record["foregone"]
        self.action_masks: Array | None = None  # (n, values): the actions allowed next, where environments tell
        self.final_masks: Array | None = None  # (n, values): those after an episode was cut off; none where not told
        if "action_masks" in (layout.names or ()):
            self.action_masks, self.final_masks = record["action_masks"], record["final_masks"]


def reset_all(envs: Mapping[int, Environment], board: Board) -> None:
    """Begin an episode in each of these environments, with its seed on the board."""
    for i, env in envs.items():
        seed = int(board.seeds[i])
        try:
            observation, info = env.reset(seed=seed)
        except RAISED as error:
            raise BrokenEnvironmentError(
                f"environment {i} raised in reset(seed={seed}): {error!r} ({_place(error)})", i
            ) from error
        _write_observation(observation, board, i, f"at reset(seed={seed})")
        if board.action_masks is not None and board.final_masks is not None:
            _write_mask(env, info, board.action_masks, i, f"at reset(seed={seed})")
            board.final_masks[i] = False


def step_all(envs: Mapping[int, Environment], board: Board) -> None:
    """One step of each of these environments that is active.

    An environment that may replace the agent's action reports the action taken in `info["action_taken"]`; where the
    rewards of all actions are wanted, it reports them in `info["foregone"]`. Masks are described in action_masks.py.
    """
    for i, env in envs.items():
        if not board.active[i]:
            continue
        action, space = board.actions[i], env.action_space
        if isinstance(space, gymnasium.spaces.Box):  # in the environment's own precision, and within its bounds
            action = np.minimum(np.maximum(action.astype(space.dtype), space.low), space.high)
        elif action.ndim:
            action = action.astype(space.dtype)
        try:
            observation, reward, terminated, truncated, info = env.step(action)
            value = float(reward)
            board.actions[i] = info.get("action_taken", action)
        except RAISED as error:
            raise BrokenEnvironmentError(
                f"environment {i} raised in step {board.t[0]} with action {action}: {error!r} ({_place(error)})", i
            ) from error
        if not math.isfinite(value):
            raise BrokenEnvironmentError(
                f"environment {i} gave the reward {reward} in step {board.t[0]}; rewards must be finite", i
            )
        if abs(value) > LARGEST_REWARD:
            raise BrokenEnvironmentError(
                f"environment {i} gave the reward {reward} in step {board.t[0]}; rewards must be within "
                f"±{LARGEST_REWARD:g}, or their sums are too large for float32: scale them down", i
            )  # fmt: skip
        _write_observation(observation, board, i, f"in step {board.t[0]}")
        if board.foregone is not None:
            _write_foregone(info.get("foregone"), board.foregone, i, f"in step {board.t[0]}")
        if board.action_masks is not None and board.final_masks is not None:
            if not (terminated or truncated):
                _write_mask(env, info, board.action_masks, i, f"in step {board.t[0]}")
            elif not terminated:  # nobody acts on it, so an environment need not tell
                with contextlib.suppress(*RAISED):
                    _write_mask(env, info, board.final_masks, i, f"in step {board.t[0]}")
        board.rewards[i], board.terminated[i], board.truncated[i] = value, bool(terminated), bool(truncated)


def _write_observation(observation: Any, board: Board, i: int, when: str) -> None:
    try:
        values = np.asarray(observation, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise BrokenEnvironmentError(f"environment {i} {when} gave a non-numeric observation: {error}", i) from error
    expected = board.observations.shape[1:]
    if values.shape != expected:
        raise BrokenEnvironmentError(
            f"environment {i} {when} gave an observation of shape {values.shape}; its space says {expected}", i
        )
    if not np.isfinite(values).all():
        raise BrokenEnvironmentError(f"environment {i} {when} gave an observation that is not finite: {values}", i)
    board.observations[i] = values


def _write_foregone(told: Any, foregone: Array, i: int, when: str) -> None:
    try:
        values = np.asarray(told, dtype=np.float32)
    except (TypeError, ValueError):
        values = np.full(0, np.nan, np.float32)
    if values.shape != foregone.shape[1:] or not np.isfinite(values).all():
        raise BrokenEnvironmentError(
            f'environment {i} {when} must report the rewards of all {foregone.shape[1]} actions in info["foregone"], '
            f"since accounts.foregone is set; got {told!r}", i
        )  # fmt: skip
    foregone[i] = values


def _write_mask(env: Environment, info: Mapping[str, Any], masks: Array, i: int, when: str) -> None:
    told = mask_of(env, info)
    try:
        if told is None:
            raise ValueError('there is none, neither in info["action_mask"] nor by action_masks()')
        masks[i] = checked_masks(told, choices_of(env.action_space))
    except ValueError as error:
        raise BrokenEnvironmentError(f"environment {i} {when} must say which actions are allowed: {error}", i) from None


def listen(connection: Connection, patience: float) -> bytes:
    """The next command: polled for `patience` seconds, then waited for asleep, since waking up takes time."""
    ear = select.poll()
    ear.register(connection, select.POLLIN)
    until = time.perf_counter() + patience
    while not ear.poll(0) and time.perf_counter() < until:
        _yield_core()  # to any process that needs it
    return connection.recv_bytes()


def serve(connection: Connection, memory: int) -> None:
    """Make the requested environments, then reset and step them until the caller is gone.

    The reply to each command is empty, or what went wrong, as JSON.
    """
    sys.path[:], layout, spec, places, patience = connection.recv()
    board = Board(layout, mmap.mmap(memory, 0))
    envs: dict[int, Environment] = {}
    word = b"make"
    try:
        while True:
            problem = b""
            try:
                if word == STEP:
                    step_all(envs, board)
                elif word == RESET:
                    reset_all(envs, board)
                else:
                    envs |= {i: gymnasium.make(pickle.loads(spec)) for i in places}
            except RAISED as error:
                place = error.place if isinstance(error, BrokenEnvironmentError) else places[0]
                text = {"message": str(error) or repr(error), "place": place, "traceback": traceback.format_exc()}
                problem = json.dumps(text).encode()
            connection.send_bytes(problem)
            word = listen(connection, patience)
    except (EOFError, OSError):  # the caller has closed, or died
        for env in envs.values():
            env.close()


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
