"""The page in a browser, as a user has it: lists, curves that grow, comparisons, agents, files, and what goes wrong."""

import csv
import itertools
import json
import re
import shutil
import threading
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed")

import denizen as dz
from browser import axe_findings, expect
from ui_runs import Village, many, served, simulated, trained

pytestmark = pytest.mark.browser

ODD = """<img src=x onerror=alert(1)> "two"
lines"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two simulations that differ, a training with a film and an evaluation, and a report of the doctor."""
    root = tmp_path_factory.mktemp("runs")
    simulated(root / "calm", 12, chance=0.05)
    simulated(root / "busy", 12, chance=0.3)
    pole = trained(root / "pole")
    (pole / "evaluation.json").write_text(json.dumps([{"run": "pole", "mean": 12.5, "low": 10.0, "high": 15.0}]))
    finding = {"kind": "host-sync-item", "file": "train.py", "line": 3, "code": "x = loss.item() < 3 & y", "fix": ODD}
    (root / "doctor.json").write_text(json.dumps({"verdict": "1 line to change", "findings": [finding]}))
    return root


@pytest.fixture(scope="module")
def address(runs):
    with served([runs]) as address:
        yield address


def drawn(page, what: str) -> None:
    """Wait until it is."""
    page.wait_for_selector(f"body[data-drawn={what}]")


def test_from_the_list_to_a_run_and_back(page, address):
    page.goto(address)
    drawn(page, "list")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.click("text=calm")
    drawn(page, "curves")
    expect(page.locator("h1")).to_have_text("calm")
    expect(page.locator("figure[data-series=cases]")).to_contain_text("New cases in the step, per")
    expect(page.locator("figure[data-series=cases] svg")).to_have_attribute("aria-label", re.compile("^cases from "))
    expect(page.locator("[aria-label=Settings] tr:has-text('chance')")).to_have_text("chance0.05")
    expect(page.locator("pre.log")).to_contain_text("created: ")
    page.go_back()
    drawn(page, "list")


def test_list_is_sorted_and_filtered_by_keys(page, address):
    page.goto(address)
    drawn(page, "list")
    names = page.locator("tbody td.name a")
    page.click("th button:text-is('Run')")
    expect(names).to_have_text(["busy", "calm", "pole"])
    page.keyboard.press("Enter")
    expect(names).to_have_text(["pole", "calm", "busy"])
    expect(page.locator("th[data-key=name]")).to_have_attribute("aria-sort", "descending")
    page.keyboard.press("/")
    page.keyboard.type("simulation busy")
    expect(names).to_have_text(["busy"])
    expect(page.locator(".bar [role=status]")).to_have_text("1 of 3 runs")


def test_two_runs_side_by_side(page, address):
    page.goto(address)
    drawn(page, "list")
    expect(page.locator("button:text('Compare')")).to_be_disabled()
    page.check("[aria-label='compare calm']")
    page.check("[aria-label='compare busy']")
    page.click("button:text('Compare 2')")
    drawn(page, "curves")
    page.wait_for_selector("text=What differs")
    expect(page.locator("[aria-label='What differs'] tbody th")).to_have_text(["chance"])
    chart = page.locator("figure[data-series=cases] svg")
    expect(chart).to_have_attribute("aria-label", re.compile("calm: cases"))
    expect(chart).to_have_attribute("aria-label", re.compile("busy: cases"))


def test_agents_are_scrubbed_by_keys(page, address, runs):
    page.goto(f"{address}/#/run/{quote('0:calm', safe='')}")
    page.wait_for_selector("canvas[data-step='12']")
    slider = page.locator("input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_selector("canvas[data-step='0']")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("canvas[data-step='2']")
    page.select_option("select >> nth=0", "stage")
    page.select_option("select >> nth=1", "2")
    worlds = dz.run.load(runs / "calm").snapshots.at(2)["stage"]
    counts = [[int((world == level).sum()) for level in range(3)] for world in worlds]
    assert counts[0] != counts[2]  # else the world before would pass for the chosen one
    shown = [re.compile(rf"^{n} \(") for n in counts[2]]
    expect(page.locator(".world tbody td")).to_have_text(shown)
    expect(page.locator(".world tbody th")).to_have_text(["well", "ill", "immune"])
    expect(page.locator(".world tbody td").last).to_have_text(f"{counts[2][2]} (0 %)")
    page.click("button:text-is('Play')")
    page.wait_for_selector("canvas[data-step='12']")
    page.wait_for_selector("button:text-is('Play')")  # it stops at the end


def test_curves_are_exported(page, address, runs, tmp_path):
    page.goto(f"{address}/#/run/{quote('0:calm', safe='')}")
    drawn(page, "curves")
    with page.expect_download() as download:
        page.click("text=Export CSV")
    download.value.save_as(tmp_path / "curves.csv")
    rows = list(csv.DictReader((tmp_path / "curves.csv").read_text().splitlines()))
    assert {row["series"] for row in rows} == {"cases", "wealth_left"}
    assert len(rows) == 24


def test_a_training_has_its_curves_and_evaluation(page, address):
    page.goto(f"{address}/#/run/{quote('0:pole', safe='')}")
    drawn(page, "curves")
    expect(page.locator("figure[data-series]")).to_have_count(12)
    page.click("button:text('Show all')")
    expect(page.locator("figure[data-series]").nth(20)).to_be_attached()
    expect(page.locator("[aria-label='evaluation.json']")).to_contain_text("12.5")


def test_findings_stand_beside_their_lines(page, address):
    page.goto(address)
    page.click("text=Findings")
    drawn(page, "findings")
    expect(page.locator(".finding pre")).to_have_text("x = loss.item() < 3 & y")
    expect(page.locator(".finding")).to_contain_text("train.py:3")
    expect(page.locator(".finding")).to_contain_text("<img src=x")  # the fix is a text
    expect(page.locator("main img")).to_have_count(0)


class Held(Village):
    """A village whose steps wait for leave: half of them for the first, the last for the second."""

    leave: ClassVar[list[threading.Event]]
    begun: ClassVar[itertools.count]

    def step(self, now, rng):
        k = next(self.begun)
        for least, event in zip((60, 119), self.leave, strict=True):
            assert k < least or event.wait(300)
        return super().step(now, rng)


@pytest.mark.usefixtures("saves_always")
def test_a_run_is_seen_while_it_writes(page, tmp_path):
    Held.leave, Held.begun = [threading.Event(), threading.Event()], itertools.count(1)
    village = Held(pause=0.01)
    with served([tmp_path]) as address:
        page.goto(address)
        page.wait_for_selector("text=No runs in")
        out = tmp_path / "slow"
        writer = threading.Thread(target=lambda: dz.simulate(village, 120, out=out, snapshots=None, progress=False))
        writer.start()
        try:
            page.click("text=slow")
            page.wait_for_selector(".state.running")
            chart = page.locator("figure[data-series=cases] svg")
            for leave in Held.leave:  # it grows by itself, before the run ends
                before = chart.get_attribute("aria-label")
                leave.set()
                expect(chart).not_to_have_attribute("aria-label", before)
            page.wait_for_selector(".state.finished")
        finally:
            for leave in Held.leave:
                leave.set()
            writer.join()
        expect(chart).to_have_attribute("aria-label", re.compile(" 120$"))


def test_a_folder_that_vanishes_leaves_what_was_read(page, tmp_path):
    simulated(tmp_path / "village", 6)
    with served([tmp_path]) as address:
        page.goto(f"{address}/#/run/{quote('0:village', safe='')}")
        drawn(page, "curves")
        page.wait_for_selector("canvas[data-step='6']")
        shutil.rmtree(tmp_path / "village")
        page.wait_for_selector("text=The folder of village is gone. This is what was last read of it.")
        expect(page.locator("figure svg")).to_have_count(2)
        page.focus("input[type=range]")
        page.keyboard.press("ArrowLeft")
        page.goto(address)
        page.wait_for_selector("text=No runs in")
        shutil.rmtree(tmp_path)
        page.wait_for_selector("text=is gone.")


def test_a_damaged_file_is_told_beside_what_is_whole(page, tmp_path):
    simulated(tmp_path / "good", 6, every=None)
    simulated(tmp_path / "bad", 6, every=None)
    part = next((tmp_path / "bad" / "metrics").iterdir())
    part.write_bytes(b"x" + part.read_bytes()[1:])
    (tmp_path / "worse").mkdir()
    (tmp_path / "worse" / "manifest.json").write_text("[1")
    with served([tmp_path]) as address:
        page.goto(f"{address}/#/compare/{quote('0:good', safe='')}/{quote('0:bad', safe='')}")
        drawn(page, "curves")
        expect(page.locator("[role=alert]")).to_contain_text("differs from what was written")
        page.goto(address)
        page.wait_for_selector("text=is not valid JSON")
        page.click("text=worse")
        page.wait_for_selector("[role=alert]:has-text('is not valid JSON')")


def test_names_are_never_markup(page, tmp_path):
    folder = tmp_path / ODD.replace("/", "")
    simulated(folder, 3)
    with served([tmp_path]) as address:
        page.goto(address)
        drawn(page, "list")
        assert page.text_content("td.name a") == folder.name  # to the last space, which `expect` would not see
        page.check("[aria-label^=compare]")
        page.click("td.name a")
        drawn(page, "curves")
        assert page.text_content("h1") == folder.name
        expect(page.locator("main img")).to_have_count(0)


def test_five_hundred_runs(page, tmp_path):
    many(tmp_path, 500)
    with served([tmp_path]) as address:
        page.goto(address)
        drawn(page, "list")
        expect(page.locator("tbody tr")).to_have_count(500)
        page.fill("#filter", "seed=123")
        expect(page.locator("td.name a")).to_have_text(["run-0123"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_is_accessible_and_fits(page, address, scheme, width):
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 800})
    run, other, training = (quote(f"0:{name}", safe="") for name in ("calm", "busy", "pole"))
    views = [
        ("", "list", "Runs", "td.name"),
        (f"run/{run}", "curves", "calm", "canvas[data-step]"),
        (f"run/{training}", "curves", "pole", "[aria-label='evaluation.json']"),
        (f"compare/{run}/{other}", "curves", "Comparison of 2 runs", "text=What differs"),
        ("findings", "findings", "Findings of the doctor", ".finding"),
    ]
    for view, what, title, last in views:
        page.goto(f"{address}/#/{view}")
        expect(page.locator("h1")).to_have_text(title)  # views before were `drawn` too
        drawn(page, what)
        page.wait_for_selector(last)
        assert axe_findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_report_is_seen_within_the_page_and_has_no_rights_there(chromium, tmp_path):
    folder = trained(tmp_path / "fit")
    told = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(told | {"kind": "calibration", "report": "beta 0.3"}))
    script = """<p>nothing</p><script>
      const told = document.querySelector("p");
      try { told.textContent = parent.document.title; } catch { told.textContent = "no rights"; }
      const said = (text) => () => { told.textContent += text; };
      fetch("/api/runs").then(said(", asked"), said(", no answers"));
    </script>"""
    (folder / "report.html").write_text(script)
    context = chromium.new_context()  # the refusals are errors of its console
    page = context.new_page()
    with served([tmp_path]) as address:
        page.goto(f"{address}/#/run/0:fit")
        frame = page.frame_locator("iframe.report")
        frame.get_by_text("no rights, no answers").wait_for()
        expect(page.locator("iframe.report")).to_have_attribute("title", "Report of fit")
        assert not axe_findings(page)
        context.close()


def test_flows_of_other_steps_have_charts_of_their_own(page, tmp_path):
    simulated(tmp_path / "day", 4, every=None)
    run = dz.simulate(Village(), 4, out=tmp_path / "hours", progress=False, dt=0.25, snapshots=None)
    assert run.dt == 0.25
    with served([tmp_path]) as address:
        page.goto(f"{address}/#/compare/0:day/0:hours")
        drawn(page, "curves")
        titles = page.locator("figure h3")
        expect(titles).to_have_count(3)
        assert {"cases", f"cases (per 0.25 {run.time_unit})", "wealth_left"} == set(titles.all_text_contents())
        page.goto(f"{address}/#/compare/{'/'.join(['0:day'] * 14)}")
        page.get_by_text("2 more are left out").wait_for()
        page.goto("about:blank")  # before the server ends
