"""From a hazard to the threshold of its event: accuracy against float64, special values, frequencies."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from denizen import ops
from denizen.ops._draws import TWO32, hazard_threshold, prob_threshold

EMPTY = torch.empty(0, dtype=torch.int64)
RELATIVE, ABSOLUTE = 2.4e-7, 2.0**-32  # two units in the last place of float32, and the width of one 32-bit word


def probability(hazard: torch.Tensor) -> np.ndarray:
    threshold, bad = hazard_threshold(hazard)
    assert not bad.any()
    return threshold.to(torch.float64).numpy() / TWO32


def test_accuracy_over_fifteen_decades() -> None:
    hazard = torch.logspace(-12, 3, 400_001, dtype=torch.float64).to(torch.float32)
    exact = -np.expm1(-hazard.double().numpy())
    error = np.abs(probability(hazard) - exact)
    assert (error <= RELATIVE * exact + ABSOLUTE).all()
    large = exact > 1e-2  # where truncation to 32 bits does not count: the largest relative error that we state
    assert (error[large] / exact[large]).max() < RELATIVE


def test_accuracy_where_the_reduction_changes_branch() -> None:
    """Around the multiples of ln 2 / 2, at which the polynomial's argument jumps."""
    centre = torch.arange(1, 80, dtype=torch.float64) * (math.log(2) / 2)
    hazard = (centre[:, None] * (1 + torch.arange(-40, 41) * 2.0**-24)).flatten().to(torch.float32)
    exact = -np.expm1(-hazard.double().numpy())
    assert (np.abs(probability(hazard) - exact) <= RELATIVE * exact + ABSOLUTE).all()


def test_a_larger_hazard_never_fires_less_often_by_more_than_rounding() -> None:
    hazard = torch.linspace(0, 30, 1_000_001)
    threshold, _ = hazard_threshold(hazard)
    assert int((threshold[:-1] - threshold[1:]).max()) <= RELATIVE * TWO32


def test_a_chance_is_at_most_its_hazard() -> None:
    """So words above a hazard need no threshold."""
    hazard = torch.logspace(-10, 3, 1_000_001, dtype=torch.float64).to(torch.float32)
    assert (probability(hazard) <= hazard.double().numpy()).all()


@pytest.mark.parametrize(
    ("hazard", "prob"),
    [
        (0.0, 0.0),
        (-0.0, 0.0),
        (1e-45, 0.0),
        (1e-38, 0.0),
        (1e-12, 0.0),
        (40.0, 1.0),
        (88.0, 1.0),
        (1e3, 1.0),
        (3e38, 1.0),
        (float("inf"), 1.0),
        (2.0**-32, 2.0**-32),
        (2.0**-20, 2.0**-20 - 2.0**-41),
    ],
)
def test_special_hazards(hazard: float, prob: float) -> None:
    assert probability(torch.tensor([hazard]))[0] == pytest.approx(prob, abs=ABSOLUTE, rel=1e-6)


@pytest.mark.parametrize("hazard", [-1e-45, -1.0, -float("inf"), float("nan")])
def test_unusable_hazards(hazard: float) -> None:
    threshold, bad = hazard_threshold(torch.tensor([hazard, 1.0]))
    assert threshold[0] == 0
    assert bad.tolist() == [True, False]


@pytest.mark.parametrize(
    ("prob", "ok"),
    [
        (0.0, True),
        (1.0, True),
        (0.25, True),
        (-1e-45, False),
        (1.0000001, False),
        (float("nan"), False),
        (float("inf"), False),
    ],
)
def test_probabilities(prob: float, ok: bool) -> None:
    threshold, bad = prob_threshold(torch.tensor([prob]))
    assert bad.item() is not ok
    assert threshold.item() == (int(prob * TWO32) if ok else 0)


def test_certain_and_impossible() -> None:
    key, step, values = torch.tensor([[1, 1]]), torch.tensor(0), torch.ones(1, 100_000)
    for hazard, low, high in ((True, 0.0, 40.0), (False, 0.0, 1.0)):
        assert ops.draw_mask(values * low, hazard, EMPTY, key, step, 1)[0].sum() == 0
        assert ops.draw_mask(values * high, hazard, EMPTY, key, step, 1)[0].sum() == values.numel()


# Fixed seeds make this deterministic; 32 tests at a significance of 1e-4 each, were the seeds drawn anew, would fail
# by accident once in 300 times.
@pytest.mark.parametrize("mean", [1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("hazard", [True, False])
@pytest.mark.parametrize("seed", [0, 123456789])
def test_frequency(mean: float, hazard: bool, seed: int) -> None:
    value = -math.log1p(-mean) if hazard else mean
    agents, keys = 200_000, torch.tensor([[seed, world] for world in range(5)])
    drawn, _ = ops.draw_mask(torch.full((5, agents), value), hazard, EMPTY, keys, torch.tensor(3), 4)
    assert stats.binomtest(int(drawn.sum()), 5 * agents, mean).pvalue > 1e-4


def test_hazards_add_up_as_competing_risks() -> None:
    """No event from either of two hazards is as likely as none from their sum (fixed seed, 4 standard errors)."""
    key, n = torch.tensor([[5, 0]]), 1_000_000
    rates = (0.2, 0.37, 0.57)
    none = [
        1 - ops.draw_mask(torch.full((1, n), h), True, EMPTY, key, torch.tensor(0), k)[0] for k, h in enumerate(rates)
    ]
    difference = (none[0] * none[1]).sum() - none[2].sum()
    p = math.exp(-0.57)
    assert abs(int(difference)) < 4 * math.sqrt(2 * n * p * (1 - p))
