"""Players by name, with constants chosen by studies/makers_tuning.py: who makes data, and who is compared with."""

from typing import Literal

from mental_accounts.environments.learners import HighestAccount, Learner
from mental_accounts.environments.makers import UCB, EpsilonGreedy, EWALearner, Mixture, Part, Thompson
from mental_accounts.environments.playing import Player
from mental_accounts.environments.yardsticks import AtRandom, Bayes, Oracle

Family = Literal["box", "discrete"]
"""What actions are."""

OWN_LEDGER = "own-ledger"
"""The maker that keeps a policy's own ledger."""

ALGORITHMS: dict[Family, dict[str, Player]] = {
    "box": {
        "thompson": Thompson(forgetting=0.2, noise=0.01, prior=0.3),
        "ucb": UCB(window=15, optimism=0.01, prior=0.3),
        "epsilon-greedy": EpsilonGreedy(epsilon=0.02, rate=0.5, fineness=5.0, spread=0.1),
        "ewa-0.02": EWALearner(forgetting=0.02, precision=40.0, fineness=5.0, spread=0.1),
        "ewa-0.1": EWALearner(forgetting=0.1, precision=40.0, fineness=5.0, spread=0.05),
        "ewa-0.2": EWALearner(forgetting=0.2, precision=40.0, fineness=5.0, spread=0.05),
    },
    "discrete": {
        "thompson": Thompson(forgetting=0.1, noise=0.15, prior=0.1),
        "ucb": UCB(window=50, optimism=0.2, prior=0.1),
        "epsilon-greedy": EpsilonGreedy(epsilon=0.02, rate=0.5),
        "ewa-0.02": EWALearner(forgetting=0.02, precision=1.0),
        "ewa-0.1": EWALearner(forgetting=0.1, precision=2.0),
        "ewa-0.2": EWALearner(forgetting=0.2, precision=5.0),
    },
}
"""Bandit algorithms: none has a policy's cells, none its φ (0.05 by default, 0.3 in preset hidden)."""


def makers(family: Family) -> dict[str, Player | Mixture]:
    """The makers of data by name. `mixture` draws each of four kinds equally often, and `ewa` each of three φ."""
    found = ALGORITHMS[family]
    ewa = [name for name in found if name.startswith("ewa")]
    others = {name: player for name, player in found.items() if name not in ewa}
    shares = dict.fromkeys(others, 0.25) | dict.fromkeys(ewa, 0.25 / len(ewa))
    return {
        "mixture": Mixture(tuple(Part(name, found[name], share) for name, share in shares.items())),
        **others,
        "ewa": Mixture(tuple(Part(name, found[name], 1 / len(ewa)) for name in ewa)),
        OWN_LEDGER: Learner(),
    }


def players(family: Family) -> dict[str, Player]:
    """Players that do not learn from data, by name: what they know grows from top to bottom."""
    found = ALGORITHMS[family]
    return {
        "random": AtRandom(),
        **{name: player for name, player in found.items() if not name.startswith("ewa")},
        "highest-account": HighestAccount(),
        "highest-account-0.2": HighestAccount(forgetting=0.2),
        "bayes": Bayes(),
        "oracle": Oracle(),
    }
