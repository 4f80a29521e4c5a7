"""A real browser: Debian's chromium, found on the path or named by MENTAL_ACCOUNTS_CHROMIUM."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

EXECUTABLE = os.environ.get("MENTAL_ACCOUNTS_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@dataclass
class Watched:
    """A page, with all that it complained of and asked the network for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def accessibility_problems(page: Page, *rules: str) -> list[str]:
    """What axe finds fault with; contrast, and these rules, have to have been checked."""
    result = Axe().run(page)
    assert {"color-contrast", *rules} <= {rule["id"] for rule in result.response["passes"]}
    return [f"{found['id']}: {node['html']}" for found in result.response["violations"] for node in found["nodes"]]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if EXECUTABLE is None:
        if os.environ.get("MENTAL_ACCOUNTS_NEEDS_BROWSER"):
            pytest.fail("there is no chromium: apt-get install chromium")
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    found = Watched(context.new_page())
    found.page.on("console", lambda said: found.errors.append(said.text) if said.type in ("error", "warning") else None)
    found.page.on("pageerror", lambda error: found.errors.append(str(error)))
    found.page.on("request", lambda request: found.requests.append(request.url))
    yield found
    context.close()
