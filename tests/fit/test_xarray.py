"""Fits for ArviZ."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.distributions import LogNormal

import denizen as dz
from denizen.space import generators
from denizen.zoo.sir import SIR, sir


@pytest.fixture(scope="module")
def model() -> SIR:
    return sir(generators.erdos_renyi(300, 10.0, seed=0), infect_rate=0.05)


@pytest.fixture(scope="module")
def fit(model: SIR, tmp_path_factory: pytest.TempPathFactory) -> dz.fit.Fit:
    values = dz.simulate(model, 28, seed=9, device="cpu")["cases"][0].reshape(-1, 7).sum(1)
    dates = ["2020-03-01", "2020-03-08", "2020-03-15", "2020-03-22"]
    targets = {"cases": dz.fit.Target(values, every=7, dates=dates)}
    options: dict[str, Any] = {"priors": {"infect_rate": LogNormal(-3.0, 0.5)}, "replicates": 4}
    out = tmp_path_factory.mktemp("fits") / "a"
    return dz.calibrate(model, targets, **options, holdout=1, device="cpu", progress=False, out=out)


def test_the_groups_hold_what_they_say(fit: dz.fit.Fit) -> None:
    tree = fit.to_xarray(draws=200, predictive=8)
    assert set(tree.children) == {"posterior", "posterior_predictive", "observed_data"}
    rate = tree["posterior"]["infect_rate"]
    assert rate.dims == ("chain", "draw")
    assert np.array_equal(rate.values[0], fit.samples(200)["infect_rate"])
    observed = tree["observed_data"]["cases"]
    assert np.array_equal(observed.values, fit._experiment.targets["cases"].values)
    assert str(observed["cases_time"].values[1])[:10] == "2020-03-08"
    assert tree["posterior_predictive"]["cases"].shape == (1, 8, 3)


def test_without_its_model_there_is_nothing_predictive(fit: dz.fit.Fit, tmp_path: Path) -> None:
    fit.save(tmp_path / "f")
    assert set(dz.fit.Fit.load(tmp_path / "f").to_xarray().children) == {"posterior", "observed_data"}


@pytest.mark.slow
def test_arviz_reads_it(fit: dz.fit.Fit) -> None:
    with warnings.catch_warnings():  # of ArviZ and what it imports, about each other's versions
        warnings.simplefilter("ignore")
        import arviz

        tree = fit.to_xarray(draws=400)
        data = arviz.InferenceData.from_datatree(tree) if hasattr(arviz, "InferenceData") else tree
        summary = arviz.summary(data, var_names=["infect_rate"])
    low, high = fit.interval(0.99)["infect_rate"]
    assert low < float(summary["mean"].iloc[0]) < high
