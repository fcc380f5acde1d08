"""The voter model: the share is a martingale, opinions win by their share, consensus takes as long as theory says."""

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.relax import MeanField
from denizen.space import Grid
from denizen.zoo.voter import Voter, discord_on_square, steps_to_consensus, voter

REPLICATES = 200


def complete(voters):
    ends = (~torch.eye(voters, dtype=torch.bool)).nonzero().T
    return dz.Graph.from_edges(*ends, voters)


def exact(voters, share, asks):
    """(mean steps to consensus, standard deviation) where all are neighbours, from the chain of the number of ones."""
    import numpy as np
    from scipy import stats

    number = np.arange(voters + 1)
    moves = np.zeros((voters + 1, voters + 1))
    for ones in number:
        lost = stats.binom.pmf(number, ones, asks * (voters - ones) / (voters - 1))
        won = stats.binom.pmf(number, voters - ones, asks * ones / (voters - 1))
        for change in range(ones + 1):
            moves[ones, ones - change : ones - change + voters - ones + 1] += lost[change] * won[: voters - ones + 1]
    inner = np.eye(voters - 1) - moves[1:-1, 1:-1]
    mean = np.linalg.solve(inner, np.ones(voters - 1))
    square = np.linalg.solve(inner, 2 * mean - 1)
    start = stats.binom.pmf(number, voters, share)[1:-1]
    return start @ mean, (start @ square - (start @ mean) ** 2) ** 0.5


def test_consensus_where_all_are_neighbours():
    pytest.importorskip("scipy")
    voters, share = 20, 0.3
    model = Voter(complete(voters), share=share)
    run = dz.simulate(model, 250, replicates=REPLICATES, compile=False, device="cpu")
    ones = run["ones"].double()
    apart = (ones > 0) & (ones < 1)
    assert not apart[:, -1].any()
    won = float((ones[:, -1] == 1).double().mean())
    assert abs(won - share) < 4 * (share * (1 - share) / REPLICATES) ** 0.5
    spread = ones[:, ::25].std(0) / REPLICATES**0.5
    assert ((ones[:, ::25].mean(0) - share).abs() < 4 * spread).all()
    asks = 1 - 2.718281828459045**-1
    mean, deviation = exact(voters, share, asks)
    steps = 1 + apart.sum(1).double()  # the step that agrees is the last; one in 1,000 worlds begins in agreement
    assert abs(float(steps.mean()) - mean) < 4 * deviation / REPLICATES**0.5 + 1e-3


def test_the_time_to_consensus_grows_with_the_number():
    pytest.importorskip("scipy")
    asks = 1 - 2.718281828459045**-1
    for voters in (200, 400):
        exactly = exact(voters, 0.3, asks)[0]
        assert steps_to_consensus(voters, 0.3, 1.0) == pytest.approx(exactly, rel=0.02)


def test_on_a_grid_as_on_its_graph():
    grid = Grid((5, 6), torus=False, neighbours="von_neumann")
    graph = grid.graph()
    on_grid, on_graph = (dz.simulate(Voter(contacts), 30, replicates=3, seed=2) for contacts in (grid, graph))
    for name in ("ones", "discord"):
        assert torch.equal(on_grid[name], on_graph[name])
    soft = [dz.simulate(Voter(contacts), 5, relax=MeanField()) for contacts in (grid, graph)]
    torch.testing.assert_close(soft[0]["discord"], soft[1]["discord"])


def test_who_has_no_neighbours_keeps_the_opinion():
    model = Voter(dz.Graph.from_edges([0], [1], 4), share=1.0)
    assert dz.simulate(model, 10)["ones"].eq(1).all()


@pytest.mark.slow
def test_neighbours_on_a_large_square_agree_as_slowly_as_published():
    run = dz.simulate(voter(rows=200, columns=200), 400, replicates=2, dt=0.25, compile=False, device="cpu")
    assert float(run["discord"][:, -1].mean()) == pytest.approx(discord_on_square(100.0), rel=0.04)


def test_wrong_arguments():
    for wrong, told in (({"rows": 2}, "rows=2"), ({"rat": 0.1}, "rate"), ({"share": 2.0}, "share")):
        with pytest.raises(InputError, match=told):
            voter(**wrong)
