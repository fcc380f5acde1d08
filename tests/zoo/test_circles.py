"""Circles: density, balance of forces, and the distance at which two points settle."""

import math

import pytest
import torch

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.space import Space
from denizen.zoo.circles import Circles, circles
from denizen.zoo.circles.model import force


def test_density_gives_the_neighbours_that_it_should():
    """On a torus as many as the ball of the radius holds: 33.5 at density 1 and radius 2."""
    space = Space(size=(16.0, 16.0, 16.0))
    position = torch.rand(16**3, 3, generator=torch.Generator().manual_seed(0)) * 16
    counts = space.near(position, 2.0).count().double()
    expected = (16**3 - 1) / 16**3 * 4 / 3 * math.pi * 8
    # Of N²/2 pairs each is near with one probability: the standard error of the mean is sqrt(2 · mean / N).
    assert counts.mean().item() == pytest.approx(expected, abs=4 * math.sqrt(2 * expected / 16**3))
    assert circles(1_000).space.volume == pytest.approx(1_000)
    assert circles(400, dims=2, density=4).space.size == (10.0, 10.0)


def test_forces_are_balanced():
    """What one point does to another, that does to it: sums of unweighted forces cancel."""
    space = Space(size=(10.0, 10.0, 10.0))
    position = torch.rand(600, 3) * 10
    pull, num = space.near(position, 2.0).reduce(force, torch.tensor(0.5))
    assert num.sum() > 10_000
    torch.testing.assert_close(pull.double().sum(dim=0), torch.zeros(3).double(), rtol=0, atol=1e-2)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_two_points_settle_half_a_radius_apart(dims):
    model = circles(2, dims=dims, density=2 / 10**dims, push=0.2)
    for apart in (0.3, 1.7):
        start = torch.full((2, dims), 5.0)
        start[1, 0] += apart
        run = dz.simulate(Pair(model.space, push=0.2, num_agents=2, start=start), 60, compile=False)
        assert model.space.distance(*run.state.position[0]).item() == pytest.approx(1.0, abs=1e-3)
        assert run["drift"][0, -1] < 1e-3


class Pair(Circles):
    """Circles from given places."""

    start: torch.Tensor = None

    def init(self, rng):
        made = super().init(rng)
        return made.replace(position=self.start.to(made.position.dtype))


def test_worlds_and_layouts():
    model = circles(120)
    whole = dz.simulate(model, 4, seed=2, replicates=2, compile=False)
    order = torch.randperm(120)
    alone = dz.simulate(model, 4, seed=2, worlds=[1], ids=order, compile=False)
    assert torch.equal(whole.state.position[1][order], alone.state.position[0])
    assert model.space.inside(whole.state.position).all()
    assert dz.check(circles(20)).ok


def test_wrong_numbers_are_refused():
    for wrong in ({"dims": 4}, {"density": 0}, {"num_agents": 0}, {"puhs": 1.0}):
        with pytest.raises(InputError):
            circles(**wrong)
    with pytest.raises(ModelError, match=r"radius=50\.0 .* the longest side"):
        dz.simulate(circles(radius=50.0), 1, compile=False)
