"""The guard around init and the first step of a run: silent wrong numbers become errors, in one world or several."""

import inspect
import re

import pytest
import torch
from torch._higher_order_ops.scan import scan

import denizen as dz
from denizen import population
from denizen.errors import ModelError
from denizen.model import guard
from denizen.zoo.covid import covid
from denizen.zoo.sir import SIR

NUM = 60
OUTSIDE = torch.zeros(NUM)
WORLDS = pytest.mark.parametrize("replicates", [1, 3])


def ring(num=NUM):
    source = torch.arange(num)
    return dz.Graph.from_edges(source, (source + 1) % num, num, directed=False)


class People(dz.State):
    ill: torch.Tensor = dz.mask("agents")
    wealth: torch.Tensor = dz.real("agents")


class Base(dz.Model):
    contacts: dz.Graph
    rate: torch.Tensor = dz.param(0.3, low=0.0)

    def init(self, rng):
        return People(ill=rng.bernoulli("seed", 0.4), wealth=rng.uniform("wealth"))

    def step(self, now, rng):
        caught = (1 - now.ill) * rng.event("catch", self.rate * self.contacts.sum(now.ill))
        return now.replace(ill=now.ill + caught)


class Not(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth * ~now.ill)  # BAD


class BigConstant(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth + now.ill * 200)  # BAD


class Wraps(Base):
    def step(self, now, rng):
        level = now.ill * 0 + 100
        return now.replace(wealth=now.wealth + (level + level))  # BAD


class WrapsInPlace(Base):
    def step(self, now, rng):
        level = now.ill * 0 + 100
        level += 100  # BAD
        return now.replace(wealth=now.wealth + level)


class BigScalarTensor(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth + now.ill * (now.ill.sum() + 150))  # BAD


class ProductWraps(Base):
    def step(self, now, rng):
        full = now.ill * 0 + 2
        return now.replace(wealth=now.wealth + full @ full)  # BAD


class Mean(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth + now.ill.mean())  # BAD


class Cast(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth + (now.wealth * 0 + 300).to(torch.int8))  # BAD


class StoredWide(Base):
    def step(self, now, rng):  # BAD
        return now.replace(ill=now.ill.long() * 0 + 257)


class WritesState(Base):
    def step(self, now, rng):
        now.wealth.mul_(0.5)  # BAD
        return now


class WritesParam(Base):
    def step(self, now, rng):
        self.rate.add_(0.1)  # BAD
        return now


class WritesOutside(Base):
    def step(self, now, rng):
        OUTSIDE[0] = 1.0  # BAD
        return now


class WritesBatchedIntoOutside(Base):
    def step(self, now, rng):
        OUTSIDE.add_(now.wealth)  # BAD
        return now


class TorchRandom(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth + torch.rand(NUM))  # BAD


class RandomInInit(Base):
    def init(self, rng):
        return People(ill=rng.bernoulli("seed", 0.4), wealth=torch.rand(NUM))  # BAD


class InSeries(Base):
    @dz.series
    def cost(self, now):
        return (now.ill * 200).sum()  # BAD


BAD = [
    Not,
    BigConstant,
    Wraps,
    WrapsInPlace,
    BigScalarTensor,
    ProductWraps,
    Mean,
    Cast,
    StoredWide,
    WritesState,
    WritesParam,
    WritesOutside,
    WritesBatchedIntoOutside,
    TorchRandom,
    RandomInInit,
    InSeries,
]


def bad_line(cls):
    lines, start = inspect.getsourcelines(cls)
    return next(start + k for k, line in enumerate(lines) if "# BAD" in line)


@WORLDS
@pytest.mark.parametrize("cls", BAD)
def test_wrong_numbers_stop_the_run_at_the_line(cls, replicates):
    with pytest.raises(ModelError, match=rf"{cls.__name__} at .*test_guard\.py:{bad_line(cls)}\b") as caught:
        dz.simulate(cls(ring()), 2, replicates=replicates)
    assert re.search(r"write instead: \S", str(caught.value))


class ShapeOfValues(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth + len(now.ill.nonzero()))  # BAD


class ToNumpy(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth + now.wealth.numpy().mean())  # BAD


class AddsToOwn(Base):
    def step(self, now, rng):
        total = torch.zeros(NUM)
        total += now.wealth  # BAD
        return now.replace(wealth=total)


class PutsIntoOwn(Base):
    def step(self, now, rng):
        total = torch.zeros(NUM)
        total[torch.arange(3)] = now.wealth[:3]  # BAD
        return now.replace(wealth=total)


class CountsIntoOwn(Base):
    def step(self, now, rng):
        total = torch.zeros(NUM)
        total.index_add_(0, torch.arange(NUM), now.wealth)  # BAD
        return now.replace(wealth=total)


@pytest.mark.parametrize("cls", [AddsToOwn, PutsIntoOwn, CountsIntoOwn])
def test_values_of_worlds_in_a_tensor_of_the_step_are_told(cls):
    """The tensor is the step's own, so that nobody else's was written."""
    dz.simulate(cls(ring()), 2)
    line = rf"{cls.__name__} at .*test_guard\.py:{bad_line(cls)}\b.*\n.*one that all share.*\n.*torch\.zeros_like"
    with pytest.raises(ModelError, match=line):
        dz.simulate(cls(ring()), 2, replicates=3)


@pytest.mark.parametrize("cls", [ShapeOfValues, ToNumpy])
def test_what_vmap_cannot_do_stops_a_run_of_several_worlds_at_the_line(cls):
    dz.simulate(cls(ring()), 2)
    with pytest.raises(ModelError, match=rf"{cls.__name__} at .*test_guard\.py:{bad_line(cls)}\b"):
        dz.simulate(cls(ring()), 2, replicates=3)


class Harmless(Base):
    """Everything here is right, and some of it reads on the host."""

    def step(self, now, rng):
        own = now.wealth * 2
        own[0] = 1.0
        own += 1
        total = torch.zeros(2, dtype=torch.int32)
        counted = total.index_add(0, now.ill.long(), torch.ones(NUM, dtype=torch.int32))
        fits = now.ill * 127 + (1 - now.ill) * -128
        wide = now.ill.to(torch.int32) * 200 + now.ill * 2.5
        known = torch.nn.functional.dropout(now.wealth, 0.5, training=False)
        if now.time.step.item() > 10:
            return now
        return now.replace(wealth=(own + fits + wide + known + counted[0]).clamp(-10, 10), ill=1 - now.ill)


@WORLDS
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda: Harmless(ring()), id="harmless"),
        pytest.param(lambda: SIR(ring()), id="sir"),
        pytest.param(lambda: covid(population.synthetic("astoria", size=400), sample_deaths=True), id="covid"),
        pytest.param(
            lambda: covid(population.synthetic("astoria", size=400), isolation=lambda group, day: torch.rand(1).item()),
            id="ask",
        ),
    ],
)
def test_right_models_run(model, replicates):
    dz.simulate(model(), 2, replicates=replicates)


def test_ops_of_denizen_are_not_judged():
    from denizen import ops

    with ops.reference_only():  # these write in place into what they make
        dz.simulate(SIR(ring()), 2, replicates=2)


def test_other_exceptions_pass_unchanged():
    with pytest.raises(RuntimeError, match="something else"), guard(Base(ring())):
        raise RuntimeError("something else")


def add(x):
    return x + 1


class Cond(Base):
    def step(self, now, rng):
        return now.replace(wealth=torch.cond(now.wealth.sum() > 3, add, torch.neg, (now.wealth,)))  # BAD


class While(Base):
    def step(self, now, rng):
        return now.replace(wealth=torch.while_loop(lambda x: x.sum() < 5, add, (now.wealth,))[0])  # BAD


class Scan(Base):
    def step(self, now, rng):
        return now.replace(wealth=scan(lambda c, x: (c + x, c + x), now.wealth[0], now.wealth)[1])  # BAD


@WORLDS
@pytest.mark.parametrize(
    ("cls", "name", "instead"),
    [
        (Cond, r"torch\.cond", r"torch\.where\(condition, this, that\)"),
        (While, r"torch\.while_loop", r"a for loop of fixed length with x = torch\.where"),
        (Scan, "scan", "a for loop of fixed length"),
    ],
)
def test_what_takes_functions_is_told_with_what_to_write_instead(cls, name, instead, replicates):
    line = rf"{cls.__name__} at .*test_guard\.py:{bad_line(cls)}\b.*\n  {name} takes functions.*\n"
    with pytest.raises(ModelError, match=rf"{line}  write instead: {instead}"):
        dz.simulate(cls(ring()), 2, replicates=replicates)


WORLD_BY_WORLD = {  # what one world may do, and several at once may not
    "equal": lambda x: x * torch.equal(x, x + 1),
    "allclose": lambda x: x * torch.allclose(x, x),
    "storage": lambda x: x * len(x.untyped_storage()),
    "data": lambda x: x.data * 2,
    "torch.tensor": lambda x: torch.tensor([x[0], x[1]]).sum() + x,
    "tensor_split": lambda x: x + x.tensor_split((x[:1] > 2).long())[0].sum(),
    "one_hot": lambda x: x + torch.nn.functional.one_hot((x > 0.5).long()).sum(),
    "repeat_interleave": lambda x: x + x.repeat_interleave((x > 0.5).long()).sum(),
}


@pytest.mark.parametrize("function", WORLD_BY_WORLD.values(), ids=WORLD_BY_WORLD)
def test_torchs_words_about_vmap_become_a_line_and_what_to_write(function):
    class Step(Base):
        def step(self, now, rng):
            return now.replace(wealth=function(now.wealth))

    dz.simulate(Step(ring()), 1)
    with pytest.raises(ModelError, match=r"Step at .*test_guard\.py:\d+: .*\n.*\n  write instead: "):
        dz.simulate(Step(ring()), 1, replicates=3)


@WORLDS
def test_an_authors_stack_of_unequal_tensors_is_told_in_torchs_words(replicates):
    class Step(Base):
        def step(self, now, rng):
            return now.replace(wealth=torch.stack([now.wealth, torch.zeros(1)]).sum(0))

    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size, but got"):
        dz.simulate(Step(ring()), 1, replicates=replicates)
