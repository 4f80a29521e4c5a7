"""Figures of a report: learning curves with bands, and every seed as a point. SVG in the page's colours."""

import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mental_accounts.errors import UsageError
from mental_accounts.report.analysis import Scores, interpolated
from mental_accounts.report.runs import METRIC_NAMES, Evidence

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
        raise UsageError("figures need matplotlib: pip install 'mental-accounts[report]'") from error


def paper_figure(evidence: Evidence, tasks: Sequence[str] | None = None) -> "Figure":
    """The paper's figure: three curves per task, mean over seeds, band of ±1 standard deviation."""
    rows = [task for task in tasks or evidence.tasks if any(run.task == task for run in evidence.runs)]
    figure, axes = _grid(len(rows), len(PAPER_FIGURE))
    for row, task in zip(axes, rows, strict=True):
        for place, (metric, against) in zip(row, PAPER_FIGURE, strict=True):
            draw_curves(place, evidence, task, metric, against)
            title = METRIC_NAMES[metric].capitalize()
            place.set_title(f"{title}\n{as_words(task)}" if len(rows) > 1 else title, fontsize=9)
    _legend(figure, axes[0][0])
    return figure


def draw_curves(axes: "Axes", evidence: Evidence, task: str, metric: str, against: str) -> None:
    """Mean over seeds with a band of one standard deviation, per method; each seed as a thin line."""
    for method, colour in zip(evidence.methods, _colours(evidence.methods), strict=True):
        runs = evidence.of(task, method)
        if not any(len(run.curve(metric)[0]) for run in runs):
            continue
        online_axis = against == "env_steps"
        steps, values = interpolated(runs, metric, online=online_axis and _has_online(evidence, task), against=against)
        there = ~np.isnan(values).all(axis=0)
        steps, values = steps[there], values[:, there]
        mean, std = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        for row in values:
            axes.plot(steps, row, color=colour, linewidth=0.5, alpha=0.35)
        axes.fill_between(steps, mean - std, mean + std, color=colour, alpha=0.18, linewidth=0)
        axes.plot(steps, mean, color=colour, linewidth=1.8, label=as_words(method), marker="o", markersize=3)
    axes.set_xlabel("environment steps" if against == "env_steps" else "updates", fontsize=8)


def seed_figure(scores: Sequence[Scores], methods: Sequence[str]) -> "Figure":
    """The last return of every seed as a point, with the mean and its 95% interval."""
    figure, ((axes,),) = _grid(1, 1, width=6.4, height=0.55 * len(scores) + 1.2)
    for row, score in enumerate(scores):
        colour = _colours(methods)[list(methods).index(score.method)]
        axes.plot(score.last, np.full(len(score.last), row), "o", color=colour, markersize=4, alpha=0.6)
        mean = score.last_mean
        if np.isfinite([mean.low, mean.high]).all():
            axes.plot([mean.low, mean.high], [row + 0.25] * 2, color=colour, linewidth=2)
        axes.plot([mean.estimate], [row + 0.25], "D", color=colour, markersize=5)
    axes.axvline(scores[0].data_mean, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(scores)), [as_words(score.method) for score in scores])
    axes.set_ylim(-0.5, len(scores) - 0.25)
    axes.invert_yaxis()
    axes.set_xlabel("return of the last evaluation (dotted: the data's mean)", fontsize=8)
    return figure


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


def _colours(methods: Sequence[str]) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(len(methods))]


def _has_online(evidence: Evidence, task: str) -> bool:
    return any(line["phase"] == "online" for run in evidence.runs if run.task == task for line in run.lines)
