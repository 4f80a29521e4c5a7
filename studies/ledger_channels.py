"""What a policy gains from reading visit counts and mean payoffs beside balances, on tasks with a hidden context.

    python studies/ledger_channels.py results/channels/runs.json

Each run is `mental-accounts train` with the arguments recorded for it, for example

    mental-accounts train --preset hidden --task drifting-bandit --seed 10 --model.accounts.ledger-channels mean count

(preset hidden had φ = 0.05 then: --model.accounts.phi 0.05).
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interval_cells import written
from learner import NLL, last_returns
from mental_accounts.report.statistics import difference_interval, mean_interval

BASELINE = "balance"


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Task × channels: the mean return over seeds, and the difference from balances alone, paired by seed."""
    lines = ["| task | channels | seeds | mean return [95%] | compared with balances alone [95%] | NLL |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    for task, form in dict.fromkeys((run["task"], run["form"]) for run in runs):
        found, before = last_returns(runs, task, form), last_returns(runs, task, BASELINE)
        seeds = sorted(found)
        mean, apart = mean_interval([found[seed] for seed in seeds]), ""
        if form != BASELINE:
            change = difference_interval([found[seed] for seed in seeds], [before[seed] for seed in seeds])
            apart = written(change, 1, signed=True)
        nll = np.mean([run["metrics"][-1][NLL] for run in runs if (run["task"], run["form"]) == (task, form)])
        lines.append(f"| {task} | {form} | {len(found)} | {written(mean, 1)} | {apart} | {nll:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    print(table(json.loads(parser.parse_args().runs.read_text())["runs"]))


if __name__ == "__main__":
    main()
