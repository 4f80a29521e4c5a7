"""What `ledger_input` costs in an update of GPT-2, interleaved with the same model without it.

    pip install -e '.[hf]' && python benchmarks/bench_ledger_elsewhere.py [--updates 30] [--steps 20 60] [--json FILE]

A model of hidden 256, 4 layers, 4 heads over embedded tokens (return, state, action), batch 32, AdamW, mean squared
error; 27 codes, all three channels, rewards three steps late. The ledger is made from the window's actions and rewards
in the call itself, or given (`ledger=`). The cases take turns, one update each, in a rotating order. Times are CPU time
of the process, which other programs disturb less; they are compared by the median of the ratios within a round, by
totals, and by the fastest updates.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import mental_accounts as ma
from mental_accounts.integrations import every, hugging_face_accounts
from mental_accounts.learning.run_folder import surroundings

HIDDEN, LAYERS, HEADS, BATCH = 256, 4, 4, 32
CASES = ("without", "without, once more", "ledger made in the call", "ledger given")


class Case:
    """One model in training."""

    def __init__(self, name: str, steps: int) -> None:
        from transformers import GPT2Config, GPT2Model

        torch.manual_seed(0)
        sizes = {"vocab_size": 1, "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 3 * steps}
        self.model: Any = GPT2Model(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).train()
        self.name = name
        if name.startswith("ledger"):
            self.accounts = hugging_face_accounts(
                self.model, ma.GridCodebook(dim=3, bins=3), ma.EWA(), columns=every(3, 2), ledger_input="state",
                channels=("balance", "count", "mean"), reward_delay=3,
            )  # fmt: skip
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def update(self, embedded: Tensor, steps: dict[str, Tensor], told: Tensor) -> None:
        given = {"ledger made in the call": steps, "ledger given": {"ledger": told}}.get(self.name, {})
        loss = self.model(inputs_embeds=embedded, **given).last_hidden_state[:, 1::3].square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def measure(steps: int, updates: int) -> dict[str, Any]:
    cases = {name: Case(name, steps) for name in CASES}
    times: dict[str, list[float]] = {name: [] for name in CASES}
    window = {"actions": torch.rand(BATCH, steps, 3) * 2 - 1, "rewards": torch.randn(BATCH, steps)}
    told, embedded = cases["ledger given"].accounts.told(**window), torch.randn(BATCH, 3 * steps, HIDDEN)
    for number in range(updates + 2):
        for place in range(len(CASES)):
            name = CASES[(place + number) % len(CASES)]
            torch.manual_seed(number)
            began = time.process_time()
            cases[name].update(embedded, window, told)
            if number >= 2:  # the first are slower
                times[name].append((time.process_time() - began) * 1e3)
    record = {}
    for name in CASES:
        ratios = [a / b for a, b in zip(times[name], times["without"], strict=True)]
        record[name] = {
            "CPU ms per update, median": statistics.median(times[name]),
            "time beside without, median of ratios": statistics.median(ratios),
            "time beside without, of totals": sum(times[name]) / sum(times["without"]),
            "time beside without, of fastest": min(times[name]) / min(times["without"]),
        }
        print(f"{steps} steps, {name}")
        for what, value in record[name].items():
            print(f"    {what:<40} {value:9.4f}")
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 60])
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads, {args.updates} updates of batch {BATCH}\n"
    )
    found = {str(steps): measure(steps, args.updates) for steps in args.steps}
    if args.json:
        record = {
            "what": __doc__.splitlines()[0], "command": sys.argv, **surroundings(), "threads": torch.get_num_threads(),
            "model": {"hidden": HIDDEN, "layers": LAYERS, "heads": HEADS, "batch": BATCH}, "updates": args.updates,
            "by steps in a window": found,
        }  # fmt: skip
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
