"""`Page`: parts of a report, and the one html file that they become."""

import base64
import datetime
import functools
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from denizen import _arguments
from denizen._atomic import read_plain, write_atomic
from denizen._results import number
from denizen._version import __version__
from denizen.errors import DataError, InputError, StorageError
from denizen.report._charts import Curve, Interval, Panel, columns_of, curves_chart, in_words, intervals_chart, numbers

SCRIPTS = ("d3.min.js", "plot.umd.min.js", "page.js")
MIMES = ("image/png", "image/gif", "image/jpeg", "image/webp", "image/svg+xml", "video/mp4", "video/webm")


class Page:
    """A report in the making; parts appear in the order in which they are added, and each call returns the page.

    Texts are shown as they are, never read as html. Charts follow the reader's choice of dark or light and the width
    of the window, and their numbers stand beneath them.

    ```python
    page = Page("A town", "1,000 agents, 20 days")
    page.curves("New cases", range(1, 4), [Curve("nothing", [1, 4, 9], [0, 3, 7], [2, 6, 12])], x_label="day")
    page.write("report.html")
    ```
    """

    def __init__(self, title: str, about: str = "") -> None:
        """Begin a page.

        Args:
            title: its heading and the title of the window.
            about: a line beneath it.
        """
        self._title, self._about = str(title), str(about)
        self._parts: list[str] = []
        self._charts: list[dict[str, Any]] = []
        self._level = 2  # of the next heading within a part

    # --- words --------------------------------------------------------------------------------------------------------

    def section(self, title: str) -> "Page":
        """A heading for what follows."""
        self._level = 3
        return self._add(f"<h2>{_text(title)}</h2>")

    def text(self, text: str) -> "Page":
        """A paragraph."""
        return self._add(f"<p>{_text(text)}</p>")

    def note(self, text: str) -> "Page":
        """A paragraph that stands out: what a reader has to know before the numbers."""
        return self._add(f'<p class="note">{_text(text)}</p>')

    def headline(self, text: str, detail: str = "") -> "Page":
        """The main result in large letters, with a line beneath it."""
        beneath = f"<span>{_text(detail)}</span>" if detail else ""
        return self._add(f'<p class="headline"><strong>{_text(text)}</strong>{beneath}</p>')

    def command(self, text: str) -> "Page":
        """What to type to get the same again."""
        return self._add(f"<pre><code>{_text(text)}</code></pre>")

    def settings(self, settings: Mapping[str, Any], title: str = "Settings") -> "Page":
        """Names and values; a mapping within it becomes lines of its own."""
        lines = [f"<tr><th scope=row>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in flat(settings)]
        return self._add(_scrolling(title, f"<table class=settings><caption>{_text(title)}</caption>{''.join(lines)}"))

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], about: str = "") -> "Page":
        """A table; its first column names the rows.

        Args:
            title: above it.
            header: a word for each column.
            rows: cells: texts, numbers, None for nothing, or `(middle, low, high)`.
            about: a sentence beneath the title.

        Raises:
            InputError: a row of another length than the header.
        """
        return self._add(_table(title, header, rows, about))

    # --- charts -------------------------------------------------------------------------------------------------------

    def curves(
        self,
        title: str,
        x: Any,
        curves: Sequence[Curve],
        *,
        x_label: str = "",
        y_label: str = "",
        about: str = "",
        marks: Mapping[float, str] | None = None,
    ) -> "Page":
        """A chart of curves, each with its band and its name at its end.

        Args:
            title: above it.
            x: places of curves that have none of their own, `[points]`; None: 1, 2, ….
            curves: what it shows; of long ones what the eye sees.
            x_label: what is drawn to the right, with its unit.
            y_label: what is drawn upwards, with its unit.
            about: a sentence beneath the title.
            marks: labels of upright lines, by place, such as `{20: "lockdown"}`.

        Raises:
            InputError: a curve whose places, heights and edges are not as many, or are no numbers.
        """
        panel = Panel(title, curves, x, y_label, marks=marks or {})
        inner = self._panel(panel, title, x_label, y_label, "curves")
        return self._figure(title, about, inner)

    def multiples(
        self,
        title: str,
        panels: Sequence[Panel],
        *,
        x_label: str = "",
        y_label: str = "",
        about: str = "",
        columns: int | None = None,
        same_y: bool = False,
    ) -> "Page":
        """Small charts beside each other.

        Args:
            title: above them.
            panels: the charts, row after row.
            x_label: what all draw to the right, with its unit.
            y_label: what those without a label of their own draw upwards.
            about: a sentence beneath the title.
            columns: charts in a row where the window is wide, as in a grid of two parameters; None: as many as fit.
            same_y: draw all on one scale, so that heights compare.

        Raises:
            InputError: as for `curves`.
        """
        inner = [self._panel(panel, panel.title, x_label, y_label, "multiples", small=True) for panel in panels]
        if same_y:
            own = self._charts[len(self._charts) - len(panels) :]
            tops = [value for chart in own for curve in chart["curves"] for value in _heights(curve)]
            for chart in own:
                chart["y"] = [min(tops), max(tops)] if tops else None
                chart["zero"] = all(one["zero"] for one in own)
        if columns is not None:
            _arguments.whole("multiples", "columns", columns, 1)
        wide = f' style="--columns: {columns}"' if columns else ""
        cells = "".join(
            f"<div class=panel><h{self._level}>{_text(panel.title)}</h{self._level}>{_sentence(panel.about)}{one}</div>"
            for panel, one in zip(panels, inner, strict=True)
        )
        return self._figure(title, about, f'<div class="{"grid fixed" if columns else "grid"}"{wide}>{cells}</div>')

    def intervals(
        self,
        title: str,
        intervals: Sequence[Interval],
        *,
        x_label: str = "",
        about: str = "",
        marks: Mapping[float, str] | None = None,
    ) -> "Page":
        """Values with intervals, a row each.

        Args:
            title: above them.
            intervals: the rows.
            x_label: what is drawn to the right, with its unit.
            about: a sentence beneath the title.
            marks: labels of upright lines, by place, such as `{0: "no difference"}`.
        """
        chart = intervals_chart(intervals, marks or {})
        told = "; ".join(f"{one.name} {number(one.middle)} ({number(one.low)}–{number(one.high)})" for one in intervals)
        return self._figure(title, about, self._chart({**chart, "x_label": x_label}, f"{title}: {told}."))

    def picture(self, data: bytes, mime: str, alt: str, title: str = "") -> "Page":
        """A picture or a film.

        Args:
            data: the file.
            mime: such as `"image/png"`, `"image/gif"` or `"video/mp4"`.
            alt: what it shows, for who does not see it.
            title: beneath it.

        Raises:
            InputError: another kind of file.
        """
        _arguments.one_of("picture", "mime", mime, MIMES)
        source = f"data:{mime};base64,{base64.b64encode(data).decode()}"
        if mime.startswith("video/"):
            shown = f'<video controls loop muted playsinline aria-label="{_text(alt)}" src="{source}"></video>'
        else:
            shown = f'<img alt="{_text(alt)}" src="{source}">'
        return self._add(f"<figure>{shown}{f'<figcaption>{_text(title)}</figcaption>' if title else ''}</figure>")

    # --- the file -----------------------------------------------------------------------------------------------------

    def html(self) -> str:
        """The page as text."""
        scripts = [_asset(name) for name in SCRIPTS]
        allowed = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
        # What is not ours cannot run, and nothing is fetched.
        policy = f"default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; script-src {allowed}"
        written = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
        about = f"<p>{_text(self._about)}</p>" if self._about else ""
        data = json.dumps(self._charts, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return "\n".join(
            [
                '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">',
                f"<title>{_text(self._title)}</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n<body>",
                f"<header><h1>{_text(self._title)}</h1>{about}</header>\n<main>",
                *self._parts,
                f"</main>\n<footer><p>Written by denizen {__version__}, {written}.</p></footer>",
                f'<script type="application/json" id="charts">{data.replace("<", chr(92) + "u003c")}</script>',
                *(f"<script>{script}</script>" for script in scripts),
                "</body>\n</html>\n",
            ]
        )

    def write(self, path: Any) -> Path:
        """Write the page; the file is there whole or not at all.

        Returns:
            The path.

        Raises:
            StorageError: it cannot be written.
        """
        place = _arguments.path("Page.write", "path", path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(place, self.html().encode(errors="replace"))
        except OSError as error:
            raise StorageError(f"report {place} could not be written: {error.strerror or error}") from error
        return place

    # --- parts --------------------------------------------------------------------------------------------------------

    def _add(self, part: str) -> "Page":
        self._parts.append(part)
        return self

    def _figure(self, title: str, about: str, inner: str) -> "Page":
        return self._add(
            f"<figure><figcaption><strong>{_text(title)}</strong>{_sentence(about)}</figcaption>{inner}</figure>"
        )

    def _panel(self, panel: Panel, title: str, x_label: str, y_label: str, caller: str, small: bool = False) -> str:
        columns = columns_of(panel, caller)
        chart = curves_chart(panel, columns)
        words = in_words(title, panel, columns, x_label, y_label)
        labels = {"x_label": x_label, "y_label": panel.y_label or y_label, "small": small}
        header, rows = numbers(panel, columns, x_label)
        beneath = f"<details><summary>Numbers</summary>{_table(f'{title}: numbers', header, rows, '')}</details>"
        return self._chart({**chart, **labels}, words) + beneath

    def _chart(self, chart: dict[str, Any], words: str) -> str:
        self._charts.append({**chart, "words": words})
        return f'<div class="chart" data-chart="{len(self._charts) - 1}"></div>'


def _text(value: Any) -> str:
    return html.escape(str(value))


def _sentence(about: str) -> str:
    return f"<p>{_text(about)}</p>" if about else ""


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], about: str) -> str:
    for row in rows:
        if len(row) != len(header):
            raise InputError(f"table: a row has {len(row)} cells, expected {len(header)}, as the header has: {row!r}")
    numeric = [any(not isinstance(row[k], str) for row in rows) for k in range(len(header))]
    head = "".join(
        f"<th scope=col{' class=number' if right else ''}>{_text(word)}</th>"
        for word, right in zip(header, numeric, strict=True)
    )
    lines = []
    for row in rows:
        cells = [
            f"<td{' class=number' if right else ''}>{_cell(cell)}</td>"
            for cell, right in zip(row[1:], numeric[1:], strict=True)
        ]
        lines.append(
            f"<tr><th scope=row{' class=number' if numeric[0] else ''}>{_cell(row[0])}</th>{''.join(cells)}</tr>"
        )
    caption = f"<caption>{_text(title)}{_sentence(about)}</caption>"
    return _scrolling(title, f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>")


def _scrolling(title: str, table: str) -> str:
    """A table that is wider than the window scrolls by itself, also by keys."""
    return f'<div class="scrolls" role="region" tabindex="0" aria-label="{_text(title)}">{table}</table></div>'


def _cell(cell: Any) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, tuple):
        middle, low, high = (_number(value) for value in cell)
        between = " to " if cell[1] < 0 else "–"  # a minus behind a dash reads as another dash
        return middle if low == high == middle else f"{middle} <small>({low}{between}{high})</small>"
    return _number(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else _text(cell)


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "–" if math.isnan(value) else _text(value)
    return f"{value:,}" if isinstance(value, int) else number(value)


def flat(settings: Mapping[str, Any], within: str = "") -> list[tuple[str, Any]]:
    """Names and values of settings, those within a mapping by both names; without those that are None."""
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found += flat(value, f"{within}{name}.")
        elif isinstance(value, list | tuple):
            found.append((f"{within}{name}", ", ".join(map(str, value))))
        elif value is not None:
            found.append((f"{within}{name}", value))
    return found


def _heights(curve: dict[str, Any]) -> list[float]:
    return [value for name in ("y", "low", "high") for value in curve.get(name, ()) if value is not None]


@functools.cache
def _asset(name: str) -> str:
    return (files("denizen.report") / "assets" / name).read_text(encoding="utf-8")


@functools.cache
def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


# --- parts that pages of several kinds of runs have -------------------------------------------------------------------


LARGEST = 1 << 25  # bytes of a picture


def settings_of_runs(page: Page, title: str, names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> None:
    """Settings of one run as a list; of several as columns, those that differ first."""
    if len(names) == 1:
        page.settings(settings[0], title)
        return
    columns = [{name: str(value) for name, value in flat(one)} for one in settings]
    rows = [
        (name, [column.get(name, "") for column in columns]) for name in dict.fromkeys(n for c in columns for n in c)
    ]
    rows.sort(key=lambda row: len(set(row[1])) == 1)
    page.table(title, ["name", *names], [[name, *values] for name, values in rows], "What differs comes first.")


def commands(page: Page, lines: Sequence[str]) -> None:
    """What to type to get the same again; nothing where that is not known."""
    known = [line for line in lines if line]
    if known:
        page.section("To repeat").command("\n".join(known))


UNFINISHED = {"running": "is still going on", "killed": "was killed", "interrupted": "was interrupted"}


def status_note(page: Page, name: str, status: str, done: str, error: str | None = None) -> None:
    """Say so where a run is not finished."""
    if status != "finished":
        page.note(f"{name} {UNFINISHED.get(status, status)}: {done} so far{f'. {error}' if error else ''}.")


def picture_file(page: Page, file: Path, folder: Path, title: str) -> None:
    """Add a PNG of a run folder; nothing that its links name elsewhere gets into a page.

    Raises:
        DataError: it cannot be read, or leads out of the folder.
    """
    try:
        data = read_plain(file, folder, LARGEST)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    page.picture(data, "image/png", title, title)
