"""Claims from studies that are no comparisons of `compare`: POPGym, runs from scratch, speed."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from interval_cells import written
from mental_accounts.report.significance import holm, paired_p_value, verdict
from mental_accounts.report.statistics import Interval, mean_interval

BANDITS = ("MultiarmedBanditEasy", "MultiarmedBanditMedium", "MultiarmedBanditHard")
HIDDEN_ARM = "online/hidden-arm.json"
FORMS = {"ledger-odt": "the ledger", "gru": "a GRU whose critics see single steps", "odt": "neither"}
"""On hidden-arm."""
SPEED_FILES = ("peers-h200.json", "peers-cpu.json")
PEERS = ("hugging_face", "torchrl_odt", "d3rlpy_dt")
UPDATE = {"what": "update", "batch": 64, "context": 20, "precision": "bf16", "method": "odt"}


def popgym(results: Path) -> tuple[str, str, bool]:
    """PPO with a ledger beside recurrent PPO and a tuned player; the number of seeds; whether machines differ."""
    content = json.loads((results / "popgym" / "runs.json").read_text())
    ours, theirs = (
        [_by_seed(content["runs"], environment, method) for environment in BANDITS]
        for method in ("ledger-per-code", "lstm")
    )
    p_values = holm([paired_p_value(*pair) for pair in zip(ours, theirs, strict=True)])
    gains = [float(np.mean(one) - np.mean(other)) for one, other in zip(ours, theirs, strict=True)]
    found = [verdict(gain, p) for gain, p in zip(gains, p_values, strict=True)]
    words = {"helps": "**Higher** than recurrent PPO", "hurts": "**Lower** than recurrent PPO"}
    said = words.get(found[0], "No difference from recurrent PPO detected") if len(set(found)) == 1 else "By task"
    ucb = [_best_ucb(content["players"], environment) for environment in BANDITS]
    text = (
        f"{said} on POPGym's bandits with 10, 20 and 30 arms: "
        f"{', '.join(written(students(values), 3) for values in ours)}; recurrent PPO "
        f"{', '.join(f'{np.mean(values):.3f}' for values in theirs)}; tuned UCB, without learning, "
        f"{', '.join(f'{value:.3f}' for value in ucb)} (2M steps; the ledger was tuned more than its rivals)"
    )
    return text, str(min(map(len, ours))), len(content["made with"]) > 1


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


def online(results: Path) -> tuple[str, str]:
    """What preset `online` reaches from scratch, and the seeds."""
    content = json.loads((results / "online" / "runs.json").read_text())
    returns: dict[tuple[str, str], list[float]] = {}
    for run in content["runs"]:
        name = run["env_id"].rpartition(":")[2]
        returns.setdefault((name, run["method"]), []).append(float(np.mean(run["returns"])))
    cells = {form: written(mean_interval(values), 1) for form, values in returns.items()}
    greedy = next(np.mean(one["returns"]) for one in content["players"] if one["name"].startswith("ε-greedy"))
    text = (
        f"On two CPU cores, no data: CartPole-v1 {cells['CartPole-v1', 'odt']}, Pendulum-v1 "
        f"{cells['Pendulum-v1', 'odt']}; six drifting arms with the ledger {cells['SixArms', 'ledger-odt']}, without "
        f"{cells['SixArms', 'odt']}, tuned ε-greedy {greedy:.1f}"
    )
    hidden: dict[str, list[float]] = {}
    for run in json.loads((results / HIDDEN_ARM).read_text())["runs"]:
        hidden.setdefault(run["method"], []).append(float(np.mean(run["returns"])))
    arm = {method: written(mean_interval(values), 1) for method, values in hidden.items()}
    played = json.loads((results / "players" / "returns.json").read_text())["returns"]["hidden-arm"]
    compared = [f"{words} {arm[method]}" for method, words in FORMS.items() if method in arm]
    text += (
        f"; `hidden-arm` (in part on an H200) with {', '.join(compared)}"
        ", where playing the highest account earns "
        f"{np.mean(played['highest-account']):.1f} to {np.mean(played['highest-account-0.2']):.1f}, a Bayesian player "
        f"{np.mean(played['bayes']):.1f}"
    )
    return text, str(min(map(len, (*returns.values(), *hidden.values()))))


def speed(results: Path) -> str:
    """Medians of an update, and how many times as long the peers take."""
    ours, ratios = {}, {}
    for name in SPEED_FILES:
        cases = json.loads((results / name).read_text())["results"]
        (times,) = (case["ms"] for case in cases if case["case"] == UPDATE)
        ours[name] = float(np.median(times["ours"]))
        ratios[name] = sorted(float(np.median(times[peer])) / ours[name] for peer in PEERS)
    (gpu, cpu), (on_gpu, on_cpu) = SPEED_FILES, (ratios[name] for name in SPEED_FILES)
    return (
        f"An update of ODT (hidden 512, batch 64, bf16) takes {ours[gpu]:.2f} ms on an H200 when compiled, as in runs "
        "of 20,000 updates or more; Hugging Face, TorchRL and d3rlpy, not compiled, take "
        f"{on_gpu[0]:.0f} to {on_gpu[-1]:.0f} times as long. On two CPU cores {ours[cpu]:.0f} ms; they take "
        f"{_range(on_cpu)} times as long (measured with version 0.1)"
    )


def _range(ratios: Sequence[float]) -> str:
    low, high = f"{ratios[0]:.1f}", f"{ratios[-1]:.1f}"
    return low if low == high else f"{low} to {high}"
