"""What packed studies say to the questions of the protocol, and what older studies say until those are run.

Each function answers one question: the comparisons under *Decides*, corrected together, and what has to be said beside
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import claims_elsewhere as elsewhere
import questions
import setting_tables
from choosing import chosen
from claim_numbers import Pair, Studies, Tested
from claim_rows import Row, rows_of

PAPER, CHOOSING = "paper/runs.jsonl.gz", "choosing/q4-broken.jsonl.gz"
SCOPES = {"window": "the bias", "trajectory": "the bias, trajectory scope"}
"""The authors ran window scope, which the table does not name."""


@dataclass(frozen=True)
class Answer:
    """What files say to a question."""

    rows: tuple[Row, ...]
    note: str = ""
    """A sentence below the table."""
    is_mixed: bool = False
    """Whether its runs differ in commit, versions, hardware, data or protocol."""
    tested: tuple[Tested, ...] = ()
    """The comparisons that decide, corrected together; none if they cannot be made yet."""


def packed(question: str, *names: str) -> tuple[str, ...]:
    """The packed studies of a question, all of them unless named."""
    return tuple(f"evidence/{question}-{name}.jsonl.gz" for name in names or questions.STUDIES[question])


def answered(
    studies: Studies, pairs: Sequence[Pair], planned: int, note: str = "", *, as_planned: bool = False
) -> Answer:
    """All comparisons of a question as one answer; so many seeds are planned. `as_planned` as for `Studies.tested`."""
    tested = studies.tested(pairs, as_planned=as_planned)
    return Answer(rows_of(tested, planned), note, studies.mixes(tested), tested)


def papers_bias(studies: Studies) -> Answer:
    """Before version 0.2: the last return of both scopes, on both tasks."""
    blind = {"walker2d-medium-replay": " ‡"}
    pairs = [
        Pair(
            task + blind.get(task, ""),
            (words, "ODT"),
            PAPER,
            task,
            f"ewa-vq-odt:account_scope={scope}",
            "odt",
            is_headline=scope == "window",
        )
        for task in questions.PAPERS
        for scope, words in SCOPES.items()
    ]
    return answered(studies, pairs, 10, "‡ policies that were blind to their target return; to be rerun as Q5.")


def q1(studies: Studies) -> Answer:
    """The ledger against the GRU and against ODT, on data that it did not make."""
    (file,) = packed("q1", "hidden")
    pairs = [
        Pair(task, ("ledger", words), file, task, questions.LEDGER, method)
        for method, words in {questions.GRU: "GRU", "odt": "ODT"}.items()
        for task in questions.BOTH
    ]
    players = "; ".join(
        f"{studies.played(task, 'highest-account')} to {studies.played(task, 'highest-account-0.2')} and "
        f"{studies.played(task, 'bayes')} on {task}"
        for task in questions.BOTH
    )
    note = f"without learning, playing the highest account and a Bayesian player that knows the task earn {players}."
    return answered(studies, pairs, questions.STUDIES["q1"]["hidden"].seeds, note)


def q2(studies: Studies) -> Answer:
    """The ledger against the GRU with 100 episodes; and with other numbers of them."""
    found: dict[str, list[str]] = {}
    for (size, task), one in tested_by_size(studies).items():
        if size != 100:
            found.setdefault(f"{task}, {one.verdict.lower()} with", []).append(f"{size:,}")
    others = [f"{words} {', '.join(sizes)}" for words, sizes in found.items()]
    missing = [f"{size:,}" for size in questions.Q2_EPISODES if q2_file(size) not in studies]
    to_come = f"; to come: {', '.join(missing)}" if missing else ""
    note = f"with other numbers of episodes, corrected over all of them: {'; '.join(others) or 'none yet'}{to_come}."
    return answered(studies, [q2_pair(100, task) for task in questions.BOTH], 5, note)


def q2_pair(episodes: int, task: str) -> Pair:
    """The ledger against the GRU with so many training episodes."""
    return Pair(f"{task}, {episodes:,} episodes", ("ledger", "GRU"), q2_file(episodes), task, *questions.RIVALS)


def tested_by_size(studies: Studies) -> dict[tuple[int, str], Tested]:
    """The ledger against the GRU by number of training episodes and task, corrected over all that are planned."""
    pairs = {q2_pair(size, task): (size, task) for size in questions.Q2_EPISODES for task in questions.BOTH}
    return {pairs[one.pair]: one for one in studies.tested(list(pairs), as_planned=True)}


def q2_file(episodes: int) -> str:
    """The packed study with so many training episodes."""
    (file,) = packed("q1", "hidden") if episodes == questions.HIDDEN_EPISODES else packed("q2", f"episodes-{episodes}")
    return file


def q3(studies: Studies) -> Answer:
    """The ledger against the GRU in every setting that both were run in, corrected over all that are planned."""
    pairs = [setting.pair for setting in setting_tables.settings() if setting.is_changed]
    return answered(studies, pairs, 5, as_planned=True)


def q4(studies: Studies) -> Answer:
    """The best form with a ledger against the best one without, both chosen on other seeds."""
    (file,) = packed("q4")
    best = [chosen(studies[CHOOSING], forms) for forms in questions.RIVAL_FORMS["q4-broken"].values()]
    ours, theirs = best
    if ours is None or theirs is None:
        return Answer(())
    words = questions.Q4_LEDGERS | questions.Q4_WITHOUT
    pair = Pair(questions.ROBOT, (words[ours], words[theirs]), file, questions.ROBOT, ours, theirs)
    return answered(studies, [pair], 5)


def q5(studies: Studies) -> Answer:
    """The mean return of the first 5,000 updates, both scopes against ODT, by both optimisers."""
    methods = {"window": "ewa-vq-odt", "trajectory": "ewa-vq-odt:account_scope=trajectory"}
    pairs = [
        Pair(
            f"{task}, {optimizer}",
            (words, "ODT"),
            file,
            task,
            methods[scope],
            "odt",
            "early return",
            is_headline=scope == "window",
        )
        for optimizer in questions.STUDIES["q5"]
        for file in packed("q5", optimizer)
        for task in questions.PAPERS
        for scope, words in SCOPES.items()
    ]
    return answered(studies, pairs, 20, "mean return within the first 5,000 updates.")


def q6(studies: Studies) -> Answer:
    """The ledger against ODT on the paper's tasks, preset `converged`."""
    (file,) = packed("q6")
    pairs = [Pair(task, ("ledger", "ODT"), file, task, "ledger-odt", "odt") for task in questions.PAPERS]
    return answered(studies, pairs, 5)


def q7(studies: Studies) -> Answer:
    """What critics and a ledger change, task by task."""
    words = questions.Q7_SHORT
    pairs = [
        Pair(task, (words[method], words[against]), file, task, method, against)
        for task, decides in questions.Q7_DECIDES.items()
        for file in packed("q7", task)
        for method, against in decides
    ]
    note = (
        "[returns of all forms, of SAC and of TD3]({root}docs/results.md#robots-that-act); on hopper-medium and "
        "walker2d-medium-replay time limits were not bootstrapped yet."
    )
    return answered(studies, pairs, 5, note)


def q8(studies: Studies) -> Answer:
    """ODT that is asked for what has been reached, against ODT that is asked for the published returns."""
    (file,) = packed("q8")
    words = ("targets from replay", "published targets")
    pairs = [Pair(task, words, file, task, questions.FOLLOWING, questions.PUBLISHED) for task in questions.PAPERS]
    return answered(studies, pairs, 5)


def q9(studies: Studies) -> Answer:
    """The ledger with a context of one step, chosen anew, against the GRU chosen anew and question 1's ledger."""
    (file,) = packed("q9", "again")
    rivals = {questions.SECOND_GRU: "GRU", questions.LEDGER: "ledger (K = 5)"}
    pairs = [
        Pair(
            task,
            ("ledger (K = 1)", words),
            file,
            task,
            questions.SECOND_LEDGER,
            method,
            is_headline=method == questions.SECOND_GRU,
        )
        for method, words in rivals.items()
        for task in questions.BOTH
    ]
    return answered(studies, pairs, questions.STUDIES["q9"]["again"].seeds)


def from_scratch(studies: Studies) -> Answer:
    """Preset `online`, in small environments."""
    rows, is_mixed = elsewhere.online(studies)
    note = (
        "two CPU cores, no data; ODT on hidden-arm on an H200. A GRU is to be run there again: its critics saw single "
        "steps, and now read episodes."
    )
    return Answer(rows, note, is_mixed)


def popgym(studies: Studies) -> Answer:
    """PPO with a ledger and with other memories."""
    rows, is_mixed = elsewhere.popgym(studies.folder)
    return Answer(rows, "2M steps, sampled actions; the ledger was tuned more than its rivals.", is_mixed)


def speed(studies: Studies) -> Answer:
    """An update of ours beside those of other libraries."""
    note = "hidden 512, batch 64, bf16, beside Hugging Face, TorchRL and d3rlpy; measured with version 0.1."
    return Answer(elsewhere.speed(studies.folder), note)
