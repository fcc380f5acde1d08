"""Steps as native loops: the bits of eager steps, with loops for what they are written for and torch for the rest."""

import copy
import ctypes
import dataclasses
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.run.random_steps import RandomStepper
from torch import Tensor

import denizen as dz
from denizen import ops
from denizen.model import Act, Ask, During, Scale, alive, births, deaths
from denizen.ops._cpu import over_parts
from denizen.run import _native, _native_calls, _native_loops, _native_parts
from denizen.run._compile import _advanced, _same_bits, try_native
from denizen.run._engine import RunState
from denizen.run._native import NativeStep, NotNativeError
from denizen.space import Ties
from denizen.zoo.covid import covid
from denizen.zoo.seir import seir

pytestmark = pytest.mark.skipif(ops.variant(torch.device("cpu")) != "numba", reason="numba is not installed")
STEPS = 6


def contacts(agents: int = 301) -> dz.Graph:
    return dz.Graph.from_edges(dz.space.generators.erdos_renyi(agents, 7.0, seed=1))


class Numbers(dz.State):
    bit: Tensor = dz.mask("agents")
    count: Tensor = dz.count("agents")
    real: Tensor = dz.real("agents")
    pair: Tensor = dz.real("agents", "two")
    total: Tensor = dz.count()


class Sums(dz.Model):
    """Entries, operands and sums of every form that loops are written for, and some that are torch's own."""

    num_agents: int = 37
    rate: Tensor = dz.param(0.25, low=0.0)

    def init(self, rng: dz.rng.Rng) -> Numbers:
        start = rng.normal("start")
        return Numbers(
            bit=rng.bernoulli("bit", 0.5),
            count=rng.integers("count", 0, 9).to(torch.int32),
            real=start,
            pair=torch.stack([start, -start], dim=1),
            total=torch.zeros((), dtype=torch.int32),
        )

    def step(self, now: Numbers, rng: dz.rng.Rng) -> Numbers:
        bit, count, real, pair = now.bit, now.count, now.real, now.pair
        big = 100 * (now.time.step > 0).to(torch.int8)
        wraps = (bit * big + bit * big).to(torch.int32)  # int8 wraps around once the first step is over
        mixed = count * self.rate + real / (1 + count) - 2.5 * bit
        chosen = torch.where(bit != 0, mixed, real.clamp(-1.0, 1.0)) + torch.where(real > 0.5, torch.nan, 0.0).clamp(0)
        chosen = torch.where(chosen.isnan() | ~(chosen.abs() < 3), real.floor() + 0.5 * real.round(), chosen)
        odd = ((count & 1) ^ 1) | (count.clamp(max=4) == 4).to(torch.int32)
        share = bit.sum() / bit.numel()
        some = ((real < 0).any() & (count >= 0).all()).to(torch.int32) + (~(bit != 0)).sum().to(torch.int32)
        near = (1 / (0.1 + real.abs())).sqrt().clamp(min=0.1, max=2.0) * share
        turned = pair.flip(1) * 0.5 + chosen[:, None] * torch.tensor([0.1, -0.1]) + near[:, None]
        tail = torch.cat([count[5:], count[:5]])
        hit = rng.event("hit", near * 0.2, where=bit) + rng.bernoulli("flip", 0.1, where=1 - bit)
        return now.replace(
            bit=torch.where(hit != 0, 1 - bit, bit),
            count=(tail + odd + wraps.clamp(0, 3) + some).remainder(50).to(torch.int32),
            real=(chosen + 0.1 * near).clamp(-5, 5),
            pair=turned.clamp(-3, 3),
            total=count.max() + torch.maximum(now.total, some),
        )

    @dz.series
    def mean(self, now: Numbers) -> Tensor:
        return now.pair.mean()  # of real numbers: torch's own

    @dz.series
    def ones(self, before: Numbers, now: Numbers) -> Tensor:
        return (now.bit - before.bit).sum()


class Herd(dz.State):
    living: Tensor = alive("agents")
    stage: dz.model.Stage = dz.stage("agents", levels=("well", "ill", "over"))
    partner: Tensor = dz.count("agents", "slots")
    until: Tensor = dz.count("agents", "slots")
    age: Tensor = dz.count("agents")


class Farm(dz.Model):
    """Births, deaths and ties."""

    num_agents: int = 90
    rate: Tensor = dz.param(0.3, low=0.0)

    def init(self, rng: dz.rng.Rng) -> Herd:
        ties = Ties.none(self.num_agents, 2)
        living = (torch.arange(self.num_agents) < 60).to(torch.int8)
        return Herd(living=living, stage=rng.bernoulli("ill", 0.3), partner=ties.who, until=ties.until, age=0 * living)

    def step(self, now: Herd, rng: dz.rng.Rng) -> Herd:
        ties = Ties(now.partner, now.until, now.time.step)
        seeks = (ties.degree() < 2) * now.living * rng.bernoulli("seek", 0.4)
        ties = ties.form(rng, "pair", seeks, rng.exponential("lasts", 0.3, where=seeks))
        caught = rng.event("catch", self.rate * ties.sum(now.stage.is_("ill")), where=now.stage.is_("well"))
        stage = now.stage.move(rng.event("heal", 0.2), "over", source="ill").move(caught, "ill", source="well")
        now = now.replace(stage=stage, partner=ties.who, until=ties.until, age=now.age + now.living)
        now = deaths(now, rng.event("die", 0.1), "agents")
        return births(now, rng, rng.event("bear", 0.1), "agents", age=now.age // 2)

    @dz.series
    def ill(self, now: Herd) -> Tensor:
        return now.stage.is_("ill").sum()

    @dz.series
    def ages(self, now: Herd) -> Tensor:
        return now.age.sum()


class Shifted(Farm):
    """Partners' values that a shift has just made."""

    def step(self, now: Herd, rng: dz.rng.Rng) -> Herd:
        ties = Ties(now.partner, now.until, now.time.step)
        return now.replace(age=ties.sum((now.living << 2) >> 1).to(now.age.dtype))


MODELS: dict[str, Callable[[], dz.Model]] = {
    "sums": Sums,
    "farm": Farm,
    "seir": lambda: seir(contacts(), seed_share=0.1),
    "covid": lambda: covid(dz.population.synthetic("astoria", size=301), sample_deaths=True, isolation=0.2, R=30.0),
}


def same_step(run: dz.run.Run, step: NativeStep) -> None:
    stepper, run_state = run._stepper, run._run_state
    made, expected = (_advanced(stepper, run_state, one) for one in (step, stepper.batched_step))
    for place, (one, other) in enumerate(zip(made, expected, strict=True)):
        assert _same_bits(one, other), (place, one, other)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "MOST_FOREIGN", 1000)


@pytest.fixture
def by_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loops of any size go over two threads."""
    for name, value in {"LEAST": 0.0, "PART": 1e-9, "ALIGN": 4}.items():
        monkeypatch.setattr(_native_parts, name, value)
    monkeypatch.setattr(_native_parts.Choice, "threads", lambda _, cost, most: min(_native_parts.parts(cost), most))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


CASES = [(name, replicates) for name in MODELS for replicates in (1, 3)]
QUICK = (("sums", 3), ("farm", 1))


@pytest.mark.parametrize(
    ("name", "replicates"), [pytest.param(*one, marks=[] if one in QUICK else pytest.mark.slow) for one in CASES]
)
def test_bits_of_eager_steps(name: str, replicates: int, many: None, by_two: None) -> None:
    """Of one thread and of two by turns."""
    params = {"rate": [0.2, 0.3, 0.4]} if replicates == 3 and name in ("sums", "farm") else None
    eager = dz.simulate(MODELS[name](), STEPS, replicates=replicates, params=params, device="cpu", compile=False)
    run = dz.simulate(MODELS[name](), 2, replicates=replicates, params=params, device="cpu", compile=False)
    step = NativeStep(run._stepper, run._run_state)
    same_step(run, step)
    run._stepper.use(step)
    held = [leaf.clone() for leaf in run._run_state.leaves]
    before = run._run_state
    torch.set_num_threads(1)
    run.extend(2)
    torch.set_num_threads(2)
    run.extend(STEPS - 4)
    assert all(map(torch.equal, before.leaves, held))  # a step writes into nothing that the caller may hold
    same_step(run, step)
    for ours, theirs in zip(run._run_state.tensors(), eager._run_state.tensors(), strict=True):
        assert _same_bits(ours, theirs)
    for series in eager.series_names:
        assert torch.equal(run[series], eager[series])


def test_a_run_that_is_asked_to_compile() -> None:
    """What interventions change, a world alone, more steps and a model whose parameter is written to."""
    model = seir(contacts(), seed_share=0.1)
    vaccinated = lambda model, now, rng: now.replace(
        stage=now.stage.move(rng.event("dose", 0.2), "recovered", source="susceptible")
    )
    acts = [
        Scale(target="infect_rate", factor=0.5, when=During(3, 6)),
        Act(change=vaccinated, when=During(2, 4), name="dose"),
    ]
    given: dict[str, Any] = {"interventions": acts, "device": "cpu"}
    eager = dz.simulate(model, STEPS, replicates=3, compile=False, **given)
    run = dz.simulate(model, 3, replicates=3, compile=True, **given).extend(STEPS - 3)
    alone = dz.simulate(model, STEPS, worlds=[2], compile=True, **given)
    assert run.stats()["path"] == alone.stats()["path"] == "native"
    assert "loops" in str(run.plan())
    assert run.stats(count=True)["host_reads"] == 0
    for name in eager.series_names:
        assert torch.equal(run[name], eager[name])
        assert torch.equal(alone[name], eager[name][2:])
    for one in (run, eager):
        one.model.infect_rate.mul_(3.0)
    assert torch.equal(run.extend(3)["cases"], eager.extend(3)["cases"])


def test_what_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that ask the host, relaxed ones, those that read a value and those that are torch's for the most part."""
    plain = dz.simulate(Sums(), 2, device="cpu", compile=False)
    monkeypatch.setattr(_native, "MOST_FOREIGN", 0)
    with pytest.raises(NotNativeError, match=r"aten\.mean\.default"):
        NativeStep(plain._stepper, plain._run_state)
    assert not try_native(plain._stepper, plain._run_state)
    read = {"read": lambda now: now.real * now.total.item()}
    reading = dz.simulate(Sums(), 2, device="cpu", compile=False, record=read)
    monkeypatch.setattr(_native, "MOST_FOREIGN", 1000)
    assert not try_native(reading._stepper, reading._run_state)
    relaxed = dz.simulate(seir(contacts()), 2, relax=dz.relax.MeanField(), device="cpu", compile=False)
    assert not try_native(relaxed._stepper, relaxed._run_state)
    ask = Ask(target="rate", groups=["all"], answer=lambda group, step: 0.1)
    asked = dz.simulate(Sums(), 2, interventions=[ask], device="cpu", compile=False)
    asked._write_loops()
    assert asked._path == "eager"


def test_as_many_threads_as_were_quick(by_two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    choice, work = _native_parts.Choice(), 1e9
    assert [choice.threads(work), choice.threads(1.0), choice.threads(work)] == [1, 1, 2]  # a trial sees both
    choice.took(1, 2.0)
    assert choice.threads(work) == 2
    choice.took(2, 3.0)
    assert [choice.threads(work) for _ in range(_native_parts.AGAIN)].count(2) == 1
    choice.took(2, 1.0)
    assert choice.threads(work) == 2


def test_threads_of_a_run_are_those_of_torch_at_each_call(by_two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    monkeypatch.setattr(
        _native, "over_parts", lambda work, total, number, **way: (used.append(number), over_parts(work, total, number))
    )
    run = dz.simulate(seir(contacts(), seed_share=0.1), 3, device="cpu", compile=True)
    torch.set_num_threads(1)
    run.extend(1)
    assert set(used[:-1]) == {2}
    assert used[-1] == 1


def test_what_partners_have_is_there_before_it_is_added_up(by_two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of others are read once all threads have written theirs, whatever a buffer is called."""
    groups, grouped = [], _native_parts.grouped
    monkeypatch.setattr(_native, "grouped", lambda *given: groups.append(grouped(*given)) or groups[-1])
    run = dz.simulate(Shifted(), 3, device="cpu", compile=True)
    assert run._path == "native"
    ((alone, written),) = [
        (place, [line for line in lines if not line.startswith("_sum_whole")])
        for some in groups
        for place, (_, lines) in enumerate(some)
        if any(line.startswith("_sum_whole") for line in lines)
    ]
    assert alone > 0
    assert not any("shift" in line for line in written)


def test_no_more_threads_than_a_step_was_written_for(by_two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a row of scratch."""
    model = seir(contacts(), seed_share=0.1)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    run = dz.simulate(model, 3, device="cpu", compile=True)
    torch.set_num_threads(7)
    eager = dz.simulate(model, 6, device="cpu", compile=False)
    used = []
    monkeypatch.setattr(
        _native, "over_parts", lambda work, total, number, **way: (used.append(number), over_parts(work, total, number))
    )
    assert torch.equal(run.extend(3)["cases"], eager["cases"])
    assert set(used) == {2}


def test_a_long_run_goes_on_in_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    model = seir(contacts(), seed_share=0.1)
    eager = dz.simulate(model, 9, device="cpu", compile=False)
    monkeypatch.setattr("denizen.run._run.NATIVE_SECONDS", 0.0)
    run = dz.simulate(model, 9, device="cpu")
    assert (run.stats()["path"], eager.stats()["path"]) == ("native", "eager")
    assert torch.equal(run["cases"], eager["cases"])


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """With the sign of 0; which NaN it is is left to the processor."""
    if not one.dtype.is_floating_point:
        return _same_bits(one, other)
    nan = one.isnan() & other.isnan()
    return one.dtype == other.dtype and _same_bits(torch.where(nan, 0, one), torch.where(nan, 0, other))


def compared(seed: int) -> None:
    """A random step in the state that it was recorded in, half of the time all 0, and in others."""
    stepper: Any = RandomStepper(seed)
    state = stepper.state() if seed % 2 else [torch.zeros_like(leaf) for leaf in stepper.state()]
    switches = torch.zeros(stepper.worlds, 0, dtype=torch.int8)
    native, tried = None, None
    for number in range(5):
        run_state = RunState(state, torch.tensor(3 + number), switches, None)
        if native is None:
            native = NativeStep(stepper, run_state)
        expected = _advanced(stepper, run_state, stepper.batched_step)
        tried = tried or stepper.tried
        if stepper.tried == tried:  # where torch refused nothing that it had taken
            for made, one in zip(_advanced(stepper, run_state, native), expected, strict=True):
                assert same_numbers(made, one), (seed, number, made, one, native.source)
        state = stepper.state()
    assert native is not None
    several(stepper, native, RunState(state, torch.tensor(3), switches, None), 1 + seed % 4, tried)


def several(stepper: Any, native: NativeStep, begin: RunState, count: int, tried: list[bool] | None) -> None:
    """Steps in one call, each from what the step before gave."""
    held, rows, run_state = [leaf.clone() for leaf in begin.leaves], [], begin
    for number in range(count):
        rows.append(_advanced(stepper, run_state, stepper.batched_step))
        if stepper.tried != tried:
            return
        run_state = RunState(rows[-1][: len(held)], begin.step + number + 1, begin.switches, None)
    leaves, switches, records, bad = native.several(
        count, begin.leaves, begin.switches, stepper.keys, stepper.values, begin.step
    )
    for made, one in zip([*leaves, switches], rows[-1], strict=False):
        assert same_numbers(made, one), (made, one, native.source)
    for number, row in enumerate(rows):
        for made, one in zip([*records, bad], row[len(held) + 1 :], strict=True):
            assert same_numbers(made[number], one), (number, made, one, native.source)
    assert all(map(_same_bits, begin.leaves, held))
    assert int(begin.step) == 3


def test_random_steps_as_python(many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written, run by Python: order of loops, views, buffers, dtypes."""

    def as_python(name: str, text: str) -> Callable[..., None]:
        known: dict[str, Any] = {"np": np}
        exec(text, known)
        return known[name]

    def segment(code: str, written: tuple[tuple[str, str], ...], make: Any) -> Callable[..., None]:
        known = {"np": np, "whole": whole, "strided": strided, "invoke": lambda called, given: called(*given)}
        known = _native_loops.OWN | known | {name: as_python(name, text) for name, text in written}
        exec(code, known)
        return known["segment"]

    def whole(address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        return np.frombuffer((ctypes.c_char * size).from_address(int(address)), dtype).reshape(shape)

    def strided(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> np.ndarray:
        last = sum(step * (size - 1) for step, size in zip(strides, shape, strict=True)) + np.dtype(dtype).itemsize
        return np.ndarray(shape, dtype, (ctypes.c_char * last).from_address(int(address)), 0, strides)

    monkeypatch.setattr(_native_calls, "compiled", segment)
    with np.errstate(all="ignore"), torch.no_grad():
        for seed in range(60):
            compared(seed)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[] if seed < 3 else pytest.mark.slow) for seed in range(30)])
def test_random_steps(seed: int, many: None, by_two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two threads, parts of any size."""
    monkeypatch.setattr(_native_parts, "ALIGN", 1)
    with torch.no_grad():
        compared(seed)


class Real(dz.State):
    bit: Tensor = dz.mask("agents")
    real: Tensor = dz.real("agents")


class Logged(dz.Model):
    """A sum over neighbours with nothing but torch's own call behind it."""

    num_agents: int = 301
    graph: dz.Graph = dataclasses.field(default_factory=contacts)

    def init(self, rng: dz.rng.Rng) -> Real:
        return Real(bit=rng.bernoulli("bit", 0.3), real=rng.normal("real"))

    def step(self, now: Real, rng: dz.rng.Rng) -> Real:
        return now.replace(bit=rng.bernoulli("next", 0.4), real=torch.log1p(self.graph.sum(now.bit).float()))


@pytest.mark.parametrize("least", [100.0, 200.0, 350.0])
def test_a_sum_in_parts_is_one_of_all_threads(least: float, by_two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little one of its loops has to do."""
    monkeypatch.setattr(_native_parts, "LEAST", least)
    run, eager = (dz.simulate(Logged(), 5, device="cpu", compile=compile) for compile in (True, False))
    assert run._path == "native"
    assert torch.equal(run.state.real, eager.state.real)


SHARES = {"real": 1.0}


class Changing(dz.Model):
    """What recording cannot see, by a number that the model holds in Python."""

    num_agents: int = 30
    way: str = ""
    offset: float = 1.0

    def init(self, rng: dz.rng.Rng) -> Real:
        return Real(bit=rng.bernoulli("bit", 0.3), real=rng.normal("real"))

    def step(self, now: Real, rng: dz.rng.Rng) -> Real:
        real = now.real * 0.5
        if self.way == "numpy":
            real = torch.from_numpy(np.cos(real.numpy()))
        if self.way == "mask":
            real = real + (real[now.bit != 0] > 0).sum()
        if self.way == "counts":
            self.__dict__["offset"] = self.offset + 1.0
            real = real + (self.offset > 100)
        return now.replace(real=real + self.offset * SHARES["real"], bit=rng.bernoulli("next", 0.1))


@pytest.mark.parametrize("way", ["numpy", "mask", "counts"])
def test_a_step_that_its_graph_does_not_tell_stays_eager(way: str, many: None) -> None:
    run = dz.simulate(Changing(way=way), 2, device="cpu", compile=False)
    assert not try_native(run._stepper, run._run_state)


@pytest.mark.parametrize("where", ["model", "module"])
def test_a_number_that_the_step_reads_is_changed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are written anew; a copy of a run goes on by itself."""
    runs = [dz.simulate(Changing(), 3, device="cpu", compile=compile) for compile in (True, False)]
    monkeypatch.setitem(SHARES, "real", 2.0 if where == "module" else 1.0)
    for run in runs:
        object.__setattr__(run.model, "offset", 5.0 if where == "model" else 1.0)
    ours, theirs = (run.extend(3) for run in runs)
    assert ours._path == "native"
    assert torch.equal(ours.state.real, theirs.state.real)
    again = copy.deepcopy(ours)
    for run in (ours, theirs, again):
        run.extend(2)
    assert torch.equal(ours.state.real, theirs.state.real)
    assert torch.equal(again.state.real, theirs.state.real)


class Reaching(Changing):
    """Entries at places that there are not from the fourth step on."""

    def step(self, now: Real, rng: dz.rng.Rng) -> Real:
        place = torch.arange(self.num_agents) + (now.time.step >= 3)
        place = place - self.num_agents if self.way == "negative" else place
        real = now.real.gather(0, place) if self.way == "gather" else now.real[place]
        if self.way == "scatter":
            real = now.real.scatter(0, place, now.real)
        return now.replace(real=real, bit=rng.bernoulli("next", 0.1))


@pytest.mark.parametrize("way", ["index", "gather", "scatter", "negative"])
def test_a_place_that_there_is_not(way: str) -> None:
    runs = [dz.simulate(Reaching(way=way), 3, device="cpu", compile=compile) for compile in (True, False)]
    assert runs[0]._path == "native"
    if way == "negative":  # place 0 is one
        assert torch.equal(*(run.extend(3).state.real for run in runs))
        return
    told = []
    for run in runs:
        with pytest.raises((IndexError, RuntimeError)) as raised:
            run.extend(3)
        told.append(str(raised.value))
    assert told[0] == told[1]


class Unusable(Changing):
    """A draw from what is no probability at step 6, and a place that there is not at step 60."""

    def step(self, now: Real, rng: dz.rng.Rng) -> Real:
        chance = 0.3 + 9.0 * (now.time.step == 6)
        place = torch.arange(self.num_agents) + 100 * (now.time.step == 60)
        return now.replace(bit=rng.bernoulli("next", chance), real=now.real[place] * 0.5)


def test_a_check_that_failed_long_before_another_error() -> None:
    """Whoever looks at checks seldom still tells of the first fault."""
    for compile in (True, False):
        run = dz.simulate(Unusable(), 3, device="cpu", compile=compile)
        assert run._path == ("native" if compile else "eager")
        with pytest.raises(dz.errors.ModelError, match=r"rng.bernoulli\('next'\)"):
            run.extend(100)
        assert run.steps <= 6


class Kept(Changing):
    """Parameters whose entries do not lie in order or do not begin with the storage."""

    turned: Tensor = dz.param(torch.ones(2, 30).t())
    later: Tensor = dz.param(torch.arange(6.0)[3:])

    def step(self, now: Real, rng: dz.rng.Rng) -> Real:
        lived = now.bit.new_zeros(self.num_agents) + now.bit
        few = (lived[:5] * 2).sum() + (now.real[20:] + 1.0)[:4].amax()
        return now.replace(bit=1 - now.bit, real=self.turned[:, 1] + few + self.later[1] + self.later.sum())


def test_parameters_that_move_to_shared_memory() -> None:
    run = dz.simulate(Kept(), 3, device="cpu", compile=True)
    step, old = run._stepper._advance, run.model.later
    run.model.later.share_memory_()
    filled = [torch.full_like(old, 7.0) for _ in range(100)]
    with torch.no_grad():
        run.model.later.mul_(2.0)
        made, expected = (_advanced(run._stepper, run._run_state, one) for one in (step, run._stepper.batched_step))
    assert filled
    assert all(map(_same_bits, made, expected))


def test_bits_of_what_is_repeated() -> None:
    repeated = torch.ones(1, dtype=torch.int64).as_strided((1,), (0,))
    assert _same_bits(repeated, torch.ones(1, dtype=torch.int64))
    assert not _same_bits(repeated, torch.zeros(1, dtype=torch.int64))


def test_parameters_as_the_model_has_them() -> None:
    models = [Kept(turned=torch.ones(2, 30).t()) for _ in range(2)]
    runs = [dz.simulate(models[number], 3, device="cpu", compile=number == 0) for number in range(2)]
    assert runs[0]._path == "native"
    held = [run.state.real.clone() for run in runs]
    for run in runs:
        run.model.turned.mul_(3.0)
        run.extend(3)
    assert torch.equal(*held)
    assert torch.equal(runs[0].state.real, runs[1].state.real)
