"""Diagnostics: quiet where the model is right, and naming what is wrong where it is not."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

import denizen as dz

TIMES = torch.arange(12) / 12
LONG = torch.arange(36) / 12
WIDE = {"level": Normal(0.0, 10.0), "slope": Normal(0.0, 10.0)}


def line(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    noise = torch.as_tensor(np.stack([np.random.default_rng([5, world]).normal(size=13) for world in worlds]))
    return theta[:, :1] + theta[:, 1:] * TIMES + 0.3 * noise[:, :12] + 0.2 * noise[:, 12:]


def long_line(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    noise = torch.as_tensor(np.stack([np.random.default_rng([5, world]).normal(size=36) for world in worlds]))
    return theta[:, :1] + theta[:, 1:] * LONG + 0.3 * noise


def observed(number: int) -> np.ndarray:
    rng = np.random.default_rng([7, number])
    return 1.0 + 2.0 * TIMES.numpy() + 0.3 * rng.normal(size=12) + 0.2 * rng.normal()


def fitted(values: Any, model: Any = line, priors: Any = WIDE, **options: Any) -> dz.fit.Fit:
    targets = {"y": dz.fit.Target(values, scale="identity")}
    return dz.calibrate(model, targets, priors=priors, progress=False, **options)


@pytest.mark.slow
def test_a_right_model_is_quiet() -> None:
    """40 fits: the checks scatter about 0 no more than standard deviations should, and hardly any note is written."""
    found = [fitted(observed(number), seed=number) for number in range(40)]
    checks = np.array([list(fit.diagnostics.checks["y"].values()) for fit in found if fit.diagnostics])
    assert (np.abs(checks.mean(0)) < 0.5).all(), checks.mean(0)
    assert (checks.std(0) < 1.5).all(), checks.std(0)
    covered = np.mean([fit.diagnostics.covered["y"] for fit in found if fit.diagnostics])
    assert 0.8 < covered < 0.97
    assert sum(bool(fit.notes) for fit in found) <= 2


def test_a_wrong_model_is_named() -> None:
    bent = observed(1) + 3 * np.sin(np.arange(12) / 2)
    assert any("the model cannot give this curve" in note for note in fitted(bent).notes)
    rng = np.random.default_rng(7)  # of twelve values an autocorrelation of 1 lies 3.5 deviations off, of 36 some six
    waves = 1.0 + 2.0 * LONG.numpy() + 0.3 * rng.normal(size=36) + 3 * np.sin(np.arange(36) / 4)
    notes = fitted(waves, long_line).notes
    assert any("does not give such y: " in note and "autocorrelation +" in note for note in notes)
    outlier = observed(1)
    outlier[4] += 9
    assert any(note.startswith("y[4] lies +") for note in fitted(outlier).notes)
    gaps = observed(1)
    gaps[[2, 3]] = np.nan
    diagnostics = fitted(gaps).diagnostics
    assert diagnostics is not None
    assert np.isnan(diagnostics.residuals["y"]).sum() == 2
    gaps[1::2] = np.nan  # no two neighbours
    assert "y" in fitted(gaps).diagnostics.checks


def test_what_the_data_say_is_in_the_table() -> None:
    def sums(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        return line(torch.stack([theta[:, 0] + theta[:, 1], 0 * theta[:, 0]], dim=1), worlds)

    ridge = fitted(observed(2), sums).diagnostics
    assert ridge is not None
    assert ridge.correlations[0, 1] < -0.99
    narrow = fitted(observed(2), priors={"level": Normal(1.0, 0.01), "slope": Normal(0.0, 10.0)}).diagnostics
    assert narrow is not None
    assert narrow.shrinkage[0] < 0.1
    assert narrow.shrinkage[1] > 0.9
    assert "slope" in str(narrow)


def test_a_model_that_fails_at_draws_is_told() -> None:
    fit = fitted(observed(3))
    worlds = fit._solution.worlds

    def failing(theta: Tensor, numbers: Sequence[int]) -> Tensor:
        return torch.where((torch.tensor(list(numbers)) >= worlds)[:, None], torch.nan, line(theta, numbers))

    again = fitted(observed(3), failing)
    assert again.diagnostics is None
    assert again.params == fit.params
    assert any("At draws of the fit the model fails" in note for note in again.notes)
