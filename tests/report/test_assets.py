"""The chart library is what npm published; the page's own script can stand in a page."""

import hashlib
from importlib.resources import files

import pytest

ASSETS = files("denizen.report") / "assets"
PUBLISHED = {  # of d3 7.9.2 and @observablehq/plot 0.6.17
    "d3.min.js": "912111098ea99503a6f4967361d2bbdc9dbf58cf9c678c8e27e5b02d1a07f0c1",
    "LICENSE.d3": "2a6d2d5f32ba0b755ddbc1c833f766e30cdbe6ebe9a6d4e3e24427721f0b63d3",
    "plot.umd.min.js": "4358086467740777dd788d6b27a95cebdbaefdd50c730a3060117073bd7134cb",
    "LICENSE.plot": "4b295e011e0e046170041b5b46f1349393aeceb95797793a55bd21dbb543363a",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_libraries_and_licences_are_those_of_npm(name):
    assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == PUBLISHED[name]


@pytest.mark.parametrize("name", ["d3.min.js", "plot.umd.min.js", "page.js"])
def test_no_script_ends_its_element(name):
    text = (ASSETS / name).read_text(encoding="utf-8").lower()
    assert "</script" not in text
    assert "<!--" not in text
