"""What processes that share a GPU reach together: updates per second of N runs at once, with MPS and without.

    python benchmarks/bench_sharing.py [--cases …] [--counts 1 2 4 8 15] [--seconds 2] [--json FILE]

Every process makes the same update, captured, on data of its own; the first N of them work at a time. Also: how many
kernels an update has, and what they take if nothing else runs.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAPER = {"method": "odt", "batch": 64, "hidden": 512, "layers": 4, "heads": 4}
SMALL = {"method": "dt", "improve": "td3", "batch": 128, "hidden": 128, "layers": 3, "heads": 1}
LEDGER = {"method": "ledger-odt", "ledger": "state", "context": 5, "batch": 64, "hidden": 64, "layers": 3, "heads": 4}
CASES: dict[str, dict[str, Any]] = {
    "hidden 512, batch 64": PAPER | {"compiled": False},
    "hidden 512, batch 64, compiled": PAPER | {"compiled": True},
    "hidden 128, batch 128, td3": SMALL | {"compiled": False},
    "hidden 128, batch 128, td3, compiled": SMALL | {"compiled": True},
    "hidden 64, K = 5, batch 64, ledger": LEDGER | {"compiled": False},
    "hidden 64, K = 5, batch 64, ledger, compiled": LEDGER | {"compiled": True},
}
AT_A_TIME, PROFILED = 20, 5


def serve() -> None:
    """A process that shares the GPU: makes an update when it is told, and repeats it for some seconds."""
    sys.path.insert(0, str(HERE / "peers"))
    import ours
    import torch

    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    step = None
    for line in sys.stdin:
        told = json.loads(line)
        found: dict[str, float] = {}
        begun = time.perf_counter()
        if "case" in told:
            step = None
            case = CASES[told["case"]]
            ours.HIDDEN, ours.LAYERS, ours.HEADS = case["hidden"], case["layers"], case["heads"]
            step = ours.make({"what": "update", "context": 20, "precision": "bf16"} | case, "cuda")
            torch.cuda.synchronize()
        elif "profile" in told:
            assert step is not None
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
                for _ in range(PROFILED):
                    step()
                torch.cuda.synchronize()
            kernels = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
            found = {"kernels": len(kernels) / PROFILED}
            found["kernel_ms"] = sum(event.device_time for event in kernels) / PROFILED / 1e3
        else:
            assert step is not None
            made = 0
            while time.perf_counter() - begun < told["seconds"]:
                for _ in range(AT_A_TIME):
                    step()
                torch.cuda.synchronize()
                made += AT_A_TIME
            found = {"per_second": made / (time.perf_counter() - begun)}
        print(json.dumps(found | {"took": time.perf_counter() - begun}), file=answer, flush=True)


class Process:
    """One of them."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def tell(self, **what: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)

    def hear(self) -> dict[str, float]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(with_mps: bool, cases: list[str], counts: list[int], seconds: float) -> list[dict[str, Any]]:
    from mental_accounts.study.mps import multi_process_service

    rows = []
    with contextlib.ExitStack() as stack:
        environ = stack.enter_context(multi_process_service(wanted=with_mps))
        if with_mps and not environ:
            print("MPS cannot be had here")
            return []
        processes = [Process(environ) for _ in range(max(counts))]
        for process in processes:
            stack.callback(process.end)
        for case in cases:
            for process in processes:
                process.tell(case=case)
            made = max(process.hear()["took"] for process in processes)
            processes[0].tell(profile=True)
            row = {"case": case, "mps": with_mps, "made_in": made} | processes[0].hear()
            for count in counts:
                for process in processes[:count]:
                    process.tell(seconds=seconds)
                row[str(count)] = sum(process.hear()["per_second"] for process in processes[:count])
            reached = ", ".join(f"{count}: {row[str(count)]:.0f}" for count in counts)
            print(f"{case:40} {'MPS' if with_mps else 'taking turns':12} {row['kernels']:.0f} kernels, "
                  f"{row['kernel_ms']:.2f} ms; updates/s of so many processes: {reached}", flush=True)  # fmt: skip
            rows.append(row)
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4, 8, 15])
    arguments.add_argument("--seconds", type=float, default=2.0)
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    if asked.serve:
        serve()
        return
    from mental_accounts.learning.run_folder import surroundings

    rows = [row for with_mps in (True, False) for row in measure(with_mps, asked.cases, asked.counts, asked.seconds)]
    if asked.json is not None:
        asked.json.write_text(json.dumps({"command": sys.argv, **surroundings(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
