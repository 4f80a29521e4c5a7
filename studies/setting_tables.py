"""Question 3, where ledger and GRU break: its settings, and tables for docs/hidden.md.

One axis at a time is changed. The middle of each is question 9, whose forms and seeds these runs have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import questions
from claim_numbers import HIGHER, Pair, Studies, Tested, cell, plain
from player_rows import SHOWN, players_beside

ARM, BANDIT = questions.BOTH
MIDDLE = "evidence/q9-again.jsonl.gz"
FITTING = 27
"""Cells of hidden-arm, and codes of the ledger there."""
PLAYERS = {
    SHOWN[name]: words for name, words in {"highest-account-0.2": "highest account", "bayes": "Bayesian"}.items()
}
"""The players that do not learn whose returns stand beside both: one that keeps accounts, and the best."""


@dataclass(frozen=True)
class Setting:
    """A task with one thing changed, or with none."""

    task: str
    words: str
    file: str = MIDDLE
    played: str | None = None
    """What its runs call the task; None: as it is called here."""
    is_longer: bool = False
    """Whether episodes are longer than the task's own, which no other player has played."""

    @property
    def is_changed(self) -> bool:
        """Whether it is question 3's own; the others are tested in question 9."""
        return self.file != MIDDLE

    @property
    def pair(self) -> Pair:
        """The ledger against the GRU."""
        where, ours_and_theirs = f"{self.task}, {self.words}", ("ledger", "GRU")
        return Pair(where, ours_and_theirs, self.file, self.played or self.task, *questions.SECOND_RIVALS)


def file_of(study: str) -> str:
    """A packed study of question 3."""
    return f"evidence/q3-{study}.jsonl.gz"


def settings() -> Iterator[Setting]:
    """All in which both were run, axis by axis."""
    yield Setting(BANDIT, "10 arms")
    for arms in questions.ARMS:
        yield Setting(BANDIT, f"{arms} arms", file_of(f"arms-{arms}"), f"{BANDIT}:arms={arms}")
    cells = {
        3**dim: Setting(ARM, f"{3**dim} cells", file_of(f"cells-{3**dim}"), f"{ARM}:dim={dim}")
        for dim in questions.DIMS
    }
    cells[FITTING] = Setting(ARM, f"{FITTING} cells")
    yield from (cells[number] for number in sorted(cells))
    for task in questions.BOTH:
        yield Setting(task, f"{questions.STEPS} steps, as in training")
        for times in questions.TIMES:
            longer = file_of(f"{task}-{times}-times-as-long")
            yield Setting(task, f"{times * questions.STEPS:,} steps", longer, is_longer=True)
    for task in questions.BOTH:
        yield Setting(task, "half of the actions replaced")
        yield Setting(task, "none replaced", file_of("free"), f"{task}-free")
    for task in questions.BOTH:
        yield Setting(task, "data by four makers")
        for maker in questions.MAKERS:
            yield Setting(task, f"data by {maker}", file_of(f"made-by-{maker}"), f"{task}/{maker}")


FILES = tuple(dict.fromkeys(setting.file for setting in settings() if setting.is_changed))
"""The packed studies of question 3 in which both were run."""


def rivals(studies: Studies, tested: Sequence[Tested]) -> str:
    """Both in every setting that was run, with what the data earned; and which is higher, by question 3's tests."""
    if not any(file in studies for file in FILES):
        return "Ledger and GRU beside each other, in other settings: still to be run."
    verdicts = {one.pair: HIGHER[one.verdict] for one in tested}
    heads = ("task", "setting", "seeds", "the data", *PLAYERS.values(), "ledger (K = 1)", "GRU, two layers", "higher")
    lines = [f"| {' | '.join(heads)} |", f"|---|---|{'---:|' * (len(heads) - 3)}---|"]
    for setting in settings():
        pair = setting.pair
        if pair in verdicts or (not setting.is_changed and setting.file in studies):
            beside = {} if setting.is_longer else players_beside(studies, pair.task)
            returns = [
                list(studies.returns(pair.file, pair.task, form).values()) for form in (pair.method, pair.against)
            ]
            cells = [
                str(min(map(len, returns))),
                data_return(studies, pair),
                *(plain(float(np.mean(beside[words]))) if words in beside else "" for words in PLAYERS),
                *map(cell, returns),
                verdicts.get(pair, ""),
            ]
            lines.append(f"| `{setting.task}` | {setting.words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def data_return(studies: Studies, pair: Pair) -> str:
    """The mean return of the data that a comparison learned from."""
    runs = studies[pair.file].of(pair.task, pair.method)
    return plain(float(np.mean([run.summary["data"]["return_mean"] for run in runs])))


def forms(studies: Studies) -> str:
    """The ledger's φ and codes: returns with the mean action and with sampled ones."""
    chosen = (MIDDLE, questions.SECOND_LEDGER)
    by_phi = {phi: (file_of("phi"), form) for phi, form in zip(questions.PHIS, questions.PHI_FORMS, strict=True)}
    by_phi[questions.SECOND_PHI] = chosen
    rows = {(task, f"φ = {phi}"): by_phi[phi] for task in questions.BOTH for phi in sorted(by_phi)}
    rows[ARM, f"{FITTING} codes, the task's own cells"] = chosen
    for codes, form in zip(questions.MISFITS, questions.MISFIT_FORMS, strict=True):
        rows[ARM, f"{codes} codes by k-means"] = (file_of("codes"), form)
    lines = ["| task | ledger (K = 1) with | seeds | mean action | sampled |", "|---|---|---:|---:|---:|"]
    for (task, words), (file, form) in rows.items():
        if file in studies and (returns := list(studies.returns(file, task, form).values())):
            sampled = list(studies.returns(file, task, form, "sampled").values())
            lines.append(f"| `{task}` | {words} | {len(returns)} | {cell(returns)} | {cell(sampled)} |")
    return "\n".join(lines)
