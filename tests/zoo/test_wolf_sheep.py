"""Wolves, sheep and grass: flows are changes of stocks, energy is accounted for, and nothing depends on layout."""

from typing import Any

import pytest
import torch

import denizen as dz
from denizen.errors import CapacityError, InputError
from denizen.zoo.wolf_sheep import wolf_sheep

STEPS, SHEEP, WOLVES = 60, 60, 40


def total(name: str) -> Any:
    return lambda events: events[name].double().sum()


FLOWS = {
    name: total(f"{stage}/{name}") for stage, name in (("graze", "ate"), ("hunt", "eaten"), ("hunt", "prey_held"))
} | {
    f"{kind}_{name}": total(f"{stage}/{name}")
    for kind, stage in (("sheep", "graze"), ("wolf", "hunt"))
    for name in ("born", "starved", "held")
}
LEVELS = {
    "sheep_energy": lambda now: now.sheep_energy.double().sum(),
    "wolf_energy": lambda now: now.wolf_energy.double().sum(),
}


@pytest.fixture(scope="module")
def run() -> Any:
    return dz.simulate(wolf_sheep(), STEPS, replicates=6, record={**LEVELS, **FLOWS}, compile=False)


def stock(run: Any, name: str, begun: float) -> Any:
    """[replicates, steps + 1]."""
    return torch.cat([torch.full((len(run.worlds), 1), begun), run[name]], dim=1).double()


def test_flows_are_changes_of_stocks(run: Any) -> None:
    sheep, wolves = stock(run, "sheep", SHEEP), stock(run, "wolves", WOLVES)
    assert torch.equal(sheep.diff(dim=1), run["sheep_born"] - run["sheep_starved"] - run["eaten"])
    assert torch.equal(wolves.diff(dim=1), run["wolf_born"] - run["wolf_starved"])
    assert all(bool((run[name].sum(dim=1) > 5).all()) for name in ("eaten", "wolf_starved", "wolf_born"))
    assert torch.equal(run["grazed"].double(), run["ate"])
    assert torch.equal(run["hunted"].double(), run["eaten"])


def test_energy_is_accounted_for(run: Any) -> None:
    """In come 5 a cell of grass and 13 a sheep, out go 1 an animal and step and what the dead hold; births move it."""
    kinds = (
        ("sheep_energy", 5.0 * run["ate"], stock(run, "sheep", SHEEP), run["sheep_held"] + run["prey_held"]),
        ("wolf_energy", 13.0 * run["eaten"], stock(run, "wolves", WOLVES), run["wolf_held"]),
    )
    for name, gained, number, held in kinds:
        balance = (gained - number[:, :-1] - held)[:, 1:]
        assert torch.allclose(run[name].diff(dim=1), balance, atol=1e-3), name


def test_grass_grows_again_after_its_time() -> None:
    """With a sheep in every cell at all times each cell is grazed every eighth step: seven to grow, one to eat."""
    model = wolf_sheep(side=3, sheep=400, wolves=0, sheep_birth=0.0, regrow_steps=7, sheep_gain=10_000)
    grazed = dz.simulate(model, 24, compile=False)["grazed"][0]
    assert torch.equal(grazed[8:16], grazed[16:24])
    assert int(grazed[8:16].sum()) == 9


def test_a_replicate_alone_and_a_resumed_run(run: Any, tmp_path: Any) -> None:
    alone = dz.simulate(wolf_sheep(), STEPS, worlds=[4], compile=False)
    dz.simulate(wolf_sheep(), 20, worlds=[4], compile=False, out=tmp_path / "run")
    resumed = dz.run.resume(tmp_path / "run", wolf_sheep(), STEPS - 20, compile=False)
    for name in alone.series_names:
        assert torch.equal(run[name][4], alone[name][0]), name
        assert torch.equal(resumed[name], alone[name]), name


def test_room_that_is_not_needed_changes_nothing() -> None:
    one, other = (dz.simulate(wolf_sheep(sheep_room=n, wolf_room=n + 5), 20, compile=False) for n in (300, 900))
    for name in one.series_names:
        assert torch.equal(one[name], other[name]), name


def test_the_check_is_content() -> None:
    report = dz.check(wolf_sheep(side=8, sheep=20, wolves=10))
    assert report.ok, report


def test_wrong_arguments() -> None:
    with pytest.raises(InputError, match="unknown parameter 'wolf_brith'; did you mean 'wolf_birth'"):
        wolf_sheep(wolf_brith=0.1)
    with pytest.raises(InputError, match="sheep_room=3, expected a whole number, at least 60"):
        wolf_sheep(sheep_room=3)
    with pytest.raises(CapacityError, match="for sheep; raise the capacity"):
        dz.simulate(wolf_sheep(sheep_room=62, sheep_birth=0.9), 3, compile=False)
