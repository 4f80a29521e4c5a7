"""The claims of the README: what the files say, and only that; they adapt as files of the evidence appear."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import claims
import evidence_tables
import questions
import results_pages
import robot_table
from claim_answers import q2_file
from claim_numbers import Studies
from marked_pages import between
from mental_accounts.report.packed import write_packed
from mental_accounts.report.study_files import read_study_folder
from tests.report.made_studies import write_study

ROOT = Path(__file__).parents[1]
KEPT = ("paper", "hidden", "popgym", "online", "players", "peers-h200.json", "peers-cpu.json")
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


def row(results: Path, question: str) -> str | None:
    """The row of a question."""
    rows = claims.table(Studies(results)).splitlines()
    return next((line for line in rows if line.startswith(f"| {question}")), None)


def test_the_readme_says_what_the_files_say() -> None:
    page = ROOT / "README.md"
    text = page.read_text()
    made = claims.table(Studies(ROOT / "results"))
    assert results_pages.pages()[page] == text == between(text, claims.BEGIN, claims.END, made)
    assert made.replace("](", "](../") in (ROOT / "docs" / "results.md").read_text()
    changed = text.replace("[−156, +609]", "[+56, +609]")
    assert between(changed, claims.BEGIN, claims.END, made) != changed


def test_the_readme_stays_short() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 130
    assert lines.index("## Read on") - lines.index("## Results") <= 42


def test_every_claim_has_number_interval_seeds_study_and_command() -> None:
    first, *_ = claims.table(Studies(ROOT / "results")).split("\n\n")
    _, _, *rows = first.splitlines()
    assert len(rows) >= 5
    for line in rows:
        question, answer, seeds, made = (part.strip() for part in line.strip("|").split(" | "))
        assert question.endswith("?")
        assert re.search(r"\d", answer)
        timed = question == "How fast is it?"
        assert timed or re.search(r"\[[−+]?\d[\d.]*, [−+]?\d[\d.]*\]", answer), question
        assert timed or re.fullmatch(r"\d+( of \d+)?( †)?", seeds), question
        link, command = re.fullmatch(r"\[[\w-]+\]\((\S+)\): `(.+)`", made).groups()
        page, _, place = link.partition("#")
        headings = [line.lstrip("# ") for line in (ROOT / page).read_text().splitlines() if line.startswith("#")]
        assert not place or place in map(claims.slug, headings)
        assert command.startswith(("mental-accounts ", "python "))


def test_caveats_stay_while_old_studies_answer(results: Path) -> None:
    assert "blind to its target; to be rerun" in row(results, "Does the paper's bias")
    hidden = row(results, "Does it help our own policy")
    assert "These data favour the ledger" in hidden
    assert "the study is to come" in hidden
    assert "pilots only so far" in row(results, "Does a policy learn from scratch")
    assert row(results, "Does it hurt") is None
    assert "still to come: Q1, Q2, Q3, Q4, Q5, Q6, Q7, Q8, Q9." in claims.table(Studies(results))


def test_new_evidence_takes_the_place_of_old(results: Path) -> None:
    call = questions.STUDIES["q5"]["adamw"]
    put(results, "evidence/q5-adamw.jsonl.gz", lambda task, method: 2000.0 + 30 * ("ewa" in method), call, seeds=6)
    bias = row(results, "Does the paper's bias")
    assert "blind" not in bias
    assert "**Higher**: hopper-medium, adamw +" in bias
    assert bias.endswith("| 6 of 20 | [Q5](results/evidence/README.md#q5-the-papers-experiment): "
                         "`python studies/evidence.py q5 runs/evidence` |")  # fmt: skip
    assert "answered in part: Q5 (1 of 2 studies)" in claims.table(Studies(results))
    call = questions.STUDIES["q6"]["converged"]
    put(results, "evidence/q6-converged.jsonl.gz", lambda task, method: 900.0 - 50 * (method == "ledger-odt"), call)
    assert "**Lower**: hopper-medium −5" in row(results, "Does it hurt")
    assert "still to come: Q1, Q2, Q3, Q4, Q7, Q8" in claims.table(Studies(results))


def test_noise_is_no_claim_and_few_seeds_are_no_answer(results: Path) -> None:
    call, file = questions.STUDIES["q6"]["converged"], "evidence/q6-converged.jsonl.gz"
    put(results, file, lambda task, method: 900.0, call, spread=80.0)
    found = row(results, "Does it hurt")
    assert re.search(r"\*\*No difference detected\*\* \(\d+ to \d+ would have been\): hopper", found)
    put(results, file, lambda task, method: 900.0 + 50 * (method == "odt"), call, seeds=4)
    assert row(results, "Does it hurt") is None
    assert "still to come: Q1, Q2, Q3, Q4, Q5, Q6, Q7, Q8, Q9." in claims.table(Studies(results))


def test_a_question_is_not_answered_without_the_rival_that_threatens_it(results: Path) -> None:
    call = questions.STUDIES["q1"]["hidden"]
    without = questions.Call(call.tasks, ("odt", questions.LEDGER), seeds=5)
    file, level = "evidence/q1-hidden.jsonl.gz", lambda task, method: 40.0 - 30 * (method == "odt")
    put(results, file, level, without)
    assert "own-ledger" in row(results, "Does it help our own policy")
    put(results, file, level, call, seeds=10)
    found = row(results, "Does it help our own policy")
    assert "own-ledger" not in found
    assert "hidden-arm, ledger against ODT +" in found.partition("**Higher**")[2].partition("**")[0]
    assert "a Bayesian one that knows the task 72.0" in found
    assert "| 10 |" in found


def test_forms_of_the_robot_are_chosen_on_other_seeds(results: Path) -> None:
    call = questions.STUDIES["q4"]["broken"]
    ledgers, others = list(questions.Q4_LEDGERS), list(questions.Q4_WITHOUT)
    put(results, "evidence/q4-broken.jsonl.gz", lambda task, method: 3000.0 + 100 * (method == ledgers[0]), call)
    assert row(results, "Does it help a robot") is None  # nothing was chosen
    few = questions.Call(call.tasks, ("odt", ledgers[0]))
    put(results, "choosing/q4-broken.jsonl.gz", lambda task, method: 3000.0, few)
    assert row(results, "Does it help a robot") is None  # not of all forms
    best = {ledgers[1], others[5]}
    put(results, "choosing/q4-broken.jsonl.gz", lambda task, method: 3000.0 + 100 * (method in best), call)
    found = row(results, "Does it help a robot")
    assert questions.Q4_LEDGERS[ledgers[1]] in found
    assert questions.Q4_WITHOUT[others[5]] in found
    assert "**No difference detected**" in found


def test_less_data_and_the_limits_and_acting(results: Path) -> None:
    for episodes in (30, 100, 300, 1_000):
        call = questions.STUDIES["q2"].get(f"episodes-{episodes}", questions.STUDIES["q1"]["hidden"])
        gain = 20.0 if episodes <= 100 else 0.0

        def level(task: str, method: str, gain: float = gain) -> float:
            return 20.0 + gain * (method == questions.LEDGER)

        put(results, q2_file(episodes), level, call)
    less = row(results, "Does it need less data")
    assert "With 100 episodes, ledger against GRU: **Higher**: hidden-arm +" in less
    assert (
        "hidden-arm higher with 30; hidden-arm no difference detected with 300, 1,000; drifting-bandit higher" in less
    )
    assert less.partition(" | 5 |")[0].endswith("to come: 3,000")
    for name, gain in (("arms-27", 10.0), ("arms-300", -10.0), ("free", 10.0)):
        call = questions.STUDIES["q3"][name]
        put(
            results,
            f"evidence/q3-{name}.jsonl.gz",
            lambda _, method, gain=gain: 50 + gain * (method == questions.LEDGER),
            call,
        )
    limits = row(results, "Where does it break?")
    assert "**Higher** than the GRU in 3 of 4 settings; **Lower** than the GRU in 1 of 4 settings (arms-300)" in limits
    call = questions.STUDIES["q7"]["hopper-medium"]
    put(results, "evidence/q7-hopper-medium.jsonl.gz", lambda _, method: 2000.0 + 500 * (method == "dt"), call)
    assert "hopper-medium, td3+odt against td3 alone +5" in row(results, "Does a robot's policy get better")
    call = questions.STUDIES["q7"]["hopper-random"]
    put(results, "evidence/q7-hopper-random.jsonl.gz", lambda _, method: 100.0, call, seeds=2)  # not ready yet
    assert "hopper-random" not in row(results, "Does a robot's policy get better")
    assert "Q7 (1 of 6 studies)" in claims.table(Studies(results))
    assert "pilots" not in row(results, "Does a policy learn from scratch")


def test_asking_for_what_has_been_reached(results: Path) -> None:
    call = questions.STUDIES["q8"]["targets"]
    gained = {questions.FOLLOWING: 3000.0, questions.PUBLISHED: 2000.0}
    put(results, "evidence/q8-targets.jsonl.gz", lambda _, method: gained[method], call)
    found = row(results, "Does supervised ODT get better")
    assert "hopper-medium: following the replay buffer 3000 [" in found
    assert "**Higher**: hopper-medium +" in found


def test_a_ledger_without_a_window(results: Path) -> None:
    call = questions.STUDIES["q9"]["again"]
    earned = {questions.SECOND_LEDGER: 30.0, questions.SECOND_GRU: 25.0, questions.LEDGER: 29.9}
    put(results, "evidence/q9-again.jsonl.gz", lambda _, method: earned[method], call, seeds=7, sampled=True)
    found = row(results, "Does a ledger need a window?")
    assert found is not None
    assert "`hidden-arm`: ledger, K = 1 30." in found
    assert "(with sampled actions ledger 30." in found
    assert re.search(r"\*\*Higher\*\*: hidden-arm, against the GRU \+\d", found)
    assert "hidden-arm, against the ledger with K = 5" in found.partition("**No difference detected**")[2]
    assert "| 7 of 10 |" in found
    lines = evidence_tables.page(Studies(results)).splitlines()
    (ours,) = (line for line in lines if line.startswith("| hidden-arm | ledger, K = 1 | 7 |"))
    assert ours.split(" | ")[3] == ""  # no online phase


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
    (decision,) = (line for line in lines if line.startswith("| hopper-medium, td3+odt against odt | 5 | +5"))
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
