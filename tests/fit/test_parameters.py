"""Priors in the numbers that a search moves on, and the densities of noise."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import Tensor
from torch.distributions import Beta, Distribution, ExpTransform, LogNormal, Normal, TransformedDistribution, Uniform

import denizen as dz
from denizen.errors import InputError
from denizen.fit._from_priors import of_priors
from denizen.fit._target import Noise
from denizen.space import generators
from denizen.zoo.sir import sir

LOG_UNIFORM = TransformedDistribution(Uniform(math.log(0.01), math.log(0.15)), [ExpTransform()])
CONTACTS = generators.erdos_renyi(100, 4.0, seed=0)
PRIORS = [Normal(1.0, 2.0), LogNormal(0.3, 0.5), Uniform(-1.0, 3.0), Beta(2.0, 3.0), LOG_UNIFORM]


class Mix(dz.Model):
    """Four numbers, and nothing that they do."""

    mix: Tensor = dz.param([0.3, 0.3, 0.3, 0.4], low=0.0)
    num_agents: int = 1


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: type(prior).__name__)
def test_a_prior_is_a_density_of_the_free_numbers(prior: Distribution) -> None:
    parameters = of_priors("test", {"x": prior})
    grid = np.linspace(-30, 30, 20_001)
    density = np.exp(parameters.log_prior(grid[:, None]))
    assert integrate.trapezoid(density, grid) == pytest.approx(1, abs=2e-3)
    drawn = parameters.draw("test", 20_000, np.random.default_rng(0))[:, 0]
    mean = integrate.trapezoid(grid * density, grid)
    assert drawn.mean() == pytest.approx(mean, abs=4 * drawn.std() / np.sqrt(20_000))
    assert (parameters.draw("test", 20_000, np.random.default_rng(0))[:, 0] == drawn).all()


def test_drawing_moves_no_generator_of_torch() -> None:
    before = torch.random.get_rng_state()
    of_priors("test", {"x": PRIORS[0]}).draw("test", 3, np.random.default_rng(0))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("prior", [Uniform(0.02, 0.1), LOG_UNIFORM])
def test_a_search_stays_where_the_prior_reaches(prior: Distribution) -> None:
    from denizen.fit._from_priors import of_model
    from denizen.space import generators

    model = sir(generators.erdos_renyi(50, mean_degree=4, seed=0), infect_rate=0.05)
    parameters = of_model("test", model, {"infect_rate": prior})
    far = np.array([[-30.0], [0.0], [30.0]])
    values = parameters.values(far)["infect_rate"]
    low, high = (0.02, 0.1) if isinstance(prior, Uniform) else (0.01, 0.15)
    assert values[0] == pytest.approx(low, rel=1e-3)
    assert values[2] == pytest.approx(high, rel=1e-3)
    assert np.isfinite(parameters.log_prior(far)).all()
    beyond = of_model("test", model.replace(infect_rate=0.2), {"infect_rate": prior})
    assert low < beyond.values(beyond.start[None])["infect_rate"][0] < high


def test_each_entry_stays_where_its_own_prior_reaches() -> None:
    from denizen.fit._from_priors import of_model

    priors = [Uniform(0.1, 0.35), LogNormal(-0.7, 0.1), Uniform(0.5, 0.9), None]
    parameters = of_model("test", Mix(), {"mix": dz.fit.PerGroup(priors)})
    low, start, high = parameters.values(np.array([[-30.0] * 4, parameters.start, [30.0] * 4]))["mix"]
    assert low == pytest.approx([0.1, 0.0, 0.5, 0.0], abs=1e-7)
    assert high == pytest.approx([0.35, np.exp(30), 0.9, np.exp(30)], rel=1e-6)
    assert start == pytest.approx([0.3, 0.3, 0.7, 0.4])  # the third begins at its prior's median
    alone = of_priors("test", {str(k): prior for k, prior in enumerate(priors) if prior is not None})
    places = np.random.default_rng(0).normal(size=(5, 4))
    assert parameters.log_prior(places) == pytest.approx(alone.log_prior(places[:, :3]))
    slope, curve = parameters.prior(places[0])
    of_alone = alone.prior(places[0, :3])
    assert slope[:3] == pytest.approx(of_alone[0])
    assert curve[:3, :3] == pytest.approx(of_alone[1])
    drawn = of_model("test", Mix(), {"mix": dz.fit.PerGroup([*priors[:3], 0.4])})
    values = drawn.values(drawn.draw("test", 1_000, np.random.default_rng(0)))["mix"]
    assert (values.min(0) >= [0.1, 0.2, 0.5, 0.4]).all()
    assert (values.max(0) <= [0.35, 1.0, 0.9, 0.4]).all()
    assert values.mean(0) == pytest.approx([0.225, 0.5, 0.7, 0.4], abs=0.02)


def test_a_flat_parameter_cannot_be_drawn() -> None:
    from denizen.fit._from_priors import of_model
    from denizen.space import generators

    model = sir(generators.erdos_renyi(50, mean_degree=4, seed=0))
    parameters = of_model("test", model, ["infect_rate"])
    with pytest.raises(InputError, match="'infect_rate' has no prior, which a posterior needs"):
        parameters.draw("test", 3, np.random.default_rng(0))


@pytest.mark.parametrize("noise", [dz.fit.Poisson(), dz.fit.NegativeBinomial(5)], ids=["poisson", "negative-binomial"])
def test_counts_have_the_density_that_they_are_drawn_from(noise: Noise) -> None:
    values, mean = np.arange(400.0), np.full(400, 30.0)
    density = np.exp(noise.log_prob(values, mean))
    uniform = (np.arange(100_000) + 0.5) / 100_000
    drawn = noise.draw(np.full(100_000, 30.0), uniform)
    assert density.sum() == pytest.approx(1, abs=1e-6)
    assert drawn.mean() == pytest.approx((values * density).sum(), rel=1e-3)
    assert drawn.var() == pytest.approx((values**2 * density).sum() - (values * density).sum() ** 2, rel=5e-3)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: LogNormal(0.0, -1.0), r"LogNormal\(loc=0, scale=-1\); expected scale"),
        (lambda: Normal(0.0, 0.0), "expected scale"),
        (lambda: Normal(float("nan"), 1.0), "expected loc Real"),
        (lambda: Uniform(0.5, 0.1), r"Uniform\(low=0.5, high=0.1\); expected low LessThan"),
        (lambda: TransformedDistribution(Normal(0.0, -1.0), [ExpTransform()]), "expected scale"),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda prior: dz.fit.Target(np.ones(9), delay=prior),
        lambda prior: dz.fit.Steps(prior=prior),
        lambda prior: dz.calibrate(lambda a, worlds: a, {"y": np.ones(9)}, priors={"a": prior}, progress=False),
        lambda prior: dz.calibrate(sir(CONTACTS), {"cases": np.ones(9)}, priors={"infect_rate": prior}),
    ],
    ids=["delay", "steps", "function", "model"],
)
def test_arguments_of_a_distribution_are_checked_where_torch_no_longer_does(
    make: Callable[[], Distribution], told: str, use: Callable[[Distribution], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any torch.compile turns torch's checks off for the process."""
    monkeypatch.setattr(Distribution, "_validate_args", False)
    prior = make()
    with pytest.raises(InputError, match=told):
        use(prior)
