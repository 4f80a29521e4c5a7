"""The cost of accounts and critics: one whole update of odt and of its variants, interleaved in one process.

    python benchmarks/bench_update.py [--device cuda] [--batch 64 256] [--rounds 10] [--cases NAME ...]
                                      [--profile] [--json FILE]

An update as in training: sampling windows, losses, gradients, clipping, AdamW, the step of the multiplier; with td3
also targets, two steps of the critics and the averages; hidden 512, 4 layers, 4 heads, 20 steps; on a GPU compiled and
captured, as in long runs. A ratio is the median over rounds of a case over odt in the same round, with the range.
Memory (GPU) is the peak of a single case, including the data.
--profile lists the kernels of odt's updates.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import ours

from mental_accounts.learning.run_folder import surroundings

CASES: dict[str, dict[str, str]] = {
    "odt": {"method": "odt"},
    "ewa-vq-odt, trajectory scope": {"method": "ewa-vq-odt"},
    "ewa-vq-odt, window scope": {"method": "ewa-vq-odt", "scope": "window"},
    "ewa-vq-odt, ledger input": {"method": "ewa-vq-odt", "ledger": "state"},
    "odt, LAMB": {"method": "odt", "optimizer": "lamb"},
    "odt with td3": {"method": "odt", "improve": "td3"},
    "dt with td3 (preset td3)": {"method": "dt", "improve": "td3", "optimizer": "lamb"},
    "ledger-odt with td3": {"method": "ledger-odt", "ledger": "state", "improve": "td3"},
}
CALLS = {"cpu": {64: 1, 256: 1}, "cuda": {64: 100, 256: 40}}
"""Updates per round."""


def timed(update: Callable[[], object], calls: int, device: str) -> float:
    """Milliseconds per update."""
    begun = time.perf_counter()
    for _ in range(calls):
        update()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begun) / calls


def measure(names: Sequence[str], batch: int, device: str, rounds: int, profile: bool) -> list[dict[str, Any]]:
    made, peaks = {}, {}
    for name in dict.fromkeys(("odt", *names)):
        fields = CASES[name]
        case = {"what": "update", "batch": batch, "context": 20, "precision": "bf16"} | fields
        before = torch.cuda.memory_allocated() if device == "cuda" else 0
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        made[name] = ours.make(case, device)
        timed(made[name], 2, device)
        peaks[name] = (torch.cuda.max_memory_allocated() - before) / 2**20 if device == "cuda" else None
    times: dict[str, list[float]] = {name: [] for name in made}
    calls = CALLS[device].get(batch, 1)
    for number in range(rounds):
        for name in list(made)[:: 1 if number % 2 == 0 else -1]:
            times[name].append(timed(made[name], calls, device))
    rows = []
    for name, found in times.items():
        ratios = [one / other for one, other in zip(found, times["odt"], strict=True)]
        row = {"case": name, "batch": batch, "ms": statistics.median(found), "ms_range": [min(found), max(found)]}
        row |= {"ratio": statistics.median(ratios), "ratio_range": [min(ratios), max(ratios)], "peak_mib": peaks[name]}
        rows.append(row)
        memory = "" if peaks[name] is None else f"   {peaks[name]:6.0f} MiB"
        print(f"batch {batch:4}  {name:30} {row['ms']:9.3f} ms   × {row['ratio']:.4f} "
              f"[{min(ratios):.4f}, {max(ratios):.4f}]{memory}", flush=True)  # fmt: skip
    if profile:
        activity = torch.profiler.ProfilerActivity.CUDA if device == "cuda" else torch.profiler.ProfilerActivity.CPU
        with torch.profiler.profile(activities=[activity]) as profiler:
            timed(made["odt"], 10 if device == "cuda" else 1, device)
        key = "cuda_time_total" if device == "cuda" else "self_cpu_time_total"
        print(profiler.key_averages().table(sort_by=key, row_limit=60, max_name_column_width=90), flush=True)
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="odt is always among them")
    arguments.add_argument("--profile", action="store_true")
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    rows = []
    for batch in asked.batch:
        rows += measure(asked.cases, batch, asked.device, asked.rounds, asked.profile)
        gc.collect()
        if asked.json is not None:
            asked.json.write_text(
                json.dumps({"command": sys.argv, **surroundings(), "device": asked.device, "rows": rows}, indent=1)
                + "\n"
            )


if __name__ == "__main__":
    main()
