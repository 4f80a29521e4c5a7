"""Draw the learning curves of the behaviour policies: python studies/behaviour_curves.py (matplotlib)."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from behaviour_actor import ENV_IDS
from behaviour_choice import TARGETS


def main() -> None:
    """Read the curves, and draw one panel per task."""
    parser = argparse.ArgumentParser(description=__doc__)
    here = Path(__file__).parents[1] / "results" / "behaviours"
    parser.add_argument("--curves", type=Path, default=here / "curves")
    parser.add_argument("--out", type=Path, default=here / "curves.png")
    args = parser.parse_args()
    figure, axes = plt.subplots(1, len(TARGETS), figsize=(13, 3.8), constrained_layout=True)
    for axis, (task, target) in zip(axes, TARGETS.items(), strict=True):
        for i, run in enumerate(sorted(args.curves.glob(f"{task}-seed*.json"))):
            points = json.loads(run.read_text())
            steps = np.array([p["step"] for p in points]) / 1000
            for kind, style in (("stochastic", "-"), ("deterministic", ":")):
                mean, std = (np.array([p[kind][k] for p in points]) for k in ("mean", "std"))
                axis.plot(steps, mean, style, color=f"C{i}", lw=1.2, label=f"{run.stem.partition('-')[2]}, {kind}")
                if kind == "stochastic":
                    axis.fill_between(steps, mean - std, mean + std, color=f"C{i}", alpha=0.15, lw=0)
        axis.axhspan(target.low, target.high, color="0.5", alpha=0.2, lw=0)
        axis.axhline(target.expert, color="0.4", lw=0.8, ls="--")
        axis.set(title=ENV_IDS[task], xlabel="environment steps / 1000")
        axis.legend(fontsize=6)
    axes[0].set_ylabel("return (grey: medium's target, dashed: expert's)", fontsize=8)
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
