"""Boids: flocking against exact values, symmetries, and the engine's promises for continuous space."""

import math
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.space import Space
from denizen.zoo.boids import Birds, Boids, boids


def test_random_headings_have_the_order_of_a_random_walk():
    """E |mean heading| = sqrt(pi) / (2 sqrt N) in two dimensions."""
    run = dz.simulate(boids(100, cohere=0, separate=0, match=0), 1, replicates=400, seed=0, compile=False)
    expected = math.sqrt(math.pi) / (2 * math.sqrt(100))
    spread = math.sqrt((1 - math.pi / 4) / 100 / 400)  # of the mean of 400 Rayleigh numbers
    assert run["order"].mean().item() == pytest.approx(expected, abs=4 * spread)


def test_birds_that_match_come_to_fly_one_way():
    run = dz.simulate(boids(60, side=20, radius=8, cohere=0, separate=0, match=0.5), 60, seed=1, compile=False)
    assert run["order"][0, -1] > 0.9999


def test_birds_that_only_cohere_and_separate_keep_a_distance():
    """Two birds that push each other away as they pull: forces are opposite."""
    model = boids(2, side=50, radius=20)
    start = Birds(position=torch.tensor([[20.0, 25.0], [24.0, 25.0]]), heading=torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    near = model.space.near(start.position, 20.0)
    away = near.reduce(lambda offset, distance: offset)
    assert torch.equal(away[0], -away[1])


@pytest.mark.parametrize("shift", [(0.0, 31.0), (75.0, 12.5)])
def test_nothing_depends_on_where_the_flock_is_or_how_it_is_turned(shift):
    """Shifts on a torus and quarter turns: exact but for rounding."""
    model = boids(50, side=64, radius=12)

    def step(position, heading):
        near = model.space.near(position, model.radius)
        away, course = near.reduce(lambda offset, distance, heading: (offset, heading), heading)
        return away, course

    position, heading = torch.rand(50, 2) * 64, torch.randn(50, 2)
    away, course = step(position, heading)
    moved = step(model.space.wrap(position + torch.tensor(shift)), heading)
    torch.testing.assert_close(moved[0], away, rtol=1e-4, atol=2e-4)
    torch.testing.assert_close(moved[1], course, rtol=1e-4, atol=1e-5)

    def turned(x):
        return torch.stack([-x[:, 1], x[:, 0]], dim=1)

    around = step(model.space.wrap(turned(position - 32) + 32), turned(heading))
    torch.testing.assert_close(around[0], turned(away), rtol=1e-4, atol=2e-4)
    torch.testing.assert_close(around[1], turned(course), rtol=1e-4, atol=1e-5)


def test_promises_of_the_engine():
    """Replicates alone, another layout and a resumed run: the same bits."""
    model = boids(40, side=30, radius=8)
    whole = dz.simulate(model, 12, seed=5, replicates=3, compile=False)
    alone = dz.simulate(model, 12, seed=5, worlds=[1], compile=False)
    assert torch.equal(whole["order"][1], alone["order"][0])
    assert torch.equal(whole.state.position[1], alone.state.position[0])
    order = torch.randperm(40)
    turned = dz.simulate(model, 12, seed=5, worlds=[1], ids=order, compile=False)
    assert torch.equal(turned.state.position[0], alone.state.position[0][order])
    begun = dz.simulate(model, 5, seed=5, worlds=[1], compile=False)
    begun.extend(7)
    assert torch.equal(begun.state.position, alone.state.position)


def test_check_passes_and_names_what_is_wrong():
    assert dz.check(boids(20, side=30, radius=8)).ok
    with pytest.raises(InputError, match="did you mean 'match'"):
        boids(20, mach=0.1)


class Thinks(Boids):
    """Newcomers' mistakes: `if` on a tensor in a pair, a tensor from outside, the whole model, a fitted radius."""

    mistake: str = "if"

    def step(self, now, rng):
        def decides(offset, distance):
            return offset if distance < 1 else -offset  # here: if

        factor = self.cohere

        def takes(offset, distance):
            return offset * factor  # here: outside

        def asks(offset, distance):
            return offset * self.cohere

        radius = self.separation if self.mistake == "radius" else 8.0
        near = self.space.near(now.position, radius)  # here: radius
        if self.mistake == "self":
            near.reduce(asks)  # here: self
        near.reduce(takes if self.mistake == "outside" else decides)
        return now


@pytest.mark.parametrize("mistake", ["if", "radius", "outside", "self"])
def test_mistakes_are_told_by_line(mistake):
    model = Thinks(Space(size=(30.0, 30.0)), num_agents=20, mistake=mistake)
    report = dz.check(model)
    assert not report.ok
    lines = Path(__file__).read_text().splitlines()
    assert any(lines[f.line.number - 1].endswith(f"# here: {mistake}") for f in report.findings if f.line), report
