"""Fine-tuning Hugging Face's DecisionTransformerModel with and without accounts, interleaved in one run.

    pip install -e '.[hf,mujoco]' && python benchmarks/bench_integrations.py [--updates 200] [--json FILE]

Built-in hopper-medium (20,000 steps), batch 64 windows of 20 steps, a model of hidden 128, 3 layers, 1 head, dropout
0.1, AdamW 1e-3, mean squared error of actions. All cases start from the same weights, get the same windows and draw the
same dropout. The cases take turns, one update each, in a rotating order, so that no case always runs after the same
other. Accounts: the trajectory's attractions (fixed or learned β = 0.05 per model), or attractions traced from the
window's actions and rewards in the call itself. Times are of whole updates, without sampling windows. Two numbers
compare times: the median of the ratios within a round, and the ratio of the totals.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import mental_accounts as ma
from mental_accounts.data import WindowSampler, load_task
from mental_accounts.integrations import hugging_face_accounts
from mental_accounts.learning.run_folder import surroundings
from mental_accounts.policy import Window

K, HIDDEN, LAYERS, HEADS, BATCH = 20, 128, 3, 1, 64
TASK, STEPS = "hopper-medium", 20_000


class Case:
    """One model in training."""

    def __init__(self, beta: float | ma.BiasScale | None, book: Any, rule: Any, transform: Any, traced: bool) -> None:
        from transformers import DecisionTransformerConfig, DecisionTransformerModel

        torch.manual_seed(0)
        config = DecisionTransformerConfig(
            state_dim=11, act_dim=3, hidden_size=HIDDEN, n_layer=LAYERS, n_head=HEADS, max_ep_len=1000, vocab_size=1,
            bos_token_id=0, eos_token_id=0, activation_function="relu", resid_pdrop=0.1, attn_pdrop=0.1, embd_pdrop=0.1,
        )  # fmt: skip
        self.model = DecisionTransformerModel(config).train()
        self.has_accounts, self.traced = beta is not None, traced
        parameters = list(self.model.parameters())
        if beta is not None:
            hugging_face_accounts(self.model, book, rule, beta, transform=transform)
            parameters += list(beta.parameters()) if isinstance(beta, ma.BiasScale) else []
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=5e-4, fused=True)

    def predict(self, windows: Window, mean: Tensor, std: Tensor) -> Tensor:
        given = {"attractions": windows.attractions} if self.has_accounts and not self.traced else {}
        predicted: Tensor = self.model(
            states=(windows.observations - mean) / std,
            actions=windows.actions,
            rewards=windows.rewards.unsqueeze(-1),
            returns_to_go=windows.returns_to_go.unsqueeze(-1) / 1000,
            timesteps=windows.timesteps,
            attention_mask=windows.mask.long(),
            **given,
        ).action_preds
        return (predicted[windows.mask] - windows.actions[windows.mask]).square().mean()

    def update(self, windows: Window, mean: Tensor, std: Tensor) -> float:
        loss = self.predict(windows, mean, std)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.25)
        self.optimizer.step()
        return float(loss.detach())


def timed(call: Callable[[], float]) -> tuple[float, float]:
    start = time.perf_counter()
    value = call()
    return value, (time.perf_counter() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    _, store = load_task(TASK, STEPS)
    book, rule, transform = ma.GridCodebook(dim=3, bins=3), ma.EWA(), ma.RewardTransform.fit(store.rewards)
    store.annotate(book, rule, transform)
    sampler = WindowSampler(store, BATCH, K, torch.Generator().manual_seed(0))
    mean, std = store.observations.mean(dim=0), store.observations.std(dim=0) + 1e-6
    cases = {
        "without": Case(None, book, rule, transform, False),
        "without, once more": Case(None, book, rule, transform, False),
        "accounts": Case(0.05, book, rule, transform, False),
        "accounts, traced in the call": Case(0.05, book, rule, transform, True),
        "accounts, learned beta": Case(ma.BiasScale(0.05, learned=True), book, rule, transform, False),
    }
    fixed = [sampler() for _ in range(10)]
    losses: dict[str, list[float]] = {name: [] for name in cases}
    times: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)

    def evaluate(case: Case) -> float:
        case.model.eval()
        with torch.no_grad():
            value = statistics.mean(float(case.predict(windows, mean, std)) for windows in fixed)
        case.model.train()
        return value

    before = {name: evaluate(case) for name, case in cases.items()}
    for number in range(args.updates):
        windows = sampler()
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            torch.manual_seed(number)
            loss, took = timed(lambda name=name, windows=windows: cases[name].update(windows, mean, std))
            losses[name].append(loss)
            times[name].append(took)
    after = {name: evaluate(case) for name, case in cases.items()}

    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads, {args.updates} updates of batch {BATCH}\n"
    )
    record = {}
    for name in cases:
        ratios = [a / b for a, b in zip(times[name], times["without"], strict=True)]
        record[name] = {
            "loss before": before[name],
            "loss after": after[name],
            "training loss, mean of the last 20": statistics.mean(losses[name][-20:]),
            "ms per update, median": statistics.median(times[name]),
            "time beside without, median of ratios": statistics.median(ratios),
            "time beside without, of totals": sum(times[name]) / sum(times["without"]),
            "time beside without, of fastest": min(times[name]) / min(times["without"]),
        }
        print(name)
        for what, value in record[name].items():
            print(f"    {what:<40} {value:9.4f}")
    if args.json:
        found = {
            "what": __doc__.splitlines()[0], "command": sys.argv, **surroundings(), "threads": torch.get_num_threads(),
            "model": {"hidden": HIDDEN, "layers": LAYERS, "heads": HEADS, "context": K, "batch": BATCH},
            "task": TASK, "data_steps": store.steps, "updates": args.updates, "cases": record,
        }  # fmt: skip
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
