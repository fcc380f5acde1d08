"""Tracing: who is found has the law of independent contacts, calls come after their delay."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.disease import Tracing, Waning
from denizen.errors import InputError, ModelError
from denizen.relax import MeanField
from denizen.space import Graph, Layers

N = 20_000
RING = torch.arange(N)


def ring(*shifts: int) -> Graph:
    ends = [(RING, (RING + shift) % N) for shift in shifts]
    source, target = (torch.cat(parts) for parts in zip(*ends, strict=True))
    return Graph.from_edges(source, target, N, directed=False)


LAYERS = Layers({"home": ring(1), "work": ring(5, 9)})


class Called(dz.State):
    called: Tensor = dz.count("agents")


class Calls(dz.Model):
    """Every third agent becomes an index case in the first step, and nobody later."""

    time_unit = "day"
    contacts: Layers
    tracing: Tracing = Tracing(0.5)

    def init(self, rng: dz.rng.Rng) -> Called:
        return Called(called=torch.zeros(self.num_agents, dtype=torch.int32))

    def step(self, now: Called, rng: dz.rng.Rng) -> Called:
        index = (torch.arange(self.num_agents) % 3 == 0).to(torch.int8) * (now.time.step == 0)
        traced = self.tracing.step(rng, now, self.contacts, now.called, index)
        rng.record("found", traced.found)
        rng.record("named", traced.named)
        return now.replace(called=traced.pending)

    @dz.series
    def told(self, events: dz.rng.Events) -> Tensor:
        return torch.stack([events["named"].sum(), events["found"].sum()])


def found(tracing: Tracing, steps: int, dt: float = 1.0) -> Tensor:
    record: dict[str, Any] = {"who": lambda events: events["found"]}
    return dz.simulate(Calls(LAYERS, tracing), steps, dt=dt, record=record, compile=False)["who"][0]


@pytest.mark.parametrize("coverage", [0.3, {"home": 1.0, "work": 0.25}])
def test_each_contact_is_found_on_its_own(coverage):
    """By the number of contacts among the index cases, within 4 standard deviations of 1 - prod (1 - p)^k."""
    by = coverage if isinstance(coverage, dict) else dict.fromkeys(LAYERS.graphs, coverage)
    index = (RING % 3 == 0).to(torch.int8)
    met = {name: LAYERS[name].sum(index).long() for name in LAYERS.graphs}
    missed = torch.ones(N, dtype=torch.float64)
    for name, prob in by.items():
        missed = missed * (1 - prob) ** met[name]
    who = found(Tracing(coverage), 1)[0]
    for value in missed.unique():
        group = missed == value
        share, error = 1 - float(value), (float(value * (1 - value)) / int(group.sum())) ** 0.5
        assert abs(float(who[group].double().mean()) - share) <= 4 * error + 1e-12


def test_more_coverage_finds_more_and_layers_left_out_nobody():
    counts = [int(found(Tracing({"work": share}), 1).sum()) for share in (0.0, 0.2, 0.5, 1.0)]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-1] == int((LAYERS["work"].sum((RING % 3 == 0).to(torch.int8)) > 0).sum())


@pytest.mark.parametrize(("delay", "dt", "step"), [(0, 1.0, 0), (2, 1.0, 2), (0.5, 0.25, 2), (1.2, 0.5, 3)])
def test_calls_come_after_their_delay(delay, dt, step):
    who = found(Tracing(1.0, delay=delay), 6, dt)
    assert who.sum(dim=1).nonzero().flatten().tolist() == [step]
    assert torch.equal(who[step], found(Tracing(1.0), 1)[0])


def test_random_delays_have_their_mean():
    who = found(Tracing(1.0, delay=Waning(4.0, 2)), 40).sum(dim=1).double()
    assert float((who * torch.arange(40)).sum() / who.sum()) == pytest.approx(4.0, abs=0.1)
    assert float(who.sum()) == float(found(Tracing(1.0), 1).sum())


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Tracing(1.5), "Tracing: coverage=1.5, expected a number from 0 to 1"),
        (lambda: Tracing({"home": -0.1}), "Tracing: coverage['home']=-0.1, expected a number from 0 to 1"),
        (lambda: Tracing({}), "Tracing: coverage names no layer"),
        (lambda: Tracing(0.5, delay=-1), "Tracing: delay=-1, expected a number, at least 0"),
        (lambda: found(Tracing({"hme": 0.5}), 1), "unknown layer 'hme'; did you mean 'home'?"),
        (lambda: Tracing(0.5, Waning(1.0, 3)).fits(1.0), "Tracing: delay: mean=1 is shorter than 3 phases"),
    ],
)
def test_wrong_input_is_refused(make, told):
    with pytest.raises(InputError, match=re.escape(told)):
        make()


def test_a_relaxed_run_is_told():
    with pytest.raises(ModelError, match=r"pending is torch.float32 .*, in a run without relax="):
        dz.simulate(Calls(LAYERS), 1, relax=MeanField())
