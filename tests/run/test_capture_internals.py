"""Captured chunks equal plain steps: on a GPU as they are, elsewhere with the graph replaced by plain calls."""

import dataclasses
from functools import partial
from typing import Any

import pytest
import torch
from tests.run.played import Chunks, chunks_of, program_of
from torch import Tensor

import denizen as dz
from denizen.model import Ask, During
from denizen.ops import SWITCH, _codes
from denizen.run import _neighbour_sums
from denizen.zoo.covid import covid
from denizen.zoo.sir import sir
from denizen.zoo.wolf_sheep import wolf_sheep


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
    wolf_sheep(side=12, sheep=20, wolves=6),
]


ROWS, WHOLE = 8, 10**9


@pytest.mark.parametrize(
    ("model", "replicates", "least"),
    [
        pytest.param(
            model,
            replicates,
            least,
            id=f"{type(model).__name__}-{replicates}-{'rows' if least == ROWS else 'whole'}",
            # In pairs in the default run: each model alone and in threes, in rows and whole.
            marks=[pytest.mark.slow] * ((replicates == 1) == ((least == ROWS) == (number % 2 == 0))),
        )
        for number, model in enumerate(MODELS)
        for replicates in (1, 3)
        for least in (ROWS, WHOLE)
    ],
)
def test_chunks_equal_steps(model: dz.Model, replicates: int, least: int) -> None:
    whole = dz.simulate(model, 42, replicates=replicates, seed=2)
    begun = dz.simulate(model, 3, replicates=replicates, seed=2)
    chunks = chunks_of(begun, 16, least)

    def run(*counts: int) -> list[Tensor]:
        rows = [[record[:count].clone() for record in chunks.steps(count)] for count in counts]
        return [torch.cat(parts).movedim(0, 1) for parts in zip(*rows, strict=True)]

    first = run(8, 1, 4)
    kept = chunks.take()
    second = run(16, 10)
    run_state = chunks.take()
    for name, a, b in zip(whole.series_names, first, second, strict=True):
        assert torch.equal(whole[name][:, 3:], torch.cat([a, b], dim=1)), name
    assert all(torch.equal(x, y) for x, y in zip(run_state.leaves, whole._run_state.leaves, strict=True))
    chunks.load(kept)  # an earlier state is as good as the latest
    assert all(torch.equal(x, y) for x, y in zip(second, run(16, 10), strict=True))
    assert int(chunks.take().step) == int(run_state.step) == 42


def test_a_sum_over_no_named_axis_is_one_over_all() -> None:
    """What `nanmean` counts with; taking the step apart failed, and a captured run went on eagerly."""
    record = {"mean": lambda now: torch.where(now.current > 2, now.current.to(torch.float32), torch.nan).nanmean()}
    whole = dz.simulate(Shifts(), 8, record=record)
    begun = dz.simulate(Shifts(), 3, record=record)
    *_, mean = chunks_of(begun, 5, 4).steps(5)
    assert torch.equal(whole["mean"][:, 3:], mean.movedim(0, 1))


def test_a_step_is_one_graph_and_what_a_chunk_records_another() -> None:
    whole = dz.simulate(MODELS[2], 15, seed=2)
    begun = dz.simulate(MODELS[2], 3, seed=2)
    program = program_of(begun, 8)
    counters = torch._dynamo.utils.counters["stats"]
    before = counters["unique_graphs"]
    with torch.no_grad():
        chunks = Chunks(program, begun._run_state, 12, partial(torch.compile, fullgraph=True, backend="aot_eager"))
        records = [*chunks.steps(12)]
        chunks.steps(12)
    assert counters["unique_graphs"] - before == 2
    for name, record in zip(whole.series_names, records, strict=True):
        assert torch.equal(whole[name][:, 3:], record.movedim(0, 1)), name


class Heard(dz.State):
    heard: Tensor = dz.mask("agents")


class Rumour(dz.Model):
    """The plainest use of a mask and a graph."""

    contacts: dz.Graph

    def init(self, rng: dz.rng.Rng) -> Heard:
        return Heard(heard=rng.bernoulli("first", 0.1))

    def step(self, now: Heard, rng: dz.rng.Rng) -> Heard:
        new = (1 - now.heard) * rng.event("hear", 0.1 * self.contacts.sum(now.heard, where=1 - now.heard))
        return now.replace(heard=now.heard + new)


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("kind", [Rumour, sir])
def test_masks_are_counted_in_bytes(kind: Any, replicates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no agent has more than 255 in-neighbours: a quarter of the memory that a sum goes through."""
    monkeypatch.setattr(_codes, "_as_op", lambda codes: False)  # as on CUDA
    model = kind(dz.Graph.from_edges(dz.space.generators.erdos_renyi(300, 8.0, seed=1)))
    begun = dz.simulate(model, 1, replicates=replicates)
    program = program_of(begun)
    assert [one.width for one in program.sums] == [torch.uint8]


class Loud(Rumour):
    """What is said depends on a parameter, and so does the first sum of a chunk."""

    loudness: Tensor = dz.param(1.0, low=0.0)

    def step(self, now: Heard, rng: dz.rng.Rng) -> Heard:
        loudness = self.loudness.double().float()  # a cast of it alone is a constant as well
        said = self.contacts.sum(loudness * now.heard, where=1 - now.heard, max=8.0)
        return now.replace(heard=now.heard + (1 - now.heard) * rng.event("hear", 0.05 * said))

    @dz.series
    def aware(self, now: Heard) -> Tensor:
        return now.heard.sum()


@pytest.mark.parametrize("replicates", [1, 3])
def test_a_parameter_that_changes_in_place_counts_from_the_next_step(replicates: int) -> None:
    graph = dz.Graph.from_edges(dz.space.generators.erdos_renyi(300, 8.0, seed=1))
    eager, begun = (dz.simulate(Loud(graph, loudness=0.1), n, replicates=replicates) for n in (7, 3))
    chunks = chunks_of(begun, 8)
    chunks.steps(4)
    kept = chunks.take()
    for run in (eager, begun):
        run.model.loudness.fill_(5.0)
    chunks.load(kept)
    (aware,) = chunks.steps(8)
    assert torch.equal(eager.extend(8)["aware"][:, 7:], aware.movedim(0, 1))


@pytest.mark.compile
@pytest.mark.parametrize("replicates", [1, 3])
def test_a_parameter_changes_without_another_graph(
    replicates: int, device: torch.device, request: pytest.FixtureRequest
) -> None:
    if device.type == "cpu":
        request.getfixturevalue("eager_backend")
    graph = dz.Graph.from_edges(dz.space.generators.erdos_renyi(300, 8.0, seed=1))
    eager, compiled = (
        dz.simulate(Loud(graph, loudness=0.1), 20, replicates=replicates, device=device, compile=how)
        for how in (False, True)
    )
    before = compiled.stats()
    assert before["path"] == {"cpu": "compiled", "cuda": "captured"}[device.type]
    for loudness in (3.0, 0.0, 1.0):
        for run in (eager, compiled):
            run.model.loudness.fill_(loudness)
            run.extend(18)
    after = compiled.stats()
    assert (after["graphs"], after["recompiles"]) == (before["graphs"], 0)
    assert torch.equal(eager["aware"], compiled["aware"])


class Faulty(Rumour):
    """Draws from a hazard below 0 in step 5, in some of the worlds."""

    def step(self, now: Heard, rng: dz.rng.Rng) -> Heard:
        odd = rng.on("worlds", 1).integers("odd", 0, 2)[0]
        return now.replace(heard=now.heard * rng.event("stay", 1.0 - 2 * odd * (now.time.step == 5)))


@pytest.mark.parametrize("counts", [(8,), (3, 5), (2, 6)])  # the fault is within a chunk, at its end, at its start
def test_a_fault_of_any_step_of_a_chunk_is_kept(counts: tuple[int, ...]) -> None:
    model = Faulty(dz.Graph.from_edges([0], [1], 20))
    begun = dz.simulate(model, 3, replicates=6)
    chunks = chunks_of(begun, 8)
    for count in counts:
        chunks.steps(count)
    eager = dz.simulate(model, 3, replicates=6)
    for _ in range(8):
        eager._run_state, _ = eager._stepper.advance(eager._run_state, {})
    assert 0 < int(eager._run_state.bad.sum()) < 6
    assert torch.equal(chunks.take().bad, eager._run_state.bad)


@pytest.mark.parametrize("replicates", [1, 3])
def test_a_field_that_stays_as_it_was_is_not_copied(replicates: int) -> None:
    """The dead of a COVID without sampled deaths; a kernel would do nothing else."""
    begun = dz.simulate(covid(PEOPLE), 1, replicates=replicates)
    program = program_of(begun)
    outputs = program.body.module.graph.output_node().args[0]
    assert [node.op for node in outputs[: len(begun._run_state.leaves)]].count("placeholder") == 1
    chunks = Chunks(program, begun._run_state, 4, lambda module: module)
    static = chunks._static
    leaves = chunks._step(0, static.leaves, static.switches, chunks._arguments)[0]
    assert sum(new is old for new, old in zip(leaves, static.leaves, strict=True)) == 1


@pytest.mark.cuda
@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_captured_on_cuda_equals_the_cpu(model: dz.Model, replicates: int) -> None:
    host = dz.simulate(model, 75, replicates=replicates, seed=4)
    device = dz.simulate(model, 75, replicates=replicates, seed=4, device="cuda", compile=True)
    assert device.stats()["path"] == "captured"
    for name in host.series_names:
        assert torch.equal(host[name], device[name].cpu()), name


class Moods(dz.State):
    mood: Tensor = dz.real("agents")


class Moody(dz.Model):
    """Real numbers that everyone hears from everyone around, from few who have one to all."""

    contacts: dz.Graph

    def init(self, rng: dz.rng.Rng) -> Moods:
        return Moods(mood=rng.bernoulli("some", 0.01) * rng.uniform("mood", 0.0, 1.0))

    def step(self, now: Moods, rng: dz.rng.Rng) -> Moods:
        return now.replace(mood=0.5 * now.mood + 0.5 * (self.contacts.sum(now.mood, max=1.0) * 0.3).clamp(max=1.0))

    @dz.series
    def moved(self, now: Moods) -> Tensor:
        return (now.mood > 0).sum()


@pytest.mark.parametrize("replicates", [1, 3])
def test_real_sums_in_chunks_equal_steps(replicates: int) -> None:
    graph = dz.Graph.from_edges(dz.space.generators.erdos_renyi(300, 6.0, seed=1))
    begun = dz.simulate(Moody(graph), 3, replicates=replicates, seed=2)
    program = program_of(begun)
    assert [one.fixed for one in program.sums] == [True]
    chunks = Chunks(program, begun._run_state, 8, lambda m: m)
    (moved,) = chunks.steps(8)
    run_state = chunks.take()
    assert torch.equal(begun.extend(8)["moved"][:, 3:], moved.movedim(0, 1))
    assert torch.equal(begun._run_state.leaves[0], run_state.leaves[0])


class OfAGpu(Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True  # type: ignore[assignment]


@pytest.mark.parametrize(("kind", "switch"), [(Rumour, 0.5), (Moody, 0.25)])
def test_the_switch_is_what_a_receiver_costs_in_senders(
    kind: Any, switch: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the agents receive counts, all receive in fixed point; an eighth sends."""
    ways = []

    def timed(way: str, call: Any) -> float:
        ways.append(way)
        call()
        return {"push": 1.0, "pull": 2.0}[way]

    begun = dz.simulate(kind(dz.Graph.from_edges(dz.space.generators.erdos_renyi(300, 6.0, seed=1))), 3)
    (one,) = program_of(begun).sums
    assert one.measured() == one  # on a CPU nothing chooses
    monkeypatch.setattr(_neighbour_sums, "LARGE", 0)
    monkeypatch.setattr(_neighbour_sums, "_milliseconds", timed)
    there = dataclasses.replace(one, graph=tuple(t if t is None else t.as_subclass(OfAGpu) for t in one.graph))
    assert there.measured().switch == switch
    assert ways == ["push", "pull"]


@pytest.mark.cuda
def test_real_sums_go_either_way_with_the_same_bits() -> None:
    graph = dz.Graph.from_edges(dz.space.generators.erdos_renyi(300_001, 6.0, seed=1))
    runs = []
    for way in ("push", "pull", 0.0, None):
        with dz.ops.direction(way):  # from here on, since graphs are recorded in it
            runs.append(dz.simulate(Moody(graph), 30, replicates=2, seed=2, device="cuda", compile=True))
        assert runs[-1].stats()["path"] == "captured"
    for run in runs[1:]:
        assert torch.equal(run["moved"], runs[0]["moved"])
        assert torch.equal(run.state.mood, runs[0].state.mood)
    (one,) = runs[-1]._capture._chunks._program.sums
    print("senders as dear as a receiver in fixed point:", one.switch)
    assert 0 < one.switch != SWITCH  # measured, on a graph of this size


@pytest.mark.cuda
def test_what_asks_the_host_is_not_captured() -> None:
    ask = Ask(target="isolation", groups=tuple("abcdef"), answer=lambda group, step: 0.1, when=During(5))
    run = dz.simulate(covid(PEOPLE), 12, interventions=[ask], device="cuda", compile=True)
    assert run.stats()["path"] == "eager"
