"""Environments reset and stepped, each answer checked; in this process, or in one of its own.

`python stepping.py SOCKET MEMORY` is such a process. It runs by its path and imports NumPy and Gymnasium only: no torch
to wait for (unless an environment's own module brings it), and no need for the caller's script to guard its `__main__`,
as multiprocessing would have it. It is told when to act through the socket; what passes between policy and environments
lies on a `Board` in shared memory.
"""

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

from mental_accounts.errors import BrokenEnvironmentError

Array = NDArray[Any]
Environment = gymnasium.Env[Any, Any]

RESET, STEP = b"reset", b"step"
LARGEST_REWARD = 1e18
"""Returns of any length, and their squares, are then finite in float32."""
RAISED = (Exception, SystemExit)
"""What an environment may raise. One that exits is broken, and does not end the run without a word."""
_give_way = getattr(os, "sched_yield", lambda: time.sleep(0))  # not every system has it


def _place(error: BaseException) -> str:
    """Where an exception was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}"


def layout_of(n: int, env: Environment) -> np.dtype[Any]:
    """The memory of n environments like this one, as one record. Wide enough for any action to pass unchanged."""
    action = env.action_space
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
        ],
        align=True,
    )


class Board:
    """What passes between a policy and n environments. Whoever acts reads one half and writes the other."""

    def __init__(self, layout: np.dtype[Any], memory: Any = None) -> None:
        record = np.zeros(1, layout)[0] if memory is None else np.frombuffer(memory, layout, count=1)[0]
        self.seeds: Array = record["seeds"]  # (n,): for a reset
        self.t: Array = record["t"]  # (1,): the step, for errors
        self.active: Array = record["active"]  # (n,): which environments to step
        self.actions: Array = record["actions"]  # (n, dim) or (n,): chosen; after the step, those really taken
        self.observations: Array = record["observations"]  # (n, state)
        self.rewards: Array = record["rewards"]  # (n,)
        self.terminated: Array = record["terminated"]  # (n,)
        self.truncated: Array = record["truncated"]  # (n,)


def reset_all(envs: Mapping[int, Environment], board: Board) -> None:
    """Begin an episode in each of these environments, by its seed on the board."""
    for i, env in envs.items():
        seed = int(board.seeds[i])
        try:
            observation, _ = env.reset(seed=seed)
        except RAISED as error:
            raise BrokenEnvironmentError(
                f"environment {i} raised in reset(seed={seed}): {error!r} ({_place(error)})", i
            ) from error
        _see(observation, board, i, f"at reset(seed={seed})")


def step_all(envs: Mapping[int, Environment], board: Board) -> None:
    """One step of each of these environments that is active.

    An environment that may act otherwise than it is told says what it did in `info["action_taken"]`.
    """
    for i, env in envs.items():
        if not board.active[i]:
            continue
        action, space = board.actions[i], env.action_space
        if isinstance(space, gymnasium.spaces.Box):  # in the environment's own precision, and within its bounds there
            action = np.minimum(np.maximum(action.astype(space.dtype), space.low), space.high)
        try:
            observation, reward, terminated, truncated, info = env.step(action)
            paid = float(reward)
            board.actions[i] = info.get("action_taken", action)
        except RAISED as error:
            raise BrokenEnvironmentError(
                f"environment {i} raised in step {board.t[0]} with action {action}: {error!r} ({_place(error)})", i
            ) from error
        if not math.isfinite(paid):
            raise BrokenEnvironmentError(
                f"environment {i} gave the reward {reward} in step {board.t[0]}; rewards must be finite", i
            )
        if abs(paid) > LARGEST_REWARD:
            raise BrokenEnvironmentError(
                f"environment {i} gave the reward {reward} in step {board.t[0]}; rewards must be within "
                f"±{LARGEST_REWARD:g}, or their sums are too large for float32: scale them down", i
            )  # fmt: skip
        _see(observation, board, i, f"in step {board.t[0]}")
        board.rewards[i], board.terminated[i], board.truncated[i] = paid, bool(terminated), bool(truncated)


def _see(observation: Any, board: Board, i: int, when: str) -> None:
    try:
        seen = np.asarray(observation, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise BrokenEnvironmentError(f"environment {i} {when} gave an observation of no numbers: {error}", i) from error
    expected = board.observations.shape[1:]
    if seen.shape != expected:
        raise BrokenEnvironmentError(
            f"environment {i} {when} gave an observation of shape {seen.shape}; its space says {expected}", i
        )
    if not np.isfinite(seen).all():
        raise BrokenEnvironmentError(f"environment {i} {when} gave an observation that is not finite: {seen}", i)
    board.observations[i] = seen


def listen(connection: Connection, patience: float) -> bytes:
    """The next word: looked out for that many seconds, then waited for asleep. Waking up takes its time."""
    ear = select.poll()
    ear.register(connection, select.POLLIN)
    until = time.perf_counter() + patience
    while not ear.poll(0) and time.perf_counter() < until:
        _give_way()  # to whoever needs the core
    return connection.recv_bytes()


def serve(connection: Connection, memory: int) -> None:
    """Make environments as told, then reset and step them until the caller is gone.

    Each word is answered by an empty one, or by what went wrong as JSON.
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
