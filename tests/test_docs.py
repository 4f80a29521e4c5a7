"""The documentation is true: its Python examples run, and its links lead somewhere."""

import re
from pathlib import Path
from typing import Any

import pytest

import results_pages
from marked_pages import anchor

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]  # tutorials: tests/test_tutorials.py
LINKED = [*PAGES, *sorted((ROOT / "docs").glob("*/*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ANY_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python_blocks(page: Path) -> list[str]:
    """Each block below as many empty lines as the page has before it, so that errors name the page's own lines."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, block.start(1)) + block.group(1) for block in PYTHON_BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=name_of)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # runs are written here
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    namespace: dict[str, Any] = {"__name__": "example"}
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), namespace)


def test_the_main_pages_have_examples_that_can_fail() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "method.md"):
        assert "assert " in "".join(python_blocks(page)), f"{name_of(page)} has no example with an assert"


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_relative_links_lead_to_files(page: Path) -> None:
    prose = ANY_BLOCK.sub("", page.read_text(encoding="utf-8"))
    targets = [target for target in LINK.findall(prose) if not target.startswith(("http://", "https://", "mailto:"))]
    for target in targets:
        file, _, heading = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{name_of(page)} links to {target}, which is not there"
        if heading:
            assert heading in headings(linked), f"{name_of(page)} links to {target}: no such heading"


def test_no_page_has_a_placeholder() -> None:
    for page in LINKED:
        left = re.findall(r"^[A-Z]+_[A-Z_]+$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert not left, f"{name_of(page)} still has {left}"


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub names them."""
    prose = ANY_BLOCK.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return set(map(anchor, titles))


def test_results_on_pages_are_made_from_their_files() -> None:
    for path, text in results_pages.pages().items():
        assert text == path.read_text(encoding="utf-8"), f"{path.name} is not what its files say: run `make results`"
