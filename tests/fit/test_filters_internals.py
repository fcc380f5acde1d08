"""Sets of parameters × particles: each set as it would be alone, with the numbers of its own of the targets."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from tests.run.played import Played
from torch import Tensor
from torch.distributions import Beta, Gamma, LogNormal

import denizen as dz
from denizen import ops
from denizen.errors import ModelError
from denizen.fit._particles import Filters, Particles
from denizen.fit._setup import set_up
from denizen.fit._weigher import Density, Weigher, placed
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


def test_who_is_drawn_stays_and_only_rows_that_are_not_drawn_are_written() -> None:
    drawn = torch.randint(0, 40, (200, 40), generator=torch.Generator().manual_seed(0)).sort(1).values
    drawn[0], drawn[1], drawn[2] = torch.arange(40), 0, 39
    found = placed(drawn, torch.arange(40).expand(200, 40).contiguous())
    assert torch.equal(found.sort(1).values, drawn)  # each as often as it was drawn
    for before, after in zip(drawn, found, strict=True):
        copied = set((after != torch.arange(40)).nonzero()[:, 0].tolist())
        assert copied == set(range(40)) - set(before.tolist())


@pytest.mark.parametrize("rates", [[], [0.2, 0.4]])
def test_captured_steps_copy_the_rows_of_the_lost_alone(monkeypatch: pytest.MonkeyPatch, rates: list[float]) -> None:
    """The numbers of an eager filter, in place, with parameters of each set and without."""
    params = {"rate": torch.tensor(rates).repeat_interleave(40)} if rates else {}
    sets, own = max(1, len(rates)), experiment()

    def begun() -> Particles:
        return Particles(
            "filter",
            Spread(rate=0.3),
            targets(),
            own._kinds,
            sets=sets,
            particles=40,
            steps=16,
            seed=6,
            device="cpu",
            params={name: value.clone() for name, value in params.items()},
        )

    moved: list[tuple[torch.Tensor, int]] = []

    def noted(buffer: torch.Tensor, rows: torch.Tensor) -> None:
        before = buffer.clone()
        move_rows(buffer, rows)
        assert torch.equal(buffer, before[rows])
        moved.append((rows, int((rows != torch.arange(len(rows))).sum())))

    move_rows = ops.move_rows
    monkeypatch.setattr(ops, "move_rows", noted)
    here, there = begun(), begun()
    there.run.extend(1)
    there.run._capture = Played(there.run, 8)
    found = []
    for particles in (here, there):
        for worlds in (0, 500):  # a pass and another
            particles.begin(worlds, params)
            weigher = particles.weigher(worlds)
            particles.walk(weigher)
        found.append(weigher)
    assert torch.equal(found[0].log_likelihood, found[1].log_likelihood)
    assert torch.equal(found[0].first, found[1].first)
    for one, other in zip(here.run._run_state.tensors(), there.run._run_state.tensors(), strict=True):
        assert torch.equal(one, other)
    assert moved
    assert all(copied == 40 * sets - len(rows.unique()) for rows, copied in moved)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the simulated device is for machines without CUDA")
@pytest.mark.parametrize("noise", [dz.fit.Poisson(), dz.fit.NegativeBinomial(10.0)])
def test_a_count_has_no_mean_below_0(noise: dz.fit.Noise) -> None:
    found = Density(noise, torch.zeros(1))(torch.tensor([[[-1.0], [0.0], [2.0]]], dtype=float))
    assert found[0, :, 0].isnan().tolist() == [True, False, False]


def test_a_likelihood_without_end_is_told() -> None:
    @dataclasses.dataclass(frozen=True)
    class Certain:
        def draw(self, mean: np.ndarray, uniform: np.ndarray) -> np.ndarray:
            return mean

        def log_prob(self, values: np.ndarray, mean: np.ndarray) -> np.ndarray:
            return np.where(mean == 8, np.inf, -1.0)

    with pytest.raises(ModelError, match="NaN or infinite in some particle"):
        dz.fit.filter(Spread(), {"all_ill": dz.fit.Target([8.0, 20.0], noise=Certain())}, particles=64)


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
