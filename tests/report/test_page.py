import html.parser
import json
import re

import numpy as np
import pytest
import torch

from denizen.errors import InputError, StorageError
from denizen.report import Curve, Interval, Page, Panel

HOSTILE = "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"


class Outline(html.parser.HTMLParser):
    """Elements of a page, in order, with their attributes; and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements, self.texts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data.strip())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def charts_of(page: Page) -> list[dict]:
    return json.loads(re.search(r'id="charts">(.*?)</script>', page.html(), re.DOTALL)[1])


def one_chart(*curves, x=None, **options) -> dict:
    (chart,) = charts_of(Page("p").curves("c", x, curves, **options))
    return chart


def test_a_page_fetches_nothing_and_runs_only_its_own_scripts():
    page = Outline(
        Page("A town").curves("Cases", None, [Curve("a", [1, 2])]).picture(b"x", "image/png", "a map").html()
    )
    assert not [one for _, attributes in page.elements for one in attributes if one.startswith("on")]
    links = [one.get("src") or one.get("href") for _, one in page.elements if "src" in one or "href" in one]
    assert all(link.startswith("data:") for link in links)
    policy = page.all("meta")[1]["content"]
    assert "default-src 'none'" in policy
    assert policy.count("sha256-") == 3 == len([one for one in page.all("script") if "type" not in one])
    assert "unsafe-inline" not in policy.partition("script-src")[2]


def test_names_stay_text_wherever_they_stand():
    page = Page(HOSTILE, HOSTILE).section(HOSTILE).text(HOSTILE).note(HOSTILE).headline(HOSTILE, HOSTILE)
    page.curves(HOSTILE, [1], [Curve(HOSTILE, [1])], x_label=HOSTILE, y_label=HOSTILE, marks={1: HOSTILE})
    page.multiples(HOSTILE, [Panel(HOSTILE, [Curve(HOSTILE, [1])], about=HOSTILE)], about=HOSTILE)
    page.intervals(HOSTILE, [Interval(HOSTILE, 1, 0, 2)]).table(HOSTILE, [HOSTILE], [[HOSTILE]], HOSTILE)
    page.picture(b"", "image/gif", HOSTILE, HOSTILE).settings({HOSTILE: HOSTILE}, HOSTILE).command(HOSTILE)
    told = Outline(page.html())
    assert len(told.all("script")) == 4
    assert [one["src"] for one in told.all("img")] == ["data:image/gif;base64,"]
    assert charts_of(page)[0]["curves"][0]["name"] == HOSTILE
    assert told.texts.count(HOSTILE) > 10


def test_headings_tables_and_figures_are_what_they_look_like():
    page = Page("A town").section("Results").table("Totals", ["series", "total"], [["cases", (12.0, 10.0, 14.0)]])
    page.multiples("All", [Panel("cases", [Curve("a", [1, 2])])])
    told = Outline(page.html())
    assert [tag for tag, _ in told.elements if re.fullmatch(r"h\d", tag)] == ["h1", "h2", "h3"]
    assert told.all("html") == [{"lang": "en"}]
    assert len(told.all("table")) == len(told.all("caption")) == 2  # the second holds the numbers of the chart
    assert {one["scope"] for one in told.all("th")} == {"row", "col"}
    assert len(told.all("figure")) == len(told.all("figcaption")) == 1
    assert "12" in told.texts
    assert charts_of(page)[0]["words"] == "cases: values by place. a goes from 1 at 1 to 2 at 2, highest 2 at 2."


def test_numbers_come_from_tensors_arrays_and_ranges_and_gaps_stay_gaps():
    chart = one_chart(Curve("a", torch.tensor([1.0, float("nan"), 1 / 3]), np.zeros(3), [2, 2, 2]), x=range(3))
    assert chart["curves"][0] | {"name": ""} == {
        "name": "", "colour": 0, "points": False,
        "x": [0, 1, 2], "y": [1, None, 0.333333], "low": [0, 0, 0], "high": [2, 2, 2],
    }  # fmt: skip
    assert chart["zero"]
    assert not one_chart(Curve("a", [-1, 2]))["zero"]


def test_long_curves_are_thinned_without_losing_a_peak():
    count = 100_000
    middle = np.sin(np.arange(count) / 9000)
    middle[31_337], middle[77_777] = 9, -9
    high = middle + 1
    high[55_555] = 20
    curve = one_chart(Curve("a", middle, middle - 1, high))["curves"][0]
    assert len(curve["x"]) < 3000
    assert curve["y"][curve["x"].index(31_338)] == 9
    assert curve["y"][curve["x"].index(77_778)] == -9
    assert curve["high"][curve["x"].index(55_556)] == 20
    assert (curve["x"][0], curve["x"][-1]) == (1, count)
    assert len(one_chart(Curve("a", middle[:1000]))["curves"][0]["x"]) == 1000


def test_one_scale_where_heights_are_to_compare():
    panels = [Panel("a", [Curve("c", [1, 2])]), Panel("b", [Curve("c", [3, 50], [2, 40], [4, 60])])]
    assert [chart["y"] for chart in charts_of(Page("p").multiples("m", panels, same_y=True))] == [[1, 60]] * 2
    assert all("y" not in chart for chart in charts_of(Page("p").multiples("m", panels)))


def test_what_does_not_fit_is_told():
    page = Page("p")
    with pytest.raises(InputError, match="curve 'a': low has 1 points, expected 2, as middle has"):
        page.curves("c", None, [Curve("a", [1, 2], [1], [1, 2])])
    with pytest.raises(InputError, match="one edge of a band, expected low and high"):
        page.curves("c", None, [Curve("a", [1, 2], [1, 2])])
    with pytest.raises(InputError, match="x has 3 points, expected 2"):
        page.curves("c", [1, 2, 3], [Curve("a", [1, 2])])
    with pytest.raises(InputError, match=r"middle has shape \[1, 2\], expected \[points\]"):
        page.curves("c", None, [Curve("a", [[1, 2]])])
    with pytest.raises(InputError, match="holds 'abc', expected numbers"):
        page.curves("c", None, [Curve("a", "abc")])
    with pytest.raises(InputError, match="a row has 1 cells, expected 2"):
        page.table("t", ["a", "b"], [["x"]])
    with pytest.raises(InputError, match="mime"):
        page.picture(b"", "text/html", "a page")


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    page = Page("A town")
    assert page.write(tmp_path / "new" / "report.html").read_text(encoding="utf-8") == page.html()
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["report.html"]
    with pytest.raises(StorageError, match=r"report .*new could not be written"):
        page.write(tmp_path / "new")
    assert page.write(tmp_path / "odd.html").exists()
    Page("half a pair \ud800").write(tmp_path / "odd.html")


def test_dates_stay_dates_on_axes_in_words_and_in_numbers():
    days = np.datetime64("2020-02-28") + 7 * np.arange(3)
    page = Page("p").curves("Cases", days, [Curve("fit", [1, 9, 4]), Curve("data", [2], x=days[:1], points=True)])
    (chart,) = charts_of(page)
    assert chart["dates"]
    assert chart["curves"][0]["x"] == [18320, 18327, 18334]
    assert chart["words"].startswith(
        "Cases: values by date. fit goes from 1 at 2020-02-28 to 4 at 2020-03-13, highest 9 at 2020-03-06"
    )
    assert {"date", "2020-02-28"} <= set(Outline(page.html()).texts)
    seconds = one_chart(Curve("a", [1, 2]), x=np.array(["2020-02-28", "2020-02-29"], dtype="datetime64[ns]"))
    assert seconds["curves"][0]["x"] == [18320, 18321]
    assert "dates" not in one_chart(Curve("a", [1, 2]), x=[1, 2])


def test_pictures_of_a_folder_come_from_nowhere_else(tmp_path, command_line):
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "e/report").mkdir(parents=True)
    (tmp_path / "e/experiment.json").write_text('{"name": "learners", "seeds": 2, "modes": ["fruits"]}')
    (tmp_path / "e/report/report.md").write_text("# Found\n\n![a map](map.png)\n")
    (tmp_path / "e/report/map.png").symlink_to(tmp_path / "secret")
    code, _, err = command_line("report", tmp_path / "e")
    assert code == 2
    assert "map.png cannot be read: it leads out of the run folder" in " ".join(err.split())
