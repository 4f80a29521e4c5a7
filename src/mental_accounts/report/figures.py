"""Figures of a report: learning curves with bands, and every seed as a point. SVG in the page's colours."""

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mental_accounts.errors import UsageError
from mental_accounts.extras import how_to_install
from mental_accounts.report.analysis import Scores, interpolated
from mental_accounts.report.runs import METRIC_NAMES, Evidence, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999933")
"""The Okabe-Ito palette: distinguishable with any colour vision, on light and on dark."""
INK = "#010203"
"""Placeholder for the page's text colour until the SVG is written."""
PAPER_FIGURE = (
    ("evaluation/return_mean_gm", "updates"),
    ("evaluation/length_mean_gm", "updates"),
    ("evaluation/return_vs_samples", "env_steps"),
)
"""The three curves of the paper's figure: metric, axis."""


def check_matplotlib() -> None:
    """Raise before anything is run if figures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(f"figures need matplotlib: {how_to_install('report')}") from error


def paper_figure(evidence: Evidence, tasks: Sequence[str] | None = None) -> "Figure":
    """The paper's figure as one picture: three curves per task."""
    rows = [task for task in tasks or evidence.tasks if any(run.task == task for run in evidence.runs)]
    figure, axes = _grid(len(rows), len(PAPER_FIGURE))
    for row, task in zip(axes, rows, strict=True):
        for place, (metric, against) in zip(row, PAPER_FIGURE, strict=True):
            draw_curves(place, evidence, task, metric, against)
            title = METRIC_NAMES[metric].capitalize()
            place.set_title(f"{title}\n{as_words(task)}" if len(rows) > 1 else title, fontsize=9)
    _legend(figure, axes[0][0])
    return figure


def curve_figures(evidence: Evidence, task: str) -> "list[Figure]":
    """The paper's curves of a task as pictures of their own; without the one by samples if none were taken."""
    sampled = any(line["env_steps"] for run in evidence.runs if run.task == task for line in run.lines)
    figures = []
    for metric, against in PAPER_FIGURE:
        if against == "env_steps" and not sampled:
            continue
        figure, ((axes,),) = _grid(1, 1, width=3.7, height=2.7)
        draw_curves(axes, evidence, task, metric, against)
        axes.set_title(METRIC_NAMES[metric].capitalize(), fontsize=9)
        figures.append(figure)
    return figures


def draw_curves(axes: "Axes", evidence: Evidence, task: str, metric: str, against: str) -> None:
    """Per method the mean over seeds with a band of one standard deviation, and each seed as a thin line.

    By environment steps, where seeds are measured at different places, every evaluation of every seed is a point.
    """
    for method, colour in colours_of(evidence.methods).items():
        runs = [run for run in evidence.of(task, method) if len(run.curve(metric)[0])]
        if runs and against == "env_steps":
            _draw_points(axes, runs, metric, colour, as_words(method))
        elif runs:
            _draw_mean(axes, runs, metric, colour, as_words(method))
    _mark_pretraining(axes, [run for run in evidence.runs if run.task == task], against)
    axes.set_xlabel("environment steps" if against == "env_steps" else "updates", fontsize=8)


def _draw_mean(axes: "Axes", runs: Sequence[Run], metric: str, colour: str, label: str) -> None:
    steps, values = interpolated(runs, metric, online=False, against="updates")
    mean, std = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    for row in values:
        axes.plot(steps, row, color=colour, linewidth=0.5, alpha=0.35)
    axes.fill_between(steps, mean - std, mean + std, color=colour, alpha=0.18, linewidth=0)
    axes.plot(steps, mean, color=colour, linewidth=1.8, label=label, marker="o", markersize=3)


def _draw_points(axes: "Axes", runs: Sequence[Run], metric: str, colour: str, label: str) -> None:
    """Evaluations while online as dots; the last one of pretraining as a ring, before the first step."""
    before = [line[metric] for run in runs if (line := _last_of_pretraining(run, metric)) is not None]
    axes.plot(np.zeros(len(before)), before, "o", color=colour, markersize=5, markerfacecolor="none", alpha=0.8)
    for place, run in enumerate(runs):
        steps, values = run.curve(metric, online=True, against="env_steps")
        named = label if place == 0 else "_nolegend_"
        axes.plot(steps, values, "o", color=colour, markersize=3.5, alpha=0.7, markeredgewidth=0, label=named)


def _last_of_pretraining(run: Run, metric: str) -> Mapping[str, Any] | None:
    return next((line for line in reversed(run.lines) if line["phase"] == "pretrain" and metric in line), None)


def _mark_pretraining(axes: "Axes", runs: Sequence[Run], against: str) -> None:
    """Shade the part of the axis that belongs to pretraining, if there was any."""
    ends = [line["updates"] for run in runs for line in run.lines if line["phase"] == "pretrain"]
    low, high = axes.get_xlim()
    if not ends or not axes.lines:
        return
    end = 0.0 if against == "env_steps" else float(max(ends))
    low = min(low, end - 0.14 * (high - end))  # wide enough to be seen
    axes.set_xlim(low, high)
    axes.axvspan(low, min(end, high), color=INK, alpha=0.06, linewidth=0)
    words = "pretrained" if against == "env_steps" else "pretraining"
    axes.annotate(
        words, (low, 1.0), xycoords=("data", "axes fraction"), xytext=(3, -3), textcoords="offset points",
        rotation=90, va="top", fontsize=7, color=INK, alpha=0.8,
    )  # fmt: skip


def seed_figure(scores: Sequence[Scores], methods: Sequence[str]) -> "Figure":
    """The last return of every seed as a point, with the mean and, from five seeds, its 95% interval."""
    figure, ((axes,),) = _grid(1, 1, width=4.8, height=0.55 * len(scores) + 0.7)
    for row, score in enumerate(scores):
        colour = colours_of(methods)[score.method]
        axes.plot(score.last, np.full(len(score.last), row), "o", color=colour, markersize=4, alpha=0.6)
        mean = score.last_mean
        if mean.is_known:
            axes.plot([mean.low, mean.high], [row + 0.2] * 2, color=colour, linewidth=2)
        axes.plot([mean.estimate], [row + 0.2], "D", color=colour, markersize=5)
        axes.annotate(
            as_words(score.method), (0, row - 0.2), xycoords=("axes fraction", "data"), xytext=(2, 0),
            textcoords="offset points", va="bottom", color=INK,
        )  # fmt: skip
    axes.axvline(scores[0].data_mean, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(scores) - 0.55, -0.75)
    axes.set_xlabel("return of the last evaluation (dotted: the data's mean)", fontsize=8)
    return figure


def colours_of(methods: Sequence[str]) -> dict[str, str]:
    """The colour of every method."""
    return {method: COLOURS[place % len(COLOURS)] for place, method in enumerate(methods)}


def as_words(name: str) -> str:
    """A name escaped for matplotlib, which would read $...$ as mathematics and hide labels that begin with _."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in name)
    return f"{' ' if name.startswith('_') else ''}{plain}".replace("$", r"\$")


def as_svg(figure: "Figure", label: str) -> str:
    """An SVG element for a page; its text has the page's colour."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    text = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    svg = text.getvalue().replace(INK, "currentColor")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box is not None  # matplotlib writes one
    width, height = box.groups()
    svg = re.sub(r'<svg [^>]*?viewBox="[^"]*"[^>]*>', "", svg, count=1)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'viewBox="0 0 {width} {height}" style="max-width:{float(width) * 1.35:.0f}px" aria-label="{escape(label)}">'
    )
    return opening + svg


def save(figure: "Figure", path: Path) -> list[Path]:
    """The figure as PNG, SVG and PDF, in black on white."""
    import matplotlib.pyplot as plt

    written = []
    path.parent.mkdir(parents=True, exist_ok=True)
    for kind in ("png", "svg", "pdf"):
        target = path.with_suffix(f".{kind}")
        figure.savefig(target, dpi=160, facecolor="white")
        written.append(target)
    plt.close(figure)
    return written


def _grid(rows: int, columns: int, width: float = 10.0, height: float = 0.0) -> tuple["Figure", Any]:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    names = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color")
    style: Any = dict.fromkeys(names, INK) | {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(style):
        size = (width, height or 2.6 * rows + 0.5)
        figure, axes = plt.subplots(rows, columns, squeeze=False, layout="constrained", figsize=size)
        for place in axes.flat:
            place.grid(alpha=0.15)
    return figure, axes


def _legend(figure: "Figure", axes: "Axes") -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        shown = figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
        for text in shown.get_texts():
            text.set_color(INK)
