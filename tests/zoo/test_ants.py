"""Ants that forage: food and scent are conserved, scent pays, and what the engine promises."""

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.zoo.ants import ants


@pytest.mark.slow
def test_scent_pays():
    run, without = (dz.simulate(ants(drop=drop), 200, replicates=4, seed=1, compile=False) for drop in (60.0, 0.0))
    assert float(without["scent"].max()) == 0
    best, worst = without["brought"][:, -1].max(), run["brought"][:, -1].min()
    assert int(worst) > int(best)
    assert float(run["brought"][:, -1].float().mean()) > 1.5 * float(without["brought"][:, -1].float().mean())


def test_scent_is_what_was_left_where_nothing_evaporates():
    run = dz.simulate(ants(25, num_agents=60, evaporation=0.0, drop=0.5), 60, replicates=3, seed=2, compile=False)
    left = 0.5 * run["carried"].cumsum(dim=1)
    assert int(run["carried"].max()) > 0
    assert torch.equal(run["scent"], left.float())


def test_scent_evaporates_by_its_share():
    model = ants(25, num_agents=60, evaporation=0.25)
    run = dz.simulate(model, 60, seed=2, compile=False)
    scent, dropped = run["scent"][0].double(), 60.0 * run["carried"][0].double()
    expected = 0.75 * scent[:-1] + dropped[1:]
    assert torch.allclose(scent[1:], expected, rtol=1e-3, atol=1.0)


def test_food_is_conserved_in_worlds_that_resume_in_any_order():
    """Replicate i is world i alone, in pieces too; agents laid out in another order make the same colony."""
    model = ants(21, num_agents=30)
    whole = dz.simulate(model, 40, replicates=3, seed=4, compile=False)
    everything = whole["food"] + whole["carried"] + whole["brought"]
    assert (everything == int(model.larder.sum())).all()
    alone = dz.simulate(model, 15, worlds=[2], seed=4, compile=False).extend(25)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    other = dz.simulate(model, 40, worlds=[2], seed=4, ids=order, compile=False)
    for one in (alone, other):
        assert torch.equal(one["brought"][0], whole["brought"][2])
        assert torch.equal(one.state.scent[0], whole.state.scent[2])
    assert torch.equal(other.state.cell[0], whole.state.cell[2][order])
    assert int(whole["brought"].max()) > 0


@pytest.mark.slow
def test_the_check_finds_nothing():
    assert dz.check(ants(21, num_agents=30), gradient=False).ok


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"size": 10}, "size=10, expected .* at least 15"),
        ({"num_agents": 0}, "num_agents=0"),
        ({"portions": 0}, "portions=0"),
        ({"droop": 1.0}, "unknown parameter 'droop'; did you mean 'drop'"),
        ({"evaporation": 1.5}, "evaporation"),
    ],
)
def test_what_makes_no_colony_is_refused(arguments, told):
    with pytest.raises(InputError, match=told):
        ants(**arguments)
