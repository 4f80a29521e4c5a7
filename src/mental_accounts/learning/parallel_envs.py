"""The same environment n times, stepped together: in this process, and in others beside it where that is faster."""

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
    """How other processes keep up with a policy."""

    round_trip: float
    """Seconds that it takes to have them do a step and to hear of it, beside the step itself."""
    patience: float
    """Seconds that they stay awake between steps. Waking up takes up to a quarter of a millisecond."""


TELLING = 20e-6
"""Seconds that each process more takes to be told and heard."""
PACES = {"cuda": Pace(100e-6, 1e-3), "cpu": Pace(2e-3, 50e-6)}
"""By the policy's device. On a CPU the policy computes on the same cores: who stays awake there is in its way."""
MEASURED_STEPS = 20
MEASURED_SECONDS = 0.2
CLOSING_SECONDS = 5.0
"""How long processes get to close their environments."""


class Environments:
    """Made once, used for every rollout of its kind.

    `workers` processes take an even share each, and this one the rest; None: as many as pay, by `useful_workers`, at
    the `pace` of the policy's device. The episodes are the same. `say` is told where an environment cannot be made in
    another process; it is then made here.
    """

    def __init__(
        self,
        make: Callable[[], Environment],
        n: int,
        workers: int | None = 0,
        say: Callable[[str], None] = lambda text: None,
        pace: Pace = PACES["cpu"],
    ) -> None:
        self._make, self._n, self._say, self._pace = make, n, say, pace
        if workers is None:
            cores = min(usable_cores(), torch.get_num_threads())
            workers = useful_workers(n, _step_seconds(make), cores, pace.round_trip) if n > 1 and cores > 1 else 0
        shares = [list(map(int, share)) for share in np.array_split(np.arange(n), min(workers, n - 1) + 1)]
        self.envs = {i: make() for i in shares.pop()}
        self.workers: list[Worker] = []
        layout = layout_of(n, next(iter(self.envs.values())))
        self.board = Board(layout, self._start(shares, layout) if shares else None)
        self._begun = self._closed = False

    def __len__(self) -> int:
        return self._n

    def reset(self, seeds: Sequence[int]) -> Array:
        """Begin an episode in every environment: what they show, (n, state), written over by the next step."""
        self._check_open()
        if not self._begun:
            self._begin()
        self.board.seeds[:] = seeds
        self._do(RESET)
        return self.board.observations

    def step(self, actions: Array, active: Array, t: int) -> Board:
        """One step of the active environments, (n,); t is named in errors. What came of it, written over by the next.

        Those that are not active keep their observation, and earn nothing.
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
            raise RuntimeError("these environments are closed; make them anew")

    def _start(self, shares: list[list[int]], layout: np.dtype[Any]) -> Any:
        """Processes for these shares, and the memory they share with us. It has no name: it goes with them."""
        spec = next(iter(self.envs.values())).spec
        try:
            told = cloudpickle.dumps(spec)
        except Exception as error:
            self._say_alone(f"its specification cannot be pickled: {error!r}")
            self._make_here([i for share in shares for i in share])
            return None
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(layout.itemsize)
            self.workers = [Worker(share, layout, told, file.fileno(), self._pace.patience) for share in shares]
            return mmap.mmap(file.fileno(), layout.itemsize)

    def _begin(self) -> None:
        """Wait until the other processes are ready; what one of them could not make is made here."""
        for worker in list(self.workers):
            problem = worker.hear()
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
        """The same everywhere. The first environment that is broken is named, once all processes have answered."""
        problems: list[BrokenEnvironmentError] = []
        try:
            for worker in self.workers:
                worker.tell(word)
            try:
                (step_all if word == STEP else reset_all)(self.envs, self.board)
            except BrokenEnvironmentError as error:
                problems.append(error)
            problems += [problem for worker in self.workers if (problem := worker.hear()) is not None]
        except BaseException:  # Ctrl-C: answers may be under way that nobody waits for
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
                # -P: modules of this folder must not hide others
                [sys.executable, "-P", "-W", "ignore", stepping.__file__, str(theirs.fileno()), str(memory)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # ours may be for answers alone
                pass_fds=(theirs.fileno(), memory),
                env=os.environ | ONE_THREAD,
                start_new_session=True,  # Ctrl-C reaches us alone
            )
        self.connection = Connection(ours.detach())
        with contextlib.suppress(OSError):  # where it has ended already, `hear` says so
            self.connection.send((paths_for_workers(), layout, spec, places, patience))

    def tell(self, word: bytes) -> None:
        """Have it act."""
        with contextlib.suppress(BrokenPipeError):
            self.connection.send_bytes(word)

    def hear(self) -> BrokenEnvironmentError | None:
        """Wait until it has acted; what went wrong, if anything did."""
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
        told = json.loads(answer)
        problem = BrokenEnvironmentError(told["message"], told["place"])
        problem.add_note(told["traceback"])
        return problem

    def end(self, deadline: float) -> None:
        """See to it that it ends, once the connection is closed: by itself until then (monotonic seconds), or not."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def useful_workers(n: int, step_seconds: float, cores: int, round_trip: float) -> int:
    """How many processes beside this one step n environments the fastest; 0 where they save less than a third."""

    def seconds(workers: int) -> float:
        return -(-n // (workers + 1)) * step_seconds + (round_trip + workers * TELLING if workers else 0.0)

    best = min(range(min(n, cores)), key=seconds)
    return best if seconds(best) < seconds(0) * 2 / 3 else 0


def _step_seconds(make: Callable[[], Environment]) -> float:
    """What a step takes, by a few random ones in an environment that is not used again; 0 where it breaks."""
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
    except RAISED:  # named when it is played
        return 0.0
    finally:
        env.close()
