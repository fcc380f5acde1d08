"""Grouping, drawing and reading of edges, each against a plainer way to the same result."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from denizen.ops._cell_moves import first_of_each, lowest_of_each
from denizen.space._edges import csr
from denizen.space.files import _csv as csv_module
from denizen.space.generators._pairs import distinct_codes


def fits(counts: np.ndarray, chances: np.ndarray) -> bool:
    """Chi-square test of counts against chances, cells of fewer than five expected gathered in the last one."""
    expected = chances * counts.sum()
    few = expected < 5
    observed = np.append(counts[~few], counts[few].sum())
    expected = np.append(expected[~few], counts.sum() - expected[~few].sum())
    return stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-4


@given(st.lists(st.integers(0, 6), max_size=40), st.integers(7, 9))
def test_csr_groups_by_key_and_keeps_the_order(keys: list[int], num_keys: int) -> None:
    array = np.array(keys, np.int32)
    indptr, order, (grouped,) = csr(array, num_keys, array)
    assert np.array_equal(order, np.argsort(array, kind="stable"))
    assert np.array_equal(indptr, np.searchsorted(grouped, np.arange(num_keys + 1)))
    assert indptr.dtype == np.int64
    assert order.dtype == np.int32


def test_csr_beyond_what_one_integer_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wide(np.ndarray):
        """Claims a size that leaves no bits for the key."""

        size = 2**62  # type: ignore[assignment]

    keys = np.array([2, 0, 2, 1])
    monkeypatch.setattr("denizen.space._edges.np.bincount", lambda *_, **__: np.array([1, 1, 2]))
    _, order, _ = csr(keys.view(Wide), 3)
    assert order.tolist() == [1, 3, 0, 2]


@pytest.mark.parametrize("size", [9, 10, 11, 40])
def test_distinct_codes_are_uniform(size: int) -> None:
    """With and without rejection: each of 40 integers is in the subset equally often, by first and by second draws."""
    subsets = [distinct_codes(np.random.default_rng(seed), 40, size) for seed in range(2000)]
    assert all(subset.size == size and (np.diff(subset) > 0).all() for subset in subsets)
    assert fits(np.bincount(np.concatenate(subsets), minlength=40), np.full(40, 1 / 40))


@given(
    rows=st.lists(
        st.tuples(st.integers(-(10**12), 10**12), st.floats(-1e9, 1e9, allow_nan=False)), min_size=1, max_size=20
    ),
    header=st.booleans(),
    ending=st.sampled_from(["\n", "\r\n"]),
    final=st.booleans(),
)
@settings(max_examples=60)
def test_fast_and_careful_csv_readers_agree(rows, header, ending, final):
    lines = (["a,b"] if header else []) + [f"{a},{b!r}" for a, b in rows]
    text = csv_module.open_text((ending.join(lines) + (ending if final else "")).encode(), "x.csv")
    careful, _ = csv_module._careful(text, header, (0, 1), None)
    for read in (csv_module._with_polars, csv_module._with_numpy):
        fast = read(text.body, ",", 2, int(header), {0: np.int64, 1: np.float64})
        assert fast is not None
        for k, other in enumerate(careful):
            np.testing.assert_array_equal(fast[k], other)
    found, line = csv_module.columns(text, header, (1, 0))
    np.testing.assert_array_equal(found[0], careful[1])
    assert line(0) == 1 + header


def test_equal_priorities_are_broken_by_identity():
    goal, room, word = torch.full((4,), 8), torch.ones(9, dtype=torch.int32), torch.zeros(4, dtype=torch.int64)
    for chosen in (first_of_each, lowest_of_each):
        found = [chosen(goal, goal == 8, room, word, ids) for ids in (torch.tensor([[7, 3, 9, 5]]), torch.empty(0))]
        assert [one.tolist() for one in found] == [[False, True, False, False], [True, False, False, False]]
