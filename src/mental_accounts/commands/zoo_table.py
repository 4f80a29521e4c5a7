"""zoo."""

from dataclasses import dataclass

from mental_accounts.zoo import earned, read_card, zoo_folder, zoo_names


@dataclass(frozen=True)
class Zoo:
    """List the policies that come with this package; `zoo/NAME` is understood wherever a run's folder is.

    `evaluate zoo/drifting-bandit`, `inspect zoo/drifting-bandit` and `export zoo/drifting-bandit` act with one.

    `train --config zoo/drifting-bandit` makes it again.
    """

    def execute(self) -> int:
        """Print one line each."""
        from mental_accounts.commands.data_tables import show

        rows = []
        for name in zoo_names():
            card = read_card(name)
            returns, episodes = earned(card["returns"]), str(card["episodes"])
            rows.append([f"zoo/{name}", card["task"], card["method"], returns, episodes, _score(card)])
        show(["policy", "task", "method", "return [95%]", "episodes", "score"], rows, numbers=(3, 4, 5))
        if rows:
            print(f"cards: {zoo_folder(zoo_names()[0]).parent}/NAME/README.md")
        return 0


def _score(card: dict[str, object]) -> str:
    return "" if card.get("score") is None else f"{card['score']:.0f}"
