"""Question 7 in one table: robots whose policies acted, and what SAC and TD3 reach from scratch in as many steps."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import questions
from claim_numbers import Studies, digits_of
from interval_cells import written
from mental_accounts.report.statistics import mean_interval

PEERS = "evidence/q7-peers.json"
ROBOTS = {"hopper": "Hopper-v5", "walker2d": "Walker2d-v5", "halfcheetah": "HalfCheetah-v5"}
"""A task's first word -> the environment that SAC and TD3 learn in; none where a fault is hidden."""
NORMALISED = tuple(questions.BROKEN_NORMALISED)
COLUMNS = {
    "ODT": (questions.SUPERVISED,),
    "ODT, ledger": (questions.BROKEN_LEDGER,),
    "td3+odt": (questions.TD3_ODT, NORMALISED[0]),
    "td3 alone": (questions.TD3_ALONE, questions.TD3_EVERY_STEP, NORMALISED[1]),
    "td3 alone, ledger": (questions.TD3_LEDGER, questions.BROKEN_TD3_LEDGER, NORMALISED[2]),
}
"""What each column shows: the first of these forms that a study has."""
BESIDE = {"every-step": "an update for every step", "normalised": "normalised critics"}
"""The last words of studies that vary one on the same task, and how rows are called."""


def cell(values: Sequence[float]) -> str:
    """A mean with its interval."""
    found = mean_interval(list(values))
    return written(found, digits_of(found.estimate))


def peers(folder: Path, task: str, steps: float) -> Iterator[tuple[str, int, list[float]]]:
    """SAC and TD3 on the robot of a task at their first evaluation after so many steps: name, steps and returns."""
    env_id = ROBOTS.get(task.partition("-")[0])
    runs = json.loads((folder / PEERS).read_text())["runs"] if (folder / PEERS).exists() else []
    for method in ("SAC", "TD3"):
        chosen = [run["curve"] for run in runs if (run["env_id"], run["method"]) == (env_id, method)]
        points = [[point for point in curve if point["env_steps"] >= steps - 1] for curve in chosen]
        returns = [float(np.mean(point[0]["returns"])) for point in points if point]
        if returns:
            yield method, points[0][0]["env_steps"], returns


def acted(studies: Studies, file: str) -> float:
    """How many steps the runs of a study acted, on average."""
    return float(np.mean([run.lines[-1]["env_steps"] for run in studies[file].runs]))


def table(studies: Studies) -> str:
    """A row for each task of which there are runs."""
    lines = [
        f"| task | online steps | {' | '.join(COLUMNS)} | SAC | TD3 |",
        "|---|---:|" + "---:|" * (len(COLUMNS) + 2),
    ]
    for name, call in questions.STUDIES["q7"].items():
        (task,), file = call.tasks, f"evidence/q7-{name}.jsonl.gz"
        if file not in studies:
            continue
        steps, cells = acted(studies, file), []
        for forms in COLUMNS.values():
            found = [list(studies.returns(file, task, form).values()) for form in forms]
            cells.append(next((cell(values) for values in found if values), ""))
        others = {name: cell(returns) for name, _, returns in peers(studies.folder, task, steps)}
        cells += [others.get(name, "") for name in ("SAC", "TD3")]
        words = task if name == task else f"{task}, {BESIDE[name.removeprefix(f'{task}-')]}"
        lines.append(f"| {words} | {1_000 * round(steps / 1_000):,} | {' | '.join(cells)} |")
    return "\n".join(lines)
