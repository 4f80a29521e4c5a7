"""Every table of results that is committed, recomputed from the packed runs by code that shares nothing with ours.

It must be able to fail: numbers that are changed by hand are noticed.
"""

import ast
import copy
import gzip
import json
import math
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import claims
import hidden_forms
from claim_numbers import EARLY, Pair, Studies
from mental_accounts.report.analysis import analyse
from mental_accounts.report.packed import write_packed
from mental_accounts.report.runs import read_study
from mental_accounts.report.study_files import read_study_folder
from tests.report.made_studies import write_study

from .plain_reports import Packed, problems, report
from .plain_statistics import holm, interval, p_value, quantile, two_sided

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
REPORTS = sorted(path.parent for path in RESULTS.rglob("report.json") if (path.parent / "runs.jsonl.gz").exists())
EVIDENCE = sorted((RESULTS / "evidence").glob("*.jsonl.gz"))
ALL = sorted(RESULTS.rglob("*.jsonl.gz"))


def name_of(path: Path) -> str:
    return str(path.relative_to(RESULTS))


@cache
def read(path: Path) -> Packed:
    return Packed(path)


@cache
def recomputed(folder: Path) -> dict[str, Any]:
    return report(read(folder / "runs.jsonl.gz"))


def said_in(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize("file", ["plain_statistics.py", "plain_reports.py"])
def test_it_is_computed_with_numpy_alone(file: str) -> None:
    tree = ast.parse((Path(__file__).parent / file).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {"gzip", "json", "math", "pathlib", "typing", "itertools", "numpy", "plain_statistics"}


def test_students_distribution_is_that_of_the_tables() -> None:
    """Textbook values, and a normal distribution for many degrees of freedom."""
    for freedom, expected in ((1, 12.7062), (4, 2.7764), (9, 2.2622), (30, 2.0423)):
        assert quantile(0.975, freedom) == pytest.approx(expected, abs=1e-4)
        assert two_sided(expected, freedom) == pytest.approx(0.05, abs=1e-5)
    assert two_sided(1.0, 1) == pytest.approx(0.5)
    assert two_sided(1.96, 1e6) == pytest.approx(math.erfc(1.96 / math.sqrt(2)), rel=1e-4)
    assert two_sided(0.0, 7) == 1.0
    assert holm([0.01, 0.04, 0.03, None]) == pytest.approx([0.03, 0.06, 0.06, None])


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_every_run_says_what_its_last_evaluation_says(path: Path) -> None:
    packed = read(path)
    assert packed.runs
    for (task, method), runs in packed.runs.items():
        last = packed.last(task, method)
        assert all(run["summary"]["last_return"] == last[seed] for seed, run in runs.items()), (task, method)


@pytest.mark.parametrize("folder", REPORTS, ids=name_of)
def test_reports_are_recomputed(folder: Path) -> None:
    """Means, seeds, differences, their intervals, p-values, Holm's correction and what was detectable."""
    found = recomputed(folder)
    assert not problems(found, said_in(folder))
    assert sum(len(part["scores"]) for part in found["tasks"]) >= 4
    assert found["tests"] >= 17


def significant(values: list[float], *, signed: bool = False) -> list[str]:
    """As reports write numbers: three significant figures of the largest."""
    largest = max(map(abs, values))
    digits = 0 if largest >= 100 or largest == 0 else min(2 - math.floor(math.log10(largest)), 6)
    texts = [f"{value:{'+' if signed else ''}.{digits}f}" for value in values]
    return [text.replace("-", "−") for text in texts] if signed else texts


def cell(found: dict[str, Any], *, signed: bool = False) -> str:
    mean, low, high = significant([found[key] for key in ("estimate", "low", "high")], signed=signed)
    return f"{mean} [{low}, {high}]"


def probability(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def missing_rows(found: dict[str, Any], page: str) -> list[str]:
    """Rows of a report's tables that a page does not have."""
    wanted = []
    for part in found["tasks"]:
        wanted += [f"| {one['method']} | {len(one['seeds'])} | {cell(one['last_mean'])} |" for one in part["scores"]]
        for one in part["comparisons"]:
            wanted.append(
                f"| {one['method']} − {one['baseline']} | {len(one['seeds'])} | {cell(one['last'], signed=True)} | "
                f"{cell(one['best'], signed=True)} | {cell(one['area'], signed=True)} |"
            )
            wanted.append(f"| {probability(one['test']['p_value'])} | {probability(one['test']['corrected'])} |")
    return [row for row in wanted if row not in page]


@pytest.mark.parametrize("folder", REPORTS, ids=name_of)
def test_pages_of_reports_are_recomputed(folder: Path) -> None:
    page = (folder / "report.md").read_text()
    assert not missing_rows(recomputed(folder), page)
    number = recomputed(folder)["tasks"][0]["scores"][0]["last_mean"]["estimate"]
    assert missing_rows(recomputed(folder), page.replace(f"{number:.0f} [", f"{number + 1:.0f} ["))


@pytest.mark.parametrize("path", EVIDENCE, ids=name_of)
def test_the_evidence_is_recomputed(path: Path) -> None:
    """These files have no report of their own beside them: what the package would report."""
    assert not problems(report(read(path)), json.loads(json.dumps(analyse(read_study(path)).to_dict())))


@pytest.mark.parametrize("seeds", [3, 6, 12])
def test_reports_of_any_number_of_seeds_are_recomputed(seeds: int, tmp_path: Path) -> None:
    """Too few for intervals, few enough to count all samples, and more."""

    def value(task: str, method: str, seed: int, metric: str, step: int) -> float:
        rng = np.random.default_rng([seed, len(task), len(metric), step, method == "odt"])
        return float(1000 + 40 * rng.normal() + (method != "odt") * 35 + 10 * seed)

    tasks = ("hopper-medium", "walker2d-medium-replay")
    write_study(tmp_path / "study", value, tasks=tasks, seeds=seeds, pretraining=1)
    write_packed(read_study_folder(tmp_path / "study"), tmp_path / "runs.jsonl.gz")
    said = json.loads(json.dumps(analyse(read_study(tmp_path / "runs.jsonl.gz")).to_dict()))
    found = report(Packed(tmp_path / "runs.jsonl.gz"))
    assert found["tests"] == (0 if seeds < 5 else 17)
    assert not problems(found, said)


CHANGED: list[tuple[Any, ...]] = [
    ("tasks", 0, "scores", 0, "last_mean", "estimate"),
    ("tasks", 1, "scores", 1, "last_mean", "high"),
    ("tasks", 0, "scores", 1, "last", 2),
    ("tasks", 0, "scores", 0, "seeds", 1),
    ("tasks", 0, "comparisons", 0, "last", "low"),
    ("tasks", 1, "comparisons", 0, "test", "p_value"),
    ("tasks", 1, "comparisons", 0, "test", "corrected"),
    ("tasks", 0, "comparisons", 0, "test", "detectable"),
    ("tasks", 1, "comparisons", 0, "rows", 3, "change_percent"),
    ("pooled", 0, "difference", "estimate"),
    ("pooled", 0, "difference", "low"),
    ("tests",),
]


@pytest.mark.parametrize("place", CHANGED, ids=lambda place: "/".join(map(str, place)))
def test_a_number_changed_in_a_report_is_noticed(place: tuple[Any, ...]) -> None:
    said = copy.deepcopy(said_in(RESULTS / "converged"))
    table = said
    for key in place[:-1]:
        table = table[key]
    table[place[-1]] *= 0.9
    (found,) = problems(recomputed(RESULTS / "converged"), said)
    assert found.startswith("/" + "/".join(map(str, place)))


def test_a_number_changed_in_the_runs_is_noticed(tmp_path: Path) -> None:
    lines = gzip.decompress((RESULTS / "converged" / "runs.jsonl.gz").read_bytes()).decode().splitlines()
    run = json.loads(lines[1])
    last = [line for line in run["run"]["metrics"] if "evaluation/return_mean_gm" in line][-1]
    last["evaluation/return_mean_gm"] += 1.0
    lines[1] = json.dumps(run)
    (tmp_path / "runs.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    found = problems(report(Packed(tmp_path / "runs.jsonl.gz")), said_in(RESULTS / "converged"))
    assert any("last_mean/estimate" in text for text in found)


# The tables of results/hidden.

STUDIES: dict[str, tuple[str, ...]] = {
    "hidden-arm": ("arm", "options"),
    "drifting-bandit": ("bandit", "bandit-options"),
    "broken-halfcheetah": ("broken", "broken-options"),
    "hopper-medium": ("observed", "observed-options"),
    "walker2d-medium-replay": ("observed", "observed-options"),
}
FORMS = dict.fromkeys(STUDIES, hidden_forms.OPTIONS | hidden_forms.MAIN)
FORMS["broken-halfcheetah"] = hidden_forms.BROKEN_OPTIONS | hidden_forms.BROKEN
FORMS["hopper-medium"] = FORMS["walker2d-medium-replay"] = hidden_forms.OBSERVED
TABLE = re.compile(r"^### (?:Options of [^\n]*, on )?(\S+)\n\n(\| policy .*?\n)\n", re.MULTILINE | re.DOTALL)


def written(found: dict[str, Any], digits: int, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    mean, low, high = (f"{found[key]:{sign}.{digits}f}" for key in ("estimate", "low", "high"))
    return f"{mean} [{low}, {high}]".replace("-", "−")


@cache
def last_returns(task: str) -> dict[str, dict[int, float]]:
    """By the words of the form."""
    methods = {words: method for method, words in FORMS[task].items()}
    packed = [read(RESULTS / "hidden" / study / "runs.jsonl.gz") for study in STUDIES[task]]
    return {words: {s: v for one in packed for s, v in one.last(task, form).items()} for words, form in methods.items()}


@cache
def mean_of(task: str, words: str) -> dict[str, Any]:
    return interval(list(last_returns(task)[words].values()))


def wrong_rows(page: str) -> tuple[list[str], int]:
    """Rows of the tables whose numbers do not follow from the runs, and how many rows there are."""
    wrong, count = [], 0
    for task, table in TABLE.findall(page):
        head, _, *rows = ([part.strip() for part in line.strip("| ").split("|")] for line in table.splitlines())
        returns, digits = last_returns(task), 1 if task in ("hidden-arm", "drifting-bandit") else 0
        (baseline,) = (title[8:-6] for title in head if title.startswith("against "))
        found = [dict(zip(head, row, strict=False)) for row in rows]
        pairs = [
            ([returns[row["policy"]][seed] for seed in seeds], [returns[baseline][seed] for seed in seeds])
            for row in found
            for seeds in [sorted(returns[row["policy"]].keys() & returns[baseline].keys())]
        ]
        own = [None if row["policy"] == baseline else p_value(*pair) for row, pair in zip(found, pairs, strict=True)]
        for row, pair, p, corrected in zip(found, pairs, own, holm(own), strict=True):
            count += 1
            expected = {"seeds": str(len(returns[row["policy"]]))}
            expected["return [95%]"] = written(mean_of(task, row["policy"]), digits)
            if p is not None and corrected is not None:
                gap = interval(np.subtract(*pair))
                expected[f"against {baseline} [95%]"] = written(gap, digits, signed=True)
                small, rest = ("<0.001" if value < 0.001 else f"{value:.3f}" for value in (p, corrected))
                expected["p, Holm"] = f"{small}, {rest}"
            wrong += [f"{task}, {row['policy']}: {key} {row[key]}, not {text}" for key, text in expected.items()
                      if row[key] != text]  # fmt: skip
    return wrong, count


def test_the_tables_of_hidden_tasks_are_recomputed() -> None:
    page = (RESULTS / "hidden" / "README.md").read_text()
    wrong, count = wrong_rows(page)
    assert not wrong
    assert count > 90
    for number, other in (("25.7 [24.3, 27.6]", "25.8 [24.3, 27.6]"), ("<0.001, <0.001", "<0.001, 0.03")):
        assert number in page
        assert wrong_rows(page.replace(number, other, 1))[0]


# The claims of the README.


def test_the_claims_are_recomputed() -> None:
    """Means, differences, intervals, p-values and verdicts of all that decides; and the page says so."""
    page = (ROOT / "docs" / "results.md").read_text()
    answers = [answer for _, answer in claims.answers(Studies(RESULTS)).values() if answer.tested]
    assert len(answers) >= 2
    for answer in answers:
        pairs = [paired(one.pair) for one in answer.tested]
        own = [p_value(*pair) for pair in pairs]
        for one, pair, p, corrected in zip(answer.tested, pairs, own, holm(own), strict=True):
            assert len(pair[0]) == len(one.seeds) >= 5
            assert one.means == pytest.approx(tuple(map(np.mean, pair)))
            assert not problems(interval(np.subtract(*pair)), asdict(one.difference))
            assert (one.test.p_value, one.test.corrected) == pytest.approx((p, corrected), rel=1e-6)
            assert corrected is not None
            direction = "Higher" if one.difference.estimate > 0 else "Lower"
            assert one.verdict == (direction if corrected < 0.05 else "No difference detected")
        assert all(f"| {' | '.join(row.cells)} |" in page for row in answer.rows)


def paired(pair: Pair) -> tuple[list[float], list[float]]:
    """The numbers of both methods, of the seeds that both have."""
    packed, task = read(RESULTS / pair.file), pair.task
    ours, theirs = (
        packed.last(task, method) if pair.metric == "last return" else packed.early(task, method, EARLY)
        for method in (pair.method, pair.against)
    )
    seeds = sorted(ours.keys() & theirs.keys())
    return [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
