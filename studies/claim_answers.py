"""What packed studies say to the questions of the protocol, and what older studies say until those are run.

Each function answers one question: the comparisons under *Decides*, corrected together, and the numbers beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import claims_elsewhere as elsewhere
import questions
from choosing import chosen
from claim_numbers import Pair, Studies, Tested, counted, told

PAPER, ARM, CHOOSING = "paper/runs.jsonl.gz", "hidden/arm/runs.jsonl.gz", "choosing/q4-broken.jsonl.gz"
SCOPES = {"window": "", "trajectory": ", trajectory scope"}
"""The authors ran window scope, which the table does not name."""


@dataclass(frozen=True)
class Answer:
    """What files say to a question."""

    text: str
    seeds: str
    is_mixed: bool = False
    """Whether its runs differ in commit, versions, hardware, data or protocol."""
    tested: tuple[Tested, ...] = ()
    """The comparisons that decide, corrected together; none if they cannot be made yet."""


def packed(question: str, *names: str) -> tuple[str, ...]:
    """The packed studies of a question, all of them unless named."""
    return tuple(f"evidence/{question}-{name}.jsonl.gz" for name in names or questions.STUDIES[question])


def answered(studies: Studies, pairs: Sequence[Pair], planned: int, *, before: str = "", after: str = "") -> Answer:
    """All comparisons of a question as one answer, between two texts."""
    tested = studies.tested(pairs)
    return Answer(before + told(tested) + after, seeds_of(tested, planned), studies.mixes(tested), tested)


def seeds_of(tested: Sequence[Tested], planned: int) -> str:
    """How many seeds the smallest comparison has, and of how many."""
    fewest = min((len(one.seeds) for one in tested), default=0)
    return str(fewest) if fewest >= planned else f"{fewest} of {planned}"


# What was run before version 0.2.


def papers_bias(studies: Studies) -> Answer:
    """The last return of both scopes, on both tasks."""
    pairs = [
        Pair(f"{task}{words}", PAPER, task, f"ewa-vq-odt:account_scope={scope}", "odt")
        for task in questions.PAPERS
        for scope, words in SCOPES.items()
    ]
    caveat = " (on walker2d a policy that was blind to its target; to be rerun)"
    return answered(studies, pairs, 10, after=caveat)


def own_ledger(studies: Studies) -> Answer:
    """The arm, on data that the policy's own ledger made."""
    ledger = "ewa-vq-odt:ledger_input=state,beta=0"
    means = studies.means(ARM, "hidden-arm", {"odt": "ODT", ledger: "ledger"})
    pairs = [Pair("the ledger against ODT", ARM, "hidden-arm", ledger, "odt")]
    caveat = (
        ". These data favour the ledger, and a recurrent policy that reads its rewards does as well (27, one seed); "
        "[on data of other makers]({root}docs/hidden.md#the-data-and-who-made-them) the study is to come"
    )
    before = f"`hidden-arm/own-ledger`: {means}, the data {studies.played('hidden-arm', 'own-ledger')}. "
    return answered(studies, pairs, 10, before=before, after=caveat)


# The questions of the protocol.


def q1(studies: Studies) -> Answer:
    """The ledger against the GRU and against ODT, on data that it did not make."""
    (file,) = packed("q1", "hidden")
    shown = {questions.LEDGER: "ledger", questions.GRU: "GRU"}
    shown |= {"odt:reward_input=state": "ODT that reads rewards", "odt": "ODT"}
    means = [
        f"`{task}`: {studies.means(file, task, shown)}; of players that learn nothing, the one that takes "
        f"the highest account (φ = 0.05 and 0.2) {studies.played(task, 'highest-account')} and "
        f"{studies.played(task, 'highest-account-0.2')}, a Bayesian one that knows the task "
        f"{studies.played(task, 'bayes')}. "
        for task in questions.BOTH
    ]
    rivals = {questions.GRU: "the GRU", "odt": "ODT"}
    pairs = [
        Pair(f"{task}, ledger against {words}", file, task, questions.LEDGER, method)
        for method, words in rivals.items()
        for task in questions.BOTH
    ]
    return answered(studies, pairs, questions.STUDIES["q1"]["hidden"].seeds, before="".join(means))


def q2(studies: Studies) -> Answer:
    """The ledger against the GRU with 100 episodes; and with other numbers of them."""
    decides = [Pair(task, q2_file(100), task, *questions.RIVALS) for task in questions.BOTH]
    by_size = tested_by_size(studies)
    others = []
    for task in questions.BOTH:
        found: dict[str, list[str]] = {}
        for (size, of_task), one in by_size.items():
            if of_task == task and size != 100:
                found.setdefault(one.verdict.lower(), []).append(f"{size:,}")
        others += [f"{task} {verdict} with {', '.join(sizes)}" for verdict, sizes in found.items()]
    missing = [f"{size:,}" for size in questions.Q2_EPISODES if q2_file(size) not in studies]
    to_come = f"; to come: {', '.join(missing)}" if missing else ""
    return answered(
        studies, decides, 5, before="With 100 episodes, ledger against GRU: ",
        after=f". Corrected over all numbers of episodes: {'; '.join(others)}{to_come}",
    )  # fmt: skip


def tested_by_size(studies: Studies) -> dict[tuple[int, str], Tested]:
    """The ledger against the GRU by number of training episodes and task, corrected over all that are planned."""
    pairs = {
        Pair(task, q2_file(size), task, *questions.RIVALS): (size, task)
        for size in questions.Q2_EPISODES
        for task in questions.BOTH
    }
    return {pairs[one.pair]: one for one in studies.tested(list(pairs), as_planned=True)}


def q2_file(episodes: int) -> str:
    """The packed study with so many training episodes."""
    (file,) = packed("q1", "hidden") if episodes == questions.HIDDEN_EPISODES else packed("q2", f"episodes-{episodes}")
    return file


def q3(studies: Studies) -> Answer:
    """The ledger against the GRU in every setting that both were run in."""
    pairs = [
        Pair(name if len(call.tasks) == 1 else task, file, task, *questions.RIVALS)
        for name, call in questions.STUDIES["q3"].items()
        for file in packed("q3", name)
        for task in call.tasks
        if call.methods == questions.RIVALS
    ]
    tested = studies.tested(pairs)
    return Answer(f"The ledger: {counted(tested, 'the GRU')}", seeds_of(tested, 5), studies.mixes(tested), tested)


def q4(studies: Studies) -> Answer:
    """The best form with a ledger against the best one without, both chosen on other seeds."""
    (file,) = packed("q4")
    ours, theirs = (chosen(studies[CHOOSING], forms) for forms in questions.RIVAL_FORMS["q4-broken"].values())
    if ours is None or theirs is None:
        return Answer("", "")
    words = questions.Q4_LEDGERS | questions.Q4_WITHOUT
    means = studies.means(file, questions.ROBOT, {method: words[method] for method in (ours, theirs, "odt")})
    before = f"`{questions.ROBOT}`, the best forms of each kind on other seeds: {means}. "
    pairs = [Pair("with a ledger against without", file, questions.ROBOT, ours, theirs)]
    return answered(studies, pairs, 5, before=before)


def q5(studies: Studies) -> Answer:
    """The mean return of the first 5,000 updates, both scopes against ODT, by both optimisers."""
    methods = {"window": "ewa-vq-odt", "trajectory": "ewa-vq-odt:account_scope=trajectory"}
    pairs = [
        Pair(f"{task}{words}, {optimizer}", file, task, methods[scope], "odt", "early return")
        for optimizer in questions.STUDIES["q5"]
        for file in packed("q5", optimizer)
        for task in questions.PAPERS
        for scope, words in SCOPES.items()
    ]
    return answered(studies, pairs, 20, before="Mean return within 5,000 updates, against ODT. ")


def q6(studies: Studies) -> Answer:
    """The ledger against ODT on the paper's tasks."""
    (file,) = packed("q6")
    pairs = [Pair(task, file, task, "ledger-odt", "odt") for task in questions.PAPERS]
    return answered(studies, pairs, 5, before="The ledger against ODT, preset `converged`. ")


def q7(studies: Studies) -> Answer:
    """What critics and a ledger change, task by task; the returns stand in a table of their own (robot_table.py)."""
    pairs = [
        Pair(f"{task}, {words}", file, task, method, against)
        for task, decides in questions.Q7_DECIDES.items()
        for file in packed("q7", task)
        for words, (method, against) in decides.items()
    ]
    return answered(studies, pairs, 5, before="Returns: the table of robots below. ")


def q8(studies: Studies) -> Answer:
    """ODT that is asked for what has been reached, against ODT that is asked for the published returns."""
    (file,) = packed("q8")
    shown = {questions.FOLLOWING: "following the replay buffer", questions.PUBLISHED: "as published"}
    means = [f"{task}: {studies.means(file, task, shown)}. " for task in questions.PAPERS]
    pairs = [Pair(task, file, task, questions.FOLLOWING, questions.PUBLISHED) for task in questions.PAPERS]
    return answered(studies, pairs, 5, before="Target returns of ODT, about 100,000 steps online. " + "".join(means))


def q9(studies: Studies) -> Answer:
    """The ledger with a context of one step, chosen anew, against the GRU chosen anew and question 1's ledger."""
    (file,) = packed("q9", "again")
    ours, rivals = questions.SECOND_LEDGER, {questions.SECOND_GRU: "the GRU", questions.LEDGER: "the ledger with K = 5"}
    shown = {ours: "ledger, K = 1", questions.SECOND_GRU: "GRU", questions.LEDGER: "ledger, K = 5"}
    means = [
        f"`{task}`: {studies.means(file, task, shown)} (with sampled actions "
        f"{studies.means(file, task, {ours: 'ledger', questions.SECOND_GRU: 'GRU'}, 'sampled')}). "
        for task in questions.BOTH
    ]
    pairs = [
        Pair(f"{task}, against {words}", file, task, ours, method)
        for method, words in rivals.items()
        for task in questions.BOTH
    ]
    before = "Rivals chosen anew, other seeds. " + "".join(means) + "Ledger with K = 1: "
    return answered(studies, pairs, questions.STUDIES["q9"]["again"].seeds, before=before)


def from_scratch(studies: Studies) -> Answer:
    """Preset `online`, in small environments."""
    robots = any(file in studies for file in packed("q7"))
    text, seeds = elsewhere.online(studies.folder)
    return Answer(text if robots else f"{text}. On robots: pilots only so far", seeds)


def popgym(studies: Studies) -> Answer:
    """PPO with a ledger and with other memories."""
    return Answer(*elsewhere.popgym(studies.folder))


def speed(studies: Studies) -> Answer:
    """An update of ours beside those of other libraries."""
    return Answer(elsewhere.speed(studies.folder), "")
