"""Ours compared with every peer that installs from the package index, interleaved: updates, acting, memory, scaling.

    python benchmarks/bench_peers.py [--device cuda] [--rounds 8] [--quick] [--only TEXT...] [--here] [--json FILE]

Each peer runs in its own process and its own virtual environment under .bench/ (their pins conflict), created on first
use. With --here all run in this Python; those that cannot be imported are left out. In each round every peer repeats
each case a few times, one peer after another; a ratio is the median over rounds of theirs over ours in the same round,
with the range.

An update is a whole update; for us it includes sampling windows. Hugging Face and d3rlpy minimise a squared error,
TorchRL and we the negative log-likelihood with the entropy constraint. Memory is the peak of one case: on a CPU that of
the process, restarted for each case; on a GPU that of its tensors, including the data.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from mental_accounts.learning.run_folder import surroundings

ROOT = Path(__file__).parents[1]
PEERS = {
    "ours": None,
    "hugging_face_dt": ["transformers>=5"],
    "torchrl_odt": ["torchrl", "transformers>=5"],
    "d3rlpy_dt": ["d3rlpy"],
}
"""Modules of benchmarks/peers and what they need; ours needs this checkout."""


def cases(quick: bool) -> list[dict[str, Any]]:
    """What is measured."""
    base = {"what": "update", "batch": 64, "context": 20, "precision": "bf16", "method": "odt"}
    found = [base, base | {"precision": "float32"}]
    acting = [base | {"what": "act", "precision": precision} for precision in ("float32", "bf16")]
    found += [case | {"batch": envs} for case in acting for envs in (1, 10)]
    if not quick:
        found += [base | {"batch": 256}, base | {"optimizer": "lamb"}]
        found += [base | {"context": context, "batch": 8} for context in (20, 100, 300, 1000)]
    return found


def name_of(case: dict[str, Any]) -> str:
    extra = [case["optimizer"]] if "optimizer" in case else []
    what = f"act, {case['batch']} envs" if case["what"] == "act" else f"update, batch {case['batch']}"
    return ", ".join([what, f"K {case['context']}", case["precision"], case["method"], *extra])


class Peer:
    """A process that runs the cases it is sent."""

    def __init__(self, name: str, device: str, threads: int, here: bool) -> None:
        self.name = name
        python = sys.executable if here or PEERS[name] is None else str(prepare_environment(name))
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
        self.process = subprocess.Popen(
            [python, str(ROOT / "benchmarks" / "peers" / "serve.py"), name, device, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        self.problem: str | None = None
        self.version = ""

    def greet(self) -> None:
        """Wait until it has imported what it needs."""
        said = self.hear()
        self.problem, self.version = said.get("error"), said.get("version", "")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "its process ended"}

    def ask(self, **what: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return self.hear()


def start_all(device: str, threads: int, here: bool) -> list[Peer]:
    """All peers, started together."""
    peers = [Peer(name, device, threads, here) for name in PEERS]
    for peer in peers:
        peer.greet()
    return peers


def prepare_environment(name: str) -> Path:
    """The Python of a peer's virtual environment."""
    folder = ROOT / ".bench" / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"installing {name} into {folder} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        packages = PEERS[name] or []
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
        subprocess.run([*command, torch, *packages], check=True)
        (folder / "ready").touch()
    return python


def measure(peers: list[Peer], case: dict[str, Any], rounds: int, repeats: int) -> dict[str, Any]:
    """Times of every peer that can do the case, by round."""
    able = []
    found: dict[str, Any] = {"case": case, "ms": {}, "bytes": {}, "cannot": {}}
    for peer in peers:
        answer = peer.ask(prepare=case)
        if "error" in answer:
            found["cannot"][peer.name] = answer["error"]
        else:
            able.append(peer)
    for _ in range(rounds):
        for peer in able:
            answer = peer.ask(run=repeats)
            found["ms"].setdefault(peer.name, []).append(statistics.median(answer["ms"]))
            found["bytes"][peer.name] = answer["bytes"]
    return found


def show(found: dict[str, Any]) -> None:
    print(f"\n{name_of(found['case'])}")
    ours = found["ms"].get("ours")
    for name, times in found["ms"].items():
        line = f"  {name:<14} {statistics.median(times):9.3f} ms  {found['bytes'][name] / 2**20:8.0f} MiB peak"
        if ours and name != "ours":
            ratios = [theirs / mine for theirs, mine in zip(times, ours, strict=True)]
            line += f"   × {statistics.median(ratios):.2f}  [{min(ratios):.2f}, {max(ratios):.2f}]"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--repeats", type=int, default=None, help="repeats of a case per round; default 1 on a CPU, 20 on a GPU"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="the main cases only")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="only cases whose name contains one of these texts")
    parser.add_argument("--here", action="store_true", help="no virtual environments: use this Python")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    repeats = args.repeats or (20 if args.device == "cuda" else 1)
    chosen = [c for c in cases(args.quick) if args.only is None or any(text in name_of(c) for text in args.only)]
    if not chosen:
        parser.error(f"no case has {args.only} in its name; there are: {[name_of(c) for c in cases(args.quick)]}")
    made_by = {"what": (__doc__ or "").splitlines()[0], "command": sys.argv, **surroundings()}
    results: list[dict[str, Any]] = []
    peers = start_all(args.device, args.threads, args.here)
    versions = {peer.name: peer.problem or peer.version for peer in peers}
    for name, version in versions.items():
        print(f"{name}: {version}", flush=True)
    for case in chosen:
        if results and args.device == "cpu":  # the peak of a process covers everything it did
            for peer in peers:
                peer.end()
            peers = start_all(args.device, args.threads, args.here)
        results.append(measure([peer for peer in peers if peer.problem is None], case, args.rounds, repeats))
        show(results[-1])
        if args.json:  # after each case, so that results survive a failure in the next
            args.json.write_text(json.dumps(made_by | {"peers": versions, "results": results}, indent=1) + "\n")
    for peer in peers:
        peer.end()


if __name__ == "__main__":
    main()
