"""Questions 1 and 2 for docs/hidden.md, as tables and a picture: what each form of memory earns, by how much data."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from claim_answers import packed, q2_file
from claim_numbers import VERDICTS, Pair, Studies, cell
from mental_accounts.report.figures import colours_of
from mental_accounts.report.runs import SAMPLED
from mental_accounts.report.statistics import mean_interval
from questions import BOTH, GRU, LEDGER, Q1_METHODS, Q2_EPISODES, RIVALS, WHOLE

SHOWN = {LEDGER: "ledger", GRU: "GRU, reads rewards", WHOLE: "whole episodes, reads rewards", "odt": "ODT"}
"""The forms of question 2."""
SHORT = {VERDICTS["helps"]: "the ledger", VERDICTS["hurts"]: "the GRU", VERDICTS["no difference detected"]: "–"}
"""A verdict on the ledger against the GRU -> which of them is higher."""


def forms(studies: Studies) -> str:
    """Question 1: every form on both tasks, with the mean action and with sampled ones, and the steps it has read."""
    (file,) = packed("q1")
    heads = [f"`{task}`, {kind}" for task in BOTH for kind in ("mean action", "sampled")]
    lines = [f"| form | {' | '.join(heads)} | million steps read | weights |", "|---|" + "---:|" * 6]
    for method, words in Q1_METHODS.items():
        cells, read, weights = [], [], []
        for task in BOTH:
            runs = studies[file].of(task, method)
            cells.append(cell(list(studies.returns(file, task, method).values())))
            cells.append(cell([float(run.lines[-1][SAMPLED]) for run in runs]))
            read += [run.summary["steps_read"] / 1e6 for run in runs]
            weights += [run.summary["parameters"] for run in runs]
        means = f"{sum(read) / len(read):.1f} | {1_000 * round(sum(weights) / len(weights) / 1_000):,}"
        lines.append(f"| {words} | {' | '.join(cells)} | {means} |")
    return "\n".join(lines)


def sizes(studies: Studies) -> str:
    """Question 2: returns by number of training episodes, and whether ledger or GRU is higher, all tested together."""
    there = [size for size in Q2_EPISODES if q2_file(size) in studies]
    pairs = {(size, task): Pair(task, q2_file(size), task, *RIVALS) for size in there for task in BOTH}
    verdicts = {one.pair: SHORT[one.verdict] for one in studies.tested(list(pairs.values()))}
    lines = [f"| task | training episodes | {' | '.join(SHOWN.values())} | higher |"]
    lines.append("|---|---:|" + "---:|" * len(SHOWN) + "---|")
    for task in BOTH:
        for size in there:
            cells = [cell(list(studies.returns(q2_file(size), task, form).values())) for form in SHOWN]
            lines.append(f"| `{task}` | {size:,} | {' | '.join(cells)} | {verdicts[pairs[size, task]]} |")
    return "\n".join(lines)


def picture(studies: Studies, path: Path) -> None:
    """Draw the returns by number of training episodes, with intervals; the data's own return as a line."""
    there, colours = [size for size in Q2_EPISODES if q2_file(size) in studies], colours_of(list(SHOWN))
    figure, panels = plt.subplots(1, len(BOTH), figsize=(8, 2.9), layout="constrained")
    for axes, task in zip(panels, BOTH, strict=True):
        data = [run.summary["data"]["return_mean"] for size in there for run in studies[q2_file(size)].of(task, LEDGER)]
        axes.axhline(np.mean(data), color="#999999", linestyle=":", linewidth=1)
        axes.annotate("the data", (0.01, np.mean(data)), xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
        for place, (form, words) in enumerate(SHOWN.items()):
            found = [mean_interval(list(studies.returns(q2_file(size), task, form).values())) for size in there]
            beside = np.array(there) * 1.04 ** (place - 1.5)  # so that intervals do not hide each other
            means = np.array([one.estimate for one in found])
            ends = np.array([[one.estimate - one.low, one.high - one.estimate] for one in found]).T
            axes.errorbar(beside, means, ends, fmt="o-", color=colours[form], capsize=2, markersize=4, label=words)
        axes.set_xscale("log")
        axes.set_xticks(there, [f"{size:,}" for size in there])
        axes.minorticks_off()
        axes.set_title(task, fontsize=10)
        axes.set_xlabel("training episodes")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("return, with 95% intervals")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(SHOWN), frameon=False)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)
