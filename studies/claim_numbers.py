"""Numbers behind claims: returns by seed from packed studies, paired differences, and tests of one question together.

The verdict is the protocol's: higher or lower where p of the paired difference is below 0.05 after Holm's correction
over all comparisons of the question; else no difference detected, and what would have been.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from interval_cells import written
from mental_accounts.report.mixture import made_differently, mixed
from mental_accounts.report.report_tables import probability
from mental_accounts.report.runs import RETURN, SAMPLED, Evidence, read_study
from mental_accounts.report.significance import PairedTest, paired_tests
from mental_accounts.report.statistics import FEWEST_SEEDS, Interval, difference_interval, mean_interval

Metric = Literal["last return", "early return", "sampled"]
"""Of the last policy; the mean over the evaluations within the first EARLY updates; of the last policy, sampling."""
EARLY, PLAYERS = 5_000, "players/returns.json"
VERDICTS = {
    "helps": "Higher",
    "hurts": "Lower",
    "no difference detected": "No difference detected",
}
"""The words of reports -> those of the protocol, in the order of the table."""
UNDETECTED = VERDICTS["no difference detected"]
HIGHER = dict(zip(VERDICTS.values(), ("the ledger", "the GRU", "–"), strict=True))
"""A verdict on the ledger against the GRU -> which of them is higher."""


@dataclass(frozen=True)
class Pair:
    """One comparison that decides: two methods on a task of a study, paired by seed."""

    where: str
    """What tables call the task and the setting."""
    words: tuple[str, str]
    """What they call the two methods."""
    file: str
    """The packed study, below results/."""
    task: str
    method: str
    against: str
    metric: Metric = "last return"
    is_headline: bool = True
    """Whether the README shows it, too."""

    @property
    def label(self) -> str:
        """The comparison in words."""
        ours, theirs = self.words
        return f"{self.where}, {ours} against {theirs}"


@dataclass(frozen=True)
class Tested:
    """A comparison, and what came out."""

    pair: Pair
    seeds: tuple[int, ...]
    """Those that both methods have."""
    means: tuple[float, float]
    """Of the two methods, over these seeds."""
    difference: Interval
    test: PairedTest
    sampled: Interval | None = None
    """The difference with sampled actions, where both were played with them; it is not tested."""

    @property
    def verdict(self) -> str:
        """In the protocol's words."""
        return VERDICTS[self.test.verdict(self.difference.estimate)]

    @property
    def digits(self) -> int:
        """Decimals of its returns in a table."""
        return digits_of(*self.means)


class Studies:
    """The packed studies below a folder; each is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Evidence] = {}

    def __contains__(self, file: str) -> bool:
        return (self.folder / file).is_file()

    def __getitem__(self, file: str) -> Evidence:
        if file not in self._read:
            self._read[file] = read_study(self.folder / file)
        return self._read[file]

    def returns(self, file: str, task: str, method: str, metric: Metric = "last return") -> dict[int, float]:
        """The number of each seed."""
        found = {}
        for run in self[file].of(task, method):
            updates, values = run.curve(RETURN)
            numbers = {"last return": values[-1], "sampled": run.lines[-1].get(SAMPLED)}
            number = values[updates <= EARLY].mean() if metric == "early return" else numbers[metric]
            if number is not None:
                found[run.seed] = float(number)
        return found

    @cached_property
    def players(self) -> dict[str, dict[str, list[float]]]:
        """The returns of players that do not learn (players.py), by task and name."""
        found: dict[str, dict[str, list[float]]] = json.loads((self.folder / PLAYERS).read_text())["returns"]
        return found

    def played(self, task: str, player: str) -> str:
        """The mean return of a player that does not learn."""
        return f"{np.mean(self.players[task][player]):.1f}".replace("-", "−")

    def mixes(self, tested: "Sequence[Tested]") -> bool:
        """Whether runs differ in commit, versions or hardware, or in data or protocol within a study."""
        files = {one.pair.file for one in tested}
        makings = [run.made_by for file in files for run in self[file].runs]
        return bool(made_differently(makings)) or any(mixed(self[file].runs) for file in files)

    def tested(self, pairs: Sequence[Pair], *, as_planned: bool = False) -> tuple[Tested, ...]:
        """All comparisons of a question, corrected together; over those still to come, too, if `as_planned`.

        A study takes part if it is there, and all of its comparisons have enough seeds for a test.
        """
        found = {pair: self._paired(pair, pair.metric) for pair in pairs}
        unready = {pair.file for pair, (seeds, _, _) in found.items() if len(seeds) < FEWEST_SEEDS}
        found = {pair: values for pair, values in found.items() if pair.file not in unready}
        values = {pair: (ours, theirs) for pair, (_, ours, theirs) in found.items()}
        tests = paired_tests(values, lambda _: True, len(pairs) - len(found) if as_planned else 0)
        return tuple(
            Tested(
                pair, seeds, (float(np.mean(ours)), float(np.mean(theirs))), difference_interval(ours, theirs),
                tests[pair], self._sampled(pair),
            )
            for pair, (seeds, ours, theirs) in found.items()
        )  # fmt: skip

    def _paired(self, pair: Pair, metric: Metric) -> tuple[tuple[int, ...], list[float], list[float]]:
        """The seeds that both methods have, and their numbers."""
        if pair.file not in self:
            return (), [], []
        ours, theirs = (self.returns(pair.file, pair.task, method, metric) for method in (pair.method, pair.against))
        seeds = tuple(sorted(ours.keys() & theirs.keys()))
        return seeds, [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]

    def _sampled(self, pair: Pair) -> Interval | None:
        """The difference with sampled actions of a comparison of last returns, if enough seeds have them."""
        seeds, ours, theirs = self._paired(pair, "sampled")
        known = pair.metric == "last return" and len(seeds) >= FEWEST_SEEDS
        return difference_interval(ours, theirs) if known else None


def cell(values: Sequence[float]) -> str:
    """A mean with its interval."""
    found = mean_interval(list(values))
    return written(found, digits_of(found.estimate))


def plain(value: float, digits: int | None = None) -> str:
    """A mean without an interval."""
    return f"{value:.{digits_of(value) if digits is None else digits}f}".replace("-", "−")


def digits_of(*returns: float) -> int:
    """Decimals of returns in a table."""
    return 0 if max(map(abs, returns)) >= 500 else 1


def decided(tested: Sequence[Tested]) -> str:
    """The comparisons of a question as a table."""
    lines = [
        "| comparison | seeds | difference [95%] | p | p, Holm | verdict | detectable |",
        "|---|---:|---:|---:|---:|---|---:|",
    ]
    for one in tested:
        cells = [
            one.pair.label, str(len(one.seeds)), written(one.difference, one.digits, signed=True),
            probability(one.test.p_value), probability(one.test.corrected), one.verdict.lower(),
            plain(one.test.detectable, one.digits),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
