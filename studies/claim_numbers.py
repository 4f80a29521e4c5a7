"""Numbers behind claims: returns by seed from packed studies, paired differences, and tests of one question together.

The verdict is the protocol's: higher or lower where p of the paired difference is below 0.05 after Holm's correction
over all comparisons of the question; else no difference detected, and what would have been.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from interval_cells import written
from mental_accounts.report.mixture import mixed
from mental_accounts.report.runs import RETURN, SAMPLED, Evidence, read_study
from mental_accounts.report.significance import PairedTest, paired_tests
from mental_accounts.report.statistics import FEWEST_SEEDS, Interval, difference_interval, mean_interval

Metric = Literal["last return", "early return", "sampled"]
"""Of the last policy; the mean over the evaluations within the first EARLY updates; of the last policy, sampling."""
EARLY = 5_000
VERDICTS = {
    "helps": "Higher",
    "hurts": "Lower",
    "no difference detected": "No difference detected",
}
"""The words of reports -> those of the protocol, in the order of the table."""
UNDETECTED, LISTED = VERDICTS["no difference detected"], 4
"""So many comparisons without a difference are listed one by one."""
PAGE = "[all of them]({root}results/evidence/README.md)"


@dataclass(frozen=True)
class Pair:
    """One comparison that decides: two methods on a task of a study, paired by seed."""

    label: str
    """As the table names it."""
    file: str
    """The packed study, below results/."""
    task: str
    method: str
    against: str
    metric: Metric = "last return"


@dataclass(frozen=True)
class Tested:
    """A comparison, and what came out."""

    pair: Pair
    seeds: tuple[int, ...]
    """Those that both methods have."""
    difference: Interval
    test: PairedTest
    digits: int
    """Decimals of its returns."""

    @property
    def verdict(self) -> str:
        """In the protocol's words."""
        return VERDICTS[self.test.verdict(self.difference.estimate)]

    @property
    def cell(self) -> str:
        """As text: its label, the difference and the interval."""
        return f"{self.pair.label} {written(self.difference, self.digits, signed=True)}"


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
            if metric == "sampled":
                found[run.seed] = float(run.lines[-1][SAMPLED])
                continue
            updates, values = run.curve(RETURN)
            found[run.seed] = float(values[-1] if metric == "last return" else values[updates <= EARLY].mean())
        return found

    def _values(self, pair: Pair, method: str) -> dict[int, float]:
        return self.returns(pair.file, pair.task, method, pair.metric) if pair.file in self else {}

    def means(self, file: str, task: str, methods: Mapping[str, str], metric: Metric = "last return") -> str:
        """The mean return of methods with their intervals, each by its words."""
        found = {words: list(self.returns(file, task, method, metric).values()) for method, words in methods.items()}
        return ", ".join(f"{words} {cell(values)}" for words, values in found.items() if values)

    def played(self, task: str, player: str) -> str:
        """The mean return of a player that does not learn (players.py)."""
        returns = json.loads((self.folder / "players" / "returns.json").read_text())["returns"][task][player]
        return f"{np.mean(returns):.1f}".replace("-", "−")

    def mixes(self, tested: "Sequence[Tested]") -> bool:
        """Whether the runs of comparisons differ in commit, versions, hardware, data or protocol within a study."""
        return any(mixed(self[file].runs) for file in {one.pair.file for one in tested})

    def tested(self, pairs: Sequence[Pair], *, as_planned: bool = False) -> tuple[Tested, ...]:
        """All comparisons of a question, corrected together; over those still to come, too, if `as_planned`.

        A study takes part if it is there, and all of its comparisons have enough seeds for a test.
        """
        found, unready = {}, set()
        for pair in pairs:
            ours, theirs = self._values(pair, pair.method), self._values(pair, pair.against)
            seeds = tuple(sorted(ours.keys() & theirs.keys()))
            unready |= {pair.file} if len(seeds) < FEWEST_SEEDS else set()
            found[pair] = seeds, [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
        found = {pair: values for pair, values in found.items() if pair.file not in unready}
        values = {pair: (ours, theirs) for pair, (_, ours, theirs) in found.items()}
        tests = paired_tests(values, lambda _: True, len(pairs) - len(found) if as_planned else 0)
        return tuple(
            Tested(
                pair,
                seeds,
                difference_interval(ours, theirs),
                tests[pair],
                digits_of(float(np.mean(ours)), float(np.mean(theirs))),
            )
            for pair, (seeds, ours, theirs) in found.items()
        )


def cell(values: Sequence[float]) -> str:
    """A mean with its interval."""
    found = mean_interval(list(values))
    return written(found, digits_of(found.estimate))


def digits_of(*returns: float) -> int:
    """Decimals of returns in a table."""
    return 0 if max(map(abs, returns)) >= 500 else 1


def told(tested: Sequence[Tested]) -> str:
    """The comparisons by verdict; many without a difference are counted, and stand on the page of the evidence."""
    parts = []
    for verdict in VERDICTS.values():
        those = [one for one in tested if one.verdict == verdict]
        if verdict == UNDETECTED and len(those) > LISTED:
            parts.append(f"**{verdict}** in {len(those)} of {len(tested)} comparisons{_missed(those, verdict)}: {PAGE}")
        elif those:
            parts.append(f"**{verdict}**{_missed(those, verdict)}: {'; '.join(one.cell for one in those)}")
    return ". ".join(parts)


def decided(tested: Sequence[Tested]) -> str:
    """The comparisons of a question as a table."""
    lines = [
        "| comparison | seeds | difference [95%] | p | p, Holm | verdict | detectable |",
        "|---|---:|---:|---:|---:|---|---:|",
    ]
    for one in tested:
        cells = [
            one.pair.label, str(len(one.seeds)), written(one.difference, one.digits, signed=True),
            f"{one.test.p_value:.4f}", f"{one.test.corrected:.3f}", one.verdict.lower(),
            f"{one.test.detectable:.{one.digits}f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def counted(tested: Sequence[Tested], against: str) -> str:
    """How many comparisons have each verdict, and which of them are lower."""
    parts = []
    for verdict in VERDICTS.values():
        those = [one for one in tested if one.verdict == verdict]
        if those:
            than = f" than {against}" if verdict in ("Higher", "Lower") else ""
            named = f" ({', '.join(one.pair.label for one in those)})" if verdict == "Lower" else ""
            settings = f"{len(those)} of {len(tested)} settings"
            parts.append(f"**{verdict}**{than} in {settings}{named}{_missed(those, verdict)}")
    return "; ".join(parts)


def _missed(those: Sequence[Tested], verdict: str) -> str:
    """What would have been detected with a probability of 80%, where nothing was."""
    if verdict != UNDETECTED:
        return ""
    sizes = [f"{size:.{digits}f}" for size, digits in sorted((one.test.detectable, one.digits) for one in those)]
    ends = sizes[0] if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    return f" ({ends} would have been)"
