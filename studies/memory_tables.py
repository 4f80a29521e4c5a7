"""Questions 1, 2 and 9 for docs/hidden.md, as tables and a picture: what forms of memory earn, by how much data."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import questions
from claim_answers import packed, q2_file, tested_by_size
from claim_numbers import HIGHER, Studies, cell, plain
from mental_accounts.report.figures import colours_of
from mental_accounts.report.runs import SAMPLED
from mental_accounts.report.statistics import mean_interval
from player_rows import players_beside

SHOWN = {
    questions.LEDGER: "ledger",
    questions.GRU: "GRU, reads rewards",
    questions.WHOLE_UNORDERED: "whole episodes, no timesteps, reads rewards",
    "odt": "ODT",
}
"""The forms of question 2."""
AGAIN_FILES = {
    **{size: packed("q9", f"again-{size}")[0] for size in questions.Q9_EPISODES},
    questions.HIDDEN_EPISODES: packed("q9", "again")[0],
}
"""Question 9's studies by number of training episodes."""
WORTH = {
    "no accounts (`odt`)": "odt",
    "`odt` that reads rewards": "odt:reward_input=state",
    "the paper's bias (`ewa-vq-odt`)": "ewa-vq-odt",
    "the ledger (`ledger-odt`), context of five steps": questions.LEDGER,
    "the ledger, context of one step *": questions.SECOND_LEDGER,
    "`gru` that reads rewards, one layer": questions.GRU,
    "the same, two layers *": questions.SECOND_GRU,
}
"""The forms for those who choose; * is question 9, on other seeds."""


def forms(studies: Studies) -> str:
    """Question 1: every form on both tasks, with the mean action and with sampled ones, what it took; and players."""
    beside = [players_beside(studies, task) for task in questions.BOTH]
    lines = [_table(studies, questions.Q1_METHODS, packed("q1"))]
    for words in beside[0]:
        lines.append(f"| {words} | {' | | '.join(cell(returns[words]) for returns in beside)} | | | | |")
    return "\n".join(lines)


def again(studies: Studies) -> str:
    """Question 9: the same for the rivals as they were chosen anew."""
    return _table(studies, questions.WORDS["q9"], packed("q9", "again"))


def _table(studies: Studies, methods: Mapping[str, str], files: Sequence[str]) -> str:
    """Forms on both tasks, whichever of the studies has them."""
    heads = [f"`{task}`, {kind}" for task in questions.BOTH for kind in ("mean action", "sampled")]
    heads += [f"{what}, mean of both" for what in ("million steps read", "minutes", "weights")]
    lines = [f"| form | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for method, words in methods.items():
        by_task = [
            [run for file in files if file in studies for run in studies[file].of(task, method)]
            for task in questions.BOTH
        ]
        if not all(by_task):
            continue
        cells = []
        for runs in by_task:
            cells.append(cell([float(run.summary["last_return"]) for run in runs]))
            cells.append(cell([float(run.lines[-1][SAMPLED]) for run in runs]))
        spent = {
            name: np.mean([run.summary[name] for runs in by_task for run in runs])
            for name in ("steps_read", "seconds", "parameters")
        }
        cells += [f"{spent['steps_read'] / 1e6:.1f}", f"{spent['seconds'] / 60:.1f}", f"{spent['parameters']:,.0f}"]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def sizes(studies: Studies) -> str:
    """Question 2: returns by number of training episodes, and whether ledger or GRU is higher, all tested together."""
    lines = [f"| task | training episodes | {' | '.join(SHOWN.values())} | higher |"]
    lines.append("|---|---:|" + "---:|" * len(SHOWN) + "---|")
    found = tested_by_size(studies)
    for size, task in sorted(found, key=lambda place: (questions.BOTH.index(place[1]), place[0])):
        cells = [cell(list(studies.returns(q2_file(size), task, form).values())) for form in SHOWN]
        lines.append(f"| `{task}` | {size:,} | {' | '.join(cells)} | {HIGHER[found[size, task].verdict]} |")
    return "\n".join(lines)


def again_sizes(studies: Studies) -> str:
    """Question 9 by number of training episodes: both rivals, with the mean action and with sampled ones."""
    shown = {method: questions.WORDS["q9"][method] for method in questions.SECOND_RIVALS}
    heads = [f"{words}, {kind}" for kind in ("mean action", "sampled") for words in shown.values()]
    lines = [f"| task | training episodes | seeds | {' | '.join(heads)} |", "|---|---:|---:|" + "---:|" * len(heads)]
    for task in questions.BOTH:
        for size, file in AGAIN_FILES.items():
            if file not in studies:
                continue
            cells = [
                list(studies.returns(file, task, form, metric).values())
                for metric in ("last return", "sampled")
                for form in shown
            ]
            if seeds := min(map(len, cells)):
                lines.append(f"| `{task}` | {size:,} | {seeds} | {' | '.join(map(cell, cells))} |")
    return "\n".join(lines)


def worth(studies: Studies) -> str:
    """What the main forms earn, for those who choose: means of the last policy with the mean action."""
    few, many = min(questions.Q2_EPISODES), questions.HIDDEN_EPISODES
    lines = [f"| | {' | '.join(f'`{task}`, {size:,} episodes' for task in questions.BOTH for size in (few, many))} |"]
    lines.append("|---|" + "---:|" * (2 * len(questions.BOTH)))
    files = {size: (q2_file(size), AGAIN_FILES[size]) for size in (few, many)}
    for words, method in WORTH.items():
        cells = []
        for task in questions.BOTH:
            for size in (few, many):
                found = [studies.returns(file, task, method) for file in files[size] if file in studies]
                cells.append(next((plain(float(np.mean(list(one.values())))) for one in found if one), ""))
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(studies: Studies, path: Path) -> None:
    """Draw the returns by number of training episodes, with intervals; the data's own return as a line."""
    there, colours = sorted({size for size, _ in tested_by_size(studies)}), colours_of(list(SHOWN))
    figure, panels = plt.subplots(1, len(questions.BOTH), figsize=(8, 2.9), layout="constrained")
    for axes, task in zip(panels, questions.BOTH, strict=True):
        data = [
            run.summary["data"]["return_mean"]
            for size in there
            for run in studies[q2_file(size)].of(task, questions.LEDGER)
        ]
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
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(SHOWN), frameon=False, fontsize=8)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    plt.close(figure)
