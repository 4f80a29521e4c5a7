"""Packed studies with NumPy alone: the numbers of a report, and where a report says something else.

docs/compare.md says what is in a packed file and what each number is.
"""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from .plain_statistics import detectable, holm, interval, p_value

RETURN = "evaluation/return_mean_gm"
BY_SAMPLES = "evaluation/return_vs_samples"
METRICS = [
    RETURN, "evaluation/return_std_gm", BY_SAMPLES, "evaluation/length_mean_gm", "evaluation/length_std_gm",
    "aug_traj/return", "aug_traj/length",
]  # fmt: skip
LEVEL = 0.05


class Packed:
    """One packed file: finished runs by task, method and seed."""

    def __init__(self, path: Path) -> None:
        with gzip.open(path, "rt", encoding="ascii") as file:
            header, *lines = [json.loads(line) for line in file]
        self.tasks, self.methods = header["study"]["tasks"], header["study"]["methods"]
        self.runs: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        for line in lines:
            planned, run = line["planned"], line["run"]
            if run is not None and run["summary"] is not None:
                self.runs.setdefault((planned["task"], planned["method"]), {})[planned["seed"]] = run

    def of(self, task: str, method: str) -> dict[int, dict[str, Any]]:
        return dict(sorted(self.runs.get((task, method), {}).items()))

    def last(self, task: str, method: str) -> dict[int, float]:
        return {seed: curve(run, RETURN)[1][-1] for seed, run in self.of(task, method).items()}

    def early(self, task: str, method: str, updates: int) -> dict[int, float]:
        """The mean over the evaluations of the first updates."""
        found = {}
        for seed, run in self.of(task, method).items():
            at, values = curve(run, RETURN)
            found[seed] = float(values[at <= updates].mean())
        return found


def curve(run: dict[str, Any], name: str, online: bool = False, by: str = "updates") -> tuple[np.ndarray, np.ndarray]:
    lines = [line for line in run["metrics"] if name in line and (line["phase"] == "online" or not online)]
    return np.array([line[by] for line in lines], float), np.array([line[name] for line in lines], float)


def matrix(runs: list[dict[str, Any]], name: str) -> np.ndarray:
    """(seeds, steps) of a metric: of the online phase, if there is one; NaN where a seed has none."""
    online = any(line["phase"] == "online" for run in runs for line in run["metrics"])
    curves = [curve(run, name, online, "env_steps" if name == BY_SAMPLES else "updates") for run in runs]
    steps = np.unique(np.concatenate([x for x, _ in curves]))
    rows = []
    for x, y in curves:
        known = dict(zip(x, y, strict=True))
        between = name == BY_SAMPLES and len(x) > 0
        rows.append(np.interp(steps, x, y, np.nan, np.nan) if between else [known.get(step, np.nan) for step in steps])
    return np.array(rows, float).reshape(len(runs), len(steps))


def area(run: dict[str, Any]) -> float:
    """The mean height of the learning curve."""
    x, y = curve(run, RETURN)
    return float(y[0]) if len(x) == 1 else float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum() / (x[-1] - x[0]))


FINDS = {"last": lambda run: float(curve(run, RETURN)[1][-1]), "best": lambda run: float(curve(run, RETURN)[1].max()),
         "area": area}  # fmt: skip


def report(packed: Packed) -> dict[str, Any]:
    """Everything in report.json that is a mean, a difference, an interval of one of them, or a test."""
    tests: list[tuple[Any, Any, bool, dict[str, Any]]] = []  # both methods, whether it decides, where it belongs
    tasks = []
    for task in packed.tasks:
        there = [method for method in packed.methods if packed.of(task, method)]
        if not there:
            continue
        compared = [_comparison(packed, task, method, tests) for method in there if method != packed.methods[0]]
        tasks.append(
            {"task": task, "scores": [_scores(list(packed.of(task, method).values())) for method in there],
             "comparisons": [one for one in compared if one]}
        )  # fmt: skip
        for method, one in zip(there, tasks[-1]["scores"], strict=True):
            one |= {"method": method, "seeds": list(packed.of(task, method))}
    pooled = [one for method in packed.methods[1:] if (one := _pooled(packed, method, tests))]
    p = [p_value(ours, theirs) for ours, theirs, _, _ in tests]
    made = [first for (_, _, first, _), value in zip(tests, p, strict=True) if value is not None]
    weights = [1 / (len(set(made)) * made.count(first)) if first in made else 1.0 for _, _, first, _ in tests]
    for (ours, theirs, _, into), own, corrected, weight in zip(tests, p, holm(p, weights), weights, strict=True):
        least = detectable(ours, theirs, LEVEL * weight)
        into["test"] = {"p_value": own, "corrected": corrected, "detectable": least}
    return {"tasks": tasks, "pooled": pooled, "tests": len(made)}


def _scores(runs: list[dict[str, Any]]) -> dict[str, Any]:
    values = {name: [find(run) for run in runs] for name, find in FINDS.items()}
    middle = sorted(values["last"])[len(runs) // 4 : len(runs) - len(runs) // 4]
    scores = [run["summary"]["normalised_score"] for run in runs]
    positive = min(values["last"]) > 0
    return {
        **values,
        **{f"{name}_mean": interval(found) for name, found in values.items()},
        "last_iqm": {"estimate": float(np.mean(middle))},
        "geometric_mean": math.exp(float(np.mean(np.log(values["last"])))) if positive else None,
        "normalised": None if None in scores else interval(scores),
        "data_mean": runs[0]["summary"]["data"]["return_mean"],
        "seconds": float(np.mean([run["summary"]["seconds"] for run in runs])),
    }


def _comparison(packed: Packed, task: str, method: str, tests: list[Any]) -> dict[str, Any] | None:
    one, other = packed.of(task, method), packed.of(task, packed.methods[0])
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        return None
    ours, theirs = [one[seed] for seed in seeds], [other[seed] for seed in seeds]
    values = {name: [np.array(list(map(find, runs))) for runs in (ours, theirs)] for name, find in FINDS.items()}
    wins = np.sign(values["last"][0][:, None] - values["last"][1][None])
    found: dict[str, Any] = {"method": method, "baseline": packed.methods[0], "seeds": seeds, "rows": []}
    found |= {name: interval(mine - yours) for name, (mine, yours) in values.items()}
    found["improvement"] = {"estimate": float((wins + 1).mean() / 2)}
    tests.append((*values["last"], True, found))
    for name in METRICS:
        both = matrix(ours, name), matrix(theirs, name)
        if any(part.shape[1] == 0 or np.isnan(part).all(axis=1).any() for part in both):
            continue
        value, base = (float(np.nanmean(np.nanmean(part, axis=0))) for part in both)
        mine, yours = (np.nanmean(part, axis=1) for part in both)
        row = {"name": name, "value": value, "baseline": base, "difference": interval(mine - yours)}
        row["change_percent"] = 100 * (value - base) / abs(base) if base else None
        found["rows"].append(row)
        tests.append((mine, yours, False, row))
    return found


def _pooled(packed: Packed, method: str, tests: list[Any]) -> dict[str, Any] | None:
    """All tasks together, in normalised score, on the seeds that all have."""
    cells = [[packed.of(task, name) for task in packed.tasks] for name in (method, packed.methods[0])]
    seeds = sorted(set.intersection(*(set(runs) for row in cells for runs in row)))
    scores = [[[runs[seed]["summary"]["normalised_score"] for seed in seeds] for runs in row] for row in cells]
    if len(packed.tasks) < 2 or not seeds or any(None in values for row in scores for values in row):
        return None
    ours, theirs = np.array(scores, float)
    wins = (np.sign(ours[:, :, None] - theirs[:, None, :]) + 1) / 2
    found = {"method": method, "seeds": seeds, "difference": interval(ours - theirs)}
    found["improvement"] = {"estimate": float(wins.mean())}
    tests.append((ours, theirs, True, found))
    return found


def problems(computed: Any, said: Any, where: str = "", within: float = 0.0) -> list[str]:
    """Where a report says something else than was computed; in between may be nothing but rounding errors."""
    if isinstance(computed, dict):
        if not isinstance(said, dict):
            return [f"{where}: {said} is no table"]
        off = {name: computed["within"] for name in ("low", "high") if "within" in computed}
        keys = [key for key in computed if key != "within"]
        return [
            text for key in keys for text in problems(computed[key], said.get(key), f"{where}/{key}", off.get(key, 0.0))
        ]
    if isinstance(computed, list):
        if not isinstance(said, list) or len(said) != len(computed):
            return [f"{where}: {len(computed)} were expected, got {said}"]
        pairs = enumerate(zip(computed, said, strict=True))
        return [text for number, pair in pairs for text in problems(*pair, f"{where}/{number}")]
    if isinstance(computed, float) and isinstance(said, float | int):
        same = math.isclose(computed, said, rel_tol=1e-6, abs_tol=max(within, 1e-9))
    else:
        same = computed == said
    return [] if same else [f"{where}: computed {computed}, said {said}"]
