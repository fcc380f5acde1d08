"""A page in a browser: it draws without errors or a network, in light and dark, wide and narrow, and prints."""

import numpy as np
import pytest

from browser import axe_findings, expect, until
from denizen.report import Curve, Interval, Page, Panel

pytestmark = [pytest.mark.browser]
HOSTILE = "<img src=x onerror=\"document.title='taken'\"></script><script>document.title='taken'</script>"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    x = np.arange(1, 61)
    wave = 100 * np.exp(-(((x - 30) / 9) ** 2))
    curves = [Curve("nothing", wave, 0.8 * wave, 1.2 * wave), Curve(HOSTILE, wave / 2, wave / 3, wave)]
    gap = np.where(x % 7, wave, np.nan)
    page = Page("A town", "two scenarios").headline("A lockdown avoids 50 cases", "5–95 %: 40–60")
    page.curves("Cases", x, curves, x_label="day", y_label="cases per day", marks={20: "lockdown"})
    page.section("All").multiples(
        "Series", [Panel(f"series {k}", [Curve("a", k * gap)], x) for k in range(5)], x_label="day", y_label="agents"
    )
    page.curves("Many", None, [Curve(f"curve {k}", k + wave) for k in range(12)])
    page.curves("Nothing", None, [Curve("a", [])]).curves("One", None, [Curve("a", [3])])
    page.curves("Flat", None, [Curve("a", [-2, -2, -2])]).curves("Gaps", None, [Curve("a", [np.nan, np.nan])])
    page.intervals("Parameters", [Interval(HOSTILE, 2, 1, 3, 0, 9), Interval("b", -1, -2, 0)], marks={0: "none"})
    page.table("Totals", ["series", "total"], [["cases", (12.0, 10.0, 14.0)]]).settings({"seed": 0}).command("denizen")
    return page.write(tmp_path_factory.mktemp("pages") / "report.html").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_charts_are_drawn_and_nothing_is_cut(page, file, scheme, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(file)
    expect(page.locator(".chart svg")).to_have_count(12)
    assert page.title() == "A town"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        """() => [...document.querySelectorAll('.chart svg text')].filter((text) => {
            const box = text.getBoundingClientRect();
            return text.textContent && box.width && (box.left < -1 || box.right > innerWidth + 1);
        }).map((text) => text.textContent)"""
    )
    assert outside == []
    assert axe_findings(page) == []


def test_a_chart_follows_the_window_and_tells_numbers_under_the_pointer(page, file):
    page.goto(file)
    chart = page.locator(".chart svg").first
    wide = chart.bounding_box()["width"]
    page.set_viewport_size({"width": 500, "height": 800})
    until(page, f"document.querySelector('.chart svg').getBoundingClientRect().width < {wide - 100}")
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(chart).to_contain_text("day: ")


def test_the_numbers_are_there_without_scripts(chromium, file):
    context = chromium.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(file)
    plain.locator("summary").first.click()
    expect(plain.locator("details table").first).to_be_visible()
    context.close()


def test_a_page_is_printed(chromium, tmp_path, command_line):
    words = ("run", "sir", "--agents", "60", "--steps", "3", "--replicates", "2", "--quiet", "--out", tmp_path / "r")
    assert command_line(*words)[0] == 0
    code, _, err = command_line("report", tmp_path / "r", "--pdf", "--out", tmp_path / "r.html")
    assert code == 0, err
    data = (tmp_path / "r.pdf").read_bytes()
    assert data.startswith(b"%PDF-")
    assert len(data) > 10_000


def test_dates_are_written_as_dates_and_names_that_begin_alike_are_whole(page, tmp_path):
    days = np.datetime64("2020-03-01") + np.arange(40)
    names = [f"a scenario with a long name, number {k}" for k in range(2)]
    made = Page("Dates").curves("Cases", days, [Curve(name, k + np.arange(40)) for k, name in enumerate(names)])
    page.goto(made.write(tmp_path / "r.html").as_uri())
    expect(page.locator(".legend li")).to_have_text(names)
    texts = page.locator(".chart svg text").all_text_contents()
    assert any("Mar" in text for text in texts)
    assert not any("k" in text for text in texts)
