"""Question 7 in one table: robots whose policies acted, and SAC and TD3 from scratch after about as many steps."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import questions
from claim_numbers import Studies, cell

PEERS = "evidence/q7-peers.json"
ROBOTS = {"hopper": "Hopper-v5", "walker2d": "Walker2d-v5", "halfcheetah": "HalfCheetah-v5"}
"""A task's first word -> the environment that SAC and TD3 learn in; none where a fault is hidden."""
COLUMNS = {
    words: [form for form, same in questions.Q7_SHORT.items() if same == words] for words in questions.Q7_SHORT.values()
}
"""What each column shows: the first of these forms that a study has."""
BEGIN, END = "<!-- robots: made by studies/results_pages.py -->", "<!-- end of robots -->"


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
    """A row for each task of which there are runs; studies that decide nothing stand in docs/online.md."""
    lines = [
        f"| task | online steps | {' | '.join(COLUMNS)} | SAC | TD3 |",
        "|---|---:|" + "---:|" * (len(COLUMNS) + 2),
    ]
    for task in questions.Q7_DECIDES:
        file = f"evidence/q7-{task}.jsonl.gz"
        if file not in studies:
            continue
        steps, cells = acted(studies, file), []
        for forms in COLUMNS.values():
            found = [list(studies.returns(file, task, form).values()) for form in forms]
            cells.append(next((cell(values) for values in found if values), ""))
        others = {method: cell(returns) for method, _, returns in peers(studies.folder, task, steps)}
        cells += [others.get(method, "") for method in ("SAC", "TD3")]
        lines.append(f"| {task} | {1_000 * round(steps / 1_000):,} | {' | '.join(cells)} |")
    return "\n".join(lines)
