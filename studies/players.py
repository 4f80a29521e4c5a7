"""What players that do not learn from data earn on the tasks with a hidden context, and what scores are measured by.

    python studies/players.py results/players/returns.json             # plays what is missing; an hour on one core
    python studies/players.py results/players/returns.json --report    # the tables alone

The episodes are those of `mental-accounts evaluate` with seed 0. `RETURNS` of `data/hidden_tasks.py`, by which scores
are measured, has the means of the first and of the last but one player of each environment; a test compares the two.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mental_accounts.environments.roster import Family, makers, players
from mental_accounts.files import write_atomically
from mental_accounts.learning.player_returns import play_player
from mental_accounts.report.statistics import mean_interval

SEED = 0
EPISODES, SCALE_EPISODES = 1_000, 2_000
"""Of each player; of the two that scores are measured by."""
SCALE = ("random", "bayes")
TASKS: dict[str, Family] = {
    "hidden-arm": "box", "hidden-arm-free": "box", "drifting-bandit": "discrete", "drifting-bandit-free": "discrete",
}  # fmt: skip
SIZES: dict[str, Family] = {
    f"{task}:{setting}": family
    for task, family in TASKS.items()
    for setting in {"box": ("dim=1", "dim=2", "dim=4"), "discrete": ("arms=27", "arms=100", "arms=300")}[family]
}
"""Other numbers of cells and arms. Where no action is replaced: only those players that scores are measured by."""
DATA = ("ewa", "mixture", "own-ledger")
"""Behaviour policies, for comparison."""
WORDS = {
    "random": "random",
    "thompson": "Thompson sampling",
    "ucb": "UCB, sliding window",
    "epsilon-greedy": "ε-greedy",
    "highest-account": "highest account, φ = 0.05",
    "highest-account-0.2": "highest account, φ = 0.2",
    "bayes": "Bayesian: knows the equations",
    "oracle": "oracle: is told what is hidden",
    "ewa": "data `/ewa`",
    "mixture": "data: the mixture",
    "own-ledger": "data `/own-ledger`",
}


@dataclass(frozen=True)
class Entry:
    """A player in a task, and how many episodes it plays."""

    task: str
    player: str
    episodes: int


def entries() -> list[Entry]:
    """All that is played."""
    found = [(task, player) for task, family in TASKS.items() for player in (*players(family), *DATA)]
    for task, family in SIZES.items():
        found += [(task, player) for player in (SCALE if "-free" in task else players(family))]
    return [Entry(task, player, SCALE_EPISODES if player in SCALE else EPISODES) for task, player in found]


def played(entry: Entry) -> list[float]:
    """The returns, to a hundredth."""
    player = makers(TASKS[entry.task])[entry.player] if entry.player in DATA else entry.player
    return [round(value, 2) for value in play_player(entry.task, player, entry.episodes, SEED).tolist()]


def cell(returns: Sequence[float]) -> str:
    """The mean with its 95% interval over episodes."""
    found = mean_interval(returns)
    return f"{found.estimate:.1f} [{found.low:.1f}, {found.high:.1f}]".replace("-", "−")


def main_table(returns: dict[str, dict[str, list[float]]]) -> str:
    """Player × task."""
    lines = [f"| player | {' | '.join(f'`{task}`' for task in TASKS)} |", "|---|" + "---:|" * len(TASKS)]
    for player, words in WORDS.items():
        cells = (cell(returns[task][player]) for task in TASKS)
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def size_table(returns: dict[str, dict[str, list[float]]]) -> str:
    """Other sizes: every player that played them."""
    shown = {player: words.partition(":")[0] for player, words in WORDS.items() if player not in DATA}
    lines = [f"| environment | {' | '.join(shown.values())} |", "|---|" + "---:|" * len(shown)]
    for task in SIZES:
        cells = (cell(returns[task][player]) if player in returns[task] else "" for player in shown)
        lines.append(f"| `{task}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def scales(returns: dict[str, dict[str, list[float]]]) -> dict[str, tuple[float, float]]:
    """The returns of scores 0 and 100 by task, as data/hidden_tasks.py has them."""
    found = {}
    for task in (*TASKS, *SIZES):
        low, high = (round(float(np.mean(returns[task][player])), 1) for player in SCALE)
        found[task] = (low, high)
    return found


def main() -> None:
    """Play what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the returns of all episodes")
    parser.add_argument("--report", action="store_true", help="play nothing")
    given = parser.parse_args()
    content: dict[str, Any] = {"command": "python studies/players.py", "seed": SEED, "returns": {}}
    if given.file.exists():
        content = json.loads(given.file.read_text())
    for entry in [] if given.report else entries():
        there = content["returns"].setdefault(entry.task, {})
        if len(there.get(entry.player, ())) != entry.episodes:
            there[entry.player] = played(entry)
            print(f"{entry.task} {entry.player}: {cell(there[entry.player])}", flush=True)
            given.file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(given.file, (json.dumps(content) + "\n").encode())
    print(main_table(content["returns"]), size_table(content["returns"]), sep="\n\n")
    for task, (low, high) in scales(content["returns"]).items():
        print(f"{task}: ({low}, {high})")


if __name__ == "__main__":
    main()
