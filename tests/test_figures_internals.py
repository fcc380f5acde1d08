"""What pictures of matplotlib have in common."""

import itertools
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from denizen import _figures

matplotlib = pytest.importorskip("matplotlib")


def places(axis) -> dict[str, float]:
    return {text.get_text(): text.get_position()[1] for text in axis.texts}


def test_names_stand_at_the_ends_of_their_curves():
    axis = _figures.figure(4, 3).subplots()
    axis.set_ylim(0, 10)
    _figures.name_ends(axis, [("low", 2.0, "black"), ("high", 8.0, "black")])
    assert places(axis) == pytest.approx({"low": 0.2, "high": 0.8})


@pytest.mark.parametrize("height", [0.0, 5.0, 10.0])
def test_names_of_curves_that_end_together_do_not_lie_on_one_another(height):
    axis = _figures.figure(4, 3).subplots()
    axis.set_ylim(0, 10)
    _figures.name_ends(axis, [(str(k), height, "black") for k in range(4)])
    found = sorted(places(axis).values())
    assert all(b - a >= _figures.GAP - 1e-9 for a, b in itertools.pairwise(found))
    assert found[-1] <= 1 + 1e-9


def test_names_on_a_log_scale():
    axis = _figures.figure(4, 3).subplots()
    axis.set_yscale("log")
    axis.set_ylim(1, 10_000)
    _figures.name_ends(axis, [("a", 100.0, "black")])
    assert places(axis) == pytest.approx({"a": 0.5})


@pytest.mark.parametrize("setting", [{}, {"savefig.bbox": "tight"}, {"savefig.facecolor": "red"}], ids=str)
def test_a_picture_is_what_matplotlib_writes(tmp_path, setting):
    """Drawn once, with its layout, where `savefig` draws twice; with settings of people's own too."""

    def drawn():
        made = _figures.figure(4, 3)
        axis = made.subplots()
        axis.plot([1, 2, 3], [1000.0, 3000.0, 2000.0])
        _figures.titled(axis, "cases", "day", "people")
        return made

    with matplotlib.rc_context(setting):
        _figures.save_figure(drawn(), tmp_path / "one.PNG")
        drawn().savefig(tmp_path / "two.png")
    assert (tmp_path / "one.PNG").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_pictures_and_pages_have_the_same_colours():
    style = (files("denizen.report") / "assets" / "page.css").read_text(encoding="utf-8")
    light = re.findall(r"--c\d: (#[0-9a-f]{6})", style)[:8]
    assert tuple(light) == _figures.COLOURS


def test_seeds_of_a_training_are_one_curve_with_a_band(tmp_path, monkeypatch):
    from denizen.app import _curves

    for seed in (0, 1):
        folder = tmp_path / "run" / f"seed-{seed}"
        folder.mkdir(parents=True)
        rows = [{"step": k, "steps": 8 * k, "return_mean": k + seed} for k in (1, 2, 3)]
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    made = []
    monkeypatch.setattr(_curves, "save_figure", lambda figure, path: made.append(figure))
    assert _curves.draw(sorted((tmp_path / "run").iterdir()), Path("c.png")) == Path("c.png")
    axis = made[0].axes[0]
    (line,), (band,) = axis.lines, axis.collections
    assert line.get_ydata().tolist() == [1.5, 2.5, 3.5]
    assert (band.get_paths()[0].vertices[:, 1].min(), band.get_paths()[0].vertices[:, 1].max()) == (1, 4)
    assert (axis.get_title(loc="left"), axis.get_xlabel(), axis.get_ylabel()) == (
        "Return",
        "steps of worlds",
        "mean return of lives that ended",
    )
