"""Which form of each rival the protocol's rule chooses, from the packed runs of `evidence.py --choosing`.

    python studies/choosing.py q1 results/choosing      # the table; the chosen forms are in bold

The rule: the highest normalised score of the last policy with the mean action, averaged over tasks and seeds.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mental_accounts.report.runs import Evidence, read_study
from questions import CHOICES, RIVAL_FORMS


def score(evidence: Evidence, form: str) -> float | None:
    """The mean score of a form over tasks and seeds; None while runs are missing."""
    by_task = [[run.summary["normalised_score"] for run in evidence.of(task, form)] for task in evidence.tasks]
    is_whole = all(by_task) and not any(evidence.missing(task, form) for task in evidence.tasks)
    return float(np.mean([np.mean(scores) for scores in by_task])) if is_whole else None


def chosen(evidence: Evidence, forms: Sequence[str]) -> str | None:
    """The form with the highest score; None until all of them have one."""
    scores = {form: found for form in forms if (found := score(evidence, form)) is not None}
    return max(forms, key=lambda form: scores[form]) if len(scores) == len(forms) else None


def table(evidence: Evidence, rivals: Mapping[str, Sequence[str]]) -> str:
    """Every form by rival: its score, and its mean return on each task."""
    lines = [f"| rival | form | runs | score | {' | '.join(evidence.tasks)} |"]
    lines.append("|---|---|---:|---:|" + "---:|" * len(evidence.tasks))
    for rival, forms in rivals.items():
        best = chosen(evidence, forms)
        for form in forms:
            returns = [[run.summary["last_return"] for run in evidence.of(task, form)] for task in evidence.tasks]
            found = score(evidence, form)
            told = "" if found is None else f"**{found:.1f}**" if form == best else f"{found:.1f}"
            means = [f"{np.mean(values):.1f}" if values else "" for values in returns]
            lines.append(f"| {' | '.join([rival, f'`{form}`', str(sum(map(len, returns))), told, *means])} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table of a question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=CHOICES)
    parser.add_argument("folder", type=Path, help="where evidence.py has packed the runs")
    given = parser.parse_args()
    for study in (f"{given.question}-{name}" for name in CHOICES[given.question]):
        if (file := given.folder / f"{study}.jsonl.gz").exists():
            print(table(read_study(file), RIVAL_FORMS[study]))


if __name__ == "__main__":
    main()
