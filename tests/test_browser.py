"""The browser of the tests is there, reads pages, and tells what is wrong with them."""

from pathlib import Path

import pytest

from browser import axe_findings, opened

pytestmark = pytest.mark.browser

GOOD = "<!doctype html><html lang=en><title>t</title><main><h1>Runs</h1><p id=p>none</p></main>"


def test_a_page_is_read_and_axe_finds_what_is_wrong(page, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(GOOD)
    page.goto(file.as_uri())
    assert page.inner_text("#p") == "none"
    assert axe_findings(page) == []
    page.evaluate("document.body.innerHTML += '<input>'")  # without a label
    assert [finding.partition(":")[0] for finding in axe_findings(page)] == ["label"]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("console.error('said')", "console: said"),
        ("setTimeout(() => nothing.at.all)", "uncaught: nothing is not defined"),
        ("fetch('http://192.0.2.1/x').catch(() => 0), 1", "asks elsewhere: http://192.0.2.1/x"),
    ],
)
def test_errors_of_a_page_fail_the_test(chromium, script: str, told: str) -> None:
    def visit() -> None:
        with opened(chromium) as page:
            page.evaluate(f"{{ {script} }}")
            page.wait_for_timeout(50)

    with pytest.raises(AssertionError, match=told):
        visit()
