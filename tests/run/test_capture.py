"""Captured chunks equal plain steps: on a GPU as they are, elsewhere with the graph replaced by plain calls."""

from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.model import Ask, During
from denizen.run._capture import Capture
from denizen.zoo.covid import covid
from denizen.zoo.sir import sir


class Replay:
    """Stands in for a CUDA graph."""

    def __init__(self, capture: "Plain", length: int) -> None:
        self.capture, self.length = capture, length

    def replay(self) -> None:
        self.capture._index.zero_()
        with torch.no_grad():
            for _ in range(self.length):
                self.capture._call()


class Plain(Capture):
    """A capture without CUDA."""

    def _warm_up(self) -> None:
        pass

    def _graph(self, length: int) -> Any:
        return Replay(self, length)


class Pair(dz.State):
    current: Tensor = dz.count("agents")
    previous: Tensor = dz.count("agents")


class Shifts(dz.Model):
    """Hands a field on to another, so that the new state shares memory with the old one."""

    num_agents: int = 5

    def init(self, rng: dz.rng.Rng) -> Pair:
        start = torch.arange(5, dtype=torch.int32)
        return Pair(current=start, previous=0 * start)

    def step(self, now: Pair, rng: dz.rng.Rng) -> Pair:
        return now.replace(previous=now.current, current=now.current + 1)

    @dz.series
    def gap(self, now: Pair) -> Tensor:
        return (now.current - now.previous).sum()


PEOPLE = dz.population.synthetic("astoria", 601)
MODELS = [
    Shifts(),
    sir(dz.Graph.from_edges(dz.space.generators.erdos_renyi(300, 8.0, seed=1))),
    covid(PEOPLE, symmetrize=True, sample_deaths=True, isolation=0.2, R=20.0),
]


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_chunks_equal_steps(model: dz.Model, replicates: int) -> None:
    whole = dz.simulate(model, 42, replicates=replicates, seed=2)
    begun = dz.simulate(model, 3, replicates=replicates, seed=2)
    capture = Plain(begun._stepper, begun._carry, 8, "eager")
    carry, first = capture.run(begun._carry, 13)
    kept = carry.clone()
    carry, second = capture.run(carry, 26)
    for name, a, b in zip(whole.series_names, first, second, strict=True):
        assert torch.equal(whole[name][:, 3:], torch.cat([a, b], dim=1)), name
    assert all(torch.equal(x, y) for x, y in zip(carry.leaves, whole._carry.leaves, strict=True))
    again, repeated = capture.run(kept, 26)  # an earlier carry is as good as the latest
    assert all(torch.equal(x, y) for x, y in zip(second, repeated, strict=True))
    assert int(again.step) == int(carry.step) == 42


@pytest.mark.cuda
@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_captured_on_cuda_equals_the_cpu(model: dz.Model, replicates: int) -> None:
    host = dz.simulate(model, 75, replicates=replicates, seed=4)
    device = dz.simulate(model, 75, replicates=replicates, seed=4, device="cuda", compile=True)
    assert device.stats()["path"] == "captured"
    for name in host.series_names:
        assert torch.equal(host[name], device[name].cpu()), name


@pytest.mark.cuda
def test_what_asks_the_host_is_not_captured() -> None:
    ask = Ask(target="isolation", groups=tuple("abcdef"), answer=lambda group, step: 0.1, when=During(5))
    run = dz.simulate(covid(PEOPLE), 12, interventions=[ask], device="cuda", compile=True)
    assert run.stats()["path"] == "compiled"
