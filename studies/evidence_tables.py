"""Every packed study of the protocol as tables: results/evidence/README.md, and question 7's for docs/online.md.

Returns are of the last policy: the mean over seeds, with a 95% interval from five seeds on. What a run
cost stands beside them.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import claims
import questions
from claim_numbers import Studies, Tested, cell, decided, plain
from mental_accounts.report.mixture import mixed
from mental_accounts.report.runs import RETURN, SAMPLED, Run
from player_rows import players_beside
from robot_table import acted, peers

HEAD = "# The evidence of version 0.2"
INTRODUCTION = """What is asked, and how it is decided: [the protocol](../../studies/PROTOCOL.md), written before the
runs. The answers in a few words: [README](../../README.md#results). Below is every packed study, one
file each (`mental-accounts report FILE` makes its full report), as means over seeds of the last policy's
return: with the mean action, and with sampled actions where they were played; [95%] intervals over seeds. Steps,
minutes and memory (of the GPU, where there is one) are those of a run; several ran at a time. Players that do not learn
are in [players](../players/README.md); their intervals are over 1,000 or 2,000 episodes. Runs by which forms were
chosen are in [choosing](../choosing/README.md), pilots in [online](../online/README.md); what was lost or cut off is
told under *Changes* in the protocol."""
NOTES = {
    **dict.fromkeys(
        ("q1", "q2"),
        "Its runs were made by the code of commit fdabdcc, from a copy whose git folder was that of 90a9b0b, which is "
        "what they name. They were also played every 2,000 updates, which `evidence.py` no longer does.",
    ),
}
"""What has to be known of the runs of a question."""
DECIDING = """**What decides**: differences of returns, paired by seed; p of a paired t-test, alone and after Holm's
correction over this table; *detectable* is the difference that would have been detected with a probability of 80%."""


def rows_of(task: str, words: str, runs: Sequence[Run]) -> str:
    """One method on one task, as a row."""
    curves = [run.curve(RETURN)[1] for run in runs]
    sampled = [float(run.lines[-1][SAMPLED]) for run in runs if SAMPLED in run.lines[-1]]
    before = [run.lines[place][RETURN] for run in runs if (place := _end_of_pretraining(run)) is not None]
    spent = {
        name: np.mean([run.summary.get(name) or 0 for run in runs]) for name in ("env_steps", "steps_read", "seconds")
    }
    weights = runs[0].summary.get("parameters")
    memory = runs[0].summary.get("gpu_memory") or runs[0].summary.get("memory")
    cells = [
        task, words, str(len(runs)), plain(float(np.mean(before))) if before else "",
        cell([curve[-1] for curve in curves]), cell(sampled) if sampled else "",
        plain(float(np.mean([curve.max() for curve in curves]))), f"{spent['env_steps']:,.0f}",
        "" if weights is None else f"{weights:,}", f"{spent['steps_read'] / 1e6:.1f}", f"{spent['seconds'] / 60:.1f}",
        "" if memory is None else f"{memory / 2**30:.1f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _end_of_pretraining(run: Run) -> int | None:
    """The number of the last line before acting, if the policy was evaluated there and acted later."""
    offline = [place for place, line in enumerate(run.lines) if line["phase"] == "pretrain" and RETURN in line]
    return offline[-1] if offline and run.lines[-1]["phase"] == "online" else None


COLUMNS = (
    "task", "form", "seeds", "after pretraining", "last return [95%]", "sampled [95%]", "best", "online steps",
    "weights", "million steps read", "minutes", "GiB",
)  # fmt: skip
HEADER = f"| {' | '.join(COLUMNS)} |\n|---|---|" + "---:|" * (len(COLUMNS) - 2)


def table(studies: Studies, question: str, file: str) -> str:
    """All forms on all tasks of a packed study, and what acts there without learning, or learns from scratch."""
    found = studies[file]
    words = questions.WORDS.get(question, {}) | questions.STUDY_WORDS.get(file.removeprefix("evidence/"), {})
    lines = [HEADER]
    for task in found.tasks:
        for method in found.methods:
            if runs := found.of(task, method):
                lines.append(rows_of(task, words.get(method, f"`{method}`"), runs))
        if question == "q7":
            lines += peer_rows(studies.folder, task, acted(studies, file))
        if file in questions.WITH_PLAYERS:
            lines += player_rows(studies, task)
    return "\n".join(lines)


def peer_rows(folder: Path, task: str, steps: float) -> Iterator[str]:
    """SAC and TD3 from scratch on the robot of a task, as rows."""
    for method, reached, returns in peers(folder, task, steps):
        words = f"{method} from scratch (sbx)"
        yield f"| {task} | {words} | {len(returns)} | | {cell(returns)} | | | {reached:,} | | | | |"


def player_rows(studies: Studies, task: str) -> Iterator[str]:
    """Players that do not learn on a task with a hidden context, as rows."""
    for words, returns in players_beside(studies, task).items():
        yield f"| {task} | {words} | | | {cell(returns)} | | | | | | | |"


def page(studies: Studies) -> str:
    """All questions of which there are runs."""
    parts, deciding = [HEAD, INTRODUCTION], comparisons(studies)
    for question, title in questions.TITLES.items():
        files = {name: f"evidence/{question}-{name}.jsonl.gz" for name in questions.STUDIES[question]}
        there = {name: file for name, file in files.items() if file in studies}
        if not there:
            continue
        parts.append(f"## {title}")
        note = f" {NOTES[question]}" if question in NOTES else ""
        missing = [name for name in files if name not in there]
        to_come = f" Not run yet: {', '.join(missing)}." if missing else ""
        parts.append(f"`python studies/evidence.py {question} runs/evidence` makes all of its runs.{note}{to_come}")
        for name, file in there.items():
            unlike = mixed(studies[file].runs)
            parts.append(f"**[{name}]({Path(file).name})**{f': {unlike}' if unlike else ''}")
            parts.append(table(studies, question, file))
        if tested := deciding.get(question):
            parts += [DECIDING, decided(tested)]
        parts += cost(studies.folder, question)
    return "\n\n".join(parts) + "\n"


def cost(folder: Path, question: str) -> Iterator[str]:
    """What an update and a step of acting take, where that was measured (hidden_cost.py)."""
    file = folder / "evidence" / f"{question}-cost.json"
    if not file.exists():
        return
    measured = json.loads(file.read_text())
    hardware, words = measured["hardware"], questions.WORDS[question]
    where = hardware["gpu"] if measured["device"] == "cuda" else f"{hardware['cpus']} CPU cores ({hardware['cpu']})"
    yield f"**[Cost]({file.name})** of an update, and of a step in ten environments; {where}, all forms in turn:"
    lines = ["| form | update, ms | times ODT's | step, ms | times ODT's |", "|---|---:|---:|---:|---:|"]
    for method, found in measured["forms"].items():
        cells = [f"{found[f'{what}_{kind}']:.2f}" for what in ("update", "step") for kind in ("ms", "ratio")]
        lines.append(f"| {words[method]} | {' | '.join(cells)} |")
    yield "\n".join(lines)


def comparisons(studies: Studies) -> dict[str, tuple[Tested, ...]]:
    """What decides each question that its own runs answer."""
    found = claims.answers(studies)
    return {
        claim.protocol.lower(): answer.tested
        for claim, (source, answer) in found.items()
        if claim.protocol is not None and source is claim.own
    }


def acting(studies: Studies) -> str:
    """Question 7 in one table, for the guide."""
    files = [f"evidence/q7-{name}.jsonl.gz" for name in questions.STUDIES["q7"]]
    lines = [
        "| task | form | seeds | after pretraining | last return [95%] | online steps |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for file in files:
        if file in studies:
            for row in table(studies, "q7", file).splitlines()[2:]:
                cells = [text.strip() for text in row.strip("|").split("|")]
                lines.append(f"| {' | '.join([*cells[:5], cells[7]])} |")
    return "\n".join(dict.fromkeys(lines))  # SAC and TD3 stand beside several studies of a robot
