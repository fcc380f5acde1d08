"""How a series is seen, and how forecasts are scored."""

import math

import numpy as np
import pytest

import denizen as dz
from denizen.errors import InputError


def test_windows_of_flows_and_levels() -> None:
    series = np.arange(24, dtype=np.float32).reshape(2, 12)
    target = dz.fit.Target([0, 0], every=3, first=4, report=0.5)
    assert target.last == 9
    assert target.windows(series, "flow").tolist() == [[6.0, 10.5], [24.0, 28.5]]
    assert target.windows(series, "level").tolist() == [[2.5, 4.0], [8.5, 10.0]]
    groups = np.stack([series, 2 * series], axis=2)
    assert target.windows(groups, "flow").shape == (2, 2, 2)


@pytest.mark.parametrize("noise", [dz.fit.Poisson(), dz.fit.NegativeBinomial(4.0), dz.fit.Normal(3.0)])
def test_noise_has_its_mean_and_variance(noise: dz.fit.Noise) -> None:
    mean = np.full(40_000, 12.0)
    drawn = noise.draw(mean, np.random.default_rng(0).random(mean.shape))
    variance = {"Poisson": 12.0, "NegativeBinomial": 12 + 12**2 / 4, "Normal": 9.0}[type(noise).__name__]
    assert drawn.mean() == pytest.approx(12, abs=5 * math.sqrt(variance / 40_000))
    assert drawn.var() == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every=0"),
        ({"first": 0}, "first=0"),
        ({"kind": "stock"}, "valid: flow, level"),
        ({"report": 0}, "above 0"),
        ({"report": 1.5}, "from 0 to 1"),
        ({"noise": dz.fit.Poisson}, "expected an object"),
        ({"scale": "log"}, "valid: identity, sqrt"),
        ({"weight": 0}, "above 0"),
    ],
)
def test_wrong_options_are_told(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        dz.fit.Target([1.0, 2.0], **options)


def test_wrong_noise_is_told() -> None:
    with pytest.raises(InputError, match="size=0"):
        dz.fit.NegativeBinomial(0)
    with pytest.raises(InputError, match="sd=-1"):
        dz.fit.Normal(-1)
