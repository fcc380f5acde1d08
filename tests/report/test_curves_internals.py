"""Curves of trainings on the page of a report."""

from types import SimpleNamespace

import pytest

from denizen.report._calibration import _per
from denizen.report._training import POINTS, Training, curves_of


def test_the_band_goes_from_the_lowest_seed_to_the_highest():
    seeds = [[{"steps": 8 * k, "entropy": float(k * seed)} for k in range(1, 5)] for seed in (1, 2, 6)]
    (curve,) = curves_of([Training("a", [], seeds, [])], "entropy")
    assert list(curve.x) == [8, 16, 24, 32]
    assert [list(one) for one in (curve.low, curve.middle, curve.high)] == [
        [k * s for k in (1, 2, 3, 4)] for s in (1, 2, 6)
    ]


def test_many_updates_become_means_of_neighbours():
    rows = [{"step": k, "steps": 8 * k, "return_mean": float(k % 2)} for k in range(1, 3001)]
    rows[4]["return_mean"] = float("nan")
    (curve,) = curves_of([Training("a", [], [rows], [])], "return_mean")
    assert len(curve.middle) == POINTS
    assert curve.middle[1:] == pytest.approx([0.5] * (POINTS - 1))
    assert (set(curve.low), set(curve.high)) == ({0.0}, {1.0})
    assert curves_of([Training("a", [], [rows], [])], "entropy") == []


def test_roles_have_curves_of_their_own():
    rows = [{"steps": k, "return_mean": 0.0, "fox/return_mean": k, "hen/return_mean": -k, "fox/kl": k} for k in (1, 2)]
    rows[1]["hen/validation_return"] = 3.0
    plain = [{"steps": k, "return_mean": 5.0} for k in (1, 2)]
    roles, other = Training("a", [], [rows], []), Training("b", [], [plain], [])
    assert [(c.name, c.colour, c.middle[-1]) for c in curves_of([roles], "return_mean")] == [
        ("fox", 0, 2),
        ("hen", 1, -2),
    ]
    assert [(c.name, c.colour) for c in curves_of([roles, other], "return_mean")] == [
        ("a fox", 0),
        ("a hen", 1),
        ("b", 2),
    ]
    assert [(c.name, c.colour) for c in curves_of([roles], "validation_return")] == [("hen", 1)]
    assert [c.name for c in curves_of([roles], "kl")] == ["fox"]
    assert [c.name for c in curves_of([roles], "steps")] == ["a"]


def test_labels_of_dated_targets_name_their_days():
    for every, told in ((7, "observed in 7 days"), (1, "observed in a day")):
        assert _per(SimpleNamespace(every=every), "") == told
