"""The numbers behind comparisons: intervals that cover, quantiles, and what is no number."""

import numpy as np
import pytest
from scipy import stats
from torch import Tensor

from denizen._results import compare_series, student
from denizen.report._comparison import headline


def drawn(shift: float, num: int, seed: int, shared: float = 0.9) -> tuple[Tensor, Tensor]:
    """Rows of two sides with correlation `shared`, whose mean differs by `shift`."""
    luck, own, other = np.random.default_rng(seed).normal(size=(3, num, 1))
    a, b = (np.sqrt(shared) * luck + np.sqrt(1 - shared) * one for one in (own, other))
    return a, b + shift


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_cover_as_promised(paired: bool, level: float) -> None:
    """1,000 repetitions: within 4 standard errors of a share."""
    shift, held, repeats = 0.3, 0, 1_000
    for k in range(repeats):
        a, b = drawn(shift, 12, k, shared=0.9 if paired else 0.0)
        row = compare_series({"y": ("flow", a)}, {"y": ("flow", b)}, ("a", "b"), level, paired).rows[0]
        held += row.mean_low <= shift <= row.mean_high
    assert held / repeats == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / repeats))


def test_what_independent_runs_would_have_needed() -> None:
    """With a correlation of 0.9 a difference has a tenth of the variance of independent ones."""
    a, b = drawn(1.0, 20_000, 0)
    row = compare_series({"y": ("flow", a)}, {"y": ("flow", b)}, ("a", "b")).rows[0]
    assert row.independent == pytest.approx(10 * 20_000, rel=0.03)


def test_what_is_no_number_is_called_so() -> None:
    rows = np.array([[1.0, 2.0], [3.0, np.nan]])
    found = compare_series({"y": ("flow", rows)}, {"y": ("flow", rows)}, ("a", "b"))
    assert headline(found["y"], 0.9) == "Total of y: no number in some world, so there is no difference to state"


@pytest.mark.parametrize("freedom", [1, 2, 3.7, 11, 40, 41.5, 1e4, 1e6])
def test_quantiles_of_student(freedom: float) -> None:
    for share in (0.75, 0.95, 0.975, 0.9995):
        assert student(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), rel=1e-5)
