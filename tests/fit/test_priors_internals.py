"""Priors in the numbers that a search moves on: densities, slopes, starts, draws."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import Tensor
from torch.distributions import (
    Beta,
    Dirichlet,
    Distribution,
    ExpTransform,
    LogNormal,
    Normal,
    TransformedDistribution,
    Uniform,
)

import denizen as dz
from denizen.errors import InputError
from denizen.fit import PerGroup, Shared, Steps, Walk
from denizen.fit._from_priors import of_model, of_priors
from denizen.fit._parameters import Parameters
from denizen.space import generators
from denizen.zoo.sir import SIR, sir

LOG_UNIFORM = TransformedDistribution(Uniform(math.log(0.01), math.log(0.15)), [ExpTransform()])
PRIORS = [Normal(1.0, 2.0), LogNormal(0.3, 0.5), Uniform(-1.0, 3.0), Beta(2.0, 3.0), LOG_UNIFORM]
PRIOR = Dirichlet(torch.tensor([2.0, 3.0, 1.5]))


@pytest.fixture(scope="module")
def model() -> SIR:
    return sir(generators.erdos_renyi(50, 4.0, seed=0), infect_rate=0.04, infectious_days=6.0)


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
    model = sir(generators.erdos_renyi(50, mean_degree=4, seed=0))
    parameters = of_model("test", model, ["infect_rate"])
    with pytest.raises(InputError, match="'infect_rate' has no prior, which a posterior needs"):
        parameters.draw("test", 3, np.random.default_rng(0))


def test_a_dirichlet_is_a_density_of_the_free_numbers() -> None:
    parameters = of_priors("test", {"mix": PRIOR})
    assert parameters.labels == ["mix[0]", "mix[1]"]
    grid = np.linspace(-20, 20, 401)
    places = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    density = np.exp(parameters.log_prior(places.reshape(-1, 2))).reshape(401, 401)
    assert integrate.trapezoid(integrate.trapezoid(density, grid), grid) == pytest.approx(1, abs=2e-3)
    drawn = parameters.draw("test", 20_000, np.random.default_rng(0))
    shares = parameters.values(drawn)["mix"]
    assert shares.sum(1) == pytest.approx(1)
    assert shares.mean(0) == pytest.approx(PRIOR.mean.numpy(), abs=0.01)
    weights = density / density.sum()
    assert drawn.mean(0) == pytest.approx(np.tensordot(weights, places, 2), abs=0.04)


def test_slope_and_curvature_of_shares_are_those_of_the_density() -> None:
    parameters = of_priors("test", {"x": Normal(0.0, 1.0), "mix": PRIOR})
    at, moves = np.array([0.3, 0.5, -1.0]), 1e-4 * np.eye(3)
    slope, curve = parameters.prior(at)
    ends = [parameters.log_prior(at + sign * moves) for sign in (1, -1)]
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-6)
    found = [(parameters.prior(at - one)[0] - parameters.prior(at + one)[0]) / 2e-4 for one in moves]
    assert curve == pytest.approx(np.array(found), abs=1e-6)


def test_steps_go_with_the_draws_of_a_posterior(model: SIR) -> None:
    """A free number is the logarithm of a value: as the prior draws it, so the values scatter."""
    parameters = of_model("test", model, {"infect_rate": Steps(prior=Walk(0.3, first=LogNormal(-3.0, 0.5)))}, {}, 30)
    assert parameters.labels == [f"infect_rate[{k}]" for k in range(5)]
    drawn = parameters.draw("test", 20_000, np.random.default_rng(0))
    assert drawn[:, 0].std() == pytest.approx(0.5, rel=0.03)
    assert np.diff(drawn, axis=1).std() == pytest.approx(0.3, rel=0.03)
    assert parameters.values(drawn)["infect_rate"].shape == (20_000, 5)


def test_the_little_of_a_prior_beyond_the_bounds_counts_for_nothing(model: SIR) -> None:
    parameters = of_model("test", model, {"infect_rate": Normal(0.1, 0.032), "infectious_days": LogNormal(1.8, 1.0)})
    drawn = parameters.draw("test", 20_000, np.random.default_rng(0))
    assert np.isfinite(drawn).all()
    assert parameters.values(drawn)["infect_rate"].mean() == pytest.approx(0.1, rel=0.01)
    with pytest.raises(InputError, match="outside the bounds"):
        of_model("test", model, {"infect_rate": Normal(0.1, 0.04)})


class Vector(dz.Model):
    num_agents: int = 3
    rate: Tensor = dz.param([1.0, 1.0, 0.5], low=0.0)
    share: Tensor = dz.param(0.5, low=0.0, high=1.0)


def of(prior: Any) -> Parameters:
    return of_model("test", Vector(), {"rate": prior}, {}, 10)


def test_one_number_for_all_or_each_by_itself() -> None:
    shared = of(Shared(LogNormal(0.0, 1.0)))
    assert shared.labels == ["rate"]
    assert shared.values(np.log([[2.0], [3.0]]))["rate"].round(9).tolist() == [[2, 2, 2], [3, 3, 3]]
    held = of(PerGroup([LogNormal(0.0, 1.0), None, 0.0]))
    assert held.labels == ["rate[0]", "rate[1]"]
    assert held.values(np.log([[2.0, 3.0]]))["rate"].round(9).tolist() == [[2, 3, 0]]
    with pytest.raises(InputError, match="'rate' has no prior"):
        held.draw("test", 1, np.random.default_rng(0))


def test_on_a_bound_the_search_begins_at_the_median() -> None:
    model = Vector(rate=[1.0, 1.0, 0.0])
    assert of_model("test", model, {"rate": LogNormal(1.0, 1.0)}).start == pytest.approx([0, 0, 1])
    assert of_model("test", model, {"rate": Walk(0.1, first=LogNormal(1.0, 1.0))}).start == pytest.approx([0, 0, 1])
    with pytest.raises(InputError, match="lies on a bound"):
        of_model("test", model, {"rate": Walk(0.1)})


@pytest.mark.parametrize(
    "prior",
    [
        LogNormal(0.3, 0.5),
        Shared(LogNormal(0.3, 0.5)),
        PerGroup([LogNormal(0.3, 0.5), Uniform(0.5, 9.0), 0.0]),
        Walk(0.4, first=LogNormal(0.3, 0.5)),
        Walk(0.4),
        Steps(every=5, prior=LogNormal(0.3, 0.5)),
        Steps(every=3, prior=Walk(0.4, first=LogNormal(0.3, 0.5))),
    ],
)
def test_slope_and_curvature_are_those_of_the_density(prior: Any) -> None:
    parameters = of(prior)
    at = 0.3 * np.random.default_rng(0).normal(size=len(parameters.labels)) + 0.5
    slope, curve = parameters.prior(at)
    h = 1e-4
    steps = h * np.eye(len(at))
    up, down = parameters.log_prior(at + steps), parameters.log_prior(at - steps)
    assert slope == pytest.approx((up - down) / (2 * h), abs=1e-6)
    for k, step in enumerate(steps):
        row = (parameters.prior(at - step)[0] - parameters.prior(at + step)[0]) / (2 * h)
        row[k] = max(row[k], 0)
        assert curve[k] == pytest.approx(row, abs=1e-5)


def test_shares_of_which_one_is_0_begin_at_the_mean_of_their_prior() -> None:
    class Three(Mix):
        mix: Tensor = dz.param([0.5, 0.5, 0.0], low=0.0)

    begun = of_model("test", Three(), {"mix": PRIOR})
    assert begun.values(begun.start[None])["mix"][0] == pytest.approx(PRIOR.mean.numpy())
