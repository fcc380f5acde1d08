"""Chromium for tests of pages, driven by Playwright: fixtures `chromium` and `page`, and what axe finds on a page.

What a page does after a click, a key or a change of its size is waited for, by `expect` and `until`: it asks a server,
or draws at its next frame. Playwright's `wait_for_function` is of no use: to ask a second time it calls `eval`, which
the pages' Content-Security-Policy forbids.

Debian's own Chromium (`apt-get install chromium`) or Chrome; Playwright brings none, so nothing is fetched.
"""

import contextlib
import shutil
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, LocatorAssertions, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
AT_HOME = ("http://127.0.0.1:", "http://localhost:", "http://[::1]:", "file:", "data:", "blob:", "about:")
PATIENCE = 60_000  # ms; on a machine that others use, seconds become minutes
FINDINGS = ("serious", "critical")


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    """One headless browser for all tests of a process."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"no Chromium: none of {', '.join(PROGRAMS)} is on the PATH; run: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(chromium: "Browser") -> Iterator["Page"]:
    """An empty page; its end fails where its console showed an error, or it asked for anything from elsewhere."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(f"console: {said.text}") if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(f"uncaught: {error}"))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith(AT_HOME) else wrong.append(f"asks elsewhere: {asked.url[:200]}"),
    )
    try:
        yield page
    finally:
        context.close()
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def page(chromium: "Browser") -> Iterator["Page"]:
    """An empty page; the test fails where its console shows an error, or it asks for anything from elsewhere."""
    with opened(chromium) as page:
        yield page


def expect(what: "Locator") -> "LocatorAssertions":
    """Playwright's assertions, which ask a page until they hold, with the patience of these tests."""
    from playwright import sync_api

    sync_api.expect.set_options(timeout=PATIENCE)
    return sync_api.expect(what)


def until(page: "Page", expression: str) -> None:
    """Ask a page until an expression of JavaScript holds."""
    end = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"it does not become true: {expression}"
        page.wait_for_timeout(50)


def axe_findings(page: "Page") -> list[str]:
    """What axe calls serious or critical on a page, a line for each rule with the places."""
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:5]}"
        for one in violations
        if one["impact"] in FINDINGS
    ]
