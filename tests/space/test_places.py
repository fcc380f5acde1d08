"""Places: sums over others in the same room, households against Reed and Frost's law, admission, and the promises."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.space import Places


@given(seed=st.integers(0, 99), places=st.integers(1, 9), kind=st.sampled_from(["mask", "count", "real", "bound"]))
def test_sums_and_means_by_hand(seed, places, kind):
    gen = np.random.default_rng(seed)
    place, values = gen.integers(0, places + 1, 30), gen.integers(0, 2 if kind == "mask" else 900, 30)
    values = values.astype({"mask": np.int8, "count": np.int32}.get(kind, float))
    rooms, at, given = Places(places), torch.from_numpy(place).int(), torch.from_numpy(values)
    others = [[j for j in range(30) if j != i and place[j] == place[i] < places] for i in range(30)]
    total = np.array([values[o].sum() for o in others], float)
    many = np.array([len(o) for o in others])
    bound = {"max": 900.0} if kind == "bound" else {}
    np.testing.assert_allclose(rooms.sum(given, at, **bound), total, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(rooms.mean(given, at, **bound), total / np.maximum(many, 1), rtol=1e-6, atol=1e-9)
    assert rooms.occupancy(at).tolist() == np.bincount(place, minlength=places + 1)[:places].tolist()


def test_sums_do_not_depend_on_order_and_carry_gradient():
    gen = torch.Generator().manual_seed(3)
    place, order = torch.randint(0, 5, (4000,), generator=gen), torch.randperm(4000, generator=gen)
    values = (torch.randn(4000, generator=gen) * 10.0 ** torch.randint(-6, 6, (4000,), generator=gen)).requires_grad_()
    rooms = Places(4)
    for options in ({}, {"max": 1e8}):
        total = rooms.sum(values, place, **options)
        assert torch.equal(rooms.sum(values[order], place[order], **options), total[order])
        with torch.no_grad():
            assert torch.equal(rooms.sum(values, place, **options), total)
    total[place == 2].sum().backward()
    assert torch.equal(values.grad, ((place == 2).sum() - 1.0) * (place == 2))


def test_who_is_not_there():
    rooms, place = Places(2), torch.tensor([0, 0, 0, 1])
    ill, there = torch.tensor([1, 1, 0, 1], dtype=torch.int8), torch.tensor([1, 0, 1, 1], dtype=torch.int8)
    assert rooms.mean(ill, place, alive=there).tolist() == [0.0, 0.5, 1.0, 0.0]
    assert rooms.sum(ill, place, where=there).tolist() == [1.0, 0.0, 2.0, 0.0]
    assert rooms.occupancy(place, alive=there).tolist() == [2, 1]
    assert rooms.sum(ill, torch.tensor([0, 0, 0, 3])).isnan().all()
    assert rooms.sum(ill, torch.tensor([0, 0, 0, 0.5])).isnan().all()
    assert rooms.sum(torch.full((4,), 3.0), place, max=2.0).isnan().all()
    assert rooms.sum(torch.tensor([1.0, math.inf, 0.0, 0.0]), place).isnan().all()


class Household(dz.State):
    stage: dz.model.Stage = dz.stage("agents", levels=("susceptible", "infected", "recovered"))


class ReedFrost(dz.Model):
    """One seed in each household; everybody is infectious for one step; escape from one of them is exp(-rate)."""

    homes: Places
    size: int
    rate: Tensor = dz.param(0.3, low=0.0)

    @property
    def num_agents(self) -> int:
        return self.homes.num_places * self.size

    def init(self, rng) -> Household:
        return Household(stage=(torch.arange(self.num_agents) % self.size == 0).to(torch.int8))

    def step(self, now: Household, rng) -> Household:
        home = torch.arange(self.num_agents, device=now.stage.value.device) // self.size
        infected = now.stage.is_("infected")
        caught = rng.event("catch", self.rate * self.homes.sum(infected, home))
        stage = now.stage.advance(infected, "infected").advance(caught, "susceptible")
        return now.replace(stage=stage)


def chain_binomial(size: int, escape: float) -> list[float]:
    """P(j of the others are ever infected), one seed: Ball's triangular equations for Reed and Frost's chains.

    sum_{j <= k} C(n - j, k - j) P_j / escape^((1 + j)(n - k)) = C(n, k), n = size - 1 (Andersson and Britton 2000,
    section 2.4).
    """
    n, found = size - 1, []
    for k in range(n + 1):
        before = sum(math.comb(n - j, k - j) * p / escape ** ((1 + j) * (n - k)) for j, p in enumerate(found))
        found.append((math.comb(n, k) - before) * escape ** ((1 + k) * (n - k)))
    return found


def test_households_have_reed_and_frosts_final_sizes():
    size, homes, rate = 4, 20_000, 0.35
    run = dz.simulate(ReedFrost(Places(homes), size, rate=rate), 6, seed=4, compile=False)
    infected = (run.state.stage.value[0].view(homes, size) != 0).sum(dim=1) - 1
    expected = torch.tensor(chain_binomial(size, math.exp(-rate)), dtype=torch.float64)
    assert abs(float(expected.sum()) - 1) < 1e-12
    got = torch.bincount(infected, minlength=size).double() / homes
    assert ((got - expected).abs() < 4 * (expected * (1 - expected) / homes).sqrt()).all(), (got, expected)


class Guest(dz.State):
    room: Tensor = dz.count("agents", max=6)
    ill: Tensor = dz.mask("agents")


class Hotel(dz.Model):
    """People go to a room of their wish where there is room, and infect one another there."""

    rooms: Places
    num_agents: int = 60
    rate: Tensor = dz.param(0.1, low=0.0)

    def init(self, rng) -> Guest:
        return Guest(room=torch.full((self.num_agents,), self.rooms.num_places), ill=rng.bernoulli("ill", 0.1))

    def step(self, now: Guest, rng) -> Guest:
        wish = rng.integers("wish", 0, self.rooms.num_places + 1)
        room = self.rooms.admit(rng, "door", now.room, wish)
        caught = rng.event("catch", self.rate * self.rooms.mean(now.ill, room))
        return now.replace(room=room, ill=torch.maximum(now.ill, caught))

    @dz.series
    def crowd(self, now: Guest):
        return self.rooms.occupancy(now.room)

    @dz.series
    def ill(self, now: Guest):
        return now.ill.sum()


def test_promises(tmp_path):
    model = Hotel(Places(6, capacity=[0, 1, 2, 5, 9, 60]))
    run = dz.simulate(model, 9, replicates=3, seed=2, compile=False)
    assert (run["crowd"] <= model.rooms.capacity).all()
    assert (run["crowd"] == model.rooms.capacity).any(dim=1)[:, :4].all()  # full at times

    def same(other, rows=slice(None)):
        return all(torch.equal(other[name], run[name][rows]) for name in ("crowd", "ill"))

    assert same(dz.simulate(model, 9, worlds=[2], seed=2, compile=False), slice(2, 3))
    order = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    assert same(dz.simulate(model, 9, replicates=3, seed=2, ids=order, compile=False))
    dz.simulate(model, 4, replicates=3, seed=2, compile=False, out=tmp_path / "run")
    assert same(dz.run.resume(tmp_path / "run", model, 5))
    assert dz.check(model, steps=3).ok


def test_room_goes_by_chance_and_not_by_place():
    """Two of twenty get in: each with probability one tenth, wherever they stand."""

    class Queue(dz.Model):
        rooms: Places
        num_agents: int = 20

        def init(self, rng) -> Guest:
            return Guest(room=torch.ones(20, dtype=torch.int32), ill=torch.zeros(20, dtype=torch.int8))

        def step(self, now: Guest, rng) -> Guest:
            return now.replace(room=self.rooms.admit(rng, "door", now.room, torch.zeros_like(now.room)))

    run = dz.simulate(Queue(Places(2, capacity=[2, 20])), 1, replicates=2000, compile=False)
    inside = (run.state.room == 0).double()
    assert (inside.sum(dim=1) == 2).all()
    assert ((inside.mean(dim=0) - 0.1).abs() < 4 * math.sqrt(0.09 / 2000)).all()


def test_the_dead_take_no_room_and_want_none():
    rooms, rng = Places(2, capacity=[1, 9]), dz.rng.Rng(torch.tensor([0, 0]), torch.tensor(0), num=4)
    place, wanted = torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 0])
    alive = torch.tensor([0, 1, 1, 0])
    assert rooms.admit(rng, "full", place, wanted).tolist() == place.tolist()
    assert rooms.admit(rng, "door", place, wanted, alive=alive).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((0,), "num_places=0, expected a whole number"),
        ((2, [1, 2, 3]), r"capacity is torch.int64 \(3,\)"),
        ((2, -1), "at least 0"),
        ((2, 1.5), "whole numbers"),
        ((2, "few"), "capacity='few'"),
    ],
)
def test_bad_input(arguments, told):
    with pytest.raises(InputError, match=told):
        Places(*arguments)


def test_bad_sums():
    rooms, place = Places(2), torch.tensor([0, 1])
    for call, told in (
        (lambda: rooms.sum(torch.ones(3), place), r"values is torch.float32 \(3,\), expected numbers \(2,\)"),
        (lambda: rooms.sum(torch.ones(2), torch.ones(2, 2)), r"place is torch.float32 \(2, 2\)"),
        (lambda: rooms.sum([1, 2], place), "values is list"),
        (lambda: rooms.admit(None, "door", place, place), "no capacity"),
    ):
        with pytest.raises(ModelError, match=told):
            call()


def test_a_place_that_does_not_exist_stops_the_run():
    class Lost(Hotel):
        def step(self, now: Guest, rng) -> Guest:
            caught = rng.event("catch", self.rooms.sum(now.ill, now.room + 1))
            return now.replace(ill=torch.maximum(now.ill, caught))

    with pytest.raises(ModelError, match="catch"):
        dz.simulate(Lost(Places(6)), 2, compile=False)


@pytest.mark.parametrize("wrong", [-1, 4, 2.5])
def test_a_place_that_does_not_exist_spoils_every_number(wrong):
    """Nobody of it is counted in another place, and a mean is not 0."""
    rooms, place = Places(3, capacity=2), torch.tensor([0, 0, wrong])
    assert rooms.occupancy(place).tolist() == [-1] * 3
    assert rooms.sum(torch.ones(3), place).isnan().all()
    assert rooms.mean(torch.ones(3), place).isnan().all()
    rng = dz.rng.Rng(torch.tensor([0, 0]), torch.tensor(0), num=3)
    assert rooms.admit(rng, "in", place, torch.tensor([0, 1, 1])).tolist() == [-1] * 3
