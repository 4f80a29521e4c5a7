"""report.html in a browser: silent, whole, and with the numbers of the run folders."""

import json
from pathlib import Path

import numpy as np
import pytest

from mental_accounts.report.report import write_report
from mental_accounts.report.runs import METRIC_NAMES, SEVEN, read_study
from tests.report.made_studies import write_study

from .conftest import Watched

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
    assert figures.count() == 4
    for place in range(4):
        box = figures.nth(place).bounding_box()
        assert box is not None
        assert box["width"] > 300
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
            assert cells[0].startswith(f"{METRIC_NAMES[metric]} ({metric}) ")
            for cell, label in ((cells[1], "ewa-vq-odt"), (cells[2], "odt")):
                assert float(cell) == pytest.approx(np.mean(columns[label, metric]), abs=0.06)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_reads_on_a_phone_in_both_schemes(watched: Watched, tmp_path: Path, scheme: str) -> None:
    write_study(tmp_path, value, seeds=3)
    report = write_report(read_study(tmp_path), tmp_path)
    page = watched.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(report.html.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 400  # wide tables scroll in their own box
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert ink != paper
    assert (int(paper[4:].split(",")[0]) < 100) == (scheme == "dark")
    drawn = page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
    assert drawn == ink
