"""One update of the policy compared with Hugging Face's DecisionTransformerModel, interleaved in one run.

    pip install -e '.[hf]' && python benchmarks/bench_policy.py [--device cuda] [--batch 64] [--rounds 8] [--json FILE]

An update is forward, backward, gradient clipping and AdamW on a batch of 64 windows of 20 steps: hidden 512, 4 layers,
4 heads, state 11, action 3, dropout 0.1. Theirs predicts actions by mean squared error; ours is ODT with its likelihood
and entropy. Ratios are medians of the ratios within a round, with the smallest and largest.
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

from mental_accounts.account_options import AccountsConfig
from mental_accounts.action_spec import ActionSpec
from mental_accounts.learning import Objective, clip_gradients, make_optimizer
from mental_accounts.learning.run_folder import surroundings
from mental_accounts.policy import DecisionTransformer, autocast
from mental_accounts.policy_options import PolicyConfig

K, STATE, ACTION, HIDDEN, LAYERS, HEADS = 20, 11, 3, 512, 4, 4
Batch = dict[str, Tensor]


def make_batch(B: int, device: str) -> Batch:
    batch = {
        "observations": torch.randn(B, K, STATE),
        "actions": torch.rand(B, K, ACTION) * 1.8 - 0.9,
        "returns_to_go": torch.rand(B, K) * 3000,
        "timesteps": (torch.arange(K) + torch.randint(0, 900, (B, 1))),
        "mask": torch.ones(B, K, dtype=torch.bool),
        "attractions": torch.randn(B, K),
    }
    batch["mask"][: B // 8, :5] = False
    return {name: value.to(device) for name, value in batch.items()}


def ours(method: str, precision: str, batch: Batch, device: str) -> Callable[[], None]:
    torch.manual_seed(0)
    config = PolicyConfig(
        state_dim=STATE,
        action=ActionSpec("box", ACTION, (-1.0,) * ACTION, (1.0,) * ACTION),
        method=method,
        hidden=HIDDEN,
        layers=LAYERS,
        heads=HEADS,
        context_length=K,
        accounts=AccountsConfig(),
    )
    policy = DecisionTransformer(config).to(device).train()
    objective = Objective(config).to(device)
    optimizer = make_optimizer("adamw", policy.parameters(), 1e-4, 5e-4, device)
    inputs = batch if method == "ewa-vq-odt" else {k: v for k, v in batch.items() if k != "attractions"}

    def update() -> None:
        with autocast(device, precision):
            predicted = policy(**inputs)
        losses = objective(predicted, batch["actions"], batch["mask"])
        optimizer.zero_grad()
        losses.loss.backward()
        clip_gradients(policy.parameters(), 0.25)
        optimizer.step()

    return update


def hugging_face(precision: str, batch: Batch, device: str) -> Callable[[], None]:
    from transformers import DecisionTransformerConfig, DecisionTransformerModel

    torch.manual_seed(0)
    config = DecisionTransformerConfig(
        state_dim=STATE, act_dim=ACTION, hidden_size=HIDDEN, n_layer=LAYERS, n_head=HEADS, max_ep_len=1000,
        activation_function="relu", resid_pdrop=0.1, attn_pdrop=0.1, embd_pdrop=0.1,
    )  # fmt: skip
    model = DecisionTransformerModel(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=5e-4, fused=True)

    def update() -> None:
        with autocast(device, precision):
            predicted = model(
                states=batch["observations"],
                actions=batch["actions"],
                rewards=None,
                returns_to_go=batch["returns_to_go"].unsqueeze(-1) / 1000,
                timesteps=batch["timesteps"],
                attention_mask=batch["mask"].long(),
            ).action_preds
        mask = batch["mask"]
        loss = (predicted[mask].float() - batch["actions"][mask]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()

    return update


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    batch = make_batch(args.batch, args.device)
    cases = {
        "hugging face, float32": hugging_face("float32", batch, args.device),
        "odt, float32": ours("odt", "float32", batch, args.device),
        "ewa-vq-odt, float32": ours("ewa-vq-odt", "float32", batch, args.device),
        "hugging face, bf16": hugging_face("bf16", batch, args.device),
        "odt, bf16": ours("odt", "bf16", batch, args.device),
        "ewa-vq-odt, bf16": ours("ewa-vq-odt", "bf16", batch, args.device),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for update in cases.values():
        update()
    for _ in range(args.rounds):
        for name, update in cases.items():
            if args.device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            update()
            if args.device == "cuda":
                torch.cuda.synchronize()
            times[name].append((time.perf_counter() - start) * 1e3)

    hardware = torch.cuda.get_device_name() if args.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"torch {torch.__version__}, {hardware}, batch {args.batch} x {K} steps, {args.rounds} rounds\n")
    for name, values in times.items():
        print(f"{name:<24} {statistics.median(values):9.1f} ms  [{min(values):.1f}, {max(values):.1f}]")
    print()
    ratios = {
        "hugging face float32 / odt float32": ("hugging face, float32", "odt, float32"),
        "hugging face float32 / odt bf16": ("hugging face, float32", "odt, bf16"),
        "hugging face bf16 / odt bf16": ("hugging face, bf16", "odt, bf16"),
        "ewa-vq-odt / odt, float32": ("ewa-vq-odt, float32", "odt, float32"),
        "ewa-vq-odt / odt, bf16": ("ewa-vq-odt, bf16", "odt, bf16"),
    }
    record = {}
    for name, (above, below) in ratios.items():
        values = [a / b for a, b in zip(times[above], times[below], strict=True)]
        fastest = min(times[above]) / min(times[below])
        record[name] = {"median": statistics.median(values), "range": [min(values), max(values)], "of fastest": fastest}
        spread = f"[{min(values):.3f}, {max(values):.3f}]"
        print(f"{name:<36} {statistics.median(values):6.3f}  {spread:<16}  of the fastest {fastest:.3f}")
    if args.json:
        found = {"what": __doc__.splitlines()[0], "command": sys.argv, **surroundings(), "ms": times, "ratios": record}
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
