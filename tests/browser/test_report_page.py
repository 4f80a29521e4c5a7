"""report.html in a browser: silent, whole, and with the numbers of the run folders."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mental_accounts.report.report import write_report
from mental_accounts.report.runs import METRIC_NAMES, SEVEN, read_study
from tests.report.made_studies import write_study

from .conftest import Watched, accessibility_problems

TASKS = ("hopper-medium", "walker2d-medium-replay")


def value(task: str, method: str, seed: int, name: str, n: int) -> float:
    rng = np.random.default_rng([len(task), len(method), seed, len(name), n])
    return 1000 + 100 * n + 50 * float(rng.normal())


def test_the_page_is_silent_whole_and_right(watched: Watched, tmp_path: Path) -> None:
    study = write_study(tmp_path, value, tasks=TASKS, seeds=4)
    report = write_report(read_study(tmp_path), tmp_path)
    page = watched.page
    page.goto(report.html.as_uri())
    assert watched.errors == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []
    figures = page.locator("figure svg")
    assert figures.count() == 8
    for place in range(8):
        box = figures.nth(place).bounding_box()
        assert box is not None
        assert box["width"] > 280
        assert box["height"] > 60
    runs = page.locator("#runs tbody tr")
    assert runs.count() == len(study.jobs)
    shown = {}
    for row in runs.all():
        cells = row.locator("td").all_inner_texts()
        shown[cells[0], cells[1], int(cells[2])] = float(cells[3])
    for task in TASKS:
        name = task.replace("_", "-")
        columns: dict[tuple[str, str], list[list[float]]] = {}
        for job in study.jobs:
            lines = [json.loads(text) for text in (job.path / "metrics.jsonl").read_text().splitlines()]
            last = lines[-1]["evaluation/return_mean_gm"]
            assert shown[job.task, job.arm.label, job.seed] == pytest.approx(last, abs=0.06)
            if job.task == task:
                for metric in SEVEN:
                    columns.setdefault((job.arm.label, metric), []).append([line[metric] for line in lines])
        rows = page.locator(f"#metrics-{name}-ewa-vq-odt tbody tr").all()
        assert len(rows) == 7
        for metric, row in zip(SEVEN, rows, strict=True):
            cells = row.locator("td").all_inner_texts()
            assert cells[0].split("\n")[0].rstrip(" ↑↓") == METRIC_NAMES[metric]
            assert cells[0].split("\n")[1] == metric
            for cell, label in ((cells[1], "ewa-vq-odt"), (cells[2], "odt")):
                assert float(cell) == pytest.approx(np.mean(columns[label, metric]), abs=0.06)


def written(tmp_path: Path, seeds: int) -> str:
    """A report with wide tables: long names, critics, accounts, pretraining and intervals."""
    methods = ("odt", "ewa-vq-odt:beta_learned=True,beta_per=head,account_scope=window", "ledger-odt:improve=td3")
    study = write_study(tmp_path, value, methods=methods, seeds=seeds, pretraining=2)
    assert len(study.jobs) == 3 * seeds
    return write_report(read_study(tmp_path), tmp_path).html.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_at_1280_pixels_every_table_is_whole(watched: Watched, tmp_path: Path, scheme: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(written(tmp_path, seeds=6))
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    boxes = page.evaluate(
        "[...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth, box.clientWidth, box.innerText])"
    )
    assert len(boxes) >= 7
    assert [text for wide, there, text in boxes if wide > there] == []
    rows = [figure.bounding_box() for figure in page.locator("figure").first.locator("svg").all()]
    assert len({round(box["y"]) for box in rows if box}) == 1  # side by side
    assert accessibility_problems(page) == []
    assert watched.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_curves_are_stacked_and_tables_scroll_alone(watched: Watched, tmp_path: Path, scheme: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(written(tmp_path, seeds=6))
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    boxes = [figure.bounding_box() for figure in page.locator("figure").first.locator("svg").all()]
    assert len(boxes) == 3
    for above, below in pairwise(box for box in boxes if box):
        assert below["y"] >= above["y"] + above["height"]
        assert above["width"] > 330
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (int(paper[4:].split(",")[0]) < 100) == (scheme == "dark")
    assert page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill") == ink
    assert accessibility_problems(page) == []


def test_configurations_are_a_click_away(watched: Watched, tmp_path: Path) -> None:
    page = watched.page
    page.goto(written(tmp_path, seeds=1))
    page.locator("#runs a", has_text="config.json").first.click()
    page.wait_for_url("**/config.json")
    assert json.loads(page.locator("body").inner_text())["config"]["task"] == "hopper-medium"


def test_returns_by_samples_are_points_and_pretraining_is_seen(watched: Watched, tmp_path: Path) -> None:
    page = watched.page
    page.goto(written(tmp_path, seeds=6))
    updates, _, samples = page.locator("figure").first.locator("svg").all()
    assert updates.get_by_text("pretraining").count() == 1
    assert samples.get_by_text("pretrained").count() == 1
    # 3 methods × 6 seeds: 2 evaluations while online and one ring each; matplotlib draws a marker by a `use`
    assert samples.locator("g[id^=line2d] use").count() >= 3 * 6 * 3
    lines = [shape.get_attribute("d") or "" for shape in samples.locator("g[id^=line2d] > path").all()]
    assert not [line for line in lines if line.count("L") > 1]  # only the grid: no line joins seeds
