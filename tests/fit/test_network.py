"""Networks that predict parameters, trained through simulations of several places; and `CalibNN` on towns of SIR."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.space import generators
from denizen.zoo.calibnn import CalibNN, CalibNNConfig
from denizen.zoo.sir import SIR, sir
from models_to_fit import Rain, Wet


class Cloudy(torch.nn.Module):
    """More clouds, more rain."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
        torch.nn.init.zeros_(self.line.weight)
        torch.nn.init.zeros_(self.line.bias)

    def forward(self, clouds: Tensor) -> dict[str, Tensor]:
        return {"rate": self.line(clouds)[:, 0]}


def sky(seed: int) -> tuple[Tensor, Rain]:
    """Clouds of three times two hours, and the truth: 0.6 exp(0.5 clouds)."""
    clouds = torch.tensor(np.random.default_rng(seed).normal(size=(3, 1)), dtype=torch.float32)
    return clouds, Rain(rate=(0.6 * (0.5 * clouds[:, 0]).exp()).tolist())


def place(seed: int) -> dz.fit.Place:
    clouds, truth = sky(seed)
    values = dz.simulate(truth, 6, seed=seed, device="cpu")["wet"][0]
    return dz.fit.Place(Rain(), clouds, {"wet": values})


def trained(network: Any = None, places: Any = None, **options: Any) -> dz.fit.NetworkFit:
    places = [place(seed) for seed in range(3)] if places is None else places
    usual = {"iterations": 60, "lr": 0.05, "device": "cpu", "progress": False}
    return dz.fit.train_network(network or Cloudy(), places, **{**usual, **options})


@pytest.fixture(scope="module")
def fit() -> dz.fit.NetworkFit:
    return trained()


def test_what_places_have_in_common_is_learned(fit: dz.fit.NetworkFit) -> None:
    """log(0.6 / 0.5) and 0.5, from 18 counts of some 180 of 400: ± 0.03 each, seen in 150 fits of a line."""
    assert fit.network.line.bias.item() == pytest.approx(np.log(1.2), abs=0.1)
    assert fit.network.line.weight.item() == pytest.approx(0.5, abs=0.1)
    assert fit.losses.shape == (60, 3)
    assert fit.losses[-10:].mean() < 0.3 * fit.losses[0].mean()
    assert "no intervals" in str(fit)


def test_a_place_it_never_saw(fit: dz.fit.NetworkFit) -> None:
    clouds, truth = sky(9)
    found = fit.model(Rain(), clouds)
    assert found.rate.tolist() == pytest.approx(truth.rate.tolist(), rel=0.2)
    assert isinstance(found, Rain)


def test_the_same_seed_gives_the_same_network() -> None:
    one, two = (trained(iterations=3) for _ in range(2))
    assert np.array_equal(one.losses, two.losses)
    assert torch.equal(one.network.line.weight, two.network.line.weight)


class Says(torch.nn.Module):
    def __init__(self, what: Any) -> None:
        super().__init__()
        self.weight, self.what = torch.nn.Parameter(torch.zeros(())), what

    def forward(self, clouds: Tensor) -> Any:
        return self.what


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"network": 3}, "network is int, expected a torch.nn.Module"),
        ({"network": Says(3)}, "Says gave 3, expected free numbers by name"),
        ({"network": Says({"rat": 1})}, "Says gave 'rat'; did you mean 'rate'"),
        ({"network": Says({"rate": torch.zeros(2)})}, r"Says gave 'rate' of shape \(2,\), expected \(3,\)"),
        ({"places": []}, r"places=\[\], expected a list of dz.fit.Place"),
        ({"places": [3]}, r"places=\[3\], expected a list"),
        ({"lr": -1}, "train_network: lr=-1"),
        ({"iterations": 0}, "iterations=0"),
        ({"replicates": 1}, "replicates=1"),
        ({"optimizer": 3}, "optimizer=3, expected a function"),
    ],
)
def test_wrong_arguments(given: dict[str, Any], message: str) -> None:
    network = given.pop("network", None)
    with pytest.raises(InputError, match=message):
        trained(network, **given)


def test_wrong_places() -> None:
    for given, message in (
        ((3, torch.zeros(3, 1), {"wet": [1.0]}), "model is int"),
        ((Rain(), [1.0], {"wet": [1.0]}), "expected a tensor of finite numbers"),
        ((Rain(), torch.full((3, 1), torch.nan), {"wet": [1.0]}), "expected a tensor of finite numbers"),
        ((Rain(), torch.zeros(3, 1), {}), "expected observed series by name"),
    ):
        with pytest.raises(InputError, match=message):
            dz.fit.Place(*given)


def test_a_model_that_fails_is_told() -> None:
    class Fragile(Rain):
        def step(self, now: Any, rng: dz.rng.Rng) -> Wet:
            rng.bernoulli("fragile", (2 * self.rate.mean()).expand(400))
            return super().step(now, rng)

    start = Fragile(rate=[0.4, 0.4, 0.4])
    with pytest.raises(ModelError, match=r"train_network: place 0: rng.bernoulli\('fragile'\)"):
        trained(places=[dz.fit.Place(start, torch.ones(3, 1), {"wet": [300.0] * 6})])


# --- CalibNN ----------------------------------------------------------------------------------------------------------


def test_calibnn_gives_numbers_of_all_weeks() -> None:
    network = CalibNN(CalibNNConfig(features=2, weekly=["R"], constant=["mortality"], hidden=8))
    found = network(torch.randn(5, 2))
    assert {name: tuple(value.shape) for name, value in found.items()} == {"R": (5,), "mortality": ()}
    assert max(float(value.detach().abs().max()) for value in found.values()) < 0.05
    with pytest.raises(InputError, match=r"covariates have shape \(5, 3\), expected \[weeks, 2\]"):
        network(torch.randn(5, 3))
    for wrong, message in (
        ({"features": 0}, "features=0"),
        ({"features": 2}, "nothing to give"),
        ({"features": 2, "weekly": "R"}, "weekly='R', expected a list"),
    ):
        with pytest.raises(InputError, match=message):
            CalibNNConfig(**wrong)


@pytest.mark.slow
def test_calibnn_learns_from_towns_of_sir() -> None:
    """Where people meet more, each contact infects more: known truths, and a town that was not trained with."""
    torch.manual_seed(0)

    def town(mixing: float, seed: int) -> tuple[SIR, Tensor, float]:
        graph = generators.erdos_renyi(300, 10.0, seed=seed)
        truth = 0.05 * float(np.exp(0.4 * mixing))
        return sir(graph, infect_rate=truth, seed_share=0.1), torch.full((3, 1), mixing), truth

    places = []
    for k, mixing in enumerate((-1.5, 0.0, 1.5)):
        model, covariates, _ = town(mixing, k)
        cases = dz.simulate(model, 21, seed=50 + k, device="cpu")["cases"][0].reshape(-1, 7).sum(1)
        start = model.replace(infect_rate=0.05)
        places.append(dz.fit.Place(start, covariates, {"cases": dz.fit.Target(cases, every=7)}))
    network = CalibNN(CalibNNConfig(features=1, constant=["infect_rate"], hidden=8))
    fit = dz.fit.train_network(network, places, iterations=40, lr=0.04, device="cpu", progress=False)
    model, covariates, truth = town(1.0, 9)
    found = fit.model(model.replace(infect_rate=0.05), covariates)
    assert float(found.infect_rate) == pytest.approx(truth, rel=0.2)
    assert fit.losses[-10:].mean() < 0.5 * fit.losses[0].mean()


@pytest.mark.cuda
def test_a_network_is_trained_on_a_gpu() -> None:
    fit = trained(device="cuda")
    assert fit.network.line.bias.item() == pytest.approx(np.log(1.2), abs=0.1)
    clouds, truth = sky(9)
    assert fit.model(Rain(), clouds).rate.tolist() == pytest.approx(truth.rate.tolist(), rel=0.2)
