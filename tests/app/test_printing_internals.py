"""What prints: consoles and tables, bars, pictures and curves in a terminal."""

import io
from pathlib import Path

import pytest
import rich
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console as Foreign
from rich.console import Group

from denizen._printing import Console, Table, plain, say
from denizen._progress import progress_bar
from denizen.app import _watch
from denizen.app._terminal import SIGNS, Curves
from denizen.rl._live import live_view

NAME = "r[1] [bold]x[/] :smile: ü"


def test_texts_are_what_they_are():
    table = Table("[red]head[/]", title="a[b]:smile:")
    table.add_column("[x]")
    table.add_row("pip install 'denizen[plot]'", "[/nothing]")
    for console in (Console(file=io.StringIO(), width=90), Foreign(file=io.StringIO(), width=90)):
        console.print(table)
        for text in ("[red]head[/]", "[x]", "a[b]:smile:", "denizen[plot]", "[/nothing]"):
            assert text in console.file.getvalue()
    console = Console(file=io.StringIO(), width=20)
    say(console, "runs/[old]/", Path(NAME), "  ", ("[b]", "bold"))
    assert console.file.getvalue() == f"runs/[old]/{NAME}  [b]\n"  # not broken at the end of the screen either
    assert "12345" in plain("x" * 40 + " 12345", 60)
    foreign = Foreign(file=io.StringIO(), width=20)
    say(foreign, f"{NAME} is read by another console of rich's")
    assert foreign.file.getvalue() == f"{NAME} is read by another console of rich's\n"


def test_a_bar_with_a_title_in_brackets(monkeypatch):
    for view in (progress_bar(4, True, "a[b] [/]", 2), live_view(4, True, "a[b] [/]")):
        out = io.StringIO()
        monkeypatch.setattr(rich, "_console", Foreign(file=out, force_terminal=True, width=100, color_system=None))
        with view as advance:
            (advance if callable(advance) else advance[0])(4)
        assert "a[b] [/]" in out.getvalue()
        assert "4/4" in out.getvalue()


@pytest.mark.parametrize("columns", [20, 60, 200])
def test_a_picture_stays_within_the_screen(columns):
    console = Console(file=io.StringIO(), width=columns, color_system=None)
    pixels = torch.full((48, 96, 3), 255, dtype=torch.uint8)
    pixels[10:14, 40:60] = 0
    lines = ["+" + "-" * 70 + "+", "|" + "o" * 70 + "|", "score 3"]
    for picture in (pixels, lines, (pixels, (torch.rand(4), torch.rand(4))), (lines, (torch.rand(2, 9, 9),) * 2)):
        console.file = io.StringIO()
        console.print(Group(_watch._shown(picture, console)))
        shown = console.file.getvalue().splitlines()
        assert max(map(len, shown)) <= columns
        if picture is lines:
            assert len(shown) == len(lines)  # none goes on in the next
        if picture is pixels:  # what is there can be told where there are no colours
            assert any(set(line.strip()) <= set("▀▄█") and line.strip() for line in shown)
            assert shown[0].strip() == ""


def test_lines_of_text_that_grow_make_an_animation_of_one_size(tmp_path):
    frames = [["#" * k, "week"] for k in (1, 40, 12)]
    _watch._write(tmp_path / "a.gif", frames, 10.0)
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == 3
        size, seen = gif.size, []
        for number in range(3):
            gif.seek(number)
            seen.append(gif.convert("L").point(lambda value: 255 * (value < 128)).getbbox()[2])
    assert size[0] > seen[1] > seen[2] > 0  # the longest fits, and others are not stretched


def drawn(curves, width, encoding="utf-8", height=30, steps=90):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, height=height, color_system=None)
    console.print(Curves(curves, steps, "day", (20, "lockdown, day 20")))
    file.flush()
    return file.buffer.getvalue().decode(encoding).splitlines()


RISING = {"nothing": [float(k) for k in range(90)], "lockdown": [min(k, 20.0) for k in range(90)]}


@pytest.mark.parametrize("width", [24, 39, 40, 80, 200])
def test_curves_fit_the_terminal_and_name_themselves(width):
    lines = drawn(RISING, width)
    assert max(map(len, lines)) <= width
    assert len(lines) <= 16
    assert {"nothing", "lockdown"} <= {word for line in lines for word in line.split()}
    assert lines[0].split()[0] == "89"


def test_curves_are_where_their_values_are():
    lines = [
        line.partition("|")[2].removesuffix(" nothing").removesuffix(" lockdown")
        for line in drawn(RISING, 80, "ascii")[:12]
    ]
    rising = [row for row, line in enumerate(lines) if SIGNS[0] in line]
    assert rising == list(range(9))  # beneath them both curves are one
    assert lines[0].index(SIGNS[0]) > lines[5].index(SIGNS[0])
    level = {row for row, line in enumerate(lines) if SIGNS[1] in line[30:50]}
    assert level == {round((1 - 20 / 89) * 11)}


@given(
    st.dictionaries(st.sampled_from(["a", "bb", "ccc"]), st.lists(st.floats(0, 1e12), max_size=60), min_size=1),
    st.integers(20, 120),
    st.integers(1, 40),
    st.sampled_from(["utf-8", "ascii"]),
)
def test_curves_of_any_numbers_are_drawn(curves, width, height, encoding):
    lines = drawn(curves, width, encoding, height, steps=60)
    assert max(map(len, lines)) <= width
