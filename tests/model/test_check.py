"""`dz.check`: one bad model for each rule, found at its line and alone; good models pass without a finding."""

import inspect
import itertools
import random
import re

import numpy as np
import pytest
import torch

import denizen as dz
from denizen import population
from denizen.errors import InputError, ModelError
from denizen.model import Act, During, History, Scale, Stage, births, per_agent
from denizen.space import Layers
from denizen.zoo.covid import covid
from denizen.zoo.seir import SEIR
from denizen.zoo.sir import SIR

NUM = 60
OUTSIDE = torch.zeros(NUM)
COUNTER = 0
GENERATOR = np.random.default_rng(0)
TICKS = itertools.count()
LIST = []


def ring(num=NUM):
    source = torch.arange(num)
    return dz.Graph.from_edges(source, (source + 1) % num, num, directed=False)


class People(dz.State):
    ill: torch.Tensor = dz.mask("agents")
    wealth: torch.Tensor = dz.real("agents")


class Purses(dz.State):
    saved: torch.Tensor = dz.real("agents")
    spent: torch.Tensor = dz.real("agents")


class Base(dz.Model):
    """A model without fault; each bad one below replaces `step`."""

    contacts: dz.Graph
    rate: torch.Tensor = dz.param(0.3, low=0.0)

    def init(self, rng):
        return People(ill=rng.bernoulli("seed", 0.4), wealth=rng.uniform("wealth"))

    def step(self, now, rng):
        caught = (1 - now.ill) * rng.event("catch", self.rate * self.contacts.sum(now.ill))
        return now.replace(ill=now.ill + caught)

    @dz.series
    def number(self, now):
        return now.ill.sum()


class Item(Base):
    def step(self, now, rng):
        share = now.ill.sum().item() / NUM  # BAD
        return now.replace(wealth=now.wealth * share)


class Branch(Base):
    def step(self, now, rng):
        if now.ill.sum() > 3:  # BAD
            return now.replace(wealth=now.wealth * 0.5)
        return now


class ToList(Base):
    def step(self, now, rng):
        first = now.wealth.tolist()[0]  # BAD
        return now.replace(wealth=now.wealth * first)


class ToNumpy(Base):
    def step(self, now, rng):
        total = now.wealth.numpy().sum()  # BAD
        return now.replace(wealth=now.wealth + float(total))


class MaskIndex(Base):
    def step(self, now, rng):
        mean = now.wealth[now.ill != 0].sum()  # BAD
        return now.replace(wealth=now.wealth * 0 + mean)


class Nonzero(Base):
    def step(self, now, rng):
        places = torch.nonzero(now.ill)  # BAD
        return now.replace(wealth=now.wealth + places.sum())


class Unique(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth * now.ill.unique().sum())  # BAD


class TorchRandom(Base):
    def step(self, now, rng):
        noise = torch.rand(NUM)  # BAD
        return now.replace(wealth=now.wealth + noise)


class Dropout(Base):
    def step(self, now, rng):
        return now.replace(wealth=torch.nn.functional.dropout(now.wealth, 0.5))  # BAD


class PythonRandom(Base):
    def step(self, now, rng):
        noise = random.random()  # BAD
        return now.replace(wealth=now.wealth + noise)


class NumpyRandom(Base):
    def step(self, now, rng):
        noise = float(np.random.rand())  # noqa: NPY002  # BAD
        return now.replace(wealth=now.wealth + noise)


class OwnGenerator(Base):
    def step(self, now, rng):
        noise = GENERATOR.random()  # BAD
        return now.replace(wealth=now.wealth + noise)


class StreamTwice(Base):
    def step(self, now, rng):
        first = rng.event("catch", 0.1)
        second = rng.event("catch", 0.1)  # BAD
        return now.replace(ill=now.ill * first * second)


class WritesState(Base):
    def step(self, now, rng):
        now.wealth.mul_(0.5)  # BAD
        return now


class WritesItem(Base):
    def step(self, now, rng):
        wealth = now.wealth
        wealth[3:5] = 0.0  # BAD
        return now.replace(wealth=wealth)


class WritesParam(Base):
    def step(self, now, rng):
        self.rate.add_(0.1)  # BAD
        return now


class WritesOutside(Base):
    def step(self, now, rng):
        OUTSIDE.add_(1)  # BAD
        return now.replace(wealth=now.wealth + 1)


class Not(Base):
    def step(self, now, rng):
        well = ~now.ill  # BAD
        return now.replace(wealth=now.wealth * well)


class BigConstant(Base):
    def step(self, now, rng):
        cost = now.ill * 200  # BAD
        return now.replace(wealth=now.wealth + cost)


class BigScalarTensor(Base):
    def step(self, now, rng):
        cost = now.ill * (now.ill.sum() + 150)  # BAD
        return now.replace(wealth=now.wealth + cost)


class Accumulates(Base):
    def step(self, now, rng):
        total = (now.ill * 0 + 5).cumsum(0, dtype=torch.int8)  # BAD
        return now.replace(wealth=now.wealth + total)


class Product(Base):
    def step(self, now, rng):
        both = now.ill @ now.ill  # BAD
        return now.replace(wealth=now.wealth + both)


class Mean(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth + now.ill.mean())  # BAD


class Narrowed(Base):
    def step(self, now, rng):
        degree = (self.contacts.sum(now.ill) * 0 + 300).to(torch.int8)  # BAD
        return now.replace(wealth=now.wealth + degree)


class AnotherShape(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth[:-1])  # BAD


class AnotherDtype(Base):
    def step(self, now, rng):
        ill = now.ill * self.rate
        return now.replace(ill=ill)  # BAD


class NoReturn(Base):
    def step(self, now, rng):
        now.replace(ill=now.ill)
        return None  # BAD


class OutOfRange(Base):
    def step(self, now, rng):  # BAD
        return now.replace(ill=now.ill + 1)


class NegativeHazard(Base):
    def step(self, now, rng):  # BAD
        return now.replace(ill=now.ill * rng.event("heal", self.rate - 1))


class GlobalCounter(Base):
    def step(self, now, rng):
        global COUNTER
        COUNTER = COUNTER + 1000  # BAD
        return now


class GlobalList(Base):
    def step(self, now, rng):
        LIST.append(0)  # BAD
        return now


class GlobalSetting(Base):
    def step(self, now, rng):
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float64)  # BAD
        return now


class Holder:
    factor = 1


class HeldByAnObject(Base):
    def step(self, now, rng):
        Holder.factor = Holder.factor + 1  # BAD
        return now.replace(wealth=now.wealth * Holder.factor)


class MaskedWrite(Base):
    def step(self, now, rng):
        wealth = now.wealth.clone()
        wealth[now.ill != 0] = 0.0  # BAD
        return now.replace(wealth=wealth)


class StoredWide(Base):
    def step(self, now, rng):
        return now.replace(ill=now.ill.long() * 257)  # BAD


class GatedBySign(Base):
    def step(self, now, rng):
        now = super().step(now, rng)
        healed = now.ill * rng.bernoulli("heal", now.ill.sign() * 0.1)  # BAD
        return now.replace(ill=now.ill - healed)


class GatedByComparison(Base):
    def step(self, now, rng):
        now = super().step(now, rng)
        sick = (now.ill > 0).float()
        healed = now.ill * rng["home"].event("heal", 0.1 * sick)  # BAD
        return now.replace(ill=now.ill - healed)


class GatedByWhere(Base):
    def step(self, now, rng):
        pressure = self.contacts.sum(now.ill, where=1 - now.ill)
        caught = (1 - now.ill) * rng.event("catch", self.rate * pressure)  # BAD
        return now.replace(ill=now.ill + caught)


class GatedByTorchWhere(Base):
    def step(self, now, rng):
        now = super().step(now, rng)
        healed = now.ill * rng.bernoulli("heal", torch.where(now.ill != 0, 0.1, 0.0))  # BAD
        return now.replace(ill=now.ill - healed)


class GatedMask(Base):
    def step(self, now, rng):
        now = super().step(now, rng)
        healed = now.ill * rng.event("heal", 0.1, where=now.ill.bool())  # BAD
        return now.replace(ill=now.ill - healed)


class Outside(Base):
    def step(self, now, rng):  # BAD
        now = super().step(now, rng)
        return now.replace(ill=now.ill - rng.event("heal", 0.4, where=now.ill))


class OutsideOfASum(Base):
    def step(self, now, rng):  # BAD
        now = super().step(now, rng)
        return now.replace(wealth=now.wealth + self.contacts.sum(now.ill, needed=now.ill))

    @dz.series
    def wealth(self, now):
        return now.wealth.sum()


class NotVmappable(Base):
    def step(self, now, rng):
        more = torch.add(now.wealth, 1, out=torch.zeros(NUM))  # BAD
        return now.replace(wealth=more)


class NotCompilable(Base):
    def step(self, now, rng):
        factor = float(np.frombuffer(np.array([1.5]).tobytes())[0]) + len(inspect.stack()) * 0  # BAD
        return now.replace(wealth=now.wealth * factor)


class CutByCompare(Base):
    def step(self, now, rng):
        pressure = self.rate * self.contacts.sum(now.ill)
        caught = (pressure > 0.5).to(torch.int8) * (1 - now.ill)  # BAD
        return now.replace(ill=now.ill + caught)


class CutByCast(Base):
    def step(self, now, rng):
        caught = rng.event("catch", self.rate * self.contacts.sum(now.ill))
        caught = caught.to(torch.int8)  # BAD
        return now.replace(ill=now.ill + (1 - now.ill) * caught)


class NotRelaxable(Base):
    def step(self, now, rng):
        cost = torch.arange(2.0)[now.ill.int() if now.ill.dtype == torch.int8 else now.ill]  # BAD
        return now.replace(wealth=now.wealth + cost)


class Decorated(Base):
    @torch.no_grad()
    def step(self, now, rng):
        return now.replace(wealth=now.wealth[:-1])  # BAD


class OutOfBounds(Base):
    def step(self, now, rng):
        return self.replace(rate=-1.0).contacts and now  # BAD


class SeriesOfNumbers(Base):
    @dz.series  # BAD
    def three(self, now):
        return 3


class SeriesRead(Base):
    @dz.series
    def ill(self, now):
        return now.ill.sum().item()  # BAD


class SetsState(Base):
    def step(self, now, rng):
        now.ill = 1 - now.ill  # BAD
        return now


class SetsModel(Base):
    def step(self, now, rng):
        self.rate = self.rate * 2  # BAD
        return now


class Raises(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth * (1 / len([])))  # BAD


class RaisesInInit(Base):
    def init(self, rng):
        return People(ill=torch.zeros(NUM, dtype=torch.int8))  # BAD


class InitLeavesRange(Base):
    def init(self, rng):  # BAD
        return People(ill=torch.full((NUM,), 2, dtype=torch.int8), wealth=torch.zeros(NUM))


class InitOdds(Base):
    def init(self, rng):  # BAD
        return People(ill=rng.bernoulli("seed", 1.5), wealth=rng.uniform("wealth"))


class InitStores(Base):
    def init(self, rng):
        return People(ill=torch.full((NUM,), 300), wealth=torch.zeros(NUM))  # BAD


class InitStream(Base):
    def init(self, rng):
        return People(ill=rng.bernoulli("seed", 0.5), wealth=rng.uniform("seed"))  # BAD


class InitDiffers(Base):
    def init(self, rng):  # BAD
        return People(ill=rng.bernoulli("seed", 0.5), wealth=torch.full((NUM,), float(next(TICKS))))


class ComparesStage(Base):
    def step(self, now, rng):
        level = Stage(now.ill, ("well", "ill"))
        return now.replace(wealth=torch.where(level == 1, now.wealth, 0.0))  # BAD


BAD = {
    "host read": [Item, Branch, ToList, ToNumpy, SeriesRead],
    "shapes": [
        MaskIndex,
        Nonzero,
        Unique,
        AnotherShape,
        AnotherDtype,
        NoReturn,
        RaisesInInit,
        Decorated,
        SeriesOfNumbers,
    ],
    "random": [TorchRandom, Dropout, PythonRandom, NumpyRandom, OwnGenerator],
    "stream": [StreamTwice, InitStream],
    "in place": [WritesState, WritesItem, WritesParam, WritesOutside, SetsState, SetsModel],
    "int8": [Not, BigConstant, BigScalarTensor, Accumulates, Product, Mean, Narrowed, StoredWide, InitStores],
    "range": [OutOfRange, NegativeHazard, InitLeavesRange, InitOdds],
    "repeat": [InitDiffers],
    "global state": [GlobalCounter, GlobalList, GlobalSetting, HeldByAnObject],
    "vmap": [NotVmappable, MaskedWrite],
    "compile": [NotCompilable],
    "gradient": [
        CutByCompare,
        CutByCast,
        NotRelaxable,
        GatedBySign,
        GatedByComparison,
        GatedByWhere,
        GatedByTorchWhere,
        GatedMask,
        Outside,
        OutsideOfASum,
    ],
    "error": [Raises, OutOfBounds, ComparesStage],
}
CASES = [pytest.param(rule, cls, id=cls.__name__) for rule, group in BAD.items() for cls in group]


def bad_line(cls):
    lines, start = inspect.getsourcelines(cls)
    return next(start + k for k, line in enumerate(lines) if "# BAD" in line)


@pytest.mark.parametrize(("rule", "cls"), CASES)
def test_each_rule_is_found_at_its_line_and_alone(rule, cls):
    report = dz.check(cls(ring()))
    assert [(f.rule, f.line.number) for f in report.findings] == [(rule, bad_line(cls))], str(report)
    (finding,) = report.findings
    assert finding.line.file == __file__
    assert not report.ok
    assert finding.what in str(report)
    with pytest.raises(ModelError, match=f"test_check.py:{bad_line(cls)}"):
        report.raise_if_bad()


@pytest.mark.parametrize(
    ("cls", "what", "instead"),
    [
        (GatedBySign, "gated by sign\\(\\): who only might", "where=mask\\), with the mask itself"),
        (
            GatedByComparison,
            "gated by the comparison > \\(.*test_check.py:\\d+: sick = ",
            "rng.event\\(name, hazard, where=",
        ),
        (GatedByWhere, "gated by where= of a sum over neighbours \\(.*: pressure = ", "needed=mask in place of where="),
        (Outside, "for those whom the mask leaves out", "mask \\* rng.event"),
    ],
)
def test_a_gated_probability_is_named_with_its_gate_and_the_fix(cls, what, instead):
    (finding,) = dz.check(cls(ring())).findings
    assert re.search(what, finding.what)
    assert re.search(instead, finding.instead)


class Closing(Base):
    """Thresholds of the whole population, and of what no parameter moves, gate nobody."""

    def step(self, now, rng):
        open_ = 1.0 - (now.ill.sum() > NUM / 2).float()
        adult = (torch.arange(NUM) > 20) & (now.wealth > 0.1)
        pressure = open_ * adult * self.contacts.sum(now.ill, needed=1 - now.ill)
        caught = (1 - now.ill) * rng.event("catch", self.rate * pressure, where=1 - now.ill)
        healed = now.ill * rng.bernoulli("heal", 0.1 * adult, where=now.ill)
        return now.replace(ill=now.ill + caught - healed)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda: Base(ring()), id="base"),
        pytest.param(lambda: Closing(ring()), id="closing"),
        pytest.param(lambda: SIR(ring(1000)), id="sir"),
        pytest.param(lambda: SEIR(ring()), id="seir"),
        pytest.param(lambda: Rich(Layers({"home": ring(), "work": ring()})), id="rich"),
        pytest.param(lambda: covid(population.synthetic("astoria", size=400)), id="covid"),
        pytest.param(lambda: covid(population.synthetic("astoria", size=400), sample_deaths=True), id="covid-deaths"),
        pytest.param(
            lambda: covid(population.synthetic("astoria", size=400), isolation=lambda group, day: random.random()),
            id="ask",
        ),
        pytest.param(
            lambda: covid(
                population.synthetic("astoria", size=400),
                isolation=torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Sigmoid()),
            ),
            id="policy",
        ),
    ],
)
def test_good_models_pass(model):
    good = model()
    report = dz.check(good)
    assert report.ok, str(report)
    assert not report.findings
    assert len(report.notes) == isinstance(good, Rich)  # whose deaths are a difference of levels
    assert any("compiled graph" in sentence for sentence in report.proved)
    assert any("vmap" in sentence for sentence in report.proved)
    assert "all rules hold" in str(report)
    report.raise_if_bad()


class Villagers(dz.State):
    alive: torch.Tensor = dz.mask("agents")
    stage: Stage = dz.stage("agents", levels=("well", "ill", "immune"))
    age: torch.Tensor = dz.count("agents", max=200)
    exposed: History = dz.history("agents", length=10)
    wealth: torch.Tensor = dz.real("agents", max=10.0)
    goods: torch.Tensor = dz.real("agents", "goods")


class Rich(dz.Model):
    """Uses most of what denizen offers."""

    contacts: Layers
    rate: torch.Tensor = dz.param(0.05, low=0.0)

    def init(self, rng):
        elapsed = rng.integers("exposed", 0, 5)
        return Villagers(
            alive=rng.bernoulli("alive", 0.5),
            stage=rng.integers("stage", 0, 3),
            age=rng.integers("age", 0, 90),
            exposed=History.start(elapsed, length=10),
            wealth=rng.normal("wealth").clamp(-10, 10),
            goods=torch.zeros(elapsed.numel(), 4),
        )

    def step(self, now, rng):
        now = births(now, rng, now.alive * rng.bernoulli("birth", self.rate), age=0 * now.age)
        dies = now.alive * rng.event("die", self.rate / 2)
        caught = rng["home", 1].event("catch", self.rate * self.contacts.sum(now.stage.is_("ill") * now.alive))
        held = now.wealth * now.alive
        richer = per_agent(lambda x, y: torch.where(x > y, x, y))(held, held[rng.permutation("trade")])
        luck = rng.categorical("luck", torch.tensor([0.5, 0.5])) + rng.gamma("gift", 2.0) + rng.uniform("share")
        return now.replace(
            alive=now.alive - dies,
            stage=now.stage.move(caught, "ill", source="well"),
            age=(now.age + 1).clamp(max=200),
            exposed=now.exposed.record(now.exposed.never() * caught),
            wealth=(richer + 0.1 * luck).clamp(-10, 10),
            goods=now.goods + rng.on("goods", 4).uniform("harvest"),
        )

    @dz.series
    def stages(self, now):
        return torch.stack([(now.stage.is_(level) * now.alive).sum() for level in now.stage.levels])

    @dz.series
    def deaths(self, before, now):
        return (before.alive - now.alive).sum()


class Harmless(Base):
    """What looks suspicious and is right."""

    def step(self, now, rng):
        own = now.wealth * 2
        own[0] = 1.0
        own += 1
        table = torch.tensor([1.0, 2.0])
        table[0] = 3.0
        picked = table[now.ill.long()]
        minus = -now.ill * 0.5
        large = now.ill.to(torch.int32) * 200 + now.ill * 127 + (now.ill == 200)
        size = torch.zeros(2).index_add(0, now.ill.long(), now.wealth)
        known = torch.nn.functional.dropout(now.wealth, 0.5, training=False)
        return now.replace(wealth=(own + picked + minus + large + size[0] + known).clamp(max=10.0), ill=1 - now.ill)


def test_harmless_code_is_left_alone():
    assert dz.check(Harmless(ring()), gradient=False).ok


class Ticks(Base):
    def step(self, now, rng):
        return now.replace(wealth=now.wealth + next(TICKS))


def test_two_runs_that_differ():
    finding = dz.check(Ticks(ring())).findings[0]
    assert (finding.rule, finding.line.number) == ("repeat", Ticks.step.__code__.co_firstlineno)


class NoStep(dz.Model):
    contacts: dz.Graph
    init = Base.init


class NoAgents(dz.Model):
    rate: torch.Tensor = dz.param(1.0)


@pytest.mark.parametrize(("model", "what"), [(lambda: NoStep(ring()), "no step"), (NoAgents, "how many agents")])
def test_incomplete_models_are_reported(model, what):
    (finding,) = dz.check(model()).findings
    assert finding.rule == "error"
    assert what in finding.what
    assert finding.line.text.startswith("class No")


def test_what_could_not_be_judged_is_said(inside):
    inside.gradients_up_to(NUM - 1)
    report = dz.check(Base(ring()))
    assert report.ok
    assert any("more than 59 agents" in sentence for sentence in report.skipped)
    assert any("births" in sentence for sentence in dz.check(Rich(Layers({"home": ring(40)}))).skipped)


def test_interventions_are_checked_too():
    def change(model, now, rng):
        return now.replace(ill=now.ill * (1 - rng.bernoulli("cure", 0.5)))

    def bad_change(model, now, rng):
        return now.replace(ill=now.ill * (torch.rand(NUM) > 0.5))  # BAD

    act = Act(when=During(1), change=change)
    assert dz.check(Base(ring()), interventions=[act, Scale(when=During(1), target="rate", factor=0.5)]).ok
    (finding,) = dz.check(Base(ring()), interventions=[Act(when=During(0), change=bad_change)]).findings
    assert (finding.rule, finding.line.number) == ("random", bad_change.__code__.co_firstlineno + 1)


def test_a_check_leaves_the_generators_as_they_were():
    def states():
        return random.getstate(), torch.get_rng_state().tolist(), repr(np.random.get_state())  # noqa: NPY002

    before = states()
    for cls in (TorchRandom, PythonRandom, NumpyRandom):
        dz.check(cls(ring()))
    assert states() == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dz.check(Base), "an instance"),
        (lambda: dz.check(3), "dz.Model"),
        (lambda: dz.check(Base(ring()), steps=1), "steps=1"),
        (lambda: dz.check(Base(ring()), seed=-1), "seed=-1"),
        (lambda: dz.check(Base(ring()), interventions=[3]), "interventions"),
        (lambda: dz.check(Base(ring()), interventions=[Scale(when=During(0), target="r", factor=1.0)]), "valid: "),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(InputError, match=message):
        call()


class OneTensorTwice(Base):
    def init(self, rng):
        nothing = torch.zeros(NUM)
        return Purses(saved=nothing, spent=nothing)

    def step(self, now, rng):
        coins = now.saved + rng.uniform("coins")
        return now.replace(saved=coins, spent=coins)

    @dz.series
    def number(self, now):
        return now.saved.sum()


def test_two_fields_that_are_one_tensor_are_no_second_graph():
    assert dz.check(OneTensorTwice(ring()), gradient=False).ok


class Crowd(dz.Model):
    num_agents: int | None = None

    def init(self, rng):
        return People(ill=torch.zeros(NUM, dtype=torch.bool), wealth=torch.zeros(NUM))

    def step(self, now, rng):
        return now


@pytest.mark.parametrize("number", [None, -1])
def test_a_number_of_agents_that_is_none_is_told_as_a_run_tells_it(number):
    told = f"Crowd.num_agents={number}, expected a whole number, at least 0"
    assert [finding.what for finding in dz.check(Crowd(num_agents=number), dt=True).findings] == [told]
    with pytest.raises(ModelError, match=re.escape(told)):
        dz.simulate(Crowd(num_agents=number), steps=1, device="cpu")
