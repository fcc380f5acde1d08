"""Households and tracing: R of the traced, counted from who infected whom, and cases that fall with coverage."""

import math

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.space.generators import erdos_renyi
from denizen.zoo.household_tracing import HouseholdTracing, household_tracing


@pytest.mark.parametrize("coverage", [0.0, 0.7])
def test_cases_of_a_case_are_those_of_a_branching_process(coverage: float) -> None:
    degree, rate, days, tested = 8.0, 0.2, 3, 0.8
    town = erdos_renyi(30_000, degree, seed=1)
    options = {"household_size": 1, "latent_days": 4, "infectious_days": days, "outside_rate": rate}
    model = household_tracing(town, **options, tested_share=tested, coverage=coverage, seed_share=0.0006)
    table = dz.simulate(model, 22, replicates=6, seed=2, compile=False, log=dz.run.EventLog("caught")).events("caught")
    others = table.offspring()[table["step"] <= 12]
    expected = (1 - tested * coverage) * degree * -math.expm1(-rate * days)
    error = others.std() / len(others) ** 0.5
    assert len(others) > 600
    assert abs(others.mean() - expected) < 3 * error + 0.03 * expected  # contacts that were infected already


def test_cases_fall_with_coverage_and_rows_tell_where() -> None:
    model = household_tracing(erdos_renyi(1_500, 10.0, seed=1), seed_share=0.005)
    coverage = [0.0, 0.3, 0.6, 0.9]
    run = dz.simulate(
        model,
        60,
        worlds=[world for _ in coverage for world in range(3)],
        params={"coverage": [share for share in coverage for _ in range(3)]},
        compile=False,
        log=dz.run.EventLog(["caught", "isolated"]),
    )
    cases = run["cases"].sum(dim=1).view(4, 3).double().mean(dim=1)
    assert (cases.diff() < 0).all()
    caught = run.events("caught")
    assert np.array_equal(caught.incidence(), run["cases"].numpy())
    home = caught["layer"] == 0
    assert (caught["by"][home] // 3 == caught["id"][home] // 3).all()  # households of three neighbours
    assert 0.1 < home.mean() < 0.9
    isolated = run.events("isolated")
    assert isolated.incidence().sum() > 100
    early = isolated["step"] < 10  # whoever isolates on day d cannot infect outside from d + 1 on
    rows = zip(isolated["replicate"][early], isolated["id"][early], isolated["step"][early], strict=True)
    away = {(replicate, who): step for replicate, who, step in rows}
    outside = zip(caught["replicate"][~home], caught["by"][~home], caught["step"][~home], strict=True)
    assert not [1 for replicate, by, step in outside if 0 < step - away.get((replicate, by), step) <= 14]


def test_the_model_keeps_the_rules() -> None:
    model = household_tracing(erdos_renyi(40, 5.0, seed=1))
    assert isinstance(model, HouseholdTracing)
    assert dz.check(model, gradient=False).ok


WRONG = [
    ({"coverag": 0.5}, r"unknown parameter 'coverag'; did you mean 'coverage'"),
    ({"latent_days": 0}, r"latent_days=0"),
    ({"infectious_days": 57}, r"infectious_days=57"),
    ({"household_size": 0}, r"household_size=0"),
]


@pytest.mark.parametrize(("options", "told"), WRONG)
def test_what_is_wrong_is_told(options: dict[str, float], told: str) -> None:
    with pytest.raises(InputError, match=told):
        household_tracing(erdos_renyi(40, 5.0, seed=1), **options)


def test_other_contacts_and_steps_are_refused() -> None:
    graph = dz.Graph.from_edges([0], [1], 2)
    with pytest.raises(InputError, match=r"contacts is Layers home, expected a graph, or Layers 'home' and 'outside'"):
        household_tracing(dz.space.Layers({"home": graph}))
    with pytest.raises(InputError, match=r"household_tracing: dt=0.5, expected 1"):
        dz.simulate(household_tracing(graph), 2, dt=0.5)


def test_traced_is_the_law_of_a_draw_for_each_contact() -> None:
    """Of k index cases each names a contact with probability p: 1 - (1 - p)^k; layers multiply. Many small towns."""
    towns = 4000
    first = 6 * torch.arange(towns)[:, None]

    def graph(source: list[int], target: list[int]) -> dz.Graph:
        ends = [(first + torch.tensor(end)).flatten() for end in (source, target)]
        return dz.Graph.from_edges(*ends, 6 * towns, weight=torch.full((len(ends[0]),), 9.0))

    layers = dz.space.Layers({"a": graph([0, 1, 2, 0, 0], [3, 3, 3, 4, 5]), "b": graph([1], [4])})
    index = torch.tensor([1, 1, 1, 0, 0, 0], dtype=torch.int8).repeat(towns)
    rng = dz.rng.Rng(torch.tensor([1, 0]), torch.tensor(0), num=6 * towns)
    found = layers.traced(rng, "trace", index, {"a": 0.2, "b": torch.tensor(0.5)})
    shares = torch.tensor([0, 0, 0, 1 - 0.8**3, 1 - 0.8 * 0.5, 0.2])
    assert torch.allclose(found.view(towns, 6).float().mean(dim=0), shares, atol=4 * 0.5 / towns**0.5)
    certain = layers["a"].traced(rng, "all", index, 1.0)
    assert certain.view(towns, 6).float().mean(dim=0).tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(InputError, match=r"Graph.traced: prob=1.5, expected a number from 0 to 1"):
        layers["a"].traced(rng, "trace", index, 1.5)
    with pytest.raises(InputError, match=r"unknown layer 'c'"):
        layers.traced(rng, "trace", index, {"c": 1.0})
