"""Spaces: bounds of all entries and of each, one-sided ones, and what is no space."""

import math

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.errors import InputError

INF = math.inf


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_bounds_may_differ_from_entry_to_entry(kind):
    box = dz.rl.Box(kind([-1.0, 0.0, 0.0]), kind([1.0, 1.0, INF]), (3,))
    assert box == dz.rl.Box((-1.0, 0.0, 0.0), (1.0, 1.0, INF), (3,))
    assert hash(box) == hash(dz.rl.Box([-1, 0, 0], [1, 1, INF], (3,)))
    value = torch.tensor([[-1.0, 0.0, 5.0], [-2.0, -1.0, -1.0], [1.5, 2.0, math.nan]])
    assert box.fault(value).tolist() == [[False] * 3, [True] * 3, [True] * 3]
    assert box.nearest(value)[:2].tolist() == [[-1.0, 0.0, 5.0], [-1.0, 0.0, 0.0]]
    assert box.nearest(value)[2, 2].isnan()
    assert not box.bounded
    found = torch.vmap(lambda row: box.nearest(row))(value[:2])
    assert torch.equal(found, box.nearest(value[:2]))


def test_bounds_broadcast_and_equal_ones_are_one_number():
    assert dz.rl.Box([[0], [1]], 2, (2, 3)).low == ((0.0,) * 3, (1.0,) * 3)
    box = dz.rl.Box(np.zeros((4, 4)), torch.full((4, 4), 255), (4, 4), torch.uint8)
    assert (box.low, box.high) == (0.0, 255)
    assert box == dz.rl.Box(0, 255, (4, 4), torch.uint8)
    assert dz.rl.Box(torch.tensor(-1.0), torch.tensor(1.0), (2,)) == dz.rl.Box(-1.0, 1.0, (2,))
    assert dz.rl.Box(False, True, (2,), torch.bool).low == 0


@pytest.mark.parametrize(("low", "high"), [(0.0, INF), (-INF, 0.0), (-1.0, 1.0), (-INF, INF)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_the_nearest_value_is_none_outside(low, high, dtype):
    box, value = dz.rl.Box(low, high, (2,), dtype), torch.tensor([[-3, 0], [3, 1]], dtype=dtype)
    near = box.nearest(value)
    assert near.dtype == dtype
    assert not box.fault(near).any()
    assert torch.equal(near == value, ~box.fault(value))


def test_bounds_of_a_decimal_hold_in_float32():
    assert not dz.rl.Box(np.float32(0.2), 0.2, (2,)).fault(torch.full((2,), 0.2)).any()
    box = dz.rl.Box([0.1, 0.1], [0.3, 0.7], (2,))
    assert not box.fault(box.nearest(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))).any()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: dz.rl.Box(1.0, 0.0, (2,)), "expected low nowhere above high"),
        (lambda: dz.rl.Box([0, 2], [1, 1], (2,)), "from 2.0 to 1"),
        (lambda: dz.rl.Box(math.nan, 0.0, (2,)), "expected low nowhere above high"),
        (lambda: dz.rl.Box(INF, INF, (2,)), "expected low nowhere above high"),
        (lambda: dz.rl.Box(0.2, 0.8, (2,), torch.int32), "no number of this dtype"),
        (lambda: dz.rl.Box(-5, -1, (2,), torch.uint8), "no number of this dtype"),
        (lambda: dz.rl.Box([0, 0, 0], 1, (2,)), r"low=\[0, 0, 0\].*broadcast to shape \(2,\)"),
        (lambda: dz.rl.Box("a", 1, (2,)), "low='a'"),
        (lambda: dz.rl.Box(0, 1j, (2,)), "high=1j"),
        (lambda: dz.rl.Box(0, 1, 2), "shape=2"),
        (lambda: dz.rl.Box(0, 1, (True,)), r"shape=\(True,\)"),
        (lambda: dz.rl.Box(0, 1, (2,), np.float32), "dtype="),
        (lambda: dz.rl.Box(0, 1, (2,), torch.complex64), "dtype=torch.complex64"),
    ],
)
def test_what_is_no_box_is_refused(made, message):
    with pytest.raises(InputError, match=message):
        made()
