"""The few constants of the players that make the data of the tasks with a hidden context, chosen on seeds set aside.

    python studies/makers_tuning.py --out results/players/tuning.json    # an hour on one busy core

Each candidate plays episodes with hijacking and without, of 27 and 81 cells or 10 and 100 arms, on seeds that neither
data nor evaluations have; the best mean of the four, each as a share of what the exact Bayesian player earns there, is
chosen. The policy's φ (0.05 by default, 0.3 in preset hidden) is not a candidate, nor are its cells.
`environments/roster.py` has what was chosen; a test compares the two.
"""

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mental_accounts.environments import DriftingBandit, HiddenArm
from mental_accounts.environments.makers import UCB, EpsilonGreedy, EWALearner, Thompson
from mental_accounts.environments.playing import Env, Player
from mental_accounts.environments.roster import Family
from mental_accounts.environments.yardsticks import Bayes

FIRST_SEED = 10**12
"""Data of seeds below 999,997 and evaluations have smaller ones."""
ENVIRONMENTS: dict[Family, tuple[Env, ...]] = {
    "box": tuple(HiddenArm(dim, hijack=hijack) for dim in (3, 4) for hijack in (0.5, 0.0)),
    "discrete": tuple(DriftingBandit(arms, hijack=hijack) for arms in (10, 100) for hijack in (0.5, 0.0)),
}
"""Of the usual size and larger: hijacked, free, hijacked, free."""
FINENESS = {"fineness": (3.3, 4.0, 5.0), "spread": (0.05, 0.1)}
GRIDS: dict[Family, dict[str, tuple[type[Player], dict[str, Sequence[float]]]]] = {
    "box": {
        "thompson": (
            Thompson,
            {"forgetting": (0.02, 0.1, 0.2), "noise": (0.01, 0.03, 0.1), "prior": (0.03, 0.1, 0.3),
             "width": (0.25, 0.35)},
        ),
        "ucb": (
            UCB,
            {"window": (15, 25, 50), "optimism": (0.01, 0.03, 0.1), "prior": (0.03, 0.1, 0.3), "width": (0.25, 0.35)},
        ),
        "epsilon-greedy": (EpsilonGreedy, {"epsilon": (0.02, 0.1), "rate": (0.1, 0.2, 0.3, 0.5), **FINENESS}),
        **{f"ewa-{phi:g}": (EWALearner, {"forgetting": (phi,), "precision": (5.0, 10.0, 20.0, 40.0), **FINENESS})
           for phi in (0.02, 0.1, 0.2)},
    },
    "discrete": {
        "thompson": (
            Thompson, {"forgetting": (0.01, 0.02, 0.1), "noise": (0.15, 0.3, 0.5), "prior": (0.1, 0.25, 0.5)},
        ),
        "ucb": (
            UCB, {"window": (25, 50, 100, 200), "optimism": (0.1, 0.2, 0.4, 0.8), "prior": (0.1, 0.25, 0.5)},
        ),
        "epsilon-greedy": (EpsilonGreedy, {"epsilon": (0.02, 0.05, 0.1, 0.2), "rate": (0.1, 0.2, 0.3, 0.5)}),
        **{f"ewa-{phi:g}": (EWALearner, {"forgetting": (phi,), "precision": (0.5, 1.0, 2.0, 5.0, 10.0)})
           for phi in (0.02, 0.1, 0.2)},
        "bayes": (Bayes, {"optimism": (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)}),
    },
}  # fmt: skip
"""Constants that are tried, all combinations."""


def candidates(family: Family, name: str) -> Iterator[Player]:
    """Every combination of constants."""
    kind, grid = GRIDS[family][name]
    for values in itertools.product(*grid.values()):
        yield kind(**dict(zip(grid, values, strict=True)))


def earned(player: Player, env: Env, episodes: int) -> float:
    """The mean return on the first seeds set aside."""
    return float(np.mean([player.play(env, FIRST_SEED + i).rewards.sum() for i in range(episodes)]))


def tune(family: Family, name: str, episodes: int, scales: Sequence[float]) -> dict[str, Any]:
    """All candidates with what they earn, the best first."""
    found: list[dict[str, Any]] = []
    for player in candidates(family, name):
        returns = [earned(player, env, episodes) for env in ENVIRONMENTS[family]]
        share = float(np.mean([value / scale for value, scale in zip(returns, scales, strict=True)]))
        found.append({"constants": asdict(player), "returns": returns, "share": share})
    found.sort(key=lambda tried: -tried["share"])
    return {"family": family, "name": name, "tried": found}


def table(tuned: Sequence[dict[str, Any]]) -> str:
    """Who, the chosen constants, what they earn in the four environments, and what the worst candidate earns."""
    lines = ["| actions | player | tried | chosen | hijacked, free; larger: hijacked, free | the worst candidate |"]
    lines.append("|---|---|---:|---|---:|---:|")
    for one in tuned:
        best, worst = one["tried"][0], one["tried"][-1]
        chosen = ", ".join(f"{key} {best['constants'][key]:g}" for key in GRIDS[one["family"]][one["name"]][1])
        cells = ("{:.0f}, {:.0f}; {:.0f}, {:.0f}".format(*tried["returns"]) for tried in (best, worst))
        lines.append(f"| {one['family']} | {one['name']} | {len(one['tried'])} | {chosen} | {' | '.join(cells)} |")
    return "\n".join(lines).replace(" -", " −")


def main() -> None:
    """Tune all of them, or those that are named, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the file of all candidates")
    parser.add_argument("--episodes", type=int, default=100)
    given = parser.parse_args()
    tuned = []
    for family, grids in GRIDS.items():
        scales = [earned(Bayes(), env, given.episodes) for env in ENVIRONMENTS[family]]
        for name in grids:
            tuned.append(tune(family, name, given.episodes, scales))
            print(table(tuned[-1:]).splitlines()[-1], flush=True)
    facts = {"command": "python studies/makers_tuning.py", "first_seed": FIRST_SEED, "episodes": given.episodes}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({**facts, "tuned": tuned}, indent=1) + "\n")


if __name__ == "__main__":
    main()
