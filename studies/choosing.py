"""Which form of each rival the protocol's rule chooses, from the packed runs of `evidence.py --choosing`.

    python studies/choosing.py q1 results/choosing      # the table; the chosen forms are in bold

The rule: the highest normalised score of the last policy with the mean action, averaged over tasks and seeds.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from claim_numbers import Studies
from mental_accounts.report.runs import Evidence
from questions import CHOICES, RIVAL_FORMS


def score(evidence: Evidence, form: str) -> tuple[float, int]:
    """The mean score of a form over all of its runs, and how many they are; NaN if there are none."""
    by_task = [[run.summary["normalised_score"] for run in evidence.of(task, form)] for task in evidence.tasks]
    if not all(by_task):
        return float("nan"), 0
    return float(np.mean([np.mean(scores) for scores in by_task])), sum(map(len, by_task))


def best(scores: Mapping[str, tuple[float, int]]) -> str:
    """The form with the highest score; a form without runs on every task is an error, not a loser."""
    if missing := [form for form, (_, runs) in scores.items() if runs == 0]:
        raise SystemExit(f"nothing can be chosen yet: {missing[0]} has no runs on some task")
    return max(scores, key=lambda form: scores[form][0])


def table(evidence: Evidence, rivals: Mapping[str, Sequence[str]]) -> str:
    """Every form by rival: its score, and its mean return on each task."""
    lines = [f"| rival | form | runs | score | {' | '.join(evidence.tasks)} |"]
    lines.append("|---|---|---:|---:|" + "---:|" * len(evidence.tasks))
    for rival, forms in rivals.items():
        scores = {form: score(evidence, form) for form in forms}
        chosen = best(scores)
        for form, (value, runs) in scores.items():
            returns = [np.mean([run.summary["last_return"] for run in evidence.of(t, form)]) for t in evidence.tasks]
            shown = f"**{value:.1f}**" if form == chosen else f"{value:.1f}"
            cells = [rival, f"`{form}`", str(runs), shown, *(f"{value:.1f}" for value in returns)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table of a question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=CHOICES)
    parser.add_argument("folder", type=Path, help="where evidence.py has packed the runs")
    given = parser.parse_args()
    for name in CHOICES[given.question]:
        print(table(Studies(given.folder)[f"{given.question}-{name}.jsonl.gz"], RIVAL_FORMS[given.question]))


if __name__ == "__main__":
    main()
