"""Schelling's segregation: the mean of a random start, fixed points, conservation, and what the engine promises."""

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.zoo.schelling import Schelling, schelling


def test_the_share_of_a_random_start_is_the_exact_one():
    """Nobody needs anybody, so nobody moves."""
    agents, replicates = 20, 3000
    model = schelling(6, 6, num_agents=agents, need=0)
    run = dz.simulate(model, 1, replicates=replicates, seed=1, compile=False)
    share = run["segregation"][:, 0].double()
    neighbours = torch.vmap(lambda cell: model.grid.at(model.grid.sum(model.grid.occupants(cell)), cell).sum())
    weight = neighbours(run.state.cell).double()  # the mean over pairs is the exact one, whatever their number
    mean = float((share * weight).sum() / weight.sum())
    error = float(share.std()) / replicates**0.5
    assert abs(mean - (0.5 - 1 / (2 * (agents - 1)))) < 4 * error
    assert error < 0.004
    assert int(run["unhappy"].sum()) == 0


@pytest.fixture(scope="module")
def town() -> dz.run.Run:
    return dz.simulate(schelling(16, 16, num_agents=160), 80, replicates=6, seed=2, compile=False)


def test_the_town_parts(town):
    assert float(town["segregation"][:, 0].mean()) < 0.7
    assert float(town["segregation"][:, -1].mean()) > 0.85


def test_a_town_where_nobody_is_unhappy_stays(town):
    settled = town["unhappy"] == 0
    assert settled[:, -1].any()
    assert (settled.int().diff(dim=1) >= 0).all()  # once settled, for ever
    before = town.state.cell
    town.extend(3)
    still = settled[:, -1]
    assert town.state.cell[still].equal(before[still])


def test_groups_and_cells_are_kept(town):
    assert (town.state.second.sum(dim=1) == 80).all()
    for cells in town.state.cell:
        assert cells.unique().numel() == 160
        assert 0 <= int(cells.min()) <= int(cells.max()) < 256


def test_more_movers_than_empty_cells():
    run = dz.simulate(schelling(6, 6, num_agents=34, need=8), 5, replicates=4, compile=False)
    assert (run["unhappy"] > 2).all()
    assert all(cells.unique().numel() == 34 for cells in run.state.cell)


def test_worlds_resume_and_order():
    """Replicate i is world i alone, in pieces too; agents laid out in another order make the same town."""
    model = schelling(8, 8, num_agents=40)
    whole = dz.simulate(model, 12, replicates=3, seed=4, compile=False)
    alone = dz.simulate(model, 5, worlds=[2], seed=4, compile=False).extend(7)
    for name in ("segregation", "unhappy"):
        assert torch.equal(whole[name][2], alone[name][0])
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    other = dz.simulate(model, 12, worlds=[2], seed=4, ids=order, compile=False)
    assert torch.equal(other["unhappy"][0], whole["unhappy"][2])
    assert torch.equal(other.state.cell[0], whole.state.cell[2][order])


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # torch's own, when inductor is first loaded
@pytest.mark.parametrize("path", ["native", "compiled"])
def test_compiled_equals_eager(path, inside):
    if path == "compiled":
        inside.without_native()
    model = schelling(8, 8, num_agents=40)
    eager, compiled = (dz.simulate(model, 6, replicates=2, compile=choice) for choice in (False, True))
    assert compiled.stats()["path"] == path
    assert torch.equal(eager.state.cell, compiled.state.cell)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"num_agents": 1601}, "num_agents=1601, expected .* from 2 to 1600"),
        ({"need": 9}, "need=9, expected at most 8, the neighbours within radius=1"),
        ({"need": -1}, "need=-1, expected .* at least 0"),
        ({"rows": 0}, r"shape\[0\]=0"),
        ({"radius": 40}, "radius=40"),
    ],
)
def test_what_makes_no_town_is_refused(arguments, told):
    with pytest.raises(InputError, match=told):
        schelling(**arguments)


@pytest.mark.slow
def test_the_check_finds_nothing():
    assert isinstance(schelling(), Schelling)
    assert dz.check(schelling(6, 6, num_agents=20), gradient=False).ok
