"""The same bits on every path: eager, compiled chunks, CUDA graphs, the other device; and after a stop in between.

On the CPU the chunks run by plain calls. Models whose events go through `event` and whose sums have a bound keep their
bits across all of these.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.run.played import CapturedSteps, one_graph
from torch import Tensor

import denizen as dz
from denizen.model import Act, During, Scale, Trigger, births
from denizen.zoo.covid import covid
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir

STEPS = 43  # one watched, one more, then 32 + 8 + 1 replayed


class Herd(dz.State):
    alive: Tensor = dz.mask("agents")
    age: Tensor = dz.count("agents", max=100)
    ill: dz.model.Stage = dz.stage("agents", levels=("well", "ill", "over"))
    fed: dz.model.History = dz.history("agents", length=4)


class Farm(dz.Model):
    """Births, deaths and every narrow kind; an odd number of places."""

    contacts: dz.Graph
    birth: Tensor = dz.param(0.08, low=0.0)
    death: Tensor = dz.param(0.08, low=0.0)

    def init(self, rng: dz.rng.Rng) -> Herd:
        alive = rng.bernoulli("alive", 0.3)
        return Herd(alive=alive, age=0 * alive, ill=alive * rng.bernoulli("ill", 0.2), fed=0 * alive)

    def step(self, now: Herd, rng: dz.rng.Rng) -> Herd:
        alive = now.alive
        near = self.contacts.sum(now.ill.is_("ill") * alive, where=now.ill.is_("well"))
        fed = now.fed.record(now.fed.never() * alive * rng.event("eat", 0.3))
        ill = now.ill.move(alive * rng.event("catch", 0.2 * near), "ill", source="well")
        ill = ill.move(rng.event("heal", 0.25), "over", source="ill")
        now = now.replace(age=(now.age + alive).clamp(max=90), fed=fed, ill=ill)
        now = births(now, rng, alive * rng.event("bear", self.birth), age=0 * now.age, fed=0 * now.fed.value)
        return now.replace(alive=now.alive * (1 - rng.event("die", self.death)))

    @dz.series
    def animals(self, now: Herd) -> Tensor:
        return now.alive.sum()

    @dz.series
    def levels(self, now: Herd) -> Tensor:
        return now.ill.counts()


def contacts(agents: int, degree: float = 7.0) -> dz.Graph:
    return dz.Graph.from_edges(dz.space.generators.erdos_renyi(agents, degree, seed=1))


def vaccinate(model: Any, now: Any, rng: dz.rng.Rng) -> Any:
    dose = rng.event("dose", 0.05) * now.stage.is_("susceptible")
    return now.replace(stage=now.stage.move(dose, "recovered", source="susceptible"))


def measures() -> list[dz.model.Intervention]:
    def many(now: Any) -> Tensor:
        return now.stage.is_("infected").sum() > 40

    def few(now: Any) -> Tensor:
        return now.stage.is_("infected").sum() < 15

    return [
        Scale(name="mild", target="infect_rate", factor=0.5, when=During(9, 21)),
        Scale(name="strict", target="infect_rate", factor=0.1, when=Trigger(many, few)),
        Act(name="doses", change=vaccinate, when=During(5, 30)),
    ]


def layered() -> dz.Model:
    layers = dz.space.Layers({"home": contacts(403, 2.0), "work": contacts(403)}, {"work": [1.0, 0.5, 0.25]})
    return seir(layers, infect_rate=0.1, seed_share=0.05, latent_days=2, infectious_days=4, infectious_phases=2)


def people() -> dz.population.Population:
    return dz.population.synthetic("astoria", 601)


Case = tuple[Callable[[], dz.Model], Callable[[], dict[str, Any]]]
CASES: dict[str, Case] = {
    "sir": (lambda: sir(contacts(301), seed_share=0.03), dict),
    "sir with ids": (lambda: sir(contacts(301), seed_share=0.03), lambda: {"ids": torch.arange(301).flip(0) * 5 + 2}),
    "sir with measures": (
        lambda: sir(contacts(402), infect_rate=0.15, seed_share=0.03),
        lambda: {"interventions": measures()},
    ),
    "seir in layers": (
        layered,
        lambda: {"interventions": [Scale(target="contacts.work", factor=0.0, when=During(4, 12))]},
    ),
    "covid": (lambda: covid(people(), symmetrize=True, sample_deaths=True, isolation=0.2, R=20.0), dict),
    "covid, reference": (lambda: covid(people(), reference=True, isolation=[0.1] * 6), dict),
    "births": (lambda: Farm(contacts(205)), dict),
}


def run_case(name: str, steps: int, device: Any, **options: Any) -> dz.run.Run:
    build, more = CASES[name]
    return dz.simulate(build(), steps, seed=4, device=device, **more(), **options)


def everything(run: dz.run.Run) -> dict[str, Tensor]:
    """Series and run_state, on the CPU."""
    held = {f"series {name}": run[name] for name in run.series_names}
    held.update({f"run_state {k}": tensor for k, tensor in enumerate(run._run_state.tensors())})
    return {name: tensor.cpu() for name, tensor in held.items()}


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert value.dtype == right[name].dtype, name
        assert torch.equal(value, right[name]), name


class Uncaptured(CapturedSteps):
    """The chunks of a capture, compiled or not, by plain calls."""

    def _warm_up(self) -> None:
        pass

    _replay = CapturedSteps._plain


ALONE = ("sir", "covid", "births")  # whose single replicate is looked at in the default run too


@pytest.mark.compile
@pytest.mark.parametrize(
    ("name", "replicates"),
    [
        *((name, 3) for name in CASES),
        *(pytest.param(name, 1, marks=[] if name in ALONE else pytest.mark.slow) for name in CASES),
    ],
)
def test_every_path_has_the_same_bits(device: torch.device, name: str, replicates: int) -> None:
    eager = run_case(name, STEPS, device, replicates=replicates, compile=False)
    assert eager.stats()["path"] == "eager"
    expected = everything(eager)
    assert any(value.float().std() > 0 for key, value in expected.items() if key.startswith("series"))
    begun = run_case(name, 2, device, replicates=replicates, compile=False)
    if device.type == "cuda":
        captured = run_case(name, STEPS, device, replicates=replicates, compile=True)
        assert captured.stats()["path"] == "captured"
        assert_same(everything(captured), expected)
        assert_same(everything(run_case(name, STEPS, "cpu", replicates=replicates)), expected)
        chunks = captured._capture
        chunks._replay = chunks._plain  # the same compiled step without its graph
    else:
        chunks = Uncaptured(begun._stepper, begun._run_state, 32, "eager")
    run_state, records = chunks.run(begun._run_state, STEPS - 2)
    for series, record in zip(eager.series_names, records, strict=True):
        assert torch.equal(record.cpu(), expected[f"series {series}"][:, 2:]), series
    assert all(torch.equal(a, b) for a, b in zip(run_state.tensors(), eager._run_state.tensors(), strict=True))


@pytest.mark.cuda
def test_two_runs_on_one_gpu_have_the_same_bits() -> None:
    """Enough agents that atomics come in another order each time."""
    model = sir(contacts(60_001, 12.0), infect_rate=0.05, seed_share=0.01)
    runs = [
        dz.simulate(model, 40, replicates=2, seed=1, device="cuda", compile=how) for how in (True, True, False, False)
    ]
    assert [run.stats()["path"] for run in runs] == ["captured", "captured", "eager", "eager"]
    first = everything(runs[0])
    for run in runs[1:]:
        assert_same(everything(run), first)
    assert not torch.equal(*first["series cases"])


class Coins(dz.State):
    heads: Tensor = dz.mask("agents")


class Toss(dz.Model):
    """Fifty coins thrown in each step; the series tells which fell on heads."""

    num_agents: int = 50

    def init(self, rng: dz.rng.Rng) -> Coins:
        return Coins(heads=torch.zeros(50, dtype=torch.int8))

    def step(self, now: Coins, rng: dz.rng.Rng) -> Coins:
        return now.replace(heads=rng.event("toss", 0.7))

    @dz.series
    def code(self, now: Coins) -> Tensor:
        return (now.heads.to(torch.int64) << torch.arange(50, device=now.heads.device)).sum()


@pytest.mark.parametrize("replicates", [1, 3])
def test_replays_draw_fresh_numbers(device: torch.device, replicates: int) -> None:
    """Three replays of one graph of 32 steps and more: no throw of all coins comes twice, all are the eager ones."""
    steps = 1 + 4 + 3 * 32 + 3
    eager = dz.simulate(Toss(), steps, replicates=replicates, device=device, compile=False)
    if device.type == "cuda":
        run = dz.simulate(Toss(), steps, replicates=replicates, device=device, compile=True)
        assert run.stats()["path"] == "captured"
        codes = run["code"]
    else:
        begun = dz.simulate(Toss(), 5, replicates=replicates, device=device, compile=False)
        capture = Uncaptured(begun._stepper, begun._run_state, 32, "eager")
        run_state, (first,) = capture.run(begun._run_state, 96)
        _, (second,) = capture.run(run_state, 3)
        codes = torch.cat([begun["code"], first, second], dim=1)
    assert codes.unique().numel() == replicates * steps
    assert torch.equal(codes, eager["code"])


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["sir with measures", "covid", "births"])
@pytest.mark.parametrize(("first", "then"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_stopped_on_one_device_goes_on_on_the_other(tmp_path: Path, name: str, first: str, then: str) -> None:
    build, more = CASES[name]
    whole = run_case(name, STEPS, "cpu", replicates=2)
    run_case(name, 20, first, replicates=2, out=tmp_path / "r", compile=first == "cuda")
    again = {key: value for key, value in more().items() if key == "interventions"}
    resumed = dz.run.resume(tmp_path / "r", build(), STEPS - 20, device=then, **again)
    assert resumed.device.type == then
    assert_same(everything(resumed), everything(whole))


WRITTEN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index_add": lambda code, value: code.new_zeros(3, dtype=torch.int64).index_add(0, code, value),
    "index_add of bytes": lambda code, value: code.new_zeros(3, dtype=torch.int8).index_add(
        0, code, value.to(torch.int8)
    ),
    "index_add of columns": lambda code, value: code.new_zeros(2, 3, dtype=torch.float32).index_add(
        1, code, value.float().expand(2, 12)
    ),
    "index_add twice": lambda code, value: (
        code.new_ones(3, dtype=torch.float32).index_add(0, code, value / 2).index_add(0, code, value / 4)
    ),
    "index_put": lambda code, value: code.new_zeros(3, 3, dtype=torch.float32).index_put(
        (code, code), value.float(), accumulate=True
    ),
    "index_put once": lambda code, value: code.new_zeros(3, dtype=torch.float32).index_put(
        (code[:3],), value[:3].float()
    ),
    "scatter_add": lambda code, value: code.new_zeros(3, dtype=torch.int64).scatter_add(0, code, value),
    "scatter_add of bytes": lambda code, value: code.new_ones(3, dtype=torch.uint8).scatter_add(
        0, code, (100 * value).to(torch.uint8)
    ),
    "scatter_reduce of bytes": lambda code, value: code.new_zeros(3, dtype=torch.int8).scatter_reduce(
        0, code, value.to(torch.int8), "amax"
    ),
    "index_put of shorts": lambda code, value: code.new_zeros(3, dtype=torch.int16).index_put(
        (code,), (9_999 * value).to(torch.int16), accumulate=True
    ),
    "index_put of shorts, once": lambda code, value: code.new_zeros(3, dtype=torch.int16).index_put(
        (code[:3],), value[:3].to(torch.int16)
    ),
    "scatter_reduce": lambda code, value: code.new_zeros(3, dtype=torch.float32).scatter_reduce(
        0, code, value.float(), "amax"
    ),
    "slice_scatter": lambda code, value: code.new_zeros(3, dtype=torch.int64).slice_scatter(value[:2], 0, 0, 2),
}


@pytest.mark.compile
def test_what_worlds_begin_alike_is_written_apart(device: torch.device) -> None:
    """Issue 16: compiled, `torch.zeros(3).index_add(0, group, mask)` was the sum over all worlds in each."""
    code = torch.arange(12, device=device) % 3
    value = torch.arange(1, 13, device=device) * torch.tensor([[1], [2], [0], [3]], device=device)

    def every(value: Tensor) -> dict[str, Tensor]:
        return {name: write(code, value) for name, write in WRITTEN.items()}

    step = torch.vmap(every)
    truth, found = step(value), one_graph(step, "inductor")(value)
    assert [name for name in WRITTEN if not torch.equal(found[name], truth[name])] == []
