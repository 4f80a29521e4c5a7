"""The claims of README.md and docs/results.md: a question, what the files say, and how to make them.

A question of the protocol is answered by its packed studies, results/evidence/qN-*.jsonl.gz, as soon as they are there.
Until then an older study answers, with its caveats, or nothing does, and a line below the table says what is to come.
`make results` writes the table; tests compare it with the files, and recompute its numbers without this package.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import claim_answers as found_in
import questions
import setting_tables
from claim_answers import CHOOSING, PAPER, Answer, packed
from claim_numbers import PLAYERS, Studies
from claim_rows import HEADS, SHORT_HEADS, Row
from claims_elsewhere import ONLINE_FILES, SPEED_FILES
from marked_pages import anchor

BEGIN, END = "<!-- claims: made by studies/results_pages.py -->", "<!-- end of claims -->"


@dataclass(frozen=True)
class Source:
    """A study that can answer."""

    answer: Callable[[Studies], Answer]
    command: str
    files: tuple[str, ...]
    """What it is made from, below results/."""
    page: str
    """What the table links to, below results/."""
    needs_all: bool = True
    """Whether it takes all of its files, or some."""

    def is_there(self, studies: Studies) -> bool:
        """Whether it can answer."""
        return (all if self.needs_all else any)(file in studies for file in self.files)


@dataclass(frozen=True)
class Claim:
    """A question in a newcomer's words; the first of its sources that is there answers."""

    question: str
    short: str
    """In a word or two, as the README has it."""
    sources: tuple[Source, ...]
    protocol: str | None = None
    """The question of the protocol, which the first source answers."""

    @property
    def own(self) -> Source | None:
        """The source of a question of the protocol that is its own runs."""
        return None if self.protocol is None else self.sources[0]


def from_evidence(
    question: str, answer: Callable[[Studies], Answer], files: tuple[str, ...], *, needs_all: bool
) -> Source:
    """A question of the protocol, as evidence.py runs it."""
    command = f"python studies/evidence.py {question} runs/evidence"
    page = f"evidence/README.md#{anchor(questions.TITLES[question])}"
    return Source(answer, command, files, page, needs_all=needs_all)


CLAIMS = (
    Claim(
        "Does the paper's bias help on its own tasks?",
        "the paper's bias",
        (
            from_evidence("q5", found_in.q5, packed("q5"), needs_all=False),
            Source(found_in.papers_bias, "mental-accounts compare --preset paper …", (PAPER,), "paper/README.md"),
        ),
        "Q5",
    ),
    Claim(
        "Does a ledger help PPO where rewards tell what to do?",
        "PPO with a ledger",
        (Source(found_in.popgym, "python -m studies.popgym_study …", ("popgym/runs.json",), "popgym/README.md"),),
    ),
    Claim(
        "Does a ledger help where the best action is hidden?",
        "hidden best action",
        (from_evidence("q1", found_in.q1, packed("q1", "hidden"), needs_all=True),),
        "Q1",
    ),
    Claim(
        "Does it need less data than a recurrent policy?",
        "fewer episodes",
        (from_evidence("q2", found_in.q2, packed("q2", "episodes-100"), needs_all=True),),
        "Q2",
    ),
    Claim(
        "Does a ledger need a window?",
        "context of one step",
        (from_evidence("q9", found_in.q9, packed("q9", "again"), needs_all=True),),
        "Q9",
    ),
    Claim(
        "Where does it break?",
        "limits",
        (from_evidence("q3", found_in.q3, setting_tables.FILES, needs_all=False),),
        "Q3",
    ),
    Claim(
        "Does it help a robot with a hidden fault?",
        "a robot's hidden fault",
        (from_evidence("q4", found_in.q4, (*packed("q4"), CHOOSING), needs_all=True),),
        "Q4",
    ),
    Claim(
        "Does it hurt where no memory is needed?",
        "no memory needed",
        (from_evidence("q6", found_in.q6, packed("q6"), needs_all=True),),
        "Q6",
    ),
    Claim(
        "Does a robot's policy get better by acting?",
        "robots that act",
        (from_evidence("q7", found_in.q7, packed("q7", *questions.Q7_DECIDES), needs_all=False),),
        "Q7",
    ),
    Claim(
        "Does supervised ODT get better by acting, if it is asked for what has been reached?",
        "what to ask for",
        (from_evidence("q8", found_in.q8, packed("q8"), needs_all=True),),
        "Q8",
    ),
    Claim(
        "Does a policy learn from scratch, by acting?",
        "from scratch",
        (
            Source(
                found_in.from_scratch,
                "python studies/online_scratch.py …",
                (*ONLINE_FILES, PLAYERS),
                "online/README.md",
            ),
        ),
    ),
    Claim(
        "How fast is it?",
        "speed",
        (Source(found_in.speed, "python benchmarks/bench_peers.py …", tuple(SPEED_FILES.values()), "README.md"),),
    ),
)


def answers(studies: Studies) -> dict[Claim, tuple[Source, Answer]]:
    """What is answered now, and by what. While comparisons that decide lack runs, the next source answers."""
    found = {}
    for claim in CLAIMS:
        for source in claim.sources:
            answer = source.answer(studies) if source.is_there(studies) else None
            if answer is not None and (answer.tested or source is not claim.own):
                found[claim] = source, answer
                break
    return found


def table(studies: Studies) -> str:
    """All claims as Markdown, for a page in docs/."""
    rows, notes = _rows_and_notes(studies, "../", lambda claim: claim.question, lambda _: True)
    lines = [f"| question | {' | '.join(HEADS)} |", "|---|---|---|---|---:|---:|---:|---:|"]
    lines += [f"| {first} | {' | '.join(row.cells)} |" for first, row in rows]
    return "\n".join([*lines, "", *notes])


def short_table(studies: Studies) -> str:
    """The headlines among them, for the README."""
    rows, notes = _rows_and_notes(studies, "", lambda claim: claim.short, lambda row: row.is_headline)
    lines = [f"| | {' | '.join(SHORT_HEADS)} |", "|---|---|---:|---:|---:|---:|"]
    lines += [f"| {first} | {' | '.join(row.short_cells)} |" for first, row in rows]
    return "\n".join([*lines, "", *notes])


def _rows_and_notes(
    studies: Studies, root: str, words: Callable[[Claim], str], is_shown: Callable[[Row], bool]
) -> tuple[list[tuple[str, Row]], list[str]]:
    """The rows of all answers that are shown, the first with a link to its study; and what stands below, as a list.

    `root` leads from the page to the repository's root.
    """
    found = answers(studies)
    rows, notes, commands = [], [], []
    for claim, (source, answer) in found.items():
        name = claim.protocol if source is claim.own else source.page.rpartition("/")[0] or "benchmarks"
        link = f"[{words(claim)}]({root}results/{source.page}) ({name}{' †' * answer.is_mixed})"
        rows += [(link if place == 0 else "", row) for place, row in enumerate(filter(is_shown, answer.rows))]
        notes += [f"{name}: {answer.note.replace('{root}', root)}"] if answer.note else []
        commands.append(f"{name} `{source.command}`")
    if any(answer.is_mixed for _, answer in found.values()):
        notes.append("† Runs of several commits, versions or machines; the study says which.")
    notes += [to_come(found, root), f"Commands: {'; '.join(commands)}."]
    return rows, [f"- {note}" for note in notes if note]


def to_come(found: Mapping[Claim, tuple[Source, Answer]], root: str) -> str:
    """Which questions of the protocol have no answer yet, and which only a part of it."""
    missing, parts = [], []
    for claim in (claim for claim in CLAIMS if claim.protocol is not None):
        source, answer = found.get(claim, (None, None))
        if answer is None or source is not claim.own:
            missing.append(f"{claim.protocol}")
            continue
        assert source is not None
        there, planned = len({one.pair.file for one in answer.tested}), len(source.files)
        if not source.needs_all and there < planned:
            parts.append(f"{claim.protocol} ({there} of {planned} studies)")
    said = [f"still to come: {', '.join(sorted(missing))}"] if missing else []
    said += [f"answered in part: {', '.join(sorted(parts))}"] if parts else []
    return f"Of [the protocol's questions]({root}studies/PROTOCOL.md) {'; '.join(said)}." if said else ""
