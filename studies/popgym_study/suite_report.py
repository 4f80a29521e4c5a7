"""Finished runs -> README.md with tables, a picture of the learning curves, and all runs in one file."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from mental_accounts.files import write_atomically

from .suite_methods import LABELS, METHODS
from .suite_runs import BANDITS, STEPS, read_runs

Run = dict[str, Any]

PUBLISHED = {
    "best of the suite's 13 memory models, 15M steps": (0.631, 0.598, 0.574),
    "the suite's GRU, 15M steps": (0.619, 0.538, 0.516),
}
"""Best of training (MMER) on the three bandits, from a transcription of the paper's table by others."""
BASELINES = ("plain", "lstm", "stack")
"""What the ledger is compared with: PPO without a memory, and the memories that threaten it most."""
METRICS = {"sampled": "sampled actions", "mode": "most likely action", "best": "best of training"}

INTRODUCTION = """# POPGym: a ledger compared with other memories

How well does PPO learn tasks that need memory, if its memory is a ledger? One command makes all of this, and goes on
where it was interrupted: `python -m studies.popgym_study --out FOLDER`. `runs.json` has every run.

All methods are Stable-Baselines3's PPO on the same environments; they differ in what the policy sees.

- *PPO*: the suite's observation and the previous action, as in the suite's own script. The others see the previous
  reward, too, standardised.
- *Ledger*: mean payoff and count of every action, φ = {phi}; read by an ordinary network, or by one network that all
  actions share (`PerCodePolicy`).
- *Last {stacked} steps*: the observations, actions and rewards of these steps.
- *LSTM*: sb3-contrib's RecurrentPPO with {lstm} hidden units, which actor and critic share as in the suite's models.

Time is not part of the observation: the suite's observations are left as they are, though counts tell it to a ledger.

We report the mean return of {episodes} episodes with fresh seeds after the last step, with actions sampled from the
policy and with the most likely action. *Best of training* is the suite's MMER: the highest mean return of training
episodes in any window of 65,536 steps, per run; it is a maximum of noisy numbers, and thus higher than what a policy
reaches on average. Means over seeds with 95% intervals by Student's t; differences are paired by seed.

{machines}
"""

NOTES = """
Published rows come from a transcription of the paper's table by others; they are best of training, after 15 million
steps. Players do not learn: they know that arms pay by chance (standard errors of {episodes} episodes in brackets).
"""

TUNING = """
## Settings

{settings}

The learning rate falls linearly to 0. {tuned}
"""

TUNED = """Tuned on MultiarmedBanditEasy with one seed, 1000, which is not in the tables, by 400,000 to 800,000
steps a trial. The shared network had seven trials there (γ of 0.97, 0.99 and 0.999, learning rates of 0.001 and 0.003,
batches of 1024 and 4096, 2 and 4 epochs) and one on MultiarmedBanditHard; the ledger with an MLP and the stack had two
each (learning rates of 0.001 and 0.003), the LSTM two (0.001 with batches of 2048, 0.003 with 1024), plain PPO none.
Ours was thus tuned more than the others. Apart from short looks at Battleship and MineSweeper, nothing was tried on the
other environments."""


def write_report(out: Path) -> str:
    """Write README.md, curves.png and runs.json into a study's folder, and return the first."""
    runs, players = read_runs(out)
    if not runs:
        raise FileNotFoundError(f"{out} has no finished runs: train first")
    packed = pack(runs, players)
    write_atomically(out / "runs.json", (json.dumps(packed, separators=(",", ":")) + "\n").encode())
    text = page(runs, players)
    write_atomically(out / "README.md", text.encode())
    draw(runs, players, out / "curves.png")
    return text


def pack(runs: Sequence[Run], players: Sequence[Run]) -> dict[str, Any]:
    """All runs as one, with what they share written once: settings, and the machines that made them."""
    machines: list[dict[str, Any]] = []
    kept = []
    for run in runs:
        if run["made with"] not in machines:
            machines.append(run["made with"])
        kept.append({**run, "made with": machines.index(run["made with"])})
        if run["settings"] == asdict(METHODS[run["method"]]):
            del kept[-1]["settings"]
    settings = {name: asdict(values) for name, values in METHODS.items()}
    command = ["python", "-m", "studies.popgym_study", *sys.argv[1:]]
    return {"command": command, "made with": machines, "settings": settings, "players": [*players], "runs": kept}


def page(runs: Sequence[Run], players: Sequence[Run]) -> str:
    """README.md."""
    settings = METHODS["ledger"]
    parts = [
        INTRODUCTION.format(
            phi=settings.phi,
            stacked=METHODS["stack"].stacked,
            lstm=METHODS["lstm"].lstm_hidden,
            episodes=runs[0]["sampled"]["episodes"],
            machines=machines_of(runs),
        )
    ]
    if any(run["environment"] in BANDITS for run in runs):
        episodes = players[0]["episodes"] if players else 0
        parts += ["## Bandits", bandit_table(runs, players), NOTES.format(episodes=f"{episodes:,}").strip()]
    parts += ["## All environments", main_table(runs), "![learning curves](curves.png)"]
    parts += [TUNING.format(settings=settings_table(), tuned=TUNED).strip()]
    return re.sub(r"(?<=[ \[])-(?=\d)", "−", "\n\n".join(part.strip() for part in parts)) + "\n"


def machines_of(runs: Sequence[Run]) -> str:
    """A sentence on what made the runs."""
    found: dict[str, int] = {}
    for run in runs:
        made = run["made with"]
        hardware, versions = made["hardware"], made["versions"]
        name = f"{hardware['cpu']}, {hardware['cpus']} cores, Python {versions['python']}, torch {versions['torch']}"
        found[name] = found.get(name, 0) + 1
    shared = runs[0]["made with"]["versions"]
    libraries = ", ".join(f"{name} {shared[name]}" for name in ("popgym", "stable-baselines3", "sb3-contrib"))
    return (
        f"Made with {libraries}, one core a run: " + "; ".join(f"{n} runs on {name}" for name, n in found.items()) + "."
    )


def bandit_table(runs: Sequence[Run], players: Sequence[Run]) -> str:
    """Players, published rows and methods on the three bandits."""
    lines = ["| | measure | Easy | Medium | Hard |", "|---|---|---:|---:|---:|"]
    for name in dict.fromkeys(row["player"] for row in players):
        found = {row["environment"]: row for row in players if row["player"] == name}
        cells = [f"{found[e]['mean']:.3f} (±{found[e]['error']:.3f})" if e in found else "" for e in BANDITS]
        lines.append(f"| {name} | no learning | {' | '.join(cells)} |")
    for name, values in PUBLISHED.items():
        lines.append(f"| {name} | best of training | {' | '.join(f'{value:.3f}' for value in values)} |")
    for method in METHODS:
        for metric, label in METRICS.items():
            cells = [written(values_of(runs, environment, method, metric)) for environment in BANDITS]
            if any(cells):
                lines.append(f"| {LABELS[method]} | {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main_table(runs: Sequence[Run]) -> str:
    """Every environment and method; sampled actions are compared with the other memories, paired by seed."""
    compared = " | ".join(f"compared with {LABELS[baseline]}" for baseline in BASELINES)
    lines = [
        f"| environment | method | seeds | sampled | most likely | best of training | {compared} | CPU s / 1M steps |",
        "|---|---|---:|---:|---:|---:|" + "---:|" * len(BASELINES) + "---:|",
    ]
    for environment in STEPS:
        for method in METHODS:
            own = [run for run in runs if (run["environment"], run["method"]) == (environment, method)]
            if not own:
                continue
            cells = [written(values_of(runs, environment, method, metric)) for metric in METRICS]
            cells += [
                "" if method == baseline or not method.startswith("ledger") else
                difference(values_of(runs, environment, method), values_of(runs, environment, baseline))
                for baseline in BASELINES
            ]  # fmt: skip
            pace = np.mean([1e6 * run["seconds"]["training on its core"] / run["steps"] for run in own])
            cells.append(f"{pace:.0f}")
            lines.append(f"| {environment} | {LABELS[method]} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def settings_table() -> str:
    """What each method learns with."""
    rows = {name: asdict(values) for name, values in METHODS.items()}
    names = [key for key in next(iter(rows.values())) if key not in ("memory", "per_code")]
    lines = [f"| | {' | '.join(LABELS[name] for name in rows)} |", "|---|" + "---:|" * len(rows)]
    for key in names:
        lines.append(f"| {key.replace('_', ' ')} | {' | '.join(f'{row[key]:g}' for row in rows.values())} |")
    return "\n".join(lines)


def values_of(runs: Sequence[Run], environment: str, method: str, metric: str = "sampled") -> dict[int, float]:
    """Seed -> return."""
    own = [run for run in runs if (run["environment"], run["method"]) == (environment, method)]
    found = {run["seed"]: run[metric] if metric == "best" else run[metric]["mean"] for run in own}
    return {seed: value for seed, value in found.items() if value is not None}


def written(values: dict[int, float]) -> str:
    """A mean with its interval; a single run has none."""
    return _cell(list(values.values()), "")


def difference(ours: dict[int, float], theirs: dict[int, float]) -> str:
    """The mean difference of runs with the same seed."""
    return _cell([ours[seed] - theirs[seed] for seed in sorted(set(ours) & set(theirs))], "+")


def _cell(values: Sequence[float], sign: str) -> str:
    """The mean, and its interval by Student's t where there are several."""
    if not values:
        return ""
    mean = np.mean(values)
    if len(values) < 2:
        return f"{mean:{sign}.3f}"
    half = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
    return f"{mean:{sign}.3f} [{mean - half:{sign}.3f}, {mean + half:{sign}.3f}]"


def draw(runs: Sequence[Run], players: Sequence[Run], path: Path) -> None:
    """Mean returns of training episodes; shades show the lowest and highest seed."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in STEPS if any(run["environment"] == name for run in runs)]
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3.6 * columns, 3.0 * rows + 0.9), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    for axis, name in zip(axes.flat, names, strict=False):
        for color, method in enumerate(METHODS):
            curves = [run["curve"] for run in runs if (run["environment"], run["method"]) == (name, method)]
            length = min(map(len, curves), default=0)
            if not length:
                continue
            values = np.array([[point["return"] for point in curve[:length]] for curve in curves])
            steps = np.array([point["steps"] for point in curves[0][:length]]) / 1e6
            axis.plot(steps, values.mean(0), color=f"C{color}", linewidth=1.3, label=LABELS[method])
            axis.fill_between(steps, values.min(0), values.max(0), color=f"C{color}", alpha=0.15, linewidth=0)
        for row in players:
            if row["environment"] == name and row["player"] in ("Thompson sampling", "UCB, c = 0.1"):
                axis.axhline(row["mean"], color="0.4", linestyle="--" if "UCB" in row["player"] else ":", linewidth=1)
        if name in BANDITS:
            published = next(iter(PUBLISHED.values()))[BANDITS.index(name)]
            axis.axhline(published, color="black", linestyle="-.", linewidth=0.8)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("million steps", fontsize=8)
        axis.tick_params(labelsize=7)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(len(labels), 2 * columns - 1), fontsize=8, frameon=False
    )
    title = "Mean return of training episodes"
    if any(name in BANDITS for name in names):
        title += "\n(dashed: UCB, dotted: Thompson sampling, dash-dotted: best published memory, 15M steps)"
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)
