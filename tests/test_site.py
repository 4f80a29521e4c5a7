"""The documentation site: built without a warning, complete, and independent of any network."""

import importlib
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import build_site
from mental_accounts import __all__ as front_names

ROOT = Path(__file__).parent.parent
API = ROOT / "docs" / "api"
PACKAGES = ("accounts", "data", "environments", "integrations", "learning", "policy")
"""Packages whose exported names are public, beside those of mental_accounts itself."""

DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)
ASKED = re.compile(r"<(?:img|script|iframe|source)[^>]+?src=\"([^\"]+)\"|<link[^>]+?href=\"([^\"]+)\"")
LINK = re.compile(r"<a [^>]*?href=\"([^\"]+)\"")
ANCHOR = re.compile(r"\b(?:id|name)=\"([^\"]+)\"")


def public_names() -> list[str]:
    found = [f"mental_accounts.{name}" for name in front_names]
    for package in PACKAGES:
        exported = importlib.import_module(f"mental_accounts.{package}").__all__
        found += [f"mental_accounts.{package}.{name}" for name in exported if name not in front_names]
    return found


def documented() -> dict[str, str]:
    """Names -> the page of the API reference that has them."""
    return {name: page.name for page in sorted(API.glob("*.md")) for name in DIRECTIVE.findall(page.read_text("utf-8"))}


def test_every_public_name_is_in_the_reference() -> None:
    names = public_names()
    assert len(names) > 90
    left = set(names) - set(documented())
    assert not left, f"not in docs/api: {sorted(left)}; add a line `::: name` to the page where it belongs"


def test_every_name_of_the_reference_has_a_docstring() -> None:
    griffe = pytest.importorskip("griffe", reason="needs the extra docs: pip install 'mental-accounts[docs]'")
    package = griffe.load("mental_accounts", search_paths=[ROOT / "src"])
    for name, page in documented().items():
        found = package[name.removeprefix("mental_accounts.")]
        assert found.has_docstring, f"{name} of docs/api/{page} has no docstring"


def test_every_name_is_on_the_site(site: Path) -> None:
    for name, page in documented().items():
        assert f'id="{name}"' in (site / "api" / page).with_suffix(".html").read_text("utf-8"), name


def test_pages_ask_for_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        asked = [a or b for a, b in ASKED.findall(page.read_text("utf-8"))]
        assert asked
        assert [url for url in asked if re.match(r"(https?:)?//", url)] == [], page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//", style.read_text("utf-8")), style.name


def test_links_of_the_built_pages_lead_somewhere(site: Path) -> None:
    texts = {page: page.read_text("utf-8") for page in site.rglob("*.html")}
    anchors = {page: set(ANCHOR.findall(text)) for page, text in texts.items()}
    checked = 0
    for page, text in texts.items():
        for link in LINK.findall(text):
            if re.match(r"[a-z]+:", link):
                continue
            path, heading = urldefrag(unquote(link))
            linked = (page.parent / path).resolve() if path else page
            assert linked.exists(), f"{page.relative_to(site)} links to {link}"
            if heading and linked in anchors and not heading.startswith("__"):
                assert heading in anchors[linked], f"{page.relative_to(site)} links to {link}: no such anchor"
            checked += 1
    assert checked > 1000


def test_links_that_leave_the_site_lead_to_files_of_the_repository(site: Path) -> None:
    repository = re.escape(pytest.importorskip("site_hooks").REPOSITORY)
    leaving = re.compile(rf"href=\"{repository}/(blob|tree)/main/([^\"#]+)")
    for page in site.rglob("*.html"):
        for kind, path in leaving.findall(page.read_text("utf-8")):
            target = ROOT / path
            assert target.is_dir() if kind == "tree" else target.is_file(), f"{page.name} links to {path}"


def test_mathematics_and_graphs_need_no_script(site: Path) -> None:
    assert "<math" in (site / "method.html").read_text("utf-8")
    assert "mermaid" not in (site / "architecture.html").read_text("utf-8")
    assert "<td><code>cli</code></td>" in (site / "architecture.html").read_text("utf-8")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(build_site.NEEDED, "no_such_module", "no-such-library")
    monkeypatch.setattr(sys, "argv", ["build_site.py"])
    with pytest.raises(SystemExit, match=r"the site needs no-such-library: run `make docs`, or pip install .*\[docs\]"):
        build_site.main()
