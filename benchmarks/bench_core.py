"""The speed of the core on this machine: tracing, routing and posting, compared with a literal Algorithm 1 loop.

    python benchmarks/bench_core.py [--device cuda] [--repeats 20] [--json FILE]

Milliseconds are medians (with the fastest and slowest) of repeats that are interleaved in one run. The loop processes
one trajectory, one step and one vector operation at a time, as Algorithm 1 is written; it runs on some of the
trajectories, and its time is scaled to all of them.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import mental_accounts as ma
from mental_accounts.learning.run_folder import surroundings

TRAJECTORIES, STEPS, CODES = 1_000, 1_000, 27
ACTIONS, DIM = 1_000_000, 6
LOOPED = 10  # trajectories of the literal loop in one repeat


def algorithm_1(codes: Tensor, rewards: Tensor, phi: float, delta: float) -> Tensor:
    traces = torch.empty_like(rewards)
    for n in range(len(codes)):
        A = torch.zeros(CODES, device=codes.device)
        for t in range(codes.shape[1]):
            A = (1 - phi) * A
            A[codes[n, t]] += delta * rewards[n, t]
            traces[n, t] = A[codes[n, t]]
    return traces


def timed(call: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = args.device
    rule = ma.EWA()
    codes = torch.randint(CODES, (TRAJECTORIES, STEPS), device=device)
    rewards = torch.randn(TRAJECTORIES, STEPS, device=device)
    windows = torch.randint(CODES, (256, 20), device=device), torch.randn(256, 20, device=device)
    actions = torch.rand(ACTIONS, DIM, device=device) * 2 - 1
    full = ma.GridCodebook(DIM, 3).to(device)
    subset = ma.GridCodebook(DIM, 3, 27).to(device)
    ledger = rule.ledger(CODES, (10,), device=device)
    attractions = torch.randn(256, 20, device=device)

    share = TRAJECTORIES / LOOPED
    looped = codes[:LOOPED], rewards[:LOOPED]
    trace = f"trace {TRAJECTORIES} x {STEPS} steps, {CODES} codes"
    loop = f"  Algorithm 1 as a loop (x{share:g})"
    cases: dict[str, tuple[Callable[[], object], float]] = {
        trace: (lambda: rule.trace(codes, rewards, num_codes=CODES), 1.0),
        loop: (lambda: algorithm_1(*looped, rule.phi, rule.delta), share),
        "trace 256 windows x 20 steps": (lambda: rule.trace(*windows), 1.0),
        f"route {ACTIONS:,} x {DIM} actions, full grid 3^6": (lambda: full.route(actions), 1.0),
        f"route {ACTIONS:,} x {DIM} actions, 27 of 3^6": (lambda: subset.route(actions), 1.0),
        "post one step of 10 actors": (lambda: ledger.post(codes[:10, 0], rewards[:10, 0]), 1.0),
        "column bias of 256 x 20": (lambda: ma.column_bias(attractions), 1.0),
    }
    torch.testing.assert_close(rule.trace(*looped), algorithm_1(*looped, rule.phi, rule.delta))
    times: dict[str, list[float]] = {name: [] for name in cases}
    for name, (call, _) in cases.items():
        if name != loop:
            timed(call, device)
    for repeat in range(args.repeats):
        for name, (call, scale) in cases.items():
            if name != loop or repeat < 3:
                times[name].append(timed(call, device) * scale)

    hardware = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"torch {torch.__version__}, {hardware}, float32, median [fastest, slowest] of {args.repeats} repeats\n")
    for name, values in times.items():
        print(f"{name:<48} {statistics.median(values):12.3f} ms  [{min(values):.3f}, {max(values):.3f}]")
    ratio = statistics.median(times[loop]) / statistics.median(times[trace])
    print(f"\nthe trace is {ratio:,.0f} times faster than the loop")
    if args.json:
        found = {
            "what": __doc__.splitlines()[0],
            "command": sys.argv,
            **surroundings(),
            "ms": times,
            "loop / trace": ratio,
        }
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
