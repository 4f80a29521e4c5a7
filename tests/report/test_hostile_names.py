"""Names with Markdown, mathematics or HTML in them come out as plain text in every page and figure."""

import html.parser
import json
import re
import warnings
from pathlib import Path

import pytest

from mental_accounts.cli import main
from mental_accounts.report.analysis import analyse
from mental_accounts.report.figures import as_svg, as_words, paper_figure, save, seed_figure
from mental_accounts.report.page import Block, Heading, Link, Table, Text, to_html, to_markdown
from mental_accounts.report.report import write_report
from mental_accounts.report.runs import read_study

from .made_studies import write_study

NAMES = (
    "[x](javascript:alert(1))",
    "![x](javascript:alert(1))",
    "[x][y]",
    r"$\frac{$",
    r"$\frac{1}{2}$",
    "a|b",
    "`code`",
    "<img src=x onerror=alert(1)>",
    "**bold** __strong__ ~~gone~~",
    "https://example.org www.example.org",
    "_hidden",
    "back\\slash \\$ \\| \\[",
    "&lt;b&gt;",
    "# heading",
    "1. list",
)
DRAWN = tuple(name for name in NAMES if re.search(r"alert|\$|^_|\|", name))
"""Those that are of interest in a figure, which takes its time."""


class Seen(html.parser.HTMLParser):
    """Tags, links and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "onerror")]

    def handle_data(self, data: str) -> None:
        self.text += data


def rendered(markdown: str) -> Seen:
    """What a reader of Markdown sees."""
    markdown_it = pytest.importorskip("markdown_it")
    parser = markdown_it.MarkdownIt("commonmark", {"linkify": False}).enable(["table", "strikethrough"])
    return Seen(parser.render(markdown))


def blocks_of(name: str) -> list[Block]:
    return [
        Heading(name),
        Text(name),
        Text(name, "warning"),
        Text(name, "headline"),
        Table(["method", name], [[name, "-1.5"], ["odt", "+2."]], name),
        Link(f"Inspect {name}", "inspect/a.html"),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_in_markdown(name: str) -> None:
    text = to_markdown(blocks_of(name))
    seen = rendered(text)
    assert seen.links == ["inspect/a.html"]
    assert seen.tags == {"h2", "p", "blockquote", "strong", "table", "thead", "tbody", "tr", "th", "td", "a"}
    assert seen.text.count(name) == 8
    assert not re.search(r"https?://|www\.", text)
    assert not re.search(r"(?<!\\)\$", text)


@pytest.mark.parametrize("name", NAMES)
def test_in_html(name: str) -> None:
    seen = Seen(to_html(name, blocks_of(name)))
    assert "img" not in seen.tags
    assert not any("alert" in link for link in seen.links)
    assert seen.text.count(name) == 9


@pytest.mark.parametrize("name", DRAWN)
def test_a_whole_report(name: str, tmp_path: Path) -> None:
    """As a study.json of a stranger may have it: in the names of tasks and methods."""
    write_study(tmp_path, lambda task, method, seed, metric, n: 10.0 + seed + n, seeds=2, iterations=2)
    path = tmp_path / "study.json"
    study = json.loads(path.read_text())
    study["tasks"], study["methods"] = [name, f"second {name}"], [name, f"other {name}"]
    for run in study["runs"]:
        run["task"] = name
        run["method"] = name if run["method"] == "odt" else f"other {name}"
    path.write_text(json.dumps(study))
    evidence = read_study(tmp_path)
    assert len(evidence.runs) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = write_report(evidence, tmp_path / "out")
    page = Seen(report.html.read_text())
    assert "img" not in page.tags
    configurations = r"\.\./runs/[\w/.-]+/config\.json"
    assert all(re.fullmatch(rf"data:,|#\w+|{configurations}", link) for link in page.links)
    assert name in page.text
    markdown = rendered(report.markdown.read_text())
    assert all(re.fullmatch(rf"figures/[a-z0-9-]+\.png|{configurations}", link) for link in markdown.links)
    assert f"other {name}" in markdown.text


@pytest.mark.parametrize("name", DRAWN)
def test_in_figures(name: str, tmp_path: Path) -> None:
    write_study(tmp_path, lambda *_: 1.0, seeds=1, iterations=2)
    path = tmp_path / "study.json"
    path.write_text(path.read_text().replace('"hopper-medium"', json.dumps(name)).replace('"odt"', json.dumps(name)))
    study = json.loads(path.read_text())
    for run in study["runs"]:
        run["config"] |= {"task": "hopper-medium", "method": run["config"]["method"].replace(name, "odt")}
    study["tasks"].append("second")
    study["runs"] += [{**run, "task": "second"} for run in study["runs"]]
    path.write_text(json.dumps(study))
    evidence = read_study(tmp_path)
    assert len(evidence.runs) == 4
    shown = Seen(as_svg(paper_figure(evidence), name)).text
    assert shown.count(name) >= 3 + 1  # the title of three figures, and the legend
    assert len(save(paper_figure(evidence), tmp_path / "figure")) == 3
    scores = analyse(evidence).tasks[0].scores
    assert name in Seen(as_svg(seed_figure(scores, evidence.methods), name)).text


def test_the_path_of_a_run_is_no_address(tmp_path: Path) -> None:
    write_study(tmp_path, lambda *_: 1.0, seeds=1, iterations=2, methods=("odt",))
    path = tmp_path / "study.json"
    study = json.loads(path.read_text())
    [run] = study["runs"]
    (tmp_path / run["path"]).rename(tmp_path / "javascript:alert(1)")
    path.write_text(json.dumps({**study, "runs": [{**run, "path": "javascript:alert(1)"}]}))
    page = Seen(write_report(read_study(tmp_path), tmp_path).html.read_text())
    assert "javascript%3Aalert%281%29/config.json" in page.links


def test_numbers_are_not_marked() -> None:
    cells = ["-1.5 [−2.0, 3.0]", "12.3", "+4", "1.", "return_vs_samples ↑", "[?]"]
    text = to_markdown([Table(cells, [cells], "Return, mean ([?]: too few).")])
    assert "\\" not in text
    assert "1,000 steps. 95% [1.0, 2.0]: so" in to_markdown([Text("1,000 steps. 95% [1.0, 2.0]: so")])
    assert as_words("odt") == "odt"


def test_a_report_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(tmp_path, lambda *_: 1.0, seeds=2, iterations=2)
    path = tmp_path / "study.json"
    path.write_text(path.read_text().replace('"method": "odt",\n', '"method": "\\u001b[31modt",\n'))
    study = json.loads(path.read_text())
    study["methods"] = sorted({run["method"] for run in study["runs"]})
    for run in study["runs"]:
        run["config"]["method"] = run["config"]["method"].replace("\x1b[31m", "")
    path.write_text(json.dumps(study))
    assert main(["report", str(tmp_path)]) == 0
    assert "\x1b" not in capsys.readouterr().out
