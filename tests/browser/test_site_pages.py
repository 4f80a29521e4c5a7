"""Every page of the documentation site in a browser, wide and narrow, light and dark, opened from disk."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.sync_api import expect

from .conftest import Watched

WIDTHS = (1280, 400)
SCHEMES: dict[Literal["light", "dark"], str] = {"light": "default", "dark": "slate"}
"""What the reader's system prefers -> the theme's name for it."""
PARTS = ("", "api", "results", "studies", "tutorials")
"""Folders of the site, each a test of its own."""

STRUCTURE = "{preload: false, resultTypes: ['violations'], rules: {'color-contrast': {enabled: false}}}"
CONTRAST = "{preload: false, resultTypes: ['violations'], runOnly: ['color-contrast']}"
LOOKS = """(seen) => {
  // In a block of code one span of each class is enough for the checks; the text of the others stays.
  for (const code of document.querySelectorAll("pre code")) {
    const kept = new Set();
    for (const span of code.querySelectorAll("span")) {
      if (span.childElementCount || !kept.has(span.className)) kept.add(span.className);
      else span.replaceWith(span.textContent);
    }
  }
  // Text of the same look has the same contrast, also on another page.
  const looks = new Set(seen);
  for (const leaf of document.querySelectorAll("body *")) {
    if (leaf.childElementCount || !leaf.textContent.trim()) continue;
    let look = "";
    for (let at = leaf; at && at !== document.body; at = at.parentElement) look += `${at.localName}.${at.className} `;
    if (looks.has(look)) continue;
    if (leaf.checkVisibility()) looks.add(look);  // what is hidden here may be seen at another width or on another page
    leaf.setAttribute("data-look", "");
  }
  return [...looks];
}"""


@pytest.fixture(autouse=True)
def _silent(watched: Watched) -> Iterator[None]:
    yield
    assert watched.errors == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []


def violations(found: dict[str, Any]) -> list[str]:
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found["violations"] for node in rule["nodes"]]


@pytest.mark.parametrize("part", PARTS)
def test_pages(part: str, watched: Watched, site: Path) -> None:
    page = watched.page
    page.emulate_media(reduced_motion="reduce")
    files = sorted((site / part).glob("*.html") if part in ("", "api") else (site / part).rglob("*.html"))
    assert files
    problems: list[str] = []
    looks: list[str] = []
    for file in files:
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        page.goto(file.as_uri())
        page.add_script_tag(path=AXE_FILE_PATH)
        before, looks = len(looks), page.evaluate(LOOKS, looks)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            found = []
            if page.evaluate("document.documentElement.scrollWidth") > width:
                found.append("wider than the screen")
            if width == WIDTHS[0] or file == files[0]:  # a narrow page differs in its navigation, the same on all
                found += violations(page.evaluate(f"axe.run({STRUCTURE})"))
            for scheme in SCHEMES if len(looks) > before else ():
                page.emulate_media(color_scheme=scheme)
                expect(page.locator("body")).to_have_attribute("data-md-color-scheme", SCHEMES[scheme])
                found += violations(page.evaluate(f"axe.run({{include: [['[data-look]']]}}, {CONTRAST})"))
            problems += [f"{file.relative_to(site)} at {width}: {words}" for words in found]
    assert problems == []


def test_nothing_on_the_first_page_is_cut_off(watched: Watched, site: Path) -> None:
    page = watched.page
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.goto((site / "index.html").as_uri())
    code = page.locator("pre code")
    assert code.count() > 2
    assert code.evaluate_all("found => found.filter(one => one.scrollWidth > one.clientWidth).length") == 0


def test_search_works_from_disk(watched: Watched, site: Path) -> None:
    page = watched.page
    page.goto((site / "index.html").as_uri())
    query = page.locator("input[data-md-component=search-query]")
    query.click()
    query.press_sequentially("drift_bound")
    found = page.locator(".md-search-result__item a", has_text="drift_bound").first
    expect(found).to_be_visible(timeout=30_000)
    found.click()
    expect(page).to_have_url(re.compile(r"/(api/accounts|method)\.html"))
