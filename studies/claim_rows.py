"""Claims as rows of a table: where, what is compared with what, the difference, and what would have been detected."""

from collections.abc import Sequence
from dataclasses import dataclass

from claim_numbers import UNDETECTED, VERDICTS, Tested, plain
from interval_cells import written

LISTED = 8
"""With more comparisons, only rare verdicts get a row each."""
FEW = 4
"""A verdict that so many comparisons have is rare."""
HEADS = ("where", "ours", "compared with", "difference [95%]", "detectable", "sampled actions", "seeds")
SHORT_HEADS = ("where: ours; compared with", "difference [95%]", "detectable", "sampled", "seeds")


@dataclass(frozen=True)
class Row:
    """One line of a claim, as text."""

    where: str
    ours: str
    theirs: str = ""
    difference: str = ""
    """Bold if it is detected."""
    detectable: str = ""
    sampled: str = ""
    """The difference with sampled actions."""
    seeds: str = ""
    is_headline: bool = True
    """Whether the README shows it, too."""

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of HEADS."""
        return self.where, self.ours, self.theirs, self.difference, self.detectable, self.sampled, self.seeds

    @property
    def short_cells(self) -> tuple[str, ...]:
        """In the order of SHORT_HEADS; the difference with sampled actions without its interval."""
        returns = "; ".join(text for text in (self.ours, self.theirs) if text)
        where = f"{self.where}: {returns}" if returns else self.where
        return where, self.difference, self.detectable, self.sampled.partition(" ")[0], self.seeds


def rows_of(tested: Sequence[Tested], planned: int) -> tuple[Row, ...]:
    """Comparisons as rows; of many, those with a verdict that is frequent are counted in one row."""
    if len(tested) <= LISTED:
        return tuple(_row(one, planned) for one in tested)
    found = []
    for verdict in VERDICTS.values():
        those = [one for one in tested if one.verdict == verdict]
        found += [_row(one, planned) for one in those] if len(those) <= FEW else [_counted(those, len(tested), planned)]
    return tuple(found)


def _row(one: Tested, planned: int) -> Row:
    ours, theirs = (f"{words} {plain(mean, one.digits)}" for words, mean in zip(one.pair.words, one.means, strict=True))
    difference = written(one.difference, one.digits, signed=True)
    return Row(
        where=one.pair.where,
        ours=ours,
        theirs=theirs,
        difference=difference if one.verdict == UNDETECTED else f"**{difference}**",
        detectable=plain(one.test.detectable, one.digits),
        sampled="" if one.sampled is None else written(one.sampled, one.digits, signed=True),
        seeds=seeds_of([one], planned),
        is_headline=one.pair.is_headline,
    )


def _counted(those: Sequence[Tested], count: int, planned: int) -> Row:
    """All comparisons of a question that have the same verdict."""
    sizes = sorted((one.test.detectable, one.digits) for one in those)
    ends = [plain(*sizes[place]) for place in (0, -1)]
    verdict = those[0].verdict.lower()
    return Row(
        where=f"{len(those)} of {count} comparisons",
        ours="",
        difference=verdict if verdict == UNDETECTED.lower() else f"**{verdict}**",
        detectable=" to ".join(dict.fromkeys(ends)),
        seeds=seeds_of(those, planned),
    )


def seeds_of(tested: Sequence[Tested], planned: int) -> str:
    """How many seeds the smallest comparison has, out of how many planned."""
    fewest = min(len(one.seeds) for one in tested)
    return str(fewest) if fewest >= planned else f"{fewest} of {planned}"
