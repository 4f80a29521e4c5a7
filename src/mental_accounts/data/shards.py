"""Shards of rollouts, played by several processes at once; finished shards are files, and are never played again."""

import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from mental_accounts.data import behaviour_worker
from mental_accounts.data.behaviour_worker import Shard
from mental_accounts.errors import DataError
from mental_accounts.files import whole_file
from mental_accounts.machine import usable_cores

Arrays = dict[str, NDArray[Any]]

ARRAYS = {"observations", "actions", "rewards", "lengths", "terminated", "truncated"}
"""Of a whole shard."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def play_shards(
    shards: Sequence[Shard], folder: Path, workers: int | None, advance: Callable[[int], None]
) -> list[Arrays]:
    """Play the shards missing from `folder`, `workers` at a time (None: one per core); the arrays of all, in order."""
    paths = [folder / f"shard-{i:05d}.safetensors" for i in range(len(shards))]
    found = [_read(path) for path in paths]
    missing = [i for i, arrays in enumerate(found) if arrays is None]
    advance(sum(shards[i].steps for i in range(len(shards)) if found[i] is not None))
    count = min(workers or usable_cores(), len(missing))
    stop = Event()
    left = deque(missing)  # its popleft is safe between threads

    def work() -> None:
        with Worker() as worker:
            while not stop.is_set():
                try:
                    i = left.popleft()
                except IndexError:
                    return
                try:
                    worker.play(shards[i], paths[i], advance)
                except BaseException:
                    stop.set()
                    raise
                found[i] = _read(paths[i])

    if count:
        with ThreadPoolExecutor(count) as pool:
            futures = [pool.submit(work) for _ in range(count)]
            try:
                for future in futures:
                    future.result()
            except BaseException:  # Ctrl-C too: unfinished shards are dropped, finished ones are kept
                stop.set()
                raise
    done = [arrays for arrays in found if arrays is not None]
    if len(done) != len(shards):
        raise OSError(f"{folder}: {len(shards) - len(done)} shards could not be read back")
    return done


class Worker:
    """One process that plays shards; a context manager that ends it."""

    def __enter__(self) -> "Worker":
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            # -P: this folder has a minari.py, which must not shadow Minari
            [sys.executable, "-P", behaviour_worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | ONE_THREAD,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def play(self, shard: Shard, path: Path, advance: Callable[[int], None]) -> None:
        """Play one shard; its file is written atomically."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with whole_file(path) as temporary:
            reported = 0
            try:
                stdin.write(behaviour_worker.request(shard, temporary) + "\n")
                stdin.flush()
                for line in stdout:
                    answer = json.loads(line)
                    if "error" in answer:
                        raise DataError(f"a rollout of {shard.env_id} failed ({answer['error']}); {_RESUME}")
                    if "done" in answer:
                        advance(shard.steps - reported)
                        return
                    steps = min(answer["steps"], shard.steps - reported)
                    advance(steps)
                    reported += steps
            except BrokenPipeError:
                pass
            raise DataError(f"a process that played {shard.env_id} died ({self._last_output()}); {_RESUME}")

    def _last_output(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return f"exit code {code}" + (f": {lines[-1]}" if lines else "")


_RESUME = "finished shards are kept; run the same command again to continue"


def _read(path: Path) -> Arrays | None:
    """A finished shard, or None if it is missing or incomplete."""
    if not path.exists():
        return None
    try:
        arrays: Arrays = load_file(path)
    except SafetensorError:
        arrays = {}
    if ARRAYS <= arrays.keys():
        return arrays
    path.unlink(missing_ok=True)
    return None
