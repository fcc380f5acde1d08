"""Sets of parameters × particles: each set as it would be alone, with the numbers of its own of the targets."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Beta, Gamma, LogNormal

import denizen as dz
from denizen.fit._particles import Filters
from denizen.fit._setup import set_up
from denizen.fit._weigher import Weigher
from denizen.run._sieve import again

FREE = np.array([[-1.0, 1.0, 0.2], [0.5, 3.0, -0.4], [0.0, 2.0, 0.0]])  # unbound: share, size, rate


class Ill(dz.State):
    ill: Tensor = dz.mask("agents")


class Spread(dz.Model):
    rate: Tensor = dz.param(0.1, low=0.0)
    num_agents: int = 80

    def init(self, rng: dz.rng.Rng) -> Ill:
        return Ill(ill=rng.bernoulli("ill", 0.1))

    def step(self, now: Any, rng: dz.rng.Rng) -> Ill:
        new = (1 - now.ill) * rng.event("fall", self.rate * now.ill.float().mean().expand(80))
        rng.record("new", new)
        return now.replace(ill=now.ill + new)

    @dz.series
    def by_group(self, events: dz.rng.Events) -> Tensor:
        return events["new"].reshape(2, 40).sum(1)

    @dz.series
    def all_ill(self, now: Any) -> Tensor:
        return now.ill.sum()


def targets(report: float = 0.5, size: float = 10.0) -> dict[str, dz.fit.Target]:
    values = [[np.nan, np.nan], [2.0, 1], [3, np.nan], [4, 3], [2, 3], [2, 4], [5, 1], [2, 1]]
    noise = dz.fit.NegativeBinomial(size)
    groups = dz.fit.Target(values, every=2, report=report, delay=[0.5, 0.3, 0.2], noise=noise, truncation=[0.9, 0.6])
    return {"by_group": groups, "all_ill": dz.fit.Target([20, 40], first=4, every=3, noise=dz.fit.Poisson())}


def experiment() -> Any:
    return set_up(
        "calibrate",
        Spread(),
        targets(),
        priors={"by_group.report": Beta(2, 2), "by_group.size": Gamma(2.0, 0.2), "rate": LogNormal(-1.0, 0.5)},
        method=dz.fit.ParticleFilter(),
        steps=None,
        replicates=2,
        holdout=0,
        seed=6,
        interventions=(),
        device="cpu",
    ).experiment


def test_sets_in_one_launch_are_what_each_is_alone() -> None:
    own = experiment()
    together = Filters("calibrate", own, 40, 3, 1).go(FREE, 100)
    assert any((one < 20).any() for one in together.effective), "nothing was resampled"
    for k in range(3):
        alone = Filters("calibrate", own, 40, 1, 1).go(FREE[k : k + 1], 100 + 40 * k)
        assert torch.equal(alone.log_likelihood[0], together.log_likelihood[k])
        assert torch.equal(alone.log_weights[0], together.log_weights[k])


def test_a_pass_again_is_a_pass_of_a_new_filter() -> None:
    own = experiment()
    filters = Filters("calibrate", own, 40, 2, 2)
    filters.go(FREE[:2], 0)
    again = filters.go(FREE[1:], 500)
    fresh = Filters("calibrate", own, 40, 2, 1).go(FREE[1:], 500)
    assert torch.equal(again.log_likelihood, fresh.log_likelihood)


def test_numbers_of_targets_that_are_fitted_are_those_of_the_set() -> None:
    own = experiment()
    found = Filters("calibrate", own, 40, 1, 1).go(FREE[1:2], 0)
    values = {name: float(value[0]) for name, value in own.parameters.values(FREE[1:2]).items()}
    given = targets(values["by_group.report"], values["by_group.size"])
    filtered = dz.fit.filter(Spread(rate=values["rate"]), given, particles=40, seed=6, device="cpu")
    assert filtered.log_likelihood == pytest.approx(float(found.log_likelihood[0]), abs=1e-9)
    with pytest.warns(UserWarning, match="for 1 of 3 draws none of 40 particles can give what was observed"):
        ahead = Filters("calibrate", own, 40, 3, 1).ahead(FREE, 0, 2, np.random.default_rng(0))
    assert ahead["by_group"].shape == (3, 2, 2)
    assert ahead["all_ill"].shape == (3, 2)
    assert filtered.curve([0.5])["by_group"].shape == (1, 8, 2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the simulated device is for machines without CUDA")
def test_nothing_is_read_before_the_last_step() -> None:
    """Weighing, drawing anew and moving states: no host read and no transfer, and the numbers of the CPU."""
    guard = dz.budget(host_reads=0, transfers=0)
    own = experiment()
    here = Filters("calibrate", own, 40, 2, 1).go(FREE[:2], 0)
    own.device = guard.device
    filters = Filters("calibrate", own, 40, 2, 1)
    there = filters.go(FREE[:2], 0)
    assert torch.equal(there.log_likelihood.cpu(), here.log_likelihood)
    held = filters._held
    assert held is not None
    again(held.run, range(80), {"rate": held.run._stepper.values["rate"].clone()})
    weigher = Weigher(
        "filter",
        held._due(own.known(np.repeat(FREE[:2], held.steps, axis=0)), 2),
        {"by_group": (2,), "all_ill": ()},
        sets=2,
        particles=40,
        steps=held.steps,
        threshold=0.5,
        seed=6,
        worlds=0,
        device=held.run.device,
        keep=True,
    )
    held.run._sieve = weigher
    with guard:
        held.run._take(held.run._run_state, 0, held.steps)
    assert guard.report.ops > 100
    assert torch.equal(weigher.log_likelihood.cpu(), here.log_likelihood)
