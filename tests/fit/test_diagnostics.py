"""What a calibration says of itself: what the data do not identify, worlds that die out, slopes that are none."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Beta, LogNormal, Normal, Uniform

import denizen as dz
from denizen.errors import InputError
from denizen.space import generators
from denizen.zoo.sir import SIR, sir

Target = dz.fit.Target


@pytest.fixture(scope="module")
def model() -> SIR:
    town = generators.erdos_renyi(2_000, 10.0, seed=0)
    return sir(town, infect_rate=0.05, infectious_days=6.0, seed_share=0.005)


def cases(model: SIR, steps: int) -> np.ndarray:
    return dz.simulate(model, steps, seed=99, device="cpu")["cases"][0].numpy()


EARLY: dict[str, Any] = {"infect_rate": LogNormal(-3.0, 1.0), "infectious_days": LogNormal(1.8, 1.0)}


def test_cases_alone_do_not_tell_rate_from_share_early(model: SIR) -> None:
    """Growth has a rate and a level; rate, seeds and share make them."""
    seen = np.random.default_rng(1).poisson(0.3 * cases(model, 14))
    target = Target(seen, report=0.5, noise=dz.fit.Poisson())
    priors = {"infect_rate": LogNormal(-3.0, 1.0), "seed_share": Beta(1.0, 100.0), "cases.report": Beta(1.0, 1.0)}
    fit = dz.calibrate(model, {"cases": target}, priors=priors, replicates=16, device="cpu", progress=False)
    low, high = fit.interval()["cases.report"]
    assert high - low > 0.5
    assert any("say little of cases.report" in note for note in fit.notes), fit.notes


def test_a_series_that_is_seen_whole_tells_them_apart(model: SIR) -> None:
    """The same with how many are ill, seen whole, over all of the outbreak: rate, days and share are recovered."""
    run = dz.simulate(model, 60, seed=99, device="cpu")
    seen = np.random.default_rng(1).poisson(0.3 * run["cases"][0].numpy())
    targets = {
        "cases": Target(seen, report=0.5, noise=dz.fit.Poisson()),
        "infected": Target(run["infected"][0].numpy()[6::7], every=7),
    }
    priors = {**EARLY, "cases.report": Beta(1.0, 1.0)}
    fit = dz.calibrate(model, targets, priors=priors, replicates=32, device="cpu", progress=False)
    for name, truth in (("infect_rate", 0.05), ("infectious_days", 6.0), ("cases.report", 0.3)):
        low, high = fit.interval(0.99)[name]
        assert low < truth < high
    low, high = fit.interval()["cases.report"]
    assert high - low < 0.08
    assert not any("Not identified" in note or "cases.report" in note for note in fit.notes), fit.notes


def level(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    noise = np.stack([np.random.default_rng([5, world]).normal(size=6) for world in worlds])
    return theta[:, :1].expand(-1, 6) + torch.as_tensor(noise)


ONE = {"a": Normal(0.0, 10.0)}


def identity(values: Any) -> dict[str, Target]:
    return {"y": Target(values, scale="identity")}


def test_a_prior_that_stays_as_it_was_is_told() -> None:
    priors = {**ONE, "b": Normal(0.0, 0.5)}
    barely = lambda theta, worlds: level(theta, worlds) + 1e-3 * theta[:, 1:]
    fit = dz.calibrate(barely, identity([1.0] * 6), priors=priors, progress=False)
    assert any("say little of b: its 90% interval is" in note for note in fit.notes)
    assert not any("little of a:" in note for note in fit.notes)


def test_nothing_depends_on_a_parameter() -> None:
    priors = {**ONE, "b": Normal(0.0, 0.5)}
    with pytest.raises(InputError, match=r"nothing observed depends on 'b' near a=0.0, b=0.0.*leave it out of priors"):
        dz.calibrate(level, identity([1.0] * 6), priors=priors, progress=False)


def test_a_slope_that_explodes_is_told() -> None:
    def explodes(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        return torch.exp(theta.double() * 10 * torch.arange(6)) + level(theta, worlds)

    with pytest.raises(InputError, match=r"the slope explodes near a=2.0: where 'a' .* 'y' up to step 2 moves by"):
        dz.calibrate(explodes, identity([1.0] * 6), priors={"a": Uniform(0.0, 4.0)}, progress=False)


def test_a_slope_that_explodes_on_the_way_is_told() -> None:
    """Gentle where the search begins, and a cliff beside the place that it comes to."""

    def cliff(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        return level(theta, worlds) + 1e6 * torch.relu(theta.double()[:, :1] - 2.9)

    with pytest.raises(InputError, match=r"the slope explodes near a=\d\.\d+: where 'a' .* 'y' up to step 1 moves by"):
        dz.calibrate(cliff, identity([3.0] * 6), priors=ONE, progress=False)


def test_a_series_without_randomness_is_told() -> None:
    """No scatter says how near the data have to come; with a noise it is a fit by least squares."""

    def straight(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        return theta[:, :1].expand(-1, 6)

    def beside(theta: Tensor, worlds: Sequence[int]) -> dict[str, Tensor]:
        return {"y": level(theta, worlds), "z": straight(theta, worlds)}

    values = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    with pytest.raises(InputError, match=r"'y' is the same in all worlds near a=0.0, .* such as dz\.fit\.Normal\(sd\)"):
        dz.calibrate(straight, identity(values), priors=ONE, progress=False)
    with pytest.raises(InputError, match=r"'z' is the same in all worlds"):
        dz.calibrate(beside, {**identity(values), "z": Target(values)}, priors=ONE, progress=False)
    noise = dz.fit.Normal(0.6)
    fit = dz.calibrate(
        straight, {"y": Target(values, noise=noise, scale="identity")}, priors=ONE, replicates=64, progress=False
    )
    assert fit.params["a"] == pytest.approx(2.5, abs=0.1)
    assert fit._sd()[0] == pytest.approx(0.6 / np.sqrt(6), rel=0.25)


def test_nothing_but_zeros_is_told() -> None:
    def counts(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        waits = np.stack([np.random.default_rng([6, world]).exponential(size=8) for world in worlds])
        return (theta[:, :1].double() * torch.as_tensor(waits)).floor()

    priors = {"rate": LogNormal(0.0, 1.0)}
    fit = dz.calibrate(counts, {"y": np.zeros(8)}, priors=priors, progress=False)
    assert fit.params["rate"] < 0.7
    assert any("Every observed value of targets['y'] is 0" in note for note in fit.notes), fit.notes
    fit = dz.calibrate(counts, {"y": np.array([0.0, 0, 1, 0, 0, 0, 0, 0])}, priors=priors, progress=False)
    assert not any("Every observed value" in note for note in fit.notes)


def test_numbers_that_never_change_are_told() -> None:
    def late(theta: Tensor, worlds: Sequence[int]) -> Tensor:
        return level(theta, worlds) * (torch.arange(6) > 1)

    fit = dz.calibrate(late, identity([0.0, 0.0, 1.0, 1.0, 1.0, 1.0]), priors=ONE, progress=False)
    assert any(
        "2 of 6 observed numbers are the same in all worlds, the first of 'y' up to step 1" in n for n in fit.notes
    )


def test_worlds_that_die_out_are_counted(model: SIR) -> None:
    few = model.replace(seed_share=0.0005)  # one of 2,000
    found = dz.simulate(few, 60, replicates=40, seed=3, device="cpu")["cases"]
    observed = found[found.sum(1) > 500][0].numpy()
    fit = dz.calibrate(few, {"cases": Target(observed[:56].reshape(8, 7).sum(1), every=7)}, priors=["infect_rate"],
                       replicates=16, device="cpu", progress=False)  # fmt: skip
    assert any("worlds died out: their 'cases' is less than 5% of the median" in note for note in fit.notes), fit.notes


def test_a_model_that_takes_nothing_near_is_told(model: SIR) -> None:
    class Fenced(SIR):
        def fits(self, dt: float) -> None:
            if abs(float(self.infect_rate) - 0.05) > 1e-3:
                raise InputError("Fenced: infect_rate is 0.05")

    start = Fenced(model.contacts, infect_rate=0.05)
    with pytest.raises(InputError, match=r"takes 'infect_rate' near infect_rate=0.05 neither a little larger nor"):
        dz.calibrate(start, {"cases": [1.0, 2.0]}, priors=["infect_rate"], device="cpu", progress=False)
