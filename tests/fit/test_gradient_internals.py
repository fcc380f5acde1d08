"""`dz.fit.Gradient` inside: what its loss compares, and iterations on a GPU."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Gamma

import denizen as dz
from denizen.fit import _gradient
from denizen.fit._observed import Observed
from denizen.fit._setup import set_up
from denizen.perf.watch import sync_warnings
from denizen.relax import StraightThrough
from models_to_fit import DullRain as Rain

NOISES = [None, dz.fit.Poisson(), dz.fit.NegativeBinomial(5.0), dz.fit.Normal(4.0)]


@pytest.mark.parametrize("scale", ["sqrt", "identity"])
@pytest.mark.parametrize("noise", NOISES)
def test_what_is_observed_is_what_runs_give_on_average(noise: Any, scale: str) -> None:
    values = np.array([30.0, np.nan, 45.0, 20.0])
    rows = 4_000 if noise is not None else 8
    target = dz.fit.Target(
        values, every=3, first=4, report=0.3, delay=Gamma(4.0, 2.0), truncation=[0.5], noise=noise, scale=scale
    )
    setup = set_up(
        "test",
        Rain(),
        {"wet": target},
        priors=["dull"],
        method=dz.fit.GaussNewton(),
        steps=None,
        replicates=2,
        holdout=0,
        start=None,
        seed=0,
        interventions=(),
        device="cpu",
    )
    experiment = setup.experiment
    wanted = experiment.compared(np.zeros((rows, 1)), range(rows))
    series = dz.simulate(Rain(), experiment.steps, replicates=rows, seed=0, device="cpu")
    mean, variance = Observed(experiment, torch.device("cpu"))({"wet": series["wet"]}, {})
    error = wanted.std(0) / rows**0.5
    assert (abs(mean.mean(0).numpy() - wanted.mean(0)) < 4 * error + 2e-3).all()
    if noise is not None:
        total = variance.mean(0) + mean.var(0)
        assert total.numpy() == pytest.approx(wanted.var(0), rel=0.1)


@pytest.mark.cuda
def test_iterations_on_a_gpu_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    plain = _gradient._Runs.iterations

    def watched(self: Any, *args: Any) -> Any:
        if len(waited) == 1:  # compiled and captured by then
            self._put(args[1])
            self._steady.put(args[0])
            with sync_warnings() as waits:
                for _ in range(3):
                    self._gradient()
            waited.append(len(waits))
        found = plain(self, *args)
        waited.append(0)
        return found

    monkeypatch.setattr(_gradient._Runs, "iterations", watched)
    values = dz.simulate(Rain(rate=[0.3, 1.2, 0.6]), 6, seed=4, device="cpu")["wet"][0].numpy()
    method = dz.fit.Gradient(StraightThrough(), iterations=20, polish=0)
    dz.calibrate(Rain(), {"wet": values}, priors=["rate"], method=method, device="cuda", progress=False)
    assert not any(waited)
