"""The report: the right numbers, the right words, and nothing averaged in silently."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mental_accounts.errors import UsageError
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.report.analysis import analyse, metric_matrix
from mental_accounts.report.figures import paper_figure, save
from mental_accounts.report.inspected import inspect_evidence
from mental_accounts.report.mixture import mixed
from mental_accounts.report.packed import write_packed
from mental_accounts.report.page import Heading, Table, Text, to_html, to_markdown
from mental_accounts.report.paper import PAPER_TABLES, table_of
from mental_accounts.report.report import write_report
from mental_accounts.report.runs import SEVEN, read_runs, read_study
from mental_accounts.report.significance import detectable_difference, holm
from mental_accounts.report.statistics import difference_interval
from mental_accounts.report.study_files import read_study_folder

from .made_studies import write_study


def noise(*what: object) -> float:
    return float(np.random.default_rng(list(str(what).encode())).normal())


def returns(task: str, method: str, seed: int, name: str, n: int) -> float:
    rng = np.random.default_rng([seed, n, len(name), len(method)])
    better = 400.0 if method != "odt" else 0.0
    return 1000 + 100 * n + better + 20 * float(rng.normal()) + 5 * seed


def test_the_numbers_are_those_of_the_run_folders(tmp_path: Path) -> None:
    study = write_study(tmp_path, returns)
    evidence = read_study(tmp_path)
    assert evidence.warnings == ()
    (part,) = analyse(evidence).tasks
    (comparison,) = part.comparisons
    lasts = {}
    for job in study.jobs:
        lines = [json.loads(text) for text in (job.path / "metrics.jsonl").read_text().splitlines()]
        lasts[job.arm.label, job.seed] = lines[-1]["evaluation/return_mean_gm"]
    ours, theirs = ([lasts[label, seed] for seed in range(5)] for label in ("ewa-vq-odt", "odt"))
    assert comparison.last == difference_interval(ours, theirs)
    assert comparison.verdict == "helps"
    assert part.scores[0].last == tuple(theirs)
    assert [row.name for row in comparison.rows] == list(SEVEN)
    by_name = {row.name: row.verdict for row in comparison.rows}
    assert by_name["evaluation/return_mean_gm"] == "helps"
    assert by_name["evaluation/return_std_gm"] == "hurts"  # lower is better there


def test_runs_far_below_their_data_are_told_of_once_with_what_sampled_actions_earn(tmp_path: Path) -> None:
    study = write_study(tmp_path, returns, methods=("odt", "ledger-odt"), seeds=3)
    for job in study.jobs:
        path = job.path / "metrics.jsonl"
        *lines, last = [json.loads(text) for text in path.read_text().splitlines()]
        last |= {"evaluation/return_mean_gm": 100.0 + job.seed}
        last |= {"evaluation/return_mean_sampled": 900.0} if job.arm.label == "ledger-odt" else {}
        path.write_text("".join(json.dumps(line) + "\n" for line in (*lines, last)))
        summary = json.loads((job.path / "summary.json").read_text())
        low = job.arm.label == "ledger-odt" or job.seed == 1
        RunFolder(job.path).write_summary(summary | {"warning": "far below" if low else None})
    written = write_report(read_study(tmp_path), tmp_path)
    shown = written.markdown.read_text()
    one = "> odt on hopper-medium: 1 of 3 runs ends far below its data (last return 101.0, the data 1000.0)."
    all_of_them = (
        "> ledger-odt on hopper-medium: 3 of 3 runs end far below their data (last return 100.0 to 102.0, the data "
        "1000.0); sampled actions earn 900.0."
    )
    assert [line for line in shown.splitlines() if "far below" in line] == [one, all_of_them]
    assert "last return, sampled actions" in shown
    assert re.search(r"\| ledger-odt \|.*\| 900 \|", shown)
    (part,) = json.loads((tmp_path / "report.json").read_text())["tasks"]
    assert ["sampled_mean" in score for score in part["scores"]] == [False, True]


def test_the_report_says_it_in_all_three_files(tmp_path: Path) -> None:
    write_study(tmp_path, returns, tasks=("hopper-medium", "walker2d-medium-replay"))
    report = write_report(read_study(tmp_path), tmp_path)
    html, markdown = report.html.read_text(), report.markdown.read_text()
    for text in (html, markdown):
        assert "ewa-vq-odt helps" in text
        assert "P(improvement)" in text
        assert "mental-accounts compare --task hopper-medium walker2d-medium-replay" in text
        assert "167.1 / 82.4" in text  # the paper's own
    assert html.count("<svg") == 8
    assert "<script" not in html
    assert "http://" not in html.replace("http://www.w3.org", "")
    numbers = json.loads((tmp_path / "report.json").read_text())
    assert numbers["tasks"][0]["comparisons"][0]["method"] == "ewa-vq-odt"
    assert numbers["pooled"][0]["difference"]["low"] > 0
    assert len(report.headlines) == 2


def test_a_ledger_that_is_read_has_no_drift_to_report(tmp_path: Path) -> None:
    write_study(tmp_path / "all", returns, methods=("odt", "ewa-vq-odt", "ledger-odt"))
    markdown = write_report(read_study(tmp_path / "all"), tmp_path).markdown.read_text()
    assert "| ewa-vq-odt | 0.01 | 0.02 | 0.03 | 9 |" in markdown
    assert "| ledger-odt | – | – | – | 9 |" in markdown
    assert "ledger-odt − odt" in markdown
    write_study(tmp_path / "ledger", returns, methods=("odt", "ledger-odt"))
    markdown = write_report(read_study(tmp_path / "ledger"), tmp_path).markdown.read_text()
    assert "| method | codes used (accounts/codes_used) |" in markdown
    assert "how far the bias moves attention" not in markdown


def test_values_have_a_table_where_there_are_critics(tmp_path: Path) -> None:
    write_study(tmp_path, returns, methods=("odt", "odt:improve=td3", "ledger-odt:improve=td3"), seeds=3)
    report = write_report(read_study(tmp_path), tmp_path)
    for text in (report.html.read_text(), report.markdown.read_text()):
        assert text.count("Values at the end, averaged over seeds") >= 1
    markdown = report.markdown.read_text()
    assert "| method | policy's value (values/policy_mean) | TD error (values/td_error) | overestimation (" in markdown
    assert "| odt:improve=td3 | 12.5 | 1.25 | −1.5 | 0.4 |\n| ledger-odt:improve=td3 | 12.5 | 1.25 |" in markdown
    scores = json.loads((tmp_path / "report.json").read_text())["tasks"][0]["scores"]
    assert [score.get("values", {}).get("values/td_error") for score in scores] == [None, 1.25, 1.25]
    assert list(scores[0])[-1] == "accounts"  # as it was before there were critics


def test_values_that_were_never_compared_with_returns(tmp_path: Path) -> None:
    write_study(tmp_path, returns, methods=("odt:improve=td3",), seeds=2, iterations=1)
    markdown = write_report(read_study(tmp_path), tmp_path).markdown.read_text()
    assert "overestimation" not in markdown.partition("| method | policy's value")[2].partition("\n")[0]
    assert "| critics' share of the gradient (values/gradient_share) |" in markdown


def test_values_that_are_no_numbers_are_not_averaged(tmp_path: Path) -> None:
    study = write_study(tmp_path, returns, methods=("odt:improve=td3",), seeds=2)
    path = study.jobs[0].path / "metrics.jsonl"
    path.write_text(path.read_text().replace('"values/td_error": 0.25', '"values/td_error": "0.25"'))
    [warning] = read_study(tmp_path).warnings
    assert "seed 0: left out, it cannot be read (metrics.jsonl, line 1 cannot be read: values/td_error" in warning


def test_two_equal_methods_do_not_differ_and_few_seeds_say_nothing(tmp_path: Path) -> None:
    def equal(task: str, method: str, seed: int, name: str, n: int) -> float:
        return 1000 + 300 * noise(method, seed, name, n)

    write_study(tmp_path / "a", equal)
    report = write_report(read_study(tmp_path / "a"), tmp_path / "a")
    assert "ewa-vq-odt: no difference detected. Mean last return" in report.headlines[0]
    assert re.search(r"A difference of \d+ would have been detected with a probability of 80%", report.headlines[0])
    assert "no difference detected (detectable: " in report.markdown.read_text()
    for seeds, words in ((1, "1 seed is too few to tell"), (2, "2 seeds are too few to tell"), (4, "4 seeds are")):
        write_study(tmp_path / str(seeds), equal, seeds=seeds)
        report = write_report(read_study(tmp_path / str(seeds)), tmp_path / str(seeds))
        assert words in report.headlines[0]
        assert "interval" not in report.headlines[0]
        markdown = report.markdown.read_text()
        assert markdown.count(f"{seeds} seed{'s' * (seeds > 1)}: no interval and no test, which take at least 5.") == 1
        assert "95%" not in markdown
        numbers = json.loads((tmp_path / str(seeds) / "report.json").read_text())
        assert numbers["tests"] == 0
        assert numbers["tasks"][0]["scores"][0]["last_mean"]["low"] is None
    write_study(tmp_path / "c", equal, methods=("odt",))
    assert write_report(read_study(tmp_path / "c"), tmp_path / "c").headlines == ()


def test_all_tests_of_a_report_are_corrected_together(tmp_path: Path) -> None:
    tasks, methods = ("hopper-medium", "walker2d-medium-replay"), ("odt", "ewa-vq-odt", "ledger-odt")
    write_study(tmp_path, returns, tasks=tasks, methods=methods, seeds=6)
    evidence = read_study(tmp_path)
    analysis = analyse(evidence)
    found = [comparison for part in analysis.tasks for comparison in part.comparisons]
    first = [comparison.test for comparison in found] + [pooled.test for pooled in analysis.pooled]
    others = [row.test for comparison in found for row in comparison.rows]
    assert analysis.tests == len(first) + len(others) == 2 * 2 * 8 + 2
    weights = [0.5 / len(first)] * len(first) + [0.5 / len(others)] * len(others)
    assert [test.corrected for test in first + others] == holm([test.p_value for test in first + others], weights)
    lasts = [[run.summary["last_return"] for run in evidence.of(tasks[0], name)] for name in ("ewa-vq-odt", "odt")]
    assert found[0].test.detectable == detectable_difference(*lasts, level=0.05 * weights[0])
    assert f"over all {analysis.tests} tests of this report" in write_report(evidence, tmp_path).html.read_text()


def test_what_is_missing_broken_or_different_is_named_and_left_out(tmp_path: Path) -> None:
    study = write_study(tmp_path, returns, seeds=6)
    missing, half, torn, other, cut, *_ = (job for job in study.jobs if job.arm.label == "ewa-vq-odt")
    shutil.rmtree(missing.path)
    (half.path / "summary.json").unlink()
    (torn.path / "config.json").write_text('{"config": ')
    record = json.loads((other.path / "config.json").read_text())
    record["config"]["model"]["accounts"]["beta"] = 9.0
    (other.path / "config.json").write_text(json.dumps(record))
    text = (cut.path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (cut.path / "metrics.jsonl").write_text("".join(text[:-1]))
    evidence = read_study(tmp_path)
    assert len(evidence.runs) == 7
    found = "\n".join(evidence.warnings)
    for words in (
        "seed 0: left out, it is missing",
        "seed 1: left out, it is not finished (4 iterations so far)",
        "seed 2: left out, it cannot be read",
        "seed 3: left out, it was run with other settings (model.accounts.beta)",
        "seed 4: left out, it cannot be read (metrics.jsonl has 3 lines, not 4)",
        "seeds 0, 1, 2, 3, 4 have no partner",
    ):
        assert words in found
    report = write_report(evidence, tmp_path)
    assert "it was run with other settings" in report.html.read_text()
    assert analyse(evidence).tasks[0].comparisons[0].seeds == (5,)


def test_runs_from_before_a_field_existed_have_its_default(tmp_path: Path) -> None:
    study = write_study(tmp_path, returns, seeds=3)
    old, later, *_ = (job for job in study.jobs if job.arm.label == "ewa-vq-odt")
    for job, value in ((old, None), (later, "token")):  # the second says what the default is not
        record = json.loads((job.path / "config.json").read_text())
        del record["config"]["model"]["accounts"]["ledger_input"]
        if value is not None:
            record["config"]["model"]["accounts"]["ledger_input"] = value
        (job.path / "config.json").write_text(json.dumps(record))
    evidence = read_study(tmp_path)
    assert [run.seed for run in evidence.of("hopper-medium", "ewa-vq-odt")] == [0, 2]
    assert "seed 1: left out, it was run with other settings (model.accounts.ledger_input)" in evidence.warnings[0]


def test_a_configuration_that_says_nothing_is_no_run_of_defaults(tmp_path: Path) -> None:
    study = write_study(tmp_path, returns, seeds=2)
    (study.jobs[0].path / "config.json").write_text('{"config": {}}')
    evidence = read_study(tmp_path)
    assert len(evidence.runs) == 3
    assert "left out, it cannot be read (config.json does not say which task, method and seed)" in evidence.warnings[0]


def test_any_run_folders_are_grouped_and_mixed_settings_are_not(tmp_path: Path) -> None:
    study = write_study(tmp_path, returns, seeds=3)
    odd = study.jobs[0].path
    record = json.loads((odd / "config.json").read_text())
    record["config"]["lr"] = 7.0
    (odd / "config.json").write_text(json.dumps(record))
    evidence = read_runs([job.path for job in study.jobs])
    assert evidence.methods == ("odt", "ewa-vq-odt")
    assert len(evidence.runs) == 5
    assert "settings differ from the others (lr)" in evidence.warnings[0]
    with pytest.raises(UsageError, match="no finished run"):
        read_runs([tmp_path])
    with pytest.raises(UsageError, match=r"study\.json is missing"):
        read_study(tmp_path / "runs")


@pytest.mark.parametrize("task", PAPER_TABLES)
def test_the_papers_tables_come_out_of_our_code(task: str, tmp_path: Path) -> None:
    """Runs whose averages are the paper's, through the path that makes our tables, give the paper's Δ."""
    table = PAPER_TABLES[task]

    def recorded(name_of: str, method: str, seed: int, metric: str, n: int) -> float:
        average = table.rows[metric][0 if method == "ewa-vq-odt" else 1]
        wave = 0.2 * average * (seed - 1) + 0.1 * average * (n - 1.5)  # no change to the average over seeds and steps
        return average + wave

    write_study(tmp_path, recorded, tasks=(task,), seeds=3)
    evidence = read_study(tmp_path)
    rows = table_of(evidence.of(task, "ewa-vq-odt"), evidence.of(task, "odt"))
    for row in rows:
        ours, theirs, change = table.rows[row.metric]
        assert row.ours == pytest.approx(ours)
        assert row.baseline == pytest.approx(theirs)
        rounding = 100 * (0.05 / theirs + 0.05 * ours / theirs**2) + 0.05  # their averages are rounded, too
        assert row.change_percent == pytest.approx(change, abs=rounding)
    marks = [row.is_better for row in rows]
    expected = [True, False, True, True, False, True, True] if "walker" in task else [True] * 5 + [False] * 2
    assert marks == expected
    comparison = analyse(evidence).tasks[0].comparisons[0]
    assert [row.change_percent for row in comparison.rows] == [row.change_percent for row in rows]


def test_run_folders_with_data_of_their_own_are_one_comparison(tmp_path: Path) -> None:
    study = write_study(tmp_path, lambda *place: 1000.0 + place[2], data_per_seed=True)
    assert {job.config.data_seed for job in study.jobs} == set(range(5))
    evidence = read_runs([job.path for job in study.jobs])
    assert len(evidence.runs) == len(study.jobs) == 10
    assert not evidence.warnings


def test_runs_that_learned_from_different_data_are_named(tmp_path: Path) -> None:
    own = write_study(tmp_path / "own", lambda *_: 1.0, data_per_seed=True)
    shared = write_study(tmp_path / "shared", lambda *_: 1.0)
    paths = {(study.folder.name, job.arm.label, job.seed): job.path for study in (own, shared) for job in study.jobs}
    mixed = [path for (name, method, _), path in paths.items() if (name == "own") == (method == "odt")]
    evidence = read_runs(mixed)
    assert len(evidence.runs) == 10
    assert evidence.warnings == (
        "hopper-medium: ewa-vq-odt and odt learned from different data with seeds 1, 2, 3, 4: compared anyway",
    )
    halves = [path for (name, _, seed), path in paths.items() if (name == "own") == (seed < 3)]
    assert read_runs(halves).warnings == tuple(
        f"hopper-medium: seeds 3, 4 of {method} learned from the data of another seed, the others from their own"
        for method in ("odt", "ewa-vq-odt")
    )
    twice = read_runs([paths["own", "odt", 1], paths["shared", "odt", 1]])
    assert "there is a run of seed 1 of hopper-medium odt already (this one has data seed 0)" in twice.warnings[0]
    others = [paths["own", "odt", seed] for seed in range(1, 5)]
    for seed, path in enumerate(others, 101):
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | {"data_seed": seed}))
    assert not read_runs(others).warnings  # data of their own, whatever their numbers


def test_returns_against_samples_are_interpolated(tmp_path: Path) -> None:
    study = write_study(tmp_path, lambda task, method, seed, name, n: float(n), seeds=2, methods=("odt",))
    path = study.jobs[1].path / "metrics.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    for line in lines:
        line["env_steps"] += 50
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    matrix = metric_matrix(read_study(tmp_path).of("hopper-medium", "odt"), "evaluation/return_vs_samples")
    assert matrix.shape == (2, 8)
    np.testing.assert_allclose(matrix[0][:7], [0, 0.5, 1, 1.5, 2, 2.5, 3])
    assert math.isnan(matrix[1][0])


def test_the_difference_against_samples_is_of_the_interpolated_values(tmp_path: Path) -> None:
    study = write_study(tmp_path, lambda task, method, seed, name, n: float(n * n), seeds=2)
    path = study.jobs[1].path / "metrics.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    for line, stretched in zip(lines, (100, 200, 900, 1000), strict=True):
        line["env_steps"] = stretched
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    evidence = read_study(tmp_path)
    [comparison] = analyse(evidence).tasks[0].comparisons
    rows = {row.name: row for row in comparison.rows}
    assert rows["evaluation/return_mean_gm"].difference.estimate == 0.0
    name = "evaluation/return_vs_samples"
    ours, theirs = (
        np.nanmean(metric_matrix(evidence.of("hopper-medium", method), name), axis=1).mean()
        for method in ("ewa-vq-odt", "odt")
    )
    assert ours != theirs
    assert rows[name].difference.estimate == pytest.approx(ours - theirs)


def test_small_returns_keep_their_figures(tmp_path: Path) -> None:
    write_study(tmp_path, lambda task, method, seed, name, n: 0.05 * (method == "odt") + 0.001 * seed, seeds=3)
    report = write_report(read_study(tmp_path), tmp_path)
    assert "−0.0500" in report.headlines[0]
    assert "| 0.0510 |" in report.markdown.read_text()


def test_a_run_that_was_never_evaluated_is_left_out(tmp_path: Path) -> None:
    study = write_study(tmp_path, returns, seeds=3)
    path = study.jobs[1].path / "metrics.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    bare = [{key: value for key, value in line.items() if not key.startswith("evaluation/")} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in bare))
    evidence = read_study(tmp_path)
    assert "seed 0: left out, it was never evaluated" in evidence.warnings[0]
    write_report(evidence, tmp_path)


def test_a_small_comparison_offline_explains_only_what_is_there(tmp_path: Path) -> None:
    """One evaluation at the end, no environment steps, methods that do the same, in no time."""
    study = write_study(tmp_path, lambda *_: 7.0, methods=("odt", "bc"), seeds=2, iterations=1, pretraining=1)
    for job in study.jobs:
        (line,) = [json.loads(text) for text in (job.path / "metrics.jsonl").read_text().splitlines()]
        line = {name: value for name, value in line.items() if not name.startswith("aug_traj/")}
        (job.path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
        summary = json.loads((job.path / "summary.json").read_text())
        (job.path / "summary.json").write_text(json.dumps(summary | {"seconds": 0.34}))
    written = write_report(read_study(tmp_path), tmp_path)
    shown = written.markdown.read_text()
    for absent in ("Learning curve", "shaded", "ring", "The paper's seven metrics"):
        assert absent not in shown
    assert not (tmp_path / "figures").exists()
    assert "5 of the paper's seven metrics" in shown
    assert shown.count("All methods have exactly the same last returns") == 1
    assert "| odt | 0.3 |" in shown
    told: list[str] = []
    inspected = inspect_evidence(read_study(tmp_path), tmp_path, told.append)
    assert [text for text in (*inspected.warnings, *told) if " bc" in text] == [], "it has nothing to inspect"
    assert told == ["inspecting an episode: hopper-medium odt"]


def test_captions_are_of_the_curves_that_there_are(tmp_path: Path) -> None:
    scratch, both = tmp_path / "scratch", tmp_path / "both"
    for place, pretraining in ((scratch, 0), (both, 2)):
        write_study(place, returns, pretraining=pretraining)
        shown = write_report(read_study(place), place).markdown.read_text()
        assert ("the shaded part is pretraining" in shown) == ("a ring is the end" in shown) == (place == both)
        assert "every evaluation of every seed is a point" in shown
        assert "exactly the same" not in shown


def test_runs_that_are_unlike_say_so_on_the_first_line(tmp_path: Path) -> None:
    study = write_study(tmp_path, returns, seeds=3)
    for job in study.jobs:
        record = json.loads((job.path / "config.json").read_text())
        if job.arm.label != "odt":
            record["config"]["lr"], record["config"]["seed"] = 0.5, job.seed + 1
        record["versions"]["torch"], record["git_commit"] = f"2.{job.seed}", f"{job.seed}" * 40
        (job.path / "config.json").write_text(json.dumps(record))
    evidence = read_runs([job.path for job in study.jobs])
    found = "\n".join(evidence.warnings)
    assert "also differ in lr" in found
    assert "seeds 0, 3 have no partner" in found
    lines = write_report(evidence, tmp_path).markdown.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert lines[2] == (
        "> These runs were not made alike. They mix commits (0000000, 1111111, 2222222); versions (torch 2.0, torch "
        "2.1, torch 2.2); protocol (lr)."
    )
    assert "2 of 4 seeds (without 0, 3) are too few to tell" in lines[4]
    assert "| odt | 3 of 4, without 3 |" in "\n".join(lines)


def test_what_a_method_is_named_by_is_no_mixture(tmp_path: Path) -> None:
    methods = ("odt", "odt:lr=0.5,model.dropout=0.2")
    write_study(tmp_path, returns, methods=methods)
    assert "not made alike" not in write_report(read_study(tmp_path), tmp_path).markdown.read_text()


def test_data_that_differ_where_they_should_not(tmp_path: Path) -> None:
    study = write_study(tmp_path, returns, seeds=3)

    def told(data: Callable[[str, int], str], data_seed: Callable[[int], int]) -> str:
        for job in study.jobs:
            (job.path / "task.json").write_text(json.dumps({"data": data(job.arm.label, job.seed)}))
            record = json.loads((job.path / "config.json").read_text())
            record["config"]["data_seed"] = data_seed(job.seed)
            (job.path / "config.json").write_text(json.dumps(record))
        return mixed(read_runs([job.path for job in study.jobs]).runs)

    assert told(lambda method, seed: "same", lambda seed: 0) == ""
    assert told(lambda method, seed: method, lambda seed: 0).endswith("They mix data (hopper-medium).")
    assert told(lambda method, seed: str(seed), lambda seed: 0).endswith("They mix data (hopper-medium).")


def test_data_of_their_own_for_every_seed_are_no_mixture(tmp_path: Path) -> None:
    study = write_study(tmp_path, returns, seeds=3, data_per_seed=True)
    for job in study.jobs:
        (job.path / "task.json").write_text(json.dumps({"data": str(job.seed)}))
    evidence = read_study(tmp_path)
    assert len({run.config["data_seed"] for run in evidence.runs}) == 3
    assert mixed(evidence.runs) == ""


def test_seeds_that_are_missing_are_named_and_left_out_of_what_is_pooled(tmp_path: Path) -> None:
    tasks = ("hopper-medium", "walker2d-medium-replay")
    study = write_study(tmp_path, returns, tasks=tasks, seeds=7)
    for job in study.jobs:
        if (job.task, job.arm.label, job.seed) in ((tasks[0], "ewa-vq-odt", 3), (tasks[1], "odt", 5)):
            shutil.rmtree(job.path)
    evidence = read_study(tmp_path)
    assert evidence.missing(tasks[0], "ewa-vq-odt") == [3]
    [pooled] = analyse(evidence).pooled
    assert pooled.seeds == (0, 1, 2, 4, 6)
    report = write_report(evidence, tmp_path)
    assert "6 of 7 seeds (without 3)" in report.headlines[0]
    markdown = report.markdown.read_text()
    assert "5 of 7 seeds (without 3, 5)" in markdown
    assert "| ewa-vq-odt | 6 of 7, without 3 |" in markdown
    lasts = {(job.task, job.arm.label, job.seed): job for job in study.jobs}
    assert (tasks[0], "odt", 3) in lasts  # its partner is not in the mean that stands in the headline
    kept = [run.summary["last_return"] for run in evidence.of(tasks[0], "odt") if run.seed != 3]
    assert f"odt {np.mean(kept):.0f}: " in report.headlines[0]


def test_every_run_links_to_its_configuration_or_shows_it(tmp_path: Path) -> None:
    study = write_study(tmp_path / "study", returns, seeds=2)
    report = write_report(read_study(tmp_path / "study"), tmp_path / "elsewhere")
    html, markdown = report.html.read_text(), report.markdown.read_text()
    for job in study.jobs:
        target = f"../study/{job.path.relative_to(tmp_path / 'study')}/config.json"
        assert (tmp_path / "elsewhere" / target).is_file()
        assert f'href="{target}"' in html
        assert f"[config.json]({target})" in markdown
    write_packed(read_study_folder(tmp_path / "study"), tmp_path / "runs.jsonl.gz")
    packed = write_report(read_study(tmp_path / "runs.jsonl.gz"), tmp_path / "packed")
    assert packed.html.read_text().count("<summary>Configuration: hopper-medium, ") == 2
    assert '"updates_per_pretrain_iteration": 5000' in packed.markdown.read_text()


def test_text_is_escaped() -> None:
    blocks = [Heading("<b>", 1), Text("a & <i>"), Table(["<x>"], [["|"]], caption="</table>")]
    html, markdown = to_html("<t>", blocks), to_markdown(blocks)
    for bad in ("<b>", "<i>", "<x>", "<t>"):
        assert bad not in html
    assert html.count("</table>") == 1
    assert "\\|" in markdown


def test_the_figure_comes_in_three_formats(tmp_path: Path) -> None:
    write_study(tmp_path, returns, tasks=("hopper-medium", "walker2d-medium-replay"))
    written = save(paper_figure(read_study(tmp_path)), tmp_path / "figure")
    assert [path.suffix for path in written] == [".png", ".svg", ".pdf"]
    assert all(path.stat().st_size > 5_000 for path in written)
