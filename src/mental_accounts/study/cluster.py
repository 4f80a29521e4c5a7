"""Runs as tasks on a Ray cluster: no shared disk, data made once per node, and a lost node's runs continue elsewhere.

Ray schedules and retries. A task works in a folder on its node and sends that folder back whenever the run has written
a checkpoint; the mailbox, an actor on the caller's machine, writes it to the caller's run folder. A task that is
started again, because its node was lost, fetches that folder from the mailbox and resumes.
"""

import contextlib
import fcntl
import io
import shutil
import socket
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mental_accounts.config import TrainConfig
from mental_accounts.data.tasks import load_task
from mental_accounts.data.tensor_files import cache_folder
from mental_accounts.errors import UsageError
from mental_accounts.extras import how_to_install
from mental_accounts.learning.events import from_plain
from mental_accounts.study.plan import Job
from mental_accounts.study.run_process import Failed
from mental_accounts.study.study_view import StudyView
from mental_accounts.study.worker import Worker

SENT_SECONDS = 2.0
"""Seconds between a task's checks for a new checkpoint to send."""
RETRIES = 10
"""How many lost nodes a run can survive."""
KEPT_EVENTS = 20
"""Events kept per run, in addition to warnings, until they are read."""
SKIPPED = (".lock", "tensorboard")


class RayLauncher:
    """Runs jobs on a Ray cluster."""

    def __init__(self, address: str | None, cpus: float, gpus: float) -> None:
        try:
            import ray  # an extra
        except ImportError as error:
            raise UsageError(f"--launcher ray needs Ray: {how_to_install('ray')}") from error
        self.ray: Any = ray
        self.address, self.cpus, self.gpus = address, cpus, gpus

    def run(self, jobs: Sequence[Job], view: StudyView) -> dict[str, str]:
        """Run them all; returns the errors, by the name of the run."""
        ray = self.ray
        started = not ray.is_initialized()
        if self.address is not None:
            _check_address(self.address)
        try:
            if started:
                ray.init(address=self.address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"there is no Ray cluster at {self.address}: {error}; where the cluster asks for a token, set "
                "RAY_AUTH_MODE=token"
            ) from error
        try:
            self._check_room()
            return self._run(jobs, view)
        finally:
            if started:
                ray.shutdown()

    def _check_room(self) -> None:
        """Refuse resources that no node has: the task would wait forever."""
        most = {
            kind: max((node["Resources"].get(kind, 0.0) for node in self.ray.nodes() if node["Alive"]), default=0.0)
            for kind in ("CPU", "GPU")
        }
        for kind, wanted in (("CPU", self.cpus), ("GPU", self.gpus)):
            if wanted > most[kind]:
                raise UsageError(
                    f"a run needs {wanted:g} {kind}, but no node of the cluster has more than {most[kind]:g}; "
                    f"lower --{kind.lower()}s"
                )

    def _run(self, jobs: Sequence[Job], view: StudyView) -> dict[str, str]:
        ray = self.ray
        here = ray.get_runtime_context().get_node_id()
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        mailbox = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=strategy).remote()
        task = ray.remote(run_remotely).options(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES, retry_exceptions=False
        )
        waiting = {}
        for job in jobs:
            view.begins(job)
            waiting[task.remote(mailbox, str(job.path), job.config.to_dict())] = job
        problems: dict[str, str] = {}
        try:
            while waiting:
                done, _ = ray.wait(list(waiting), timeout=1.0)
                events = ray.get(mailbox.heard.remote())
                for job in waiting.values():
                    for values in events.get(str(job.path), ()):
                        event = from_plain(values)
                        if event is not None:
                            view.hears(job, event)
                for reference in done:
                    job = waiting.pop(reference)
                    try:
                        problem = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        problem = " ".join(str(error).split())
                    view.ends(job, problem)
                    if problem is not None:
                        problems[job.name] = problem
        except BaseException:
            for reference in waiting:
                ray.cancel(reference, force=True)
            raise
        return problems


def _check_address(address: str) -> None:
    """Fail at once if there is no cluster at this address; Ray would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local") or not port.isdigit():
        return
    try:
        socket.create_connection((host or "127.0.0.1", int(port)), timeout=10).close()
    except OSError as error:
        raise UsageError(f"there is no Ray cluster at {address}: {error}; start one: ray start --head") from error


class Mailbox:
    """On the caller's machine: keeps the caller's run folders up to date."""

    def __init__(self) -> None:
        self._unread: dict[str, list[dict[str, Any]]] = {}

    def tell(self, path: str, what: dict[str, Any]) -> None:
        """Add an event of a run. Every warning is kept, and the last of the other events."""
        events = [*self._unread.get(path, []), what]
        passing = [item for item in events if item.get("kind") != "warning"]
        gone = passing[:-KEPT_EVENTS]
        self._unread[path] = [item for item in events if not any(item is old for old in gone)]

    def heard(self) -> dict[str, list[dict[str, Any]]]:
        """The events since the last call."""
        events, self._unread = self._unread, {}
        return events

    def put(self, path: str, packed: bytes) -> None:
        """Replace the caller's copy of a run folder, atomically."""
        target = Path(path)
        fresh = target.with_name(f".{target.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        unpack(packed, fresh)
        old = target.with_name(f".{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        fresh.rename(target)
        shutil.rmtree(old, ignore_errors=True)

    def get(self, path: str) -> bytes:
        """The caller's copy of a run folder."""
        target = Path(path)
        old = target.with_name(f".{target.name}.old")
        return pack(target if target.exists() or not old.exists() else old)  # `put` may have been interrupted


def run_remotely(mailbox: Any, path: str, config: dict[str, Any]) -> str | None:
    """A Ray task: one run in a folder on this node, resumed from the mailbox's copy; returns the error, if any."""
    import ray

    settings = TrainConfig.from_dict(config)
    if settings.task is not None:
        try:
            with _one_at_a_time(f"{settings.task}-{settings.data_steps}-{settings.data_seed}"):
                load_task(settings.task, settings.data_steps, settings.data_seed)
        except (OSError, ValueError, ImportError) as error:
            return f"its data cannot be made: {error}"
    with tempfile.TemporaryDirectory(prefix="mental-accounts-") as place:
        folder = Path(place) / "run"
        unpack(ray.get(mailbox.get.remote(path)), folder)
        assigned: dict[str, float] = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
        worker = _worker(max(1, int(assigned.get("CPU", 1))))
        outcome: list[Failed | None] = []
        made = threading.Thread(
            target=lambda: outcome.append(worker.run(folder, partial(mailbox.tell.remote, path))), daemon=True
        )
        made.start()
        sent = ""
        try:
            while made.is_alive():
                made.join(SENT_SECONDS)
                sent = _send(mailbox, path, folder, sent)
        except BaseException:
            worker.kill()
            raise
        ray.get(mailbox.put.remote(path, pack(folder)))
        problem = outcome[0]
        return None if problem is None else problem.error


_WORKERS: dict[int, Worker] = {}
"""The worker of this process of Ray's, which makes many tasks, by its number of threads."""


def _worker(threads: int) -> Worker:
    return _WORKERS.setdefault(threads, Worker(threads))


def _send(mailbox: Any, path: str, folder: Path, sent: str) -> str:
    """Send the folder, if its run has written a new checkpoint."""
    import ray

    with contextlib.suppress(OSError):  # a checkpoint may be replaced while it is read; the next one is then sent
        latest = max((str(item.stat().st_mtime_ns) for item in folder.glob("checkpoint/*/state.json")), default="")
        if latest == sent:
            return sent
        packed = pack(folder)
        ray.get(mailbox.put.remote(path, packed))
        return latest
    return sent


@contextlib.contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Only one task per node makes the data; the others wait, and then find them."""
    place = cache_folder() / "locks"
    place.mkdir(parents=True, exist_ok=True)
    with (place / f"{name.replace('/', '-')}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pack(folder: Path) -> bytes:
    """A run folder as bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for item in sorted(folder.rglob("*")):
            inside = item.relative_to(folder)
            if item.is_file() and inside.parts[0] not in SKIPPED:
                archive.add(item, arcname=str(inside))
    return buffer.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """The inverse of `pack`."""
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
