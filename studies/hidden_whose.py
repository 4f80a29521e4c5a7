"""Whose action comes next? How well one can tell which behaviour policy is acting, with and without balances.

    python studies/hidden_whose.py [--task walker2d-medium-replay] [--json FILE]

Replay data come from behaviour policies of increasing quality. A network with one hidden layer is fitted on 70% of the
trajectories to identify the policy that acts, from what is known before it does: state, return-to-go and time; the last
five steps or twenty; each of these with and without balances. On the other trajectories we report how often it is
right, and its information about the policy in bits, a lower bound on the mutual information.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hidden_forms import LEDGER
from mental_accounts.data.builtin import recipe_of
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.data.windows import WindowSampler
from mental_accounts.learning.preparation import prepare
from mental_accounts.learning.run_folder import surroundings
from mental_accounts.policy import DecisionTransformer
from mental_accounts.presets import PRESETS
from mental_accounts.study.plan import Arm, with_changes

CONTEXTS = (1, 5, 20)
"""Context lengths: the state alone; the acting context on walker2d; the training context."""
FIRST_STEP = 40
"""First timestep in the evaluation: by then balances have built up."""
WINDOWS = {"fitted": 60_000, "asked": 20_000}
UPDATES, BATCH = 2_000, 512


def main() -> None:
    """Measure, print, and save the results."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--task", default="walker2d-medium-replay")
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    found = measure(asked.task)
    for what, (right, bits) in found["told"].items():
        print(f"{what:22} right in {100 * right:.0f}%, {bits:.2f} of {found['bits']:.2f} bits")
    if asked.json is not None:
        asked.json.write_text(
            json.dumps({"command": sys.argv, **surroundings(), "task": asked.task, **found}, indent=1) + "\n"
        )


def measure(task: str) -> dict[str, Any]:
    """Accuracy and bits, by input."""
    torch.manual_seed(0)
    arm = Arm.parse(f"ewa-vq-odt:{LEDGER}")
    config = with_changes(PRESETS["converged"], {**arm.changes, "task": task, "method": arm.method})
    prepared = prepare(config)
    data, policy = prepared.data, DecisionTransformer(prepared.policy)
    policy.fit_normalisation(data.observations, data.actions, data.rewards, 0)
    makers = makers_of(data, task)
    order = torch.randperm(len(data))
    cut = int(0.7 * len(data))
    parts = {}
    for name, chosen in (("fitted", order[:cut]), ("asked", order[cut:])):
        parts[name] = inputs_of(data.select(chosen), makers[chosen], policy, WINDOWS[name])
    (fitted, who), (asked, truth) = parts["fitted"], parts["asked"]
    number = int(makers.max()) + 1
    shares = torch.bincount(who, minlength=number) / len(who)
    known = -(shares[truth] + 1e-9).log().mean()  # from their frequencies alone
    answers = {what: answered(fitted[what], who, asked[what], number) for what in fitted}
    return {
        "policies": number,
        "bits": float(known) / math.log(2),
        "told": {
            what: (
                float((answer.argmax(1) == truth).float().mean()),
                float(known - nn.functional.cross_entropy(answer, truth)) / math.log(2),
            )
            for what, answer in answers.items()
        },
    }


def makers_of(data: Trajectories, task: str) -> Tensor:
    """The index of each trajectory's behaviour policy, (trajectories,): the store has them in order."""
    robot, _, kind = task.partition("-")
    shares = recipe_of(robot, kind).shares
    ends = torch.tensor([share.weight for share in shares]).cumsum(0) * data.info["size"]
    begins = data.lengths.cumsum(0) - data.lengths
    return torch.bucketize(begins.float() + 1, ends).clamp(max=len(shares) - 1)


def inputs_of(
    store: Trajectories, makers: Tensor, policy: DecisionTransformer, windows: int
) -> tuple[dict[str, Tensor], Tensor]:
    """What is known before the last action of each window, (windows, size) each, and which policy acts, (windows,)."""
    assert policy.accounts is not None
    store.annotate_by(policy.accounts.books, policy.action_scale.to_unit, balances=True)
    longest = max(CONTEXTS)
    drawn = WindowSampler(store, windows, longest, torch.Generator().manual_seed(1))()
    store.rewards.copy_(
        torch.repeat_interleave(makers, store.lengths)
    )  # so that the same windows, drawn again, contain their policies
    again = WindowSampler(store, windows, longest, torch.Generator().manual_seed(1))()
    assert again.rewards is not None
    assert drawn.mask is not None
    assert drawn.balances is not None
    who = again.rewards[:, -1].long()
    kept = drawn.mask.all(dim=1) & (drawn.timesteps[:, -1] >= FIRST_STEP)
    now = torch.cat([drawn.observations[:, -1], drawn.returns_to_go[:, -1:], drawn.timesteps[:, -1:]], dim=1)
    balances = drawn.balances[:, -1]
    known = {"balances": balances}
    for steps in CONTEXTS:
        before = [values[:, longest - steps : -1].flatten(1) for values in (drawn.observations, drawn.actions)]
        name = f"{steps} steps" if steps > 1 else "the state"
        known[name] = torch.cat([now, *before], dim=1)
        known[f"{name} and balances"] = torch.cat([now, *before, balances], dim=1)
    return {what: values[kept] for what, values in known.items()}, who[kept]


def answered(fitted: Tensor, who: Tensor, asked: Tensor, number: int) -> Tensor:
    """Logits of the policies, (asked, policies), from a network fitted on the other windows."""
    mean, std = fitted.mean(dim=0), fitted.std(dim=0) + 1e-6
    network = nn.Sequential(nn.Linear(fitted.shape[1], 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, number))
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=1e-2)
    for _ in range(UPDATES):
        drawn = torch.randint(len(fitted), (BATCH,))
        loss = nn.functional.cross_entropy(network((fitted[drawn] - mean) / std), who[drawn])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        answers: Tensor = network((asked - mean) / std)
    return answers


if __name__ == "__main__":
    main()
