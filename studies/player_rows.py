"""Players that do not learn (players.py), for tables of policies that do."""

from claim_numbers import Studies
from players import DATA, WORDS

SHOWN = {name: f"{words} (no learning)" for name, words in WORDS.items() if name not in DATA}
"""What tables of policies call them."""


def players_beside(studies: Studies, task: str) -> dict[str, list[float]]:
    """The returns of all episodes that each played in a task's environment, by its words.

    Whoever made the task's data does not matter: `hidden-arm/ucb` has the environment of `hidden-arm`.
    """
    found = studies.players.get(task.partition("/")[0], {})
    return {words: found[name] for name, words in SHOWN.items() if name in found}
