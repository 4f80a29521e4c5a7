"""n copies of an environment, stepped together: in this process, and in worker processes if that is faster."""

import contextlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import torch

from mental_accounts.data.shards import ONE_THREAD
from mental_accounts.errors import BrokenEnvironmentError
from mental_accounts.learning import stepping
from mental_accounts.learning.stepping import (
    RAISED,
    RESET,
    STEP,
    Array,
    Board,
    Environment,
    layout_of,
    listen,
    reset_all,
    step_all,
)
from mental_accounts.machine import usable_cores
from mental_accounts.module_paths import paths_for_workers


@dataclass(frozen=True)
class Pace:
    """Timing of worker processes."""

    round_trip: float
    """Seconds of overhead per step: sending the request and receiving the reply."""
    patience: float
    """Seconds that they poll between steps before they sleep. Waking up takes up to a quarter of a millisecond."""


TELLING = 20e-6
"""Seconds of overhead per additional process."""
PACES = {"cuda": Pace(100e-6, 1e-3), "cpu": Pace(2e-3, 50e-6)}
"""By the policy's device. On a CPU the policy uses the same cores, so polling would slow it down."""
MEASURED_STEPS = 20
MEASURED_SECONDS = 0.2
CLOSING_SECONDS = 5.0
"""Seconds that processes have to close their environments."""


class Environments:
    """Parallel environments, created once and used for every rollout of their kind.

    Each of `workers` processes takes an even share, and this one the rest; None: as many as save time, according to
    `useful_workers` and the `pace` of the policy's device. The episodes do not depend on it. If an environment cannot
    be made in another process, `say` is called and it is made here. With `foregone`, they report the rewards of all
    actions; with `masks`, which actions are allowed.
    """

    def __init__(
        self,
        make: Callable[[], Environment],
        n: int,
        workers: int | None = 0,
        say: Callable[[str], None] = lambda text: None,
        pace: Pace = PACES["cpu"],
        *,
        foregone: bool = False,
        masks: bool = False,
    ) -> None:
        self._make, self._n, self._say, self._pace = make, n, say, pace
        if workers is None:
            cores = min(usable_cores(), torch.get_num_threads())
            workers = useful_workers(n, _step_seconds(make), cores, pace.round_trip) if n > 1 and cores > 1 else 0
        shares = [list(map(int, share)) for share in np.array_split(np.arange(n), min(workers, n - 1) + 1)]
        self.envs = {i: make() for i in shares.pop()}
        self.workers: list[Worker] = []
        layout = layout_of(n, next(iter(self.envs.values())), foregone=foregone, masks=masks)
        self.board = Board(layout, self._start(shares, layout) if shares else None)
        self._begun = self._closed = False

    def __len__(self) -> int:
        return self._n

    def reset(self, seeds: Sequence[int]) -> Array:
        """Begin an episode in every environment; returns observations, (n, state), overwritten by the next step."""
        self._check_open()
        if not self._begun:
            self._begin()
        self.board.seeds[:] = seeds
        self._do(RESET)
        return self.board.observations

    def step(self, actions: Array, active: Array, t: int) -> Board:
        """One step of the active environments, (n,); t is for errors. Returns the results, overwritten by the next.

        Inactive environments keep their observation, and get no reward.
        """
        self._check_open()
        board = self.board
        board.actions[:] = actions
        board.active[:] = active
        board.t[0] = t
        for values in (board.rewards, board.terminated, board.truncated):
            values.fill(0)
        self._do(STEP)
        return board

    def close(self) -> None:
        """Close all of them, and end the processes."""
        self._closed = True
        for worker in self.workers:
            worker.connection.close()
        deadline = time.monotonic() + CLOSING_SECONDS
        for worker in self.workers:
            worker.end(deadline)
        for env in self.envs.values():
            env.close()
        self.workers, self.envs = [], {}

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("these environments are closed; create new ones")

    def _start(self, shares: list[list[int]], layout: np.dtype[Any]) -> Any:
        """Start processes for these shares; returns the shared memory, which has no name and needs no clean-up."""
        spec = next(iter(self.envs.values())).spec
        try:
            pickled = cloudpickle.dumps(spec)
        except Exception as error:
            self._say_alone(f"its specification cannot be pickled: {error!r}")
            self._make_here([i for share in shares for i in share])
            return None
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(layout.itemsize)
            self.workers = [Worker(share, layout, pickled, file.fileno(), self._pace.patience) for share in shares]
            return mmap.mmap(file.fileno(), layout.itemsize)

    def _begin(self) -> None:
        """Wait until the workers are ready; environments that a worker could not make are made here."""
        for worker in list(self.workers):
            problem = worker.receive()
            if problem is not None:
                self._say_alone(str(problem))
                self.workers.remove(worker)
                worker.connection.close()
                worker.end(time.monotonic() + CLOSING_SECONDS)
                self._make_here(worker.places)
        self._begun = True

    def _make_here(self, places: list[int]) -> None:
        self.envs = dict(sorted((self.envs | {i: self._make() for i in places}).items()))

    def _say_alone(self, why: str) -> None:
        self._say(f"environments cannot be made in a process of their own ({why}); they are stepped in this one")

    def _do(self, word: bytes) -> None:
        """Run one command everywhere. Once all workers have replied, raise the first broken environment's error."""
        problems: list[BrokenEnvironmentError] = []
        try:
            for worker in self.workers:
                worker.send(word)
            try:
                (step_all if word == STEP else reset_all)(self.envs, self.board)
            except BrokenEnvironmentError as error:
                problems.append(error)
            problems += [problem for worker in self.workers if (problem := worker.receive()) is not None]
        except BaseException:  # Ctrl-C: some replies may never be read
            self.close()
            raise
        if problems:
            raise min(problems, key=lambda problem: problem.place)


class Worker:
    """A process that steps some of the environments."""

    def __init__(self, places: list[int], layout: np.dtype[Any], spec: bytes, memory: int, patience: float) -> None:
        self.places, self._patience = places, patience
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # -P: modules of this folder must not shadow others
                [sys.executable, "-P", "-W", "ignore", stepping.__file__, str(theirs.fileno()), str(memory)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # our own standard output may be reserved for replies
                pass_fds=(theirs.fileno(), memory),
                env=os.environ | ONE_THREAD,
                start_new_session=True,  # so that Ctrl-C reaches only us
            )
        self.connection = Connection(ours.detach())
        with contextlib.suppress(OSError):  # if it has already ended, `receive` reports it
            self.connection.send((paths_for_workers(), layout, spec, places, patience))

    def send(self, word: bytes) -> None:
        """Send a command."""
        with contextlib.suppress(BrokenPipeError):
            self.connection.send_bytes(word)

    def receive(self) -> BrokenEnvironmentError | None:
        """Wait for the reply; returns what went wrong, if anything."""
        try:
            answer = listen(self.connection, self._patience)
        except (EOFError, ConnectionError):
            self.end(time.monotonic() + CLOSING_SECONDS)
            code = self._process.wait()
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            who = f"environments {self.places[0]} to {self.places[-1]}"
            return BrokenEnvironmentError(f"the process that stepped {who} ended with {how}", self.places[0])
        if not answer:
            return None
        failure = json.loads(answer)
        problem = BrokenEnvironmentError(failure["message"], failure["place"])
        problem.add_note(failure["traceback"])
        return problem

    def end(self, deadline: float) -> None:
        """Wait for the process to exit after its connection was closed; kill it at the deadline (monotonic seconds)."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def useful_workers(n: int, step_seconds: float, cores: int, round_trip: float) -> int:
    """How many extra processes step n environments fastest; 0 if they save less than a third of the time."""

    def seconds(workers: int) -> float:
        return -(-n // (workers + 1)) * step_seconds + (round_trip + workers * TELLING if workers else 0.0)

    best = min(range(min(n, cores)), key=seconds)
    return best if seconds(best) < seconds(0) * 2 / 3 else 0


def _step_seconds(make: Callable[[], Environment]) -> float:
    """The duration of a step, measured on a few random ones in a throwaway environment; 0 if it breaks."""
    env = make()
    try:
        env.action_space.seed(0)
        env.reset(seed=0)
        actions = [env.action_space.sample() for _ in range(MEASURED_STEPS)]
        spent: list[float] = []
        for action in actions:
            begun = time.perf_counter()
            _, _, terminated, truncated, _ = env.step(action)
            spent.append(time.perf_counter() - begun)
            if terminated or truncated or sum(spent) > MEASURED_SECONDS:
                break
        return float(np.median(spent))
    except RAISED:  # reported when it is played
        return 0.0
    finally:
        env.close()
