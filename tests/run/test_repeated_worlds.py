"""Sets of parameters times worlds in one launch: a world number may stand in several rows."""

from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen.space import generators
from denizen.zoo.sir import sir

RATES, WORLDS = (0.03, 0.06, 0.03), (4, 7)


@pytest.fixture(scope="module")
def model() -> dz.Model:
    return sir(generators.erdos_renyi(300, 8.0, seed=1), infectious_days=5.0)


def rows(model: dz.Model, **options) -> dz.run.Run:
    rates = torch.tensor(RATES).repeat_interleave(len(WORLDS))
    return dz.simulate(
        model, 20, worlds=WORLDS * len(RATES), params={"infect_rate": rates}, seed=3, device="cpu", **options
    )


@pytest.mark.parametrize("compile", [False, True])
def test_each_row_equals_its_world_alone(model: dz.Model, compile: bool) -> None:
    cases = rows(model, compile=compile)["cases"].reshape(len(RATES), len(WORLDS), 20)
    assert torch.equal(cases[0], cases[2])  # the same numbers, the same parameters
    for k, rate in enumerate(RATES):
        for j, world in enumerate(WORLDS):
            alone = dz.simulate(model.replace(infect_rate=rate), 20, worlds=[world], seed=3, device="cpu")["cases"]
            assert torch.equal(cases[k, j], alone[0])


def test_such_a_run_is_stored_and_goes_on(model: dz.Model, tmp_path: Path) -> None:
    whole = rows(model).extend(10)
    rows(model, out=tmp_path / "run")
    resumed = dz.run.resume(tmp_path / "run", model).extend(10)
    assert resumed.worlds == list(WORLDS * len(RATES))
    assert torch.equal(resumed["cases"], whole["cases"])
