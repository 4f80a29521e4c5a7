"""What stacking seeds could gain at most: updates of N transformers of the paper's size in one captured, compiled step.

    python benchmarks/bench_stacking.py [--stacked 1 4 10] [--processes 1 2] [--seconds 3] [--json FILE]

Weights of N runs lie side by side, (N, ...), and every product is a batch of N. The step is less than an update of
ours: no windows are drawn, no accounts are read, there is no entropy constraint, and gradients are not clipped. So what
it reaches is more than stacking all of that would. Several processes share the GPU through MPS, each with N runs.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HIDDEN, LAYERS, HEADS, K, BATCH, STATE, ACTION, DROPOUT = 512, 4, 4, 20, 64, 11, 3, 0.1
TOKENS, INNER = 3 * K - 1, 4 * HIDDEN
AT_A_TIME, WARM_UPS = 20, 4


def make(runs: int) -> Callable[[], None]:
    """A captured step of so many transformers."""
    import torch
    import torch.nn.functional as F
    from torch import Tensor

    torch.manual_seed(0)
    device, rows = torch.device("cuda"), BATCH * TOKENS

    def weight(*shape: int) -> Tensor:
        return (0.02 * torch.randn(runs, *shape, device=device)).requires_grad_()

    def layer(fan_in: int, fan_out: int) -> tuple[Tensor, Tensor]:
        return weight(fan_in, fan_out), weight(1, fan_out)

    def norm() -> tuple[Tensor, Tensor]:
        return weight(1, HIDDEN), weight(1, HIDDEN)

    embed, out, last = layer(STATE + ACTION + 1, HIDDEN), layer(HIDDEN, 2 * ACTION), norm()
    blocks = [
        (norm(), layer(HIDDEN, 3 * HIDDEN), layer(HIDDEN, HIDDEN), norm(), layer(HIDDEN, INNER), layer(INNER, HIDDEN))
        for _ in range(LAYERS)
    ]
    weights = [part for pair in (embed, out, last) for part in pair]
    weights += [part for block in blocks for pair in block for part in pair]
    inputs = torch.randn(runs, rows, STATE + ACTION + 1, device=device)
    targets = torch.randn(runs, BATCH * K, ACTION, device=device)
    mask = torch.zeros(TOKENS, TOKENS, device=device).masked_fill(
        torch.ones(TOKENS, TOKENS, device=device).triu(1).bool(), -torch.inf
    )
    mask = mask.expand(runs * BATCH, 1, TOKENS, TOKENS).contiguous().bfloat16()

    def linear(x: Tensor, layer: tuple[Tensor, Tensor]) -> Tensor:  # (N, rows, C) -> (N, rows, D)
        return torch.baddbmm(layer[1].bfloat16(), x, layer[0].bfloat16())

    def normed(x: Tensor, norm: tuple[Tensor, Tensor]) -> Tensor:
        return (F.layer_norm(x.float(), (HIDDEN,)) * norm[0] + norm[1]).bfloat16()

    def states(x: Tensor) -> Tensor:  # the state tokens alone
        return x.view(runs, BATCH, TOKENS, -1)[:, :, 1::3].reshape(runs, BATCH * K, -1)

    def loss() -> Tensor:
        x = linear(inputs.bfloat16(), embed)  # (N, B·S, hidden)
        for place, (first, qkv, mix, second, widen, narrow) in enumerate(blocks):
            parts = linear(normed(x, first), qkv).view(runs * BATCH, TOKENS, 3, HEADS, -1)
            q, k, v = parts.permute(2, 0, 3, 1, 4)  # (N·B, heads, S, d)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=DROPOUT)
            mixed = mixed.transpose(1, 2).reshape(runs, rows, HIDDEN)
            if place == LAYERS - 1:
                x, mixed = states(x), states(mixed)
            x = x + F.dropout(linear(mixed, mix), DROPOUT)
            x = x + F.dropout(linear(linear(normed(x, second), widen).relu(), narrow), DROPOUT)
        mean, log_std = linear(normed(x, last), out).float().chunk(2, dim=-1)
        nll = 0.5 * ((targets - mean) * (-log_std).exp()).square() + log_std
        return nll.mean(dim=(1, 2)).sum()  # each run has a loss of its own

    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True, capturable=True)
    compiled = torch.compile(loss, dynamic=False)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        compiled().backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def serve(runs: int, seconds: float, environ: dict[str, str], turn: Any, ready: Any, answers: Any) -> None:
    """A process that shares the GPU: once it is its turn, its updates per second, of all its runs together."""
    os.environ.update(environ)
    import torch

    step = make(runs)
    for _ in range(AT_A_TIME):
        step()
    torch.cuda.synchronize()
    ready.put(runs)
    turn.wait()
    made, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(AT_A_TIME):
            step()
        torch.cuda.synchronize()
        made += AT_A_TIME * runs
    answers.put(made / (time.perf_counter() - begun))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--stacked", type=int, nargs="+", default=[1, 4, 10])
    arguments.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    from mental_accounts.learning.run_folder import surroundings
    from mental_accounts.study.mps import multi_process_service

    spawn, rows = multiprocessing.get_context("spawn"), []
    cases = [(runs, count) for runs in asked.stacked for count in asked.processes]
    with multi_process_service() as environ:
        turns, ready, answers = [spawn.Event() for _ in cases], spawn.Queue(), spawn.Queue()
        processes = [
            spawn.Process(target=serve, args=(runs, asked.seconds, environ, turn, ready, answers), daemon=True)
            for (runs, count), turn in zip(cases, turns, strict=True)
            for _ in range(count)
        ]
        for process in processes:  # all compile at the same time, and wait for their turn without using the GPU
            process.start()
        for _ in processes:
            ready.get(timeout=300)
        for (runs, count), turn in zip(cases, turns, strict=True):
            turn.set()
            rate = sum(answers.get(timeout=60) for _ in range(count))
            rows.append({"stacked": runs, "processes": count, "mps": bool(environ), "per_second": rate})
            print(f"{count} processes of {runs} stacked runs: {rate:.0f} updates per second", flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps({"command": sys.argv, **surroundings(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
