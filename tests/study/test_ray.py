"""A Ray cluster of two nodes on this machine; one of them dies in the middle of a comparison."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mental_accounts.config import TrainConfig
from mental_accounts.study.cluster import Mailbox, pack, unpack
from tests.fresh_process import FreshProcess, command

ray = pytest.importorskip("ray")

SETTINGS = [
    "pretrain_iterations=1", "updates_per_pretrain_iteration=60", "online_iterations=5", "updates_per_iteration=100",
    "eval_every=1", "eval_episodes=2", "hidden=16", "layers=1", "heads=1", "context_length=4", "device=cpu",
    "precision=float32", "batch_size=16", "pretrain_eval_every=1", "checkpoint_seconds=0.2",
    "target_return=1e6",  # which runs warn of
]  # fmt: skip


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


class Cluster:
    """Two `ray start`, each with resources and a temporary folder of its own."""

    def __init__(self, place: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        port = self.address.rpartition(":")[2]
        self.start("--head", f"--port={port}", f"--temp-dir={place}", "--include-dashboard=false", "--num-cpus=1")
        self.start(f"--address={self.address}", "--num-cpus=1")
        self.wait()

    def wait(self) -> None:
        """Until both nodes are there."""
        count = "sum(node['Alive'] for node in ray.nodes())"
        code = f"import ray; ray.init(address='{self.address}', log_to_driver=False); print('nodes', {count})"
        until = time.monotonic() + 200
        while time.monotonic() < until:
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            if "nodes 2" in done.stdout:
                return
            time.sleep(0.5)
        raise RuntimeError(f"the cluster did not start: {done.stderr[-500:]}")

    def start(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--node-ip-address=127.0.0.1"]
        command += ["--disable-usage-stats", "--object-store-memory=100000000", *arguments]
        environment = os.environ | {"RAY_health_check_period_ms": "500"}
        log = subprocess.DEVNULL
        self.nodes.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment))

    def kill(self, node: int) -> None:
        """All processes of a node at once, as when a machine loses power."""
        process = self.nodes[node]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(autouse=True)
def without_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine's Ray does otherwise."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


@pytest.fixture
def cluster(without_tokens: None) -> Iterator[Cluster]:
    place = Path(f"/tmp/ray-{os.getpid()}")  # sockets have short names
    found = Cluster(place)
    yield found
    for node in reversed(range(len(found.nodes))):
        found.kill(node)
    subprocess.run(["pkill", "-9", "-f", str(place)], check=False)


def compare(out: Path, *more: str) -> FreshProcess:
    arguments = ["compare", "--task", "imported/aim", "--seeds", "1", "--methods", "odt", "ewa-vq-odt", "dt"]
    said = out.with_name(f"{out.name}-said")
    said.mkdir()
    return FreshProcess(said, command, *arguments, "--out", str(out), *more, "--set", *SETTINGS)


def numbers(out: Path) -> dict[str, object]:
    """What the report says, but for times."""
    found = json.loads((out / "report.json").read_text())
    for task in found["tasks"]:
        for score in task["scores"]:
            del score["seconds"], score["updates_per_second"]
    return {"tasks": found["tasks"], "warnings": found["warnings"]}


@pytest.mark.learning
def test_a_lost_node_changes_nothing(aim: TrainConfig, cluster: Cluster, tmp_path: Path) -> None:
    out = tmp_path / "cluster"
    process = compare(out, "--launcher", "ray", "--address", cluster.address)
    until = time.monotonic() + 200
    while len(list(out.glob("runs/*/*/*/checkpoint/*/state.json"))) < 2:  # both nodes have sent a checkpoint home
        assert time.monotonic() < until, "nothing came back"
        assert process.poll() is None, process.stdout + process.stderr
        time.sleep(0.05)
    assert len(list(out.glob("runs/*/*/*/summary.json"))) < 2  # both nodes have work to do still
    cluster.kill(1)
    assert process.wait(300) == 0, process.stdout + process.stderr
    far = "--target-return asks for 1e+06, far outside the data"
    assert [f"warning: 3 runs, first imported/aim dt seed 0: {far}"] == [
        line[: line.index(far) + len(far)] for line in process.stdout.splitlines() if line.startswith("warning: 3 runs")
    ]
    local = tmp_path / "local"
    process = compare(local, "--workers", "2")
    assert process.wait(300) == 0, process.stdout + process.stderr
    assert numbers(out) == numbers(local)
    assert len(numbers(out)["tasks"][0]["scores"]) == 3
    assert (out / "report.html").is_file()


def test_a_folder_travels_whole(tmp_path: Path) -> None:
    source = tmp_path / "run"
    (source / "checkpoint" / "0").mkdir(parents=True)
    (source / "checkpoint" / "0" / "state.json").write_text("{}")
    (source / ".lock").write_text("process 1")
    packed = pack(source)
    unpack(packed, tmp_path / "there")
    assert [str(path.relative_to(tmp_path / "there")) for path in sorted((tmp_path / "there").rglob("*.json"))] == [
        "checkpoint/0/state.json"
    ]
    assert not (tmp_path / "there" / ".lock").exists()
    mailbox = Mailbox()
    mailbox.put(str(tmp_path / "home"), packed)
    mailbox.put(str(tmp_path / "home"), packed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "run", "there"]
    for n in range(50):
        mailbox.tell("a", {"n": n})
    assert len(mailbox.heard()["a"]) <= 21
    assert mailbox.heard() == {}


def test_no_cluster_is_said_at_once(aim: TrainConfig, tmp_path: Path) -> None:
    process = compare(tmp_path / "out", "--launcher", "ray", "--address", f"127.0.0.1:{free_port()}")
    assert process.wait(300) == 2
    assert "there is no Ray cluster at 127.0.0.1" in process.stderr
