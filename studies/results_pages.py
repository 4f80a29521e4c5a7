"""Writes the results on README.md, docs/hidden.md and results/hidden from the committed studies: `make results`.

Reads results/paper and results/converged as `mental-accounts report` does, writes their reports anew, and puts tables
with intervals between the markers of the pages. A test holds the pages to what this makes.
"""

import math
import sys
from pathlib import Path

from mental_accounts.report.analysis import Analysis, analyse
from mental_accounts.report.paper import paper_table_for
from mental_accounts.report.report import write_report
from mental_accounts.report.runs import Evidence, read_study
from mental_accounts.report.statistics import Interval

sys.path.insert(0, str(Path(__file__).parent / "hidden"))
import tables

ROOT = Path(__file__).parents[1]
HIDDEN = ROOT / "results" / "hidden"
BEGIN, END = "<!-- results: made by results/make_readme.py -->", "<!-- end of results -->"
HIDDEN_BEGIN, HIDDEN_END = "<!-- hidden: made by results/make_readme.py -->", "<!-- end of hidden -->"
OPTIONS_BEGIN, OPTIONS_END = "<!-- options: made by results/make_readme.py -->", "<!-- end of options -->"
PROBE_BEGIN, PROBE_END = "<!-- probe: made by results/make_readme.py -->", "<!-- end of probe -->"
STUDIES = ("paper", "converged")
WORDS = {
    "paper": "The paper's schedule (preset `paper`)",
    "converged": "A longer budget (preset `converged`)",
}


def interval(found: Interval, *, signed: bool) -> str:
    sign = "+" if signed else ""
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return f"{found.estimate:{sign}.0f} (no interval)".replace("-", "−")
    return f"{found.estimate:{sign}.0f} [{found.low:{sign}.0f}, {found.high:{sign}.0f}]".replace("-", "−")


def section(name: str, evidence: Evidence, analysis: Analysis) -> str:
    """One study as a sentence and a table."""
    hardware = evidence.made_by.get("hardware") or {}
    seeds = max(len(score.seeds) for part in analysis.tasks for score in part.scores)
    lines = [
        f"**{WORDS[name]}**, built-in data, {seeds} {'seed' if seeds == 1 else 'seeds'}, {hardware.get('gpu', 'CPU')} "
        f"([report](results/{name}/report.md)):",
        "",
        "| task | method | last return [95%] | score | against odt [95%] | verdict |"
        + (" paper's Δ | our Δ |" if name == "paper" else ""),
        "|---|---|---:|---:|---:|---|" + ("---:|---:|" if name == "paper" else ""),
    ]
    for part in analysis.tasks:
        against = {found.method: found for found in part.comparisons}
        for score in part.scores:
            found = against.get(score.method)
            normalised = "–" if score.normalised is None else f"{score.normalised.estimate:.1f}"
            row = f"| {part.task} | {score.method} | {interval(score.last_mean, signed=False)} | {normalised} |"
            if found is None:
                row += " | baseline |" + (" | |" if name == "paper" else "")
            else:
                row += f" {interval(found.last, signed=True)} | {found.verdict} |"
                table = paper_table_for(part.task)
                if name == "paper" and table is not None:
                    metric = found.rows[0]
                    row += f" {table.rows[metric.name][2]:+.1f}% | {metric.change_percent:+.1f}% |".replace("-", "−")
            lines.append(row)
    return "\n".join(lines)


def results() -> str:
    """All of the section."""
    parts = []
    for name in STUDIES:
        evidence = read_study(ROOT / "results" / name)
        parts.append(section(name, evidence, analyse(evidence)))
    return "\n\n".join(parts)


def pages() -> dict[Path, str]:
    """The pages that hold results, made anew."""
    readme, hidden = ROOT / "README.md", ROOT / "docs" / "hidden.md"
    front = tables.between(readme.read_text(), BEGIN, END, results())
    guide = tables.between(hidden.read_text(), OPTIONS_BEGIN, OPTIONS_END, tables.options_summary(HIDDEN))
    return {
        readme: tables.between(front, HIDDEN_BEGIN, HIDDEN_END, tables.main_table(HIDDEN)),
        hidden: tables.between(guide, PROBE_BEGIN, PROBE_END, tables.knowledge(HIDDEN)),
        HIDDEN / "README.md": tables.page(HIDDEN),
    }


def main() -> None:
    for name in STUDIES:
        write_report(read_study(ROOT / "results" / name), ROOT / "results" / name)
    tables.picture(tables.on_the_arm(HIDDEN), HIDDEN / "returns.png")
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
