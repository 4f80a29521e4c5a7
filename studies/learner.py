"""What the learner reaches on built-in data: version 0.1, tokens that keep their size, and two likelihoods.

    python studies/learner.py results/learner/runs.json --picture results/learner/curves.png

Each run, on a GPU, is `mental-accounts train` with the arguments recorded for it, for example

    mental-accounts train --task walker2d-medium-replay --method odt --preset converged --lr 1e-3 --optimizer lamb \
        --warmup-updates 500 --batch-size 256 --pretrain-iterations 8 --updates-per-pretrain-iteration 1000 \
        --pretrain-eval-every 2 --online-iterations 0 --eval-episodes 20 --model.likelihood clipped --seed 0
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interval_cells import written
from mental_accounts.report.statistics import difference_interval, mean_interval

RETURN, NLL = "evaluation/return_mean_gm", "training/nll"
BASELINE = "version 0.1"


def last_returns(runs: Sequence[dict[str, Any]], task: str, form: str) -> dict[int, float]:
    """The mean return of the last evaluation, by seed."""
    return {
        run["seed"]: [line[RETURN] for line in run["metrics"] if RETURN in line][-1]
        for run in runs
        if (run["task"], run["form"]) == (task, form)
    }


def offline_table(runs: Sequence[dict[str, Any]]) -> str:
    """Task × form: the mean over seeds with its interval, and the difference from version 0.1 if that was run."""
    lines = ["| task | form | seeds | mean return [95%] | compared with version 0.1 [95%] | NLL |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    forms = dict.fromkeys((run["task"], run["form"]) for run in runs if run["form"] != "preset odt")
    for task, form in sorted(forms, key=lambda pair: (pair[0], pair[1] != BASELINE, pair[1])):
        found = last_returns(runs, task, form)
        mean = mean_interval(list(found.values()))
        before, apart = last_returns(runs, task, BASELINE), ""
        shared = sorted(set(before) & set(found))
        if shared and form != BASELINE:
            change = difference_interval([found[seed] for seed in shared], [before[seed] for seed in shared])
            apart = written(change, 0, signed=True)
        nll = np.mean([run["metrics"][-1][NLL] for run in runs if (run["task"], run["form"]) == (task, form)])
        lines.append(f"| {task} | {form} | {len(found)} | {written(mean, 0)} | {apart} | {nll:.2f} |")
    return "\n".join(lines)


def curve_table(runs: Sequence[dict[str, Any]]) -> str:
    """The mean return of every evaluation, over seeds, by updates."""
    lines = ["| task | form | updates | mean return | NLL |", "|---|---|---:|---:|---:|"]
    for task, form in dict.fromkeys((run["task"], run["form"]) for run in runs):
        chosen = [run["metrics"] for run in runs if (run["task"], run["form"]) == (task, form)]
        for rows in zip(*chosen, strict=False):
            if all(RETURN in row for row in rows):
                returns, nlls = (np.mean([row[name] for row in rows]) for name in (RETURN, NLL))
                lines.append(f"| {task} | {form} | {rows[0]['updates']:,} | {returns:.0f} | {nlls:.2f} |")
    return "\n".join(lines)


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """The curves: offline by updates (mean over seeds, and each seed), online by iteration (each seed)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    for row, (form, place, label) in enumerate(
        (("clipped likelihood, longer", "updates", "updates"), ("preset odt", "iteration", "online iterations"))
    ):
        for column, task in enumerate(("hopper-medium", "walker2d-medium-replay")):
            axes = figure.add_subplot(2, 2, 2 * row + column + 1)
            curves = [
                [(line[place], line[RETURN]) for line in run["metrics"] if RETURN in line]
                for run in runs
                if (run["task"], run["form"]) == (task, form)
            ]
            for curve in curves:
                axes.plot(*zip(*curve, strict=True), color="#4a6fa5", linewidth=0.9, alpha=0.6)
            shared = list(zip(*curves, strict=False))
            mean = [float(np.mean([value for _, value in points])) for points in shared]
            axes.plot([points[0][0] for points in shared], mean, color="#1b2a41", linewidth=2)
            axes.set_title(f"{task}, {'offline' if row == 0 else 'preset odt'}", fontsize=10)
            axes.set_xlabel(label)
            axes.set_ylabel("mean return, mean action")
            axes.set_ylim(bottom=min(0, *mean))
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print the tables, and draw the curves if --picture is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    runs = json.loads(given.runs.read_text())["runs"]
    print("\n\n".join((offline_table(runs), curve_table(runs))))
    if given.picture is not None:
        draw(runs, given.picture)


if __name__ == "__main__":
    main()
