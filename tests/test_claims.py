"""The claims of the README: what the files say, and only that; they adapt as files of the evidence appear."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import claim_answers
import claims
import evidence_tables
import memory_tables
import questions
import results_pages
import robot_table
import setting_tables
from claim_answers import q2_file
from claim_numbers import Studies
from marked_pages import anchor, between
from mental_accounts.report.packed import write_packed
from mental_accounts.report.study_files import read_study_folder
from tests.report.made_studies import write_study

ROOT = Path(__file__).parents[1]
KEPT = ("paper", "popgym", "online", "players", "peers-h200.json", "peers-cpu.json")
"""What the claims of before are made from."""
Level = Callable[[str, str], float]
"""task, method -> mean return"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results without evidence."""
    folder = tmp_path / "results"
    folder.mkdir()
    for name in KEPT:
        (folder / name).symlink_to(ROOT / "results" / name)
    return folder


def put(
    results: Path, file: str, level: Level, call: questions.Call, seeds: int = 5, spread: float = 1.0, *,
    sampled: bool = False,
) -> None:  # fmt: skip
    """A packed study of some question, made up."""

    def value(task: str, method: str, seed: int, metric: str, step: int) -> float:
        return level(task, method) + spread * float(
            np.random.default_rng([seed, len(method), len(task), step]).normal()
        )

    folder = results.parent / "made" / file
    write_study(folder, value, tasks=call.tasks, methods=call.methods, seeds=seeds, sampled=sampled)
    path = results / file
    path.parent.mkdir(exist_ok=True)
    write_packed(read_study_folder(folder), path)


def rows(results: Path, question: str) -> list[list[str]]:
    """The rows of a question, as their cells."""
    found: dict[str, list[list[str]]] = {}
    for line in claims.table(Studies(results)).splitlines()[2:]:
        if line.startswith("|"):
            first, *cells = (text.strip() for text in line.removeprefix("|").removesuffix("|").split(" | "))
            asked = re.match(r"\[(.+?)\]", first)
            if asked:
                own = found.setdefault(asked[1], [])
            own.append([first, *cells])
    return next((lines for asked, lines in found.items() if asked.startswith(question)), [])


def notes(results: Path) -> str:
    """What stands below the table."""
    return claims.table(Studies(results)).partition("\n\n")[2]


def test_the_pages_say_what_the_files_say() -> None:
    readme, found = ROOT / "README.md", ROOT / "docs" / "results.md"
    made = {readme: claims.short_table(Studies(ROOT / "results")), found: claims.table(Studies(ROOT / "results"))}
    pages = results_pages.pages()
    for page, table in made.items():
        text = page.read_text()
        assert pages[page] == text == between(text, claims.BEGIN, claims.END, table)
        changed = text.replace("[−156, +609]", "[+56, +609]")
        assert between(changed, claims.BEGIN, claims.END, table) != changed


def test_the_readme_stays_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 140
    assert lines.index("## Read on") - lines.index("## Results") <= 52


def test_every_claim_has_number_interval_seeds_study_and_command() -> None:
    studies, timed = Studies(ROOT / "results"), "How fast is it?"
    text, below = claims.table(studies).split("\n\n")
    assert len(claims.answers(studies)) >= 5
    for line in text.splitlines()[2:]:
        first, *cells = (part.strip() for part in line.removeprefix("|").removesuffix("|").split(" | "))
        if first:
            question, link, name = re.fullmatch(r"\[(.+\?)\]\((\S+)\) \((\w+)( †)?\)", first).groups()[:3]
            page, _, place = link.removeprefix("../").partition("#")
            headings = [line.lstrip("# ") for line in (ROOT / page).read_text().splitlines() if line.startswith("#")]
            assert not place or place in map(anchor, headings)
            assert re.search(rf"[:;] {name} `(mental-accounts|python) ", below)
        where, ours, _, difference, detectable, _, seeds = cells
        assert where
        assert question == timed or re.fullmatch(r"\d+( of \d+)?", seeds), line
        intervals = re.search(r"\[[−+]?\d[\d.,]*, [−+]?\d[\d.,]*\]", f"{ours} {difference}")
        assert question == timed or intervals or "comparisons" in where, line
        assert bool(detectable) == (question != timed and bool(difference))


def test_the_readme_has_the_headlines() -> None:
    studies = Studies(ROOT / "results")
    whole, short = (
        text.partition("\n\n")[0].splitlines()[2:] for text in (claims.table(studies), claims.short_table(studies))
    )
    assert 10 < len(short) < len(whole)
    assert not [line for line in short if "trajectory scope" in line]
    assert [line for line in whole if "trajectory scope" in line]
    sampled = [line.split(" | ")[4] for line in short]
    assert sum(bool(re.fullmatch(r"[−+][\d.]+", text)) for text in sampled) >= 6


def test_caveats_stay_while_old_studies_answer(results: Path) -> None:
    assert [cells[1] for cells in rows(results, "Does the paper's bias")][2:] == ["walker2d-medium-replay ‡"] * 2
    assert "blind to their target return; to be rerun" in notes(results)
    assert not rows(results, "Does a ledger help where the best action is hidden?")
    assert not rows(results, "Does it hurt")
    assert "still to come: Q1, Q2, Q3, Q4, Q5, Q6, Q7, Q8, Q9." in notes(results)


def test_new_evidence_takes_the_place_of_old(results: Path) -> None:
    call = questions.STUDIES["q5"]["adamw"]
    put(results, "evidence/q5-adamw.jsonl.gz", lambda task, method: 2000.0 + 30 * ("ewa" in method), call, seeds=6)
    first, *others = rows(results, "Does the paper's bias")
    assert first[0].endswith("(../results/evidence/README.md#q5-the-papers-experiment) (Q5)")
    assert first[1] == "hopper-medium, adamw"
    assert first[4].startswith("**+")
    assert first[7] == "6 of 20"
    assert len(others) == 3
    assert "blind" not in notes(results)
    assert "Q5 `python studies/evidence.py q5 runs/evidence`" in notes(results)
    assert "answered in part: Q5 (1 of 2 studies)" in notes(results)
    call = questions.STUDIES["q6"]["converged"]
    put(results, "evidence/q6-converged.jsonl.gz", lambda task, method: 900.0 - 50 * (method == "ledger-odt"), call)
    assert [cells[4][:4] for cells in rows(results, "Does it hurt")] == ["**−5", "**−5"]
    assert "still to come: Q1, Q2, Q3, Q4, Q7, Q8" in notes(results)


def test_noise_is_no_claim_and_few_seeds_are_no_answer(results: Path) -> None:
    call, file = questions.STUDIES["q6"]["converged"], "evidence/q6-converged.jsonl.gz"
    put(results, file, lambda task, method: 900.0, call, spread=80.0)
    found = rows(results, "Does it hurt")
    assert [cells[1] for cells in found] == list(questions.PAPERS)
    for cells in found:
        assert "*" not in cells[4]
        assert int(cells[5]) > 50
    put(results, file, lambda task, method: 900.0 + 50 * (method == "odt"), call, seeds=4)
    assert not rows(results, "Does it hurt")
    assert "still to come: Q1, Q2, Q3, Q4, Q5, Q6, Q7, Q8, Q9." in notes(results)


def test_a_question_is_not_answered_without_the_rival_that_threatens_it(results: Path) -> None:
    call = questions.STUDIES["q1"]["hidden"]
    without = questions.Call(call.tasks, ("odt", questions.LEDGER), seeds=5)
    file, level = "evidence/q1-hidden.jsonl.gz", lambda task, method: 40.0 - 30 * (method == "odt")
    put(results, file, level, without)
    assert not rows(results, "Does a ledger help where the best action is hidden?")
    put(results, file, level, call, seeds=10)
    found = rows(results, "Does a ledger help where the best action is hidden?")
    assert [(cells[1], cells[3].split()[0]) for cells in found] == [
        (task, rival) for rival in ("GRU", "ODT") for task in questions.BOTH
    ]
    assert [cells[4].startswith("**+") for cells in found[2:]] == [True, True]
    assert {cells[7] for cells in found} == {"10"}
    assert "72.0 on hidden-arm" in notes(results)


def test_forms_of_the_robot_are_chosen_on_other_seeds(results: Path) -> None:
    call = questions.STUDIES["q4"]["broken"]
    ledgers, others = list(questions.Q4_LEDGERS), list(questions.Q4_WITHOUT)
    put(results, "evidence/q4-broken.jsonl.gz", lambda task, method: 3000.0 + 100 * (method == ledgers[0]), call)
    assert not rows(results, "Does it help a robot")  # nothing was chosen
    few = questions.Call(call.tasks, ("odt", ledgers[0]))
    put(results, "choosing/q4-broken.jsonl.gz", lambda task, method: 3000.0, few)
    assert not rows(results, "Does it help a robot")  # not of all forms
    best = {ledgers[1], others[5]}
    put(results, "choosing/q4-broken.jsonl.gz", lambda task, method: 3000.0 + 100 * (method in best), call)
    ((_, _, ours, theirs, difference, *_),) = rows(results, "Does it help a robot")
    assert ours.startswith(questions.Q4_LEDGERS[ledgers[1]])
    assert theirs.startswith(questions.Q4_WITHOUT[others[5]])
    assert "*" not in difference


def test_less_data(results: Path) -> None:
    for episodes in (30, 100, 300, 1_000):
        call = questions.STUDIES["q2"].get(f"episodes-{episodes}", questions.STUDIES["q1"]["hidden"])
        gain = 20.0 if episodes <= 100 else 0.0

        def level(task: str, method: str, gain: float = gain) -> float:
            return 20.0 + gain * (method == questions.LEDGER)

        put(results, q2_file(episodes), level, call)
    found = rows(results, "Does it need less data")
    assert [cells[1] for cells in found] == [f"{task}, 100 episodes" for task in questions.BOTH]
    assert all(cells[4].startswith("**+") and cells[7] == "5" for cells in found)
    assert "hidden-arm, higher with 30; drifting-bandit, higher with 30" in notes(results)
    assert "hidden-arm, no difference detected with 300, 1,000" in notes(results)
    assert "; to come: 3,000." in notes(results)


def put_limits(results: Path, earned: dict[str, float]) -> None:
    """Studies of question 3 in which the ledger earns so much more than the GRU."""
    for name, gain in earned.items():

        def level(_: str, method: str, gain: float = gain) -> float:
            return 50 + gain * (method == questions.SECOND_LEDGER)

        put(results, setting_tables.file_of(name), level, questions.STUDIES["q3"][name], sampled=True)


def test_many_comparisons_are_counted(results: Path) -> None:
    earned = {"arms-27": 10.0, "arms-100": 10.0, "arms-300": -10.0, "cells-3": 10.0, "cells-9": 10.0}
    put_limits(results, earned)
    found = rows(results, "Where does it break?")
    arms = [f"drifting-bandit, {number} arms" for number in (27, 100, 300)]
    assert [cells[1] for cells in found] == [*arms, "hidden-arm, 3 cells", "hidden-arm, 9 cells"]
    put_limits(results, {"free": 10.0})
    assert len(rows(results, "Where does it break?")) == 7  # free has two tasks: still one row each
    put_limits(results, {"made-by-ucb": 10.0})
    counted, lower = rows(results, "Where does it break?")
    assert counted[1:5] == ["8 of 9 comparisons", "", "", "**higher**"]
    assert re.fullmatch(r"[\d.]+ to [\d.]+", counted[5])
    assert lower[1] == arms[2]
    assert lower[4].startswith("**−")


def put_question_nine(results: Path) -> None:
    """The ledger has 70, the GRU 60."""
    earned = {questions.SECOND_LEDGER: 70.0, questions.SECOND_GRU: 60.0, questions.LEDGER: 50.0}
    put(
        results, setting_tables.MIDDLE, lambda _, method: earned[method], questions.STUDIES["q9"]["again"], sampled=True
    )


def cells_of(table: str) -> list[list[str]]:
    """The rows of a table below its heads."""
    return [[text.strip() for text in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_where_it_breaks_is_a_table_around_question_nine(results: Path) -> None:
    assert setting_tables.rivals(Studies(results), ()).endswith("still to be run.")
    every = {name: -20.0 for name, call in questions.STUDIES["q3"].items() if call.methods == questions.SECOND_RIVALS}
    put_limits(results, every | {"arms-300": 20.0, "arms-27": 0.0})
    put_question_nine(results)
    studies = Studies(results)
    found = cells_of(setting_tables.rivals(studies, claim_answers.q3(studies).tested))
    assert len(found) == len(list(setting_tables.settings()))
    higher = {(task.strip("`"), words): one for task, words, *_, one in found}
    assert higher["drifting-bandit", "300 arms"] == "the ledger"
    assert higher["drifting-bandit", "10 arms"] == higher["hidden-arm", "27 cells"] == ""  # tested in question 9
    assert higher["drifting-bandit", "27 arms"] == "–"
    assert higher["hidden-arm", "none replaced"] == higher["drifting-bandit", "1,000 steps"] == "the GRU"
    assert list(higher.values()).count("the GRU") == len(found) - 10  # eight rows of question nine, two of the others
    assert list(higher.values()).count("") == 8
    assert found[0][2] == "5"
    assert found[0][4:6] == ["125.5", "133.8"]  # players that do not learn
    assert found[0][6].startswith(("70.", "69."))
    longer = [cells for cells in found if cells[1] in ("400 steps", "1,000 steps")]
    assert len(longer) == 4
    assert all(cells[4:6] == ["", ""] for cells in longer)  # which nobody else has played


def test_players_that_do_not_learn_stand_beside_policies(results: Path) -> None:
    put_question_nine(results)
    put_limits(results, {"arms-27": 0.0})
    page = evidence_tables.page(Studies(results))
    by_hand = json.loads((ROOT / "results" / "players" / "returns.json").read_text())["returns"]
    shown = "highest account, φ = 0.2 (no learning)"
    for task in (*questions.BOTH, "drifting-bandit:arms=27"):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {task} | {shown}")]
        last = row.strip("|").split("|")[4]
        mean = float(last.split()[0].replace("−", "-"))
        assert mean == pytest.approx(np.mean(by_hand[task]["highest-account-0.2"]), abs=0.05)
    guide = memory_tables.forms(Studies(ROOT / "results")).splitlines()
    assert sum("(no learning)" in line for line in guide) == 8
    assert len({line.count("|") for line in guide}) == 1


def test_forms_of_the_ledger_stand_around_the_chosen_one(results: Path) -> None:
    put_question_nine(results)
    by_phi = dict(zip(questions.PHI_FORMS, questions.PHIS, strict=True))
    call = questions.STUDIES["q3"]["phi"]
    put(results, setting_tables.file_of("phi"), lambda _, method: 100 * by_phi[method], call, sampled=True)
    found = cells_of(setting_tables.forms(Studies(results)))
    phis = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5]
    expected = [(f"`{task}`", f"φ = {phi}") for task in questions.BOTH for phi in phis]
    assert [(task, words) for task, words, *_ in found] == [
        *expected,
        ("`hidden-arm`", "27 codes, the task's own cells"),
    ]
    for (_, _, seeds, mean, _), phi in zip(found, [*phis, *phis, 0.3], strict=True):
        assert seeds == "5"
        assert float(mean.split()[0]) == pytest.approx(70 if phi == 0.3 else 100 * phi, abs=3)
    put(
        results, setting_tables.file_of("codes"), lambda _, method: 30.0, questions.STUDIES["q3"]["codes"], sampled=True
    )
    found = cells_of(setting_tables.forms(Studies(results)))
    assert [words for _, words, *_ in found[-2:]] == ["16 codes by k-means", "64 codes by k-means"]


def test_acting(results: Path) -> None:
    call = questions.STUDIES["q7"]["hopper-medium"]
    put(results, "evidence/q7-hopper-medium.jsonl.gz", lambda _, method: 2000.0 + 500 * (method == "dt"), call)
    found = rows(results, "Does a robot's policy get better")
    assert [cells[1] for cells in found] == ["hopper-medium"] * 3
    assert found[1][2].startswith("td3+odt 250")
    assert found[1][3].startswith("td3 alone ")
    assert found[1][4].startswith("**+5")
    call = questions.STUDIES["q7"]["hopper-random"]
    put(results, "evidence/q7-hopper-random.jsonl.gz", lambda _, method: 100.0, call, seeds=2)  # not ready yet
    assert len(rows(results, "Does a robot's policy get better")) == 3
    assert "Q7 (1 of 6 studies)" in notes(results)


def test_asking_for_what_has_been_reached(results: Path) -> None:
    call = questions.STUDIES["q8"]["targets"]
    gained = {questions.FOLLOWING: 3000.0, questions.PUBLISHED: 2000.0}
    put(results, "evidence/q8-targets.jsonl.gz", lambda _, method: gained[method], call)
    first, _ = rows(results, "Does supervised ODT get better")
    assert re.match(r"targets from replay (300|299)", first[2])
    assert re.match(r"\*\*\+(100|99)", first[4])


def test_a_ledger_without_a_window(results: Path) -> None:
    call = questions.STUDIES["q9"]["again"]
    earned = {questions.SECOND_LEDGER: 30.0, questions.SECOND_GRU: 25.0, questions.LEDGER: 29.9}
    put(results, "evidence/q9-again.jsonl.gz", lambda _, method: earned[method], call, seeds=7, sampled=True)
    found = rows(results, "Does a ledger need a window?")
    assert [cells[3].rpartition(" ")[0] for cells in found] == ["GRU", "GRU", "ledger (K = 5)", "ledger (K = 5)"]
    assert found[0][2].startswith("ledger (K = 1) 30.")
    assert [cells[4].startswith("**+") for cells in found] == [True, True, False, False]
    assert all(re.fullmatch(r"[−+]\d.* \[.*\]", cells[6]) and cells[7] == "7 of 10" for cells in found)
    lines = evidence_tables.page(Studies(results)).splitlines()
    (ours,) = (line for line in lines if line.startswith("| hidden-arm | ledger (K = 1) | 7 |"))
    assert ours.split(" | ")[3] == ""  # no online phase


def test_rivals_by_size_and_what_forms_are_worth(results: Path) -> None:
    earned = {questions.SECOND_LEDGER: 30.0, questions.SECOND_GRU: 25.0, questions.LEDGER: 20.0}
    calls = questions.STUDIES["q9"]
    for name, call in (("again-30", calls["again-30"]), ("again", calls["again"])):
        level = (lambda _, method: earned[method] - 9) if name == "again-30" else (lambda _, method: earned[method])
        put(results, f"evidence/q9-{name}.jsonl.gz", level, call, seeds=5, sampled=True)
    rows_by_size = memory_tables.again_sizes(Studies(results)).splitlines()[2:]
    sizes = [[text.strip() for text in line.split("|")[1:4]] for line in rows_by_size]
    assert sizes == [[f"`{task}`", size, "5"] for task in questions.BOTH for size in ("30", "1,000")]
    first = [text.strip() for text in rows_by_size[0].split("|")[4:8]]
    assert [round(float(text.split()[0])) for text in first[:2]] == [21, 16]
    assert all(re.fullmatch(r"[\d.]+ \[[\d.]+, [\d.]+\]", text) for text in first)
    put(results, q2_file(30), lambda _, method: 7.0, questions.STUDIES["q2"]["episodes-30"], spread=0.1)
    put(results, q2_file(1_000), lambda _, method: 8.0, questions.STUDIES["q1"]["hidden"], spread=0.1)
    worth = {
        line.split(" | ")[0][2:]: line.split(" | ")[1:] for line in memory_tables.worth(Studies(results)).splitlines()
    }
    assert [round(float(text)) for text in worth["the ledger, context of one step *"][:2]] == [21, 30]
    assert [round(float(text)) for text in worth["no accounts (`odt`)"][:2]] == [7, 8]
    assert worth["the paper's bias (`ewa-vq-odt`)"][0].strip() == ""  # was not run with 30 episodes


def test_what_forms_cost_stands_beside_what_they_earn(results: Path) -> None:
    put(results, "evidence/q1-hidden.jsonl.gz", lambda _, method: 20.0, questions.STUDIES["q1"]["hidden"])
    assert "**[Cost]" not in evidence_tables.page(Studies(results))
    forms = {"odt": 1.0, questions.GRU: 2.5}
    measured = {
        form: {"update_ms": 10 * ratio, "update_ratio": ratio, "step_ms": ratio / 2, "step_ratio": ratio}
        for form, ratio in forms.items()
    }
    hardware = {"cpus": 2, "cpu": "some", "gpu": None}
    file = results / "evidence" / "q1-cost.json"
    file.write_text(json.dumps({"device": "cpu", "hardware": hardware, "forms": measured}))
    page = evidence_tables.page(Studies(results))
    assert "ten environments; 2 CPU cores (some), all forms in turn:" in page
    assert "| GRU, reads rewards | 25.00 | 2.50 | 1.25 | 2.50 |" in page


def test_every_study_stands_in_a_table(results: Path) -> None:
    call = questions.STUDIES["q7"]["hopper-medium"]
    put(results, "evidence/q7-hopper-medium.jsonl.gz", lambda _, method: 2000.0 + 500 * (method == "dt"), call)
    peers = {"env_id": "Hopper-v5", "method": "SAC", "seed": 1000}
    curve = [{"env_steps": steps, "returns": [float(steps)] * 2} for steps in (300, 400, 500)]
    (results / robot_table.PEERS).write_text(json.dumps({"runs": [peers | {"curve": curve}]}))
    page = evidence_tables.page(Studies(results))
    lines = page.splitlines()
    (ours,) = (line for line in lines if line.startswith("| hopper-medium | td3+odt: critics and imitation | 5 |"))
    (decision,) = (line for line in lines if line.startswith("| hopper-medium, td3+odt against ODT | 5 | +5"))
    assert decision.split(" | ")[5] == "higher"
    returns = Studies(results).returns("evidence/q7-hopper-medium.jsonl.gz", "hopper-medium", "dt")
    assert f"| {np.mean(list(returns.values())):.0f} [" in ours
    assert "## Q7." in page
    assert "## Q1." not in page  # of which there is nothing
    acting = evidence_tables.acting(Studies(results))
    assert "| hopper-medium | td3+odt: critics and imitation | 5 |" in acting
    assert "| hopper-medium | SAC from scratch (sbx) | 1 |  | 400" in acting
    (_, _, robot) = robot_table.table(Studies(results)).splitlines()
    cells = [text.strip() for text in robot.split("|")[1:-1]]
    assert cells[0] == "hopper-medium"
    assert cells[3] == ""  # ODT with a ledger: only where a fault is hidden
    assert cells[4].startswith(f"{np.mean(list(returns.values())):.0f} [")
    assert cells[-2:] == ["400.0 (no interval)", ""]
