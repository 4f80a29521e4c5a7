"""What does a policy's hidden state know about the hidden cell? A linear probe, for each form of the accounts.

    python studies/hidden_probe.py FOLDER [--episodes 300] [--json FILE]

FOLDER is a study of hidden-arm, run with `mental-accounts compare`. Each policy plays new episodes itself. (The data
would be misleading: their last actions are those of an informed behaviour policy, and give the cell away.) At each step
where the policy's own action is taken, we keep the vector that its head reads, and fit a softmax over the 27 cells to
it on 70% of the episodes. On the rest we report how often the most likely cell is the paying one, and the information
in bits, log2(27) - cross entropy, a lower bound on the mutual information. The same for what the policy could have
known: all balances of its own episode, and its last K - 1 steps.
"""

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mental_accounts.environments import HiddenArm
from mental_accounts.environments.hidden_arm import cell_of
from mental_accounts.learning.run_folder import surroundings
from mental_accounts.policy import DecisionTransformer
from mental_accounts.report.study_files import read_study_folder

CELLS = 27
FIRST_SEED = 500_000_000
"""First seed of the episodes: far from those of the data and of evaluations."""
TARGET_RETURN = 40.0
FORGETTING = 0.05


@dataclass(frozen=True)
class Recorded:
    """The policy's own steps in n episodes."""

    states: Tensor  # (n, steps, hidden): the input of the head
    balances: Tensor  # (n, steps, CELLS) before the step
    window: Tensor  # (n, steps, (K - 1) · (CELLS + 1)): cells of the actions before it, and their rewards
    cells: Tensor  # (n, steps): the paying cell
    returns: Tensor  # (n,)


def main() -> None:
    """Probe every policy of a study."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--episodes", type=int, default=300)
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    for run in read_study_folder(asked.folder).runs:
        if run.folder is None or not (run.folder / "policy").exists():
            continue
        recorded = play(DecisionTransformer.load(run.folder / "policy").eval(), asked.episodes)
        row = {"seed": run.entry["seed"], "return": float(recorded.returns.mean())}
        for what in ("states", "balances", "window"):
            row |= {f"{what}_{key}": value for key, value in probe(getattr(recorded, what), recorded.cells).items()}
        found.setdefault(run.entry["method"], []).append(row)
        print(run.entry["method"], row, flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps({"command": sys.argv, **surroundings(), "policies": found}, indent=1) + "\n")


@torch.no_grad()
def play(policy: DecisionTransformer, episodes: int) -> Recorded:
    """Episodes with the mean action, as in an evaluation."""
    envs = [HiddenArm() for _ in range(episodes)]
    context = policy.context(episodes, TARGET_RETURN)
    reach = policy.config.context_length - 1
    read: dict[str, Tensor] = {}
    hook = policy.head.register_forward_pre_hook(lambda _, given: read.update(last=given[0][:, -1].clone()))
    begun = [env.reset(seed=FIRST_SEED + i) for i, env in enumerate(envs)]
    observations = np.stack([observation for observation, _ in begun])
    cells = np.array([info["cell"] for _, info in begun])
    balances, returns = np.zeros((episodes, CELLS)), np.zeros(episodes)
    history = np.zeros((episodes, 0, CELLS + 1), np.float32)
    rows: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for t in range(envs[0].steps):
        actions = policy.act(observations, context)
        if observations[0, 0] == 0 and t >= 40:  # not hijacked; from step 40 on, for all policies
            recent = torch.from_numpy(history[:, len(history[0]) - reach :].reshape(episodes, -1).copy())
            rows.append((read["last"], torch.from_numpy(balances.astype(np.float32)), recent, torch.from_numpy(cells)))
        answers = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        taken = np.stack([info["action_taken"] for *_, info in answers])
        rewards = np.array([answer[1] for answer in answers], np.float32)
        context.record(rewards, np.array([answer[3] for answer in answers]), taken)
        codes = np.array([cell_of(action) for action in taken])
        balances = balances * (1 - FORGETTING)
        balances[np.arange(episodes), codes] += rewards
        entry = np.concatenate([np.eye(CELLS, dtype=np.float32)[codes] * rewards[:, None], rewards[:, None]], axis=1)
        history = np.concatenate([history, entry[:, None]], axis=1)
        returns += rewards
        observations = np.stack([answer[0] for answer in answers])
        cells = np.array([info["cell"] for *_, info in answers])
    hook.remove()
    states, held, windows, paying = (torch.stack(column, dim=1) for column in zip(*rows, strict=True))
    return Recorded(states, held, windows, paying, torch.from_numpy(returns))


def probe(states: Tensor, cells: Tensor) -> dict[str, float]:
    """Fit on the first 70% of episodes, evaluate on the rest: (episodes, steps, size), (episodes, steps)."""
    cut = int(0.7 * len(cells))
    train, test = (part.flatten(0, 1) for part in (states[:cut], states[cut:]))
    known, asked = (part.flatten() for part in (cells[:cut], cells[cut:]))
    mean, std = train.mean(dim=0), train.std(dim=0) + 1e-6
    train, test = (train - mean) / std, (test - mean) / std
    weight = torch.zeros(train.shape[1], CELLS, requires_grad=True)
    bias = torch.zeros(CELLS, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(train @ weight + bias, known) + 1e-3 * weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    with torch.no_grad():
        logits = test @ weight + bias
        bits = math.log2(CELLS) - float(torch.nn.functional.cross_entropy(logits, asked)) / math.log(2)
        accuracy = float((logits.argmax(dim=-1) == asked).double().mean())
    return {"accuracy": accuracy, "bits": bits}


if __name__ == "__main__":
    main()
