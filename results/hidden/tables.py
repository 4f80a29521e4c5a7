"""Writes the tables and the picture of the tasks with a hidden context, from the studies in this folder.

    python tables.py [FOLDER]

The tables go between the markers of README.md there, the picture beside it. Studies that are not there are left out.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from forms import BROKEN, CANONICAL, HEAD, LEDGER, MAIN, OPTIONS

from mental_accounts.data.tasks import find_task
from mental_accounts.evidence.runs import Evidence, read_study
from mental_accounts.evidence.statistics import Interval, difference_interval, mean_interval

BEGIN, END = "<!-- tables: made by tables.py -->", "<!-- end of tables -->"
ORACLES = {"hidden-arm": 84.0, "drifting-bandit": 152.6, "broken-halfcheetah": 4782.0}
"""Mean returns of someone who knows what is hidden."""
STEPS_UP = (
    ("the paper's bias", "ewa-vq-odt", "odt", "ODT"),
    ("β learned per head", f"ewa-vq-odt:{HEAD}", "ewa-vq-odt", "the paper's bias"),
    ("the ledger", f"ewa-vq-odt:{LEDGER}", f"ewa-vq-odt:{HEAD}", "β learned per head"),
    ("the ledger", f"ewa-vq-odt:{LEDGER}", "odt:context_length=40,eval_context_length=40", "ODT with K=40"),
)
"""What is above what: words, method, beside which, words."""


def returns(evidence: Evidence, method: str) -> dict[int, float]:
    """The last return of each seed."""
    task = evidence.tasks[0]
    return {run.seed: float(run.summary["last_return"]) for run in evidence.of(task, method)}


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Between runs of the same seed; None where there are none."""
    seeds = sorted(ours.keys() & theirs.keys())
    return difference_interval([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]) if seeds else None


def written(found: Interval, digits: int, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    text = f"{found.estimate:{sign}.{digits}f} [{found.low:{sign}.{digits}f}, {found.high:{sign}.{digits}f}]"
    return text.replace("-", "−")


def sampled_returns(folder: Path, method: str) -> dict[int, float]:
    """With sampled actions, where those were played (sampled.py)."""
    path = folder / "sampled.json"
    found = json.loads(path.read_text())["returns"].get(method, {}) if path.exists() else {}
    return {int(seed): value for seed, value in found.items()}


def table(
    evidence: Evidence,
    folder: Path,
    forms: Mapping[str, str],
    baseline: str,
    costs: Mapping[str, Mapping[str, float]],
) -> str:
    """A row a form: its return and score, the difference from the baseline, its return by samples, what it costs."""
    task = find_task(evidence.tasks[0])
    assert task.random_return is not None
    assert task.expert_return is not None
    digits = 0 if task.expert_return > 1000 else 1
    lines = [
        f"| policy | seeds | return [95%] | score | against {forms.get(baseline, baseline)} [95%] | sampled [95%] | "
        "update | step |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for method, words in forms.items():
        values = returns(evidence, method)
        if not values:
            continue
        found = mean_interval(list(values.values()))
        score = 100 * (found.estimate - task.random_return) / (task.expert_return - task.random_return)
        gap = None if method == baseline else difference(values, returns(evidence, baseline))
        above = "" if gap is None else written(gap, digits, signed=True)
        cost = costs.get(method)
        times = " | | " if cost is None else f" ×{cost['update_ratio']:.2f} | ×{cost['step_ratio']:.2f} "
        drawn = list(sampled_returns(folder, method).values())
        samples = written(mean_interval(drawn), digits) if drawn else ""
        row = f"| {words} | {len(values)} | {written(found, digits)} | {score:.0f} | {above} | {samples} |{times}|"
        lines.append(row)
    return "\n".join(lines)


def steps_up(evidence: Evidence, folder: Path) -> str:
    """Each form above the one before it, by the mean action and by samples."""
    lines = ["| | above | difference [95%] | by samples [95%] |", "|---|---|---:|---:|"]
    for words, method, other, beside in STEPS_UP:
        by_mean = difference(returns(evidence, method), returns(evidence, other))
        by_samples = difference(sampled_returns(folder, method), sampled_returns(folder, other))
        columns = ("" if found is None else written(found, 1, signed=True) for found in (by_mean, by_samples))
        lines.append(f"| {words} | {beside} | {' | '.join(columns)} |")
    return "\n".join(lines)


def picture(evidence: Evidence, path: Path) -> None:
    """Returns of all forms, every seed a point."""
    task = find_task(evidence.tasks[0])
    assert task.random_return is not None
    assert task.expert_return is not None
    figure, axes = plt.subplots(figsize=(8, 2.9), layout="constrained")
    names = [name for name in MAIN if returns(evidence, name)]
    for row, name in enumerate(reversed(names)):
        values = np.array(list(returns(evidence, name).values()))
        found = mean_interval(values)
        colour = "#777777" if name.startswith("odt") else "#0072b2"
        axes.plot(values, np.full(len(values), row), "o", color=colour, alpha=0.35, markersize=4, mew=0)
        axes.errorbar(
            found.estimate, row, xerr=[[found.estimate - found.low], [found.high - found.estimate]], fmt="o",
            color=colour, capsize=3, markersize=6,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), [MAIN[name].replace("`", "") for name in reversed(names)])
    for place, words in ((task.random_return, "random"), (task.expert_return, "who made the data")):
        axes.axvline(place, color="#999999", linestyle=":", linewidth=1)
        axes.annotate(words, (place, 1.01), xycoords=("data", "axes fraction"), ha="center", fontsize=8)
    axes.set_xlabel(f"return on {task.name}, with 95% intervals; an oracle has {ORACLES[task.name]:.0f}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)


def costs(folder: Path) -> Mapping[str, Mapping[str, float]]:
    """Ratios to ODT with K=5 on a GPU where they were measured, else on a CPU."""
    for name in ("cost-h200.json", "cost-cpu.json"):
        path = folder / name
        if path.exists():
            found: Mapping[str, Mapping[str, float]] = json.loads(path.read_text())["forms"]
            return found
    return {}


def tables(folder: Path) -> str:
    """Every study that is there."""
    parts = []
    for name, forms in (("arm", MAIN), ("bandit", {**MAIN, **CANONICAL}), ("broken", BROKEN)):
        place = folder / name
        if (place / "study.json").exists():
            evidence = read_study(place)
            known = costs(folder) if name != "broken" else {}  # they are of hidden-arm's sizes
            parts += [f"### {evidence.tasks[0]}", table(evidence, place, forms, "odt", known)]
            if name == "arm":
                parts.append(steps_up(evidence, place))
                picture(evidence, folder / "returns.png")
    if (folder / "options" / "study.json").exists():
        parts += options(folder)
    return "\n\n".join(parts)


def options(folder: Path) -> list[str]:
    """The options beside the forms that they change, which were run in another study with the same seeds."""
    main, more = read_study(folder / "arm"), read_study(folder / "options")
    both = Evidence("options", main.tasks, (*main.methods, *more.methods), (*main.runs, *more.runs), ())
    parts = []
    for words, baseline, begin in (
        ("Options of the bias, on hidden-arm", f"ewa-vq-odt:{HEAD}", "β"),
        ("Options of the ledger, on hidden-arm", f"ewa-vq-odt:{LEDGER}", "the ledger"),
    ):
        forms = {baseline: MAIN[baseline]} | {key: text for key, text in OPTIONS.items() if text.startswith(begin)}
        parts += [f"### {words}", table(both, folder / "options", forms, baseline, costs(folder))]
    return parts


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    made = tables(folder)
    page = folder / "README.md"
    if page.exists():
        before, _, rest = page.read_text().partition(BEGIN)
        page.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}")
    print(made)


if __name__ == "__main__":
    main()
