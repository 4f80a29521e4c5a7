"""Tables and figure of the tasks with a hidden context, from the studies in results/hidden; for `make results`."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from hidden_forms import (
    BROKEN,
    BROKEN_OPTIONS,
    HEAD,
    LEDGER,
    LONG,
    LONG_ON_THE_ROBOT,
    MAIN,
    OBSERVED,
    OPTIONS,
    SOFT,
    TOKEN,
    with_signs,
)
from interval_cells import written
from marked_pages import between
from mental_accounts.data.tasks import TASKS, Task, find_task
from mental_accounts.report.report_tables import probability
from mental_accounts.report.runs import Evidence, read_study
from mental_accounts.report.significance import holm, paired_p_value
from mental_accounts.report.statistics import Interval, difference_interval, mean_interval

BEGIN, END = "<!-- tables: made by studies/results_pages.py -->", "<!-- end of tables -->"
ORACLE = 84.0
"""The mean return of an oracle on hidden-arm."""
Pair = tuple[str, str, str, str]
"""A method's name in words, the method, the method it is compared with, and its name in words."""
STEPS_UP: tuple[Pair, ...] = (
    ("the paper's bias", "ewa-vq-odt", "odt", "ODT"),
    ("β learned per head", f"ewa-vq-odt:{HEAD}", "ewa-vq-odt", "the paper's bias"),
    ("the ledger", f"ewa-vq-odt:{LEDGER}", f"ewa-vq-odt:{HEAD}", "β learned per head"),
    ("the ledger", f"ewa-vq-odt:{LEDGER}", f"ewa-vq-odt:{TOKEN}", "β by a map of the token"),
    ("the ledger", f"ewa-vq-odt:{LEDGER}", LONG, "ODT with K=40"),
    ("the ledger, softly routed", f"ewa-vq-odt:{SOFT}", f"ewa-vq-odt:{LEDGER}", "the ledger"),
    ("the ledger, softly routed", f"ewa-vq-odt:{SOFT}", f"ewa-vq-odt:{TOKEN}", "β by a map of the token"),
)
ROBOTS_STEPS_UP: tuple[Pair, ...] = tuple(
    (words, with_signs(f"ewa-vq-odt:{form}"), LONG_ON_THE_ROBOT, "ODT with K=20")
    for words, form in (
        ("the ledger", LEDGER),
        ("the ledger, credit above a baseline", f"{LEDGER},credit=advantage"),
        ("the ledger, accounts of 4 kinds of state", f"{LEDGER},state_codes=4"),
    )
)
SUMMARY = (
    ("`beta_per=token` rather than `head`", TOKEN, None),
    ("`soft_codes=3` (box actions)", f"{HEAD},soft_codes=3", SOFT),
    ("β per head beside the ledger", None, f"ledger_input=state,{HEAD}"),
    ("`ledger_input=token` rather than `state`", None, "ledger_input=token,beta=0"),
    ("`read=now`", f"{HEAD},read=now", None),
    (
        "`codebook=hierarchical` (box actions)",
        f"{HEAD},codebook=hierarchical,num_codes=None",
        f"{LEDGER},codebook=hierarchical,num_codes=None",
    ),
    ("`state_codes=4`", f"{HEAD},state_codes=4", f"{LEDGER},state_codes=4"),
    ("`account_scope=window`", f"{HEAD},account_scope=window", None),
    ("`normalised`", f"{HEAD},normalised=True", f"{LEDGER},normalised=True"),
    ("`credit=advantage`", f"{HEAD},credit=advantage", f"{LEDGER},credit=advantage"),
    ("`rule=canonical`", None, f"{LEDGER},rule=canonical"),
)
"""Options in words, as a change of β per head, and as a change of the ledger."""


def returns(evidence: Evidence, task: str, method: str) -> dict[int, float]:
    """The last return of each seed, with the mean action."""
    return {run.seed: float(run.summary["last_return"]) for run in evidence.of(task, method)}


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """The values of the seeds that both have, in the same order."""
    seeds = sorted(ours.keys() & theirs.keys())
    return [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """The mean difference between runs with the same seed; None if there are none."""
    one, other = paired(ours, theirs)
    return difference_interval(one, other) if one else None


def tests(compared: Sequence[tuple[Mapping[int, float], Mapping[int, float]]]) -> list[str]:
    """For each difference, the p-value of a paired t-test, and after Holm's correction over all of them."""
    found = [paired_p_value(*paired(*pair)) for pair in compared]
    return [f"{probability(p)}, {probability(corrected)}" for p, corrected in zip(found, holm(found), strict=True)]


def sampled(folder: Path, method: str) -> dict[int, float]:
    """The return of each seed's policy with sampled actions, if hidden_sampled.py was run."""
    path = folder / "sampled.json"
    found = json.loads(path.read_text())["returns"].get(method, {}) if path.exists() else {}
    return {int(seed): value for seed, value in found.items()}


def surprise(evidence: Evidence, task: str, method: str) -> dict[int, float]:
    """-log p of the data's actions, in nats, averaged over the last iteration's updates: for each seed."""
    return {run.seed: float(run.lines[-1]["training/nll"]) for run in evidence.of(task, method)}


def as_then(task: str) -> Task:
    """The task of that name when the studies were run: since then, others than a policy's own ledger make the data."""
    return find_task(f"{task}/own-ledger" if f"{task}/own-ledger" in TASKS else task)


def digits_of(task: str) -> int:
    """Decimals of a task's returns in tables."""
    return 0 if (as_then(task).expert_return or 0) > 1000 else 1


def table(
    evidence: Evidence,
    task_name: str,
    folder: Path,
    forms: Mapping[str, str],
    baseline: str,
    costs: Mapping[str, Mapping[str, float]],
    *,
    tested: bool = True,
) -> str:
    """One row per form: return, score, difference from the baseline, sampled return, NLL, and costs relative to ODT.

    Empty columns are left out. `tested` adds a column of p-values.
    """
    task = as_then(task_name)
    assert task.random_return is not None
    assert task.expert_return is not None
    digits = digits_of(task_name)
    head = ["policy", "seeds", "return [95%]", "score", f"against {forms.get(baseline, baseline)} [95%]",
            "p, Holm", "sampled [95%]", "NLL", "update", "step"]  # fmt: skip
    found_returns = {method: returns(evidence, task_name, method) for method in forms}
    others = [method for method, values in found_returns.items() if values and method != baseline]
    pairs = [(found_returns[method], found_returns[baseline]) for method in others]
    p_values = dict(zip(others, tests(pairs), strict=True)) if tested else {}
    rows = []
    for method, words in forms.items():
        values = found_returns[method]
        if not values:
            continue
        found = mean_interval(list(values.values()))
        score = 100 * (found.estimate - task.random_return) / (task.expert_return - task.random_return)
        gap = None if method == baseline else difference(values, found_returns[baseline])
        drawn = list(sampled(folder, method).values())
        nats = np.mean(list(surprise(evidence, task_name, method).values()))
        cost = costs.get(method)
        rows.append([
            words, str(len(values)), written(found, digits), f"{score:.0f}".replace("-", "−"),
            "" if gap is None else written(gap, digits, signed=True), p_values.get(method, ""),
            by_samples(drawn, len(values), digits), f"{nats:.2f}".replace("-", "−"),
            *("" if cost is None else f"×{cost[what]:.2f}" for what in ("update_ratio", "step_ratio")),
        ])  # fmt: skip
    kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
    lines = [[head[place] for place in kept], ["---" if place == 0 else "---:" for place in kept]]
    lines += [[row[place] for place in kept] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def by_samples(drawn: list[float], seeds: int, digits: int) -> str:
    """A cell, with a note if not all seeds were played."""
    if not drawn:
        return ""
    return written(mean_interval(drawn), digits) + ("" if len(drawn) == seeds else f" ({len(drawn)} seeds)")


def steps_up(evidence: Evidence, folder: Path, pairs: Sequence[Pair] = STEPS_UP) -> str:
    """Gains of forms over others: with the mean action, with sampled actions, and in NLL of the data's actions."""
    task = evidence.tasks[0]
    digits = digits_of(task)
    lines = [
        "| | above | return [95%] | by sampled actions [95%] | NLL, lower is better [95%] |",
        "|---|---|---:|---:|---:|",
    ]
    for words, method, other, other_words in pairs:
        if not (returns(evidence, task, method) and returns(evidence, task, other)):
            continue
        found = (
            (difference(returns(evidence, task, method), returns(evidence, task, other)), digits),
            (difference(sampled(folder, method), sampled(folder, other)), digits),
            (difference(surprise(evidence, task, method), surprise(evidence, task, other)), 2),
        )
        columns = ("" if gap is None else written(gap, places, signed=True) for gap, places in found)
        lines.append(f"| {words} | {other_words} | {' | '.join(columns)} |")
    return "\n".join(lines)


def picture(evidence: Evidence, path: Path) -> None:
    """Draw the returns of all forms, one point per seed."""
    task, shown = as_then(evidence.tasks[0]), evidence.tasks[0]
    assert task.random_return is not None
    assert task.expert_return is not None
    figure, axes = plt.subplots(figsize=(8, 2.9), layout="constrained")
    names = [name for name in MAIN if returns(evidence, shown, name)]
    for row, name in enumerate(reversed(names)):
        values = np.array(list(returns(evidence, shown, name).values()))
        found = mean_interval(values)
        colour = "#777777" if name.startswith("odt") else "#0072b2"
        axes.plot(values, np.full(len(values), row), "o", color=colour, alpha=0.35, markersize=4, mew=0)
        axes.errorbar(
            found.estimate, row, xerr=[[found.estimate - found.low], [found.high - found.estimate]], fmt="o",
            color=colour, capsize=3, markersize=6,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), [MAIN[name].replace("`", "") for name in reversed(names)])
    for place, words in ((task.random_return, "random"), (task.expert_return, "the data's learner")):
        axes.axvline(place, color="#999999", linestyle=":", linewidth=1)
        axes.annotate(words, (place, 1.01), xycoords=("data", "axes fraction"), ha="center", fontsize=8)
    axes.set_xlabel(f"return on {shown}, with 95% intervals; an oracle has {ORACLE:.0f}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)


def costs(folder: Path, task: str = "arm") -> Mapping[str, Mapping[str, float]]:
    """The costs of forms relative to a study's `odt` (hidden_cost.py)."""
    found: Mapping[str, Mapping[str, float]] = json.loads((folder / f"cost-{task}-h200.json").read_text())["forms"]
    return found


def joined(folder: Path, *names: str) -> Evidence:
    """Several studies of the same task, with the same seeds and settings, as one."""
    parts = [read_study(folder / name) for name in names]
    methods = tuple(method for part in parts for method in part.methods)
    return Evidence(names[0], parts[0].tasks, methods, tuple(run for part in parts for run in part.runs), ())


def on_the_arm(folder: Path) -> Evidence:
    """hidden-arm: the forms and the options."""
    return joined(folder, "arm", "options")


def on_the_bandit(folder: Path) -> Evidence:
    """drifting-bandit: the forms and the options."""
    return joined(folder, "bandit", "bandit-options")


def on_the_robot(folder: Path) -> Evidence:
    """broken-halfcheetah: the forms and the options."""
    return joined(folder, "broken", "broken-options")


def main_table(folder: Path, *, tested: bool = False) -> str:
    """The main table of hidden-arm."""
    evidence = on_the_arm(folder)
    return table(evidence, evidence.tasks[0], folder / "arm", MAIN, "odt", costs(folder), tested=tested)


def option_tables(
    evidence: Evidence,
    folder: Path,
    options: Mapping[str, str],
    costs: Mapping[str, Mapping[str, float]],
    named: Callable[[str], str] = str,
) -> list[str]:
    """Options compared with the forms that they change; `named` maps a form to its name on the task."""
    parts, task = [], evidence.tasks[0]
    for words, baseline, begin in (
        ("Options of the bias", f"ewa-vq-odt:{HEAD}", "β"),
        ("Options of the ledger", f"ewa-vq-odt:{LEDGER}", "the ledger"),
    ):
        changed = {key: text for key, text in options.items() if text.startswith(begin)}
        forms = {named(baseline): MAIN[baseline]} | changed
        parts += [f"### {words}, on {task}", table(evidence, task, folder, forms, named(baseline), costs)]
    return parts


def options_summary(folder: Path) -> str:
    """The gain of each option over the form that it changes, by task; bold if the interval is above zero."""
    studies = ((on_the_arm(folder), str), (on_the_bandit(folder), str), (on_the_robot(folder), with_signs))
    tasks = [evidence.tasks[0] for evidence, _ in studies]
    forms = ("β per head", "the ledger")
    head = ["option", *(f"{form}, `{task}`" for task in tasks for form in forms)]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for words, *changed in SUMMARY:
        pairs = list(zip(changed, (HEAD, LEDGER), strict=True))
        lines.append([words, *(_gain(evidence, named, *pair) for evidence, named in studies for pair in pairs)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _gain(evidence: Evidence, named: Callable[[str], str], form: str | None, baseline: str) -> str:
    task = evidence.tasks[0]
    ours, theirs = (returns(evidence, task, named(f"ewa-vq-odt:{what}")) for what in (form, baseline))
    found = difference(ours, theirs)
    if found is None:
        return ""
    text = written(found, digits_of(task), signed=True)
    return f"**{text}**" if found.low > 0 else text


def tables(folder: Path) -> str:
    """The tables of all studies."""
    arm, bandit, robot, small = on_the_arm(folder), on_the_bandit(folder), on_the_robot(folder), costs(folder)
    robots, full_size = costs(folder, "robot"), costs(folder, "observed")
    parts = ["### hidden-arm", main_table(folder, tested=True), steps_up(arm, folder / "arm")]
    parts += ["### What the policies know of the hidden cell", knowledge(folder)]
    parts += option_tables(arm, folder / "options", OPTIONS, small)
    parts += ["### drifting-bandit", table(bandit, bandit.tasks[0], folder / "bandit", MAIN, "odt", small)]
    parts += [steps_up(bandit, folder / "bandit"), *option_tables(bandit, folder / "bandit-options", OPTIONS, small)]
    parts += [f"### {robot.tasks[0]}", table(robot, robot.tasks[0], folder / "broken", BROKEN, "odt", robots)]
    parts += [steps_up(robot, folder / "broken", ROBOTS_STEPS_UP)]
    parts += option_tables(robot, folder / "broken-options", BROKEN_OPTIONS, robots, with_signs)
    observed = joined(folder, "observed", "observed-options")
    for task in observed.tasks:
        parts += [f"### {task}", table(observed, task, folder / "observed", OBSERVED, "odt", full_size)]
    return "\n\n".join(parts)


def knowledge(folder: Path) -> str:
    """Information about the hidden cell in the policies' states, by a linear probe (hidden_probe.py)."""
    found = json.loads((folder / "probe.json").read_text())["policies"]
    lines = [
        "| policy | seeds | its state names the right cell | bits its state tells [95%] | bits in all its balances | "
        "bits in its last K − 1 steps |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for method, words in MAIN.items():
        rows = found.get(method, [])
        if rows:
            right, known, held, recent = (
                np.array([row[key] for row in rows])
                for key in ("states_accuracy", "states_bits", "balances_bits", "window_bits")
            )
            columns = (f"{100 * right.mean():.0f}%", written(mean_interval(known), 2), f"{held.mean():.2f}",
                       f"{recent.mean():.2f}")  # fmt: skip
            lines.append(f"| {words} | {len(rows)} | {' | '.join(columns)} |")
    return "\n".join(lines)


def page(folder: Path) -> str:
    """README.md of the folder with regenerated tables."""
    return between((folder / "README.md").read_text(), BEGIN, END, tables(folder))
