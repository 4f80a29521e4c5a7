"""The results on README.md, in docs/ and in results/hidden, from packed studies: `make results`.

Reads results/paper and results/converged as `mental-accounts report` does, regenerates their reports, and puts tables
with intervals, and the claims (claims.py), between the markers of the pages. A test checks the pages against this
script.
"""

import json
from pathlib import Path

import claim_answers
import claims
import evidence_tables
import hidden_spread
import hidden_tables
import memory_tables
import questions
import robot_table
import setting_tables
from claim_numbers import Studies
from interval_cells import written
from marked_pages import between
from mental_accounts.report.analysis import Analysis, analyse
from mental_accounts.report.paper import paper_table_for
from mental_accounts.report.report import write_report
from mental_accounts.report.runs import Evidence, read_study

ROOT = Path(__file__).parents[1]
HIDDEN = ROOT / "results" / "hidden"
SPREAD_FILE = ROOT / "results" / "evidence" / "q9-spread.json"
EPISODES_PICTURE = ROOT / "results" / "evidence" / "episodes.png"
BEGIN, END = "<!-- results: made by studies/results_pages.py -->", "<!-- end of results -->"
HIDDEN_BEGIN, HIDDEN_END = "<!-- hidden: made by studies/results_pages.py -->", "<!-- end of hidden -->"
OPTIONS_BEGIN, OPTIONS_END = "<!-- options: made by studies/results_pages.py -->", "<!-- end of options -->"
PROBE_BEGIN, PROBE_END = "<!-- probe: made by studies/results_pages.py -->", "<!-- end of probe -->"
FORMS_BEGIN, FORMS_END = "<!-- forms: made by studies/results_pages.py -->", "<!-- end of forms -->"
AGAIN_BEGIN, AGAIN_END = "<!-- again: made by studies/results_pages.py -->", "<!-- end of again -->"
AGAIN_SIZES_BEGIN, AGAIN_SIZES_END = (
    "<!-- again by size: made by studies/results_pages.py -->",
    "<!-- end of again by size -->",
)
SPREAD_BEGIN, SPREAD_END = "<!-- spread: made by studies/results_pages.py -->", "<!-- end of spread -->"
WORTH_BEGIN, WORTH_END = "<!-- worth: made by studies/results_pages.py -->", "<!-- end of worth -->"
SIZES_BEGIN, SIZES_END = "<!-- sizes: made by studies/results_pages.py -->", "<!-- end of sizes -->"
LIMITS_BEGIN, LIMITS_END = "<!-- limits: made by studies/results_pages.py -->", "<!-- end of limits -->"
LEDGERS_BEGIN, LEDGERS_END = "<!-- ledgers: made by studies/results_pages.py -->", "<!-- end of ledgers -->"
ACTING_BEGIN, ACTING_END = "<!-- acting: made by studies/results_pages.py -->", "<!-- end of acting -->"
STUDIES = ("paper", "converged")
WORDS = {
    "paper": "The paper's schedule (preset `paper`)",
    "converged": "A longer budget (preset `converged`)",
}


def section(name: str, evidence: Evidence, analysis: Analysis) -> str:
    """One study as a sentence and a table."""
    hardware = evidence.made_by.get("hardware") or {}
    seeds = max(len(score.seeds) for part in analysis.tasks for score in part.scores)
    lines = [
        f"**{WORDS[name]}**, built-in data, {seeds} {'seed' if seeds == 1 else 'seeds'}, {hardware.get('gpu', 'CPU')} "
        f"([report](../results/{name}/report.md)):",
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
            row = f"| {part.task} | {score.method} | {written(score.last_mean, 0)} | {normalised} |"
            if found is None:
                row += " | baseline |" + (" | |" if name == "paper" else "")
            else:
                row += f" {written(found.last, 0, signed=True)} | {found.verdict} |"
                table = paper_table_for(part.task)
                if name == "paper" and table is not None:
                    metric = found.rows[0]
                    row += f" {table.rows[metric.name][2]:+.1f}% | {metric.change_percent:+.1f}% |".replace("-", "−")
            lines.append(row)
    return "\n".join(lines)


def results() -> str:
    """The whole section."""
    parts = []
    for name in STUDIES:
        evidence = read_study(ROOT / "results" / name)
        parts.append(section(name, evidence, analyse(evidence)))
    return "\n\n".join(parts)


def pages() -> dict[Path, str]:
    """The pages with results, regenerated."""
    readme, found, hidden = ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "docs" / "hidden.md"
    online, choice, studies = ROOT / "docs" / "online.md", ROOT / "docs" / "which.md", Studies(ROOT / "results")
    spread = json.loads(SPREAD_FILE.read_text())["policies"]
    front = between(found.read_text(), claims.BEGIN, claims.END, claims.table(studies))
    front = between(front, BEGIN, END, results())
    front = between(front, robot_table.BEGIN, robot_table.END, robot_table.table(studies))
    guide = between(hidden.read_text(), FORMS_BEGIN, FORMS_END, memory_tables.forms(studies))
    guide = between(guide, AGAIN_BEGIN, AGAIN_END, memory_tables.again(studies))
    guide = between(guide, SPREAD_BEGIN, SPREAD_END, hidden_spread.table(spread, questions.WORDS["q9"]))
    guide = between(guide, AGAIN_SIZES_BEGIN, AGAIN_SIZES_END, memory_tables.again_sizes(studies))
    guide = between(guide, SIZES_BEGIN, SIZES_END, memory_tables.sizes(studies))
    rivals = setting_tables.rivals(studies, claim_answers.q3(studies).tested)
    guide = between(guide, LIMITS_BEGIN, LIMITS_END, rivals)
    guide = between(guide, LEDGERS_BEGIN, LEDGERS_END, setting_tables.forms(studies))
    guide = between(guide, OPTIONS_BEGIN, OPTIONS_END, hidden_tables.options_summary(HIDDEN))
    return {
        readme: between(readme.read_text(), claims.BEGIN, claims.END, claims.short_table(studies)),
        found: between(front, HIDDEN_BEGIN, HIDDEN_END, hidden_tables.main_table(HIDDEN)),
        hidden: between(guide, PROBE_BEGIN, PROBE_END, hidden_tables.knowledge(HIDDEN)),
        choice: between(choice.read_text(), WORTH_BEGIN, WORTH_END, memory_tables.worth(studies)),
        HIDDEN / "README.md": hidden_tables.page(HIDDEN),
        online: between(online.read_text(), ACTING_BEGIN, ACTING_END, evidence_tables.acting(studies)),
        ROOT / "results" / "evidence" / "README.md": evidence_tables.page(studies),
    }


def main() -> None:
    """Regenerate the reports, the figure and the pages."""
    for name in STUDIES:
        write_report(read_study(ROOT / "results" / name), ROOT / "results" / name)
    hidden_tables.picture(hidden_tables.on_the_arm(HIDDEN), HIDDEN / "returns.png")
    memory_tables.picture(Studies(ROOT / "results"), EPISODES_PICTURE)
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
