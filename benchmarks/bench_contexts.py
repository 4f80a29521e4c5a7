"""Long contexts on a GPU: a whole update with a dense mask, and with the bias as dimensions of the keys.

    python benchmarks/bench_contexts.py [--steps 300 1000] [--batch 8] [--rounds 2] [--json FILE]

ewa-vq-odt with a fixed and with a learned β, hidden 512, 4 layers, 4 heads, bf16, captured, not compiled. Memory is
the peak of a case, including data and weights.
"""

import argparse
import gc
import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import ours

from mental_accounts.learning.run_folder import surroundings
from mental_accounts.policy import long_attention

WAYS = {"dense mask": 10**9, "bias in the keys": 0}
"""Number of tokens beyond which the bias is in the keys."""
CALLS = 20


def measure(steps: int, batch: int, learned: bool) -> tuple[float, float]:
    """Milliseconds of an update, and MiB."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    update = ours.make(
        {"what": "update", "batch": batch, "context": steps, "precision": "bf16", "method": "ewa-vq-odt",
         "beta_learned": learned, "compiled": False}, "cuda",
    )  # fmt: skip
    update()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(CALLS):
        update()
    torch.cuda.synchronize()
    spent = 1e3 * (time.perf_counter() - begun) / CALLS
    return spent, (torch.cuda.max_memory_allocated() - before) / 2**20


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--steps", type=int, nargs="+", default=[300, 1000])
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this needs a GPU: elsewhere the mask is always dense")
    rows = []
    for steps in asked.steps:
        for learned in (False, True):
            for number in range(asked.rounds):
                for way, start in WAYS.items():
                    long_attention.FROM = start
                    spent, memory = measure(steps, asked.batch, learned)
                    rows.append({"steps": steps, "beta_learned": learned, "way": way, "round": number,
                                 "ms": spent, "peak_mib": memory})  # fmt: skip
                    words = "learned" if learned else "fixed"
                    print(f"{steps:5} steps, β {words:8} {way:18} {spent:8.3f} ms {memory:7.0f} MiB", flush=True)
    if asked.json is not None:
        record = {"command": sys.argv, **surroundings(), "batch": asked.batch, "rows": rows}
        asked.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
