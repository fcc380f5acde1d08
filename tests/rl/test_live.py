"""The live view of a training."""

import io

import rich
from rich.console import Console

from denizen.rl._live import Trends, live_view, spark


def test_trends_keep_the_latest_and_leave_out_what_is_missing():
    trends = Trends()
    for k in range(100):
        trends.take({"return_mean": float(k), "entropy": float("nan"), "other": 1.0})
    ((words, value, trend),) = trends.rows()
    assert (words, value) == ("return", "99")
    assert trend == "".join(sorted(trend))
    assert len(trend) == 32


def test_an_environments_own_measures_are_shown():
    trends = Trends(["food_ratio"])
    trends.take({"food_ratio": 0.25})
    assert trends.rows() == [("food ratio", "0.25", "▁")]


def test_a_flat_line_and_a_single_point_are_drawn():
    assert spark([2.0, 2.0, 2.0]) == "▁▁▁"
    assert spark([5.0]) == "▁"
    assert spark([float("inf"), 5.0, float("nan")]) == "▁"
    assert spark([float("nan")]) == ""


def test_the_view_shows_bar_and_metrics(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(rich, "_console", Console(file=out, force_terminal=True, width=100))
    with live_view(100, True, "CartPole") as (advance, take):
        advance(100)
        take({"return_mean": 12.5})
    shown = out.getvalue()
    assert "CartPole" in shown
    assert "100/100" in shown
    assert "12.5" in shown


def test_what_is_told_of_an_interrupt_has_a_line_of_its_own(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(rich, "_console", Console(file=out, width=100))
    view = live_view(100, True, "CartPole")
    _, take = view.__enter__()
    take({"return_mean": 12.5})
    stop = KeyboardInterrupt()
    assert not view.__exit__(KeyboardInterrupt, stop, None)
    assert "12.5" in out.getvalue()
    assert out.getvalue().endswith("\n")
