"""Claims from studies that are no comparisons of `compare`: POPGym, runs from scratch, speed."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from claim_numbers import Studies, plain
from claim_rows import Row
from interval_cells import written
from mental_accounts.report.mixture import made_differently
from mental_accounts.report.significance import LEVEL, paired_tests
from mental_accounts.report.statistics import Interval, mean_interval

BANDITS = {"MultiarmedBanditEasy": 10, "MultiarmedBanditMedium": 20, "MultiarmedBanditHard": 30}
"""POPGym's tasks -> how many arms they have."""
POPGYM_METHODS = ("ledger-per-code", "lstm")
"""Compared with each other."""
ONLINE_FILES = ("online/runs.json", "online/hidden-arm.json")
WORDS = {"SixArms": "six drifting arms", "HiddenArm-v0": "hidden-arm"}
"""Environments that have other names in tables."""
SPEED_FILES = {"an H200": "peers-h200.json", "two CPU cores": "peers-cpu.json"}
PEERS = ("hugging_face", "torchrl_odt", "d3rlpy_dt")
UPDATE = {"what": "update", "batch": 64, "context": 20, "precision": "bf16", "method": "odt"}


def popgym(results: Path) -> tuple[tuple[Row, ...], bool]:
    """PPO with a ledger beside recurrent PPO and a tuned player; and whether machines differ."""
    content = json.loads((results / "popgym" / "runs.json").read_text())
    pairs = {name: [_by_seed(content["runs"], name, method) for method in POPGYM_METHODS] for name in BANDITS}
    tests = paired_tests({name: (ours, theirs) for name, (ours, theirs) in pairs.items()}, lambda _: True)
    found = []
    for name, (ours, theirs) in pairs.items():
        difference = written(students(np.subtract(ours, theirs).tolist()), 3, signed=True)
        found.append(
            Row(
                where=f"POPGym's bandit, {BANDITS[name]} arms",
                ours=f"PPO, ledger {np.mean(ours):.3f}",
                theirs=f"recurrent PPO {np.mean(theirs):.3f} (tuned UCB {_best_ucb(content['players'], name):.3f})",
                difference=f"**{difference}**" if tests[name].corrected < LEVEL else difference,
                detectable=f"{tests[name].detectable:.3f}",
                seeds=str(len(ours)),
            )
        )
    return tuple(found), len(content["made with"]) > 1


def _by_seed(runs: Sequence[Mapping[str, Any]], environment: str, method: str) -> list[float]:
    """Sampled actions after the last step, in the order of seeds."""
    own = [run for run in runs if (run["environment"], run["method"]) == (environment, method)]
    return [float(run["sampled"]["mean"]) for run in sorted(own, key=lambda run: int(run["seed"]))]


def _best_ucb(players: Sequence[Mapping[str, Any]], environment: str) -> float:
    return max(
        float(one["mean"]) for one in players if one["environment"] == environment and "ucb" in one["player"].lower()
    )


def students(values: Sequence[float]) -> Interval:
    """A mean with Student's interval, as the study's own page has it."""
    n, mean = len(values), float(np.mean(values))
    half = float(np.std(values, ddof=1)) / math.sqrt(n) * float(special.stdtrit(n - 1, 0.975))
    return Interval(mean, mean - half, mean + half)


def online(studies: Studies) -> tuple[tuple[Row, ...], bool]:
    """What preset `online` reaches from scratch; and whether machines differ."""
    content, on_the_arm = (json.loads((studies.folder / file).read_text()) for file in ONLINE_FILES)
    runs = [*content["runs"], *on_the_arm["runs"]]
    returns = _returns(runs)
    greedy = next(np.mean(one["returns"]) for one in content["players"] if one["name"].startswith("ε-greedy"))
    low, high = (studies.played("hidden-arm", player) for player in ("highest-account", "highest-account-0.2"))
    without = {name: plain(float(np.mean(values))) for (name, method), values in returns.items() if method == "odt"}
    beside = {
        "SixArms": f"no ledger {without['SixArms']}; tuned ε-greedy {greedy:.1f}",
        "HiddenArm-v0": f"ODT {without['HiddenArm-v0']}; highest account {low} to {high}",
    }
    shown = {"CartPole-v1": "odt", "Pendulum-v1": "odt", "SixArms": "ledger-odt", "HiddenArm-v0": "ledger-odt"}
    rows = tuple(
        Row(
            where=WORDS.get(name, name),
            ours=f"{'ledger ' if name in beside else ''}{written(mean_interval(returns[name, method]), 1)}",
            theirs=beside.get(name, ""),
            seeds=str(len(returns[name, method])),
        )
        for name, method in shown.items()
    )
    return rows, bool(made_differently([run["made_by"] for run in runs]))


def _returns(runs: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[float]]:
    """The mean returns of seeds, by environment and method."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        name = run["env_id"].rpartition(":")[2]
        found.setdefault((name, run["method"]), []).append(float(np.mean(run["returns"])))
    return found


def speed(results: Path) -> tuple[Row, ...]:
    """Medians of an update, and how many times as long the peers take."""
    found = []
    for place, name in SPEED_FILES.items():
        cases = json.loads((results / name).read_text())["results"]
        (times,) = (case["ms"] for case in cases if case["case"] == UPDATE)
        ours, peers = float(np.median(times["ours"])), sorted(float(np.median(times[peer])) for peer in PEERS)
        digits = 2 if ours < 100 else 0
        compiled = place == "an H200"
        found.append(
            Row(
                where=f"an update on {place}",
                ours=f"{ours:.{digits}f} ms" + ", compiled" * compiled,
                theirs=f"{peers[0]:,.{min(digits, 1)}f} to {peers[-1]:,.{min(digits, 1)}f} ms"
                + ", not compiled" * compiled,
                difference=f"× {_range([peer / ours for peer in peers], 0 if compiled else 1)}",
            )
        )
    return tuple(found)


def _range(ratios: Sequence[float], digits: int) -> str:
    return " to ".join(dict.fromkeys(f"{ratio:.{digits}f}" for ratio in (ratios[0], ratios[-1])))
