"""The tables and the picture of the tasks with a hidden context, from the studies in this folder: `make results`."""

import json
from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from results.hidden.forms import BROKEN, CANONICAL, HEAD, LEDGER, MAIN, OPTIONS

from mental_accounts.data.tasks import find_task
from mental_accounts.evidence.runs import Evidence, read_study
from mental_accounts.evidence.statistics import Interval, difference_interval, mean_interval

HERE = Path(__file__).parent
ORACLES = {"hidden-arm": 84.0, "drifting-bandit": 152.0, "broken-halfcheetah": 4794.0}
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


def difference(evidence: Evidence, method: str, other: str) -> Interval:
    """Between runs of the same seed."""
    ours, theirs = returns(evidence, method), returns(evidence, other)
    seeds = sorted(ours.keys() & theirs.keys())
    return difference_interval([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])


def written(found: Interval, digits: int, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    text = f"{found.estimate:{sign}.{digits}f} [{found.low:{sign}.{digits}f}, {found.high:{sign}.{digits}f}]"
    return text.replace("-", "−")


def table(evidence: Evidence, forms: Mapping[str, str], baseline: str, costs: Mapping[str, Mapping[str, float]]) -> str:
    """A row a form: its return, its score, the difference from the baseline, what it costs."""
    task = find_task(evidence.tasks[0])
    assert task.random_return is not None
    assert task.expert_return is not None
    digits = 0 if task.expert_return > 1000 else 1
    lines = [
        f"| policy | seeds | return [95%] | score | against {forms.get(baseline, baseline)} [95%] | update | step |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for method, words in forms.items():
        values = returns(evidence, method)
        if not values:
            continue
        found = mean_interval(list(values.values()))
        score = 100 * (found.estimate - task.random_return) / (task.expert_return - task.random_return)
        above = "" if method == baseline else written(difference(evidence, method, baseline), digits, signed=True)
        cost = costs.get(method)
        times = " | | " if cost is None else f" ×{cost['update_ratio']:.2f} | ×{cost['step_ratio']:.2f} "
        lines.append(f"| {words} | {len(values)} | {written(found, digits)} | {score:.0f} | {above} |{times}|")
    return "\n".join(lines)


def steps_up(evidence: Evidence) -> str:
    """Each form above the one before it."""
    lines = ["| | above | difference [95%] |", "|---|---|---:|"]
    for words, method, other, beside in STEPS_UP:
        lines.append(f"| {words} | {beside} | {written(difference(evidence, method, other), 1, signed=True)} |")
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


def costs() -> Mapping[str, Mapping[str, float]]:
    """Ratios to ODT with K=5 on a GPU where they were measured, else on a CPU."""
    for name in ("cost-h200.json", "cost-cpu.json"):
        path = HERE / name
        if path.exists():
            found: Mapping[str, Mapping[str, float]] = json.loads(path.read_text())["forms"]
            return found
    return {}


def all_tables() -> str:
    """Every study that is here."""
    parts = []
    for name, title, forms, baseline in (
        ("arm", "hidden-arm", MAIN, "odt"),
        ("bandit", "drifting-bandit", {**MAIN, **CANONICAL}, "odt"),
        ("broken", "broken-halfcheetah", BROKEN, "odt"),
    ):
        evidence = read_study(HERE / name)
        parts += [f"### {title}", table(evidence, forms, baseline, costs() if name != "broken" else {})]
        if name == "arm":
            parts.append(steps_up(evidence))
    options = read_options()
    for words, baseline, part in (
        ("Options of the bias, on hidden-arm", f"ewa-vq-odt:{HEAD}", "β"),
        ("Options of the ledger, on hidden-arm", f"ewa-vq-odt:{LEDGER}", "the ledger"),
    ):
        forms = {baseline: MAIN[baseline]} | {key: text for key, text in OPTIONS.items() if text.startswith(part)}
        parts += [f"### {words}", table(options, forms, baseline, costs())]
    return "\n\n".join(parts)


def read_options() -> Evidence:
    """The options beside the forms that they change, which were run in another study with the same seeds."""
    main, options = read_study(HERE / "arm"), read_study(HERE / "options")
    return Evidence("options", main.tasks, (*main.methods, *options.methods), (*main.runs, *options.runs), ())
