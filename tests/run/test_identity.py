"""The same bits under any batching, chunking, numbering, threads, variant and path; and what must not change them."""

import gc
import resource
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import denizen as dz
from denizen import ops
from denizen.model import Act, During, History, Scale, Stage, Trigger, births
from denizen.run import Run, Snapshots
from denizen.space import Graph, Layers
from denizen.zoo.covid import covid
from denizen.zoo.sir import SIR
from inside import Inside

AGENTS, STEPS = 203, 12


class Villagers(dz.State):
    """A field of every kind, births and deaths."""

    alive: Tensor = dz.mask("agents")
    stage: Stage = dz.stage("agents", levels=("well", "ill", "over"))
    exposed: History = dz.history("agents", length=5)
    children: Tensor = dz.count("agents", max=1000)
    wealth: Tensor = dz.real("agents", max=1e6)
    prices: Tensor = dz.real("goods")
    day: Tensor = dz.count()


class Village(dz.Model):
    """Uses every law of random numbers and every sum over neighbours."""

    layers: Layers
    rate: Tensor = dz.param(0.4, low=0.0)
    birth: Tensor = dz.param(0.05, low=0.0)
    death: Tensor = dz.param(0.04, low=0.0)

    def init(self, rng: dz.rng.Rng) -> Villagers:
        alive = rng.bernoulli("alive", 0.6)
        ill = rng.bernoulli("ill", 0.1) * alive
        return Villagers(
            alive=alive,
            stage=ill,
            exposed=ill * rng.integers("age", 0, 4).to(torch.int8),
            children=0 * alive,
            wealth=rng.gamma("wealth", 2.0, 3.0),
            prices=torch.ones(3),
            day=torch.zeros((), dtype=torch.int32),
        )

    def step(self, now: Villagers, rng: dz.rng.Rng) -> Villagers:
        alive, device = now.alive, now.alive.device
        ill = now.stage.is_("ill") * alive
        pressure = self.layers.sum(ill, where=now.stage.is_("well"), step=now.time.step)
        caught = rng.event("catch", self.rate * pressure) * alive * now.exposed.never()
        healed = rng.event("heal", now.exposed.weigh(torch.tensor([0.1, 0.2, 0.4, 0.8, 2.0], device=device)))
        stage = now.stage.move(healed, "over", source="ill").move(caught, "ill", source="well")
        home = self.layers["home"]
        gift = rng["trade"].exponential("gift", 4.0) * home.any(alive) * alive
        luck = rng["trade", "luck"].normal("luck", 0.0, 0.1) + rng.uniform("small", -0.1, 0.1)
        kind = rng.categorical("kind", torch.tensor([0.2, 0.5, 0.3], device=device))
        wealth = (now.wealth + gift + luck * kind + 0.01 * rng.poisson("finds", 1.0)).clamp(0.0, 1e5)
        wealth = torch.where(home.max(wealth, where=alive) > 50, wealth * 0.9, wealth)
        dead = rng.event("die", self.death) * alive
        prices = now.prices * (1 + 0.01 * rng.on("goods", 3).normal("price"))
        new = now.replace(
            alive=alive - dead,
            stage=stage,
            exposed=now.exposed.record(caught),
            wealth=wealth,
            prices=prices,
            day=now.day + 1,
        )
        parents = new.alive * rng.event("bear", self.birth)
        new = new.replace(children=new.children + parents)
        return births(new, rng, parents, wealth=new.wealth / 2, children=0 * parents, exposed=0 * new.exposed.value)

    @dz.series
    def population(self, now: Villagers) -> Tensor:
        return now.alive.sum()

    @dz.series
    def cases(self, before: Villagers, now: Villagers) -> Tensor:
        return (before.exposed.never() - now.exposed.never()).sum()

    @dz.series
    def wealth_sum(self, now: Villagers) -> Tensor:
        return (now.wealth * 2.0**10).round().to(torch.int64).sum()  # whole numbers: free of order

    @dz.series
    def levels(self, now: Villagers) -> Tensor:
        return now.stage.counts()


def edges(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    ends = np.random.default_rng(seed).integers(0, AGENTS, (2, count))
    return ends[0], ends[1]


def village() -> Village:
    home = Graph.from_edges(*edges(1, 300), AGENTS)
    work = Graph.from_edges(*edges(2, 500), AGENTS, weight=np.random.default_rng(3).random(500, dtype=np.float32))
    return Village(Layers({"home": home, "work": work}, {"work": [1.0, 0.5, 0.25]}))


def sir() -> SIR:
    return SIR(Graph.from_edges(*edges(4, 1000), AGENTS), infect_rate=0.1, seed_share=0.05)


def little_covid() -> Any:
    model = covid(dz.population.synthetic("astoria", size=600), sample_deaths=True, isolation=0.2, R=30.0)
    origin = np.random.default_rng(6).choice(3, 600, p=[0.8, 0.1, 0.1])
    return model.replace(origin=torch.from_numpy(origin.astype(np.uint8)))


MODELS: dict[str, Callable[[], Any]] = {"village": village, "sir": sir, "covid": little_covid}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param]()


def everything(run: Run) -> dict[str, Tensor]:
    """Series and state of a run, with a leading axis of replicates."""
    out = {f"series {name}": run[name] for name in run.series_names}
    state = run.state
    for name in (*state.kinds, "id"):
        for k, leaf in enumerate(pytree.tree_leaves(getattr(state, name))):
            out[f"{name} {k}"] = leaf
    return out


def assert_same(left: Run, right: Run, replicate: int | None = None) -> None:
    """Every bit of two runs, or of one replicate of the first and the whole second."""
    ours, theirs = everything(left), everything(right)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        if name == "id 0" and value.dim() == 1:  # shared by all replicates
            assert torch.equal(value, theirs[name]), name
            continue
        value = value if replicate is None else value[replicate : replicate + 1]
        assert value.dtype == theirs[name].dtype
        assert torch.equal(value, theirs[name]), name


RUNS_OF: dict[tuple[type, int], Run] = {}


def whole(model: Any, replicates: int) -> Run:
    """A plain run of a model of these tests, made once for each class and number: no test goes on with it."""
    key = type(model), replicates
    if key not in RUNS_OF:
        RUNS_OF[key] = dz.simulate(model, STEPS, replicates=replicates)
    return RUNS_OF[key]


# --- batching, chunking, paths ----------------------------------------------------------------------------------------


def test_runs_are_alive(model: Any) -> None:
    """What follows would prove nothing about models in which nothing happens."""
    run = dz.simulate(model, STEPS, replicates=3)
    for name in run.series_names:
        if name != "dead":
            assert run[name].float().std() > 0, name
    assert not torch.equal(*(run[run.series_names[0]][k] for k in (0, 1)))


def test_a_replicate_of_a_batch_is_its_world_alone(model: Any) -> None:
    batch = dz.simulate(model, STEPS, replicates=4, seed=9)
    for world in range(4):
        assert_same(batch, dz.simulate(model, STEPS, worlds=[world], seed=9), world)
    picked = dz.simulate(model, STEPS, worlds=[3, 1], seed=9)
    assert_same(picked, dz.simulate(model, STEPS, worlds=[3], seed=9), 0)
    assert_same(picked, dz.simulate(model, STEPS, worlds=[1], seed=9), 1)


@pytest.mark.parametrize("parts", [[0, 12], [1, 11], [4, 8], [5, 1, 6], [1] * 12])
@pytest.mark.parametrize("replicates", [1, 3])
def test_chunks_of_any_size(model: Any, parts: list[int], replicates: int, inside: Inside) -> None:
    at_once = whole(model, replicates)
    inside.chunks(len(parts))
    run = dz.simulate(model, parts[0], replicates=replicates)
    for steps in parts[1:]:
        assert run.extend(steps) is run
    assert run.steps == STEPS
    assert_same(at_once, run)


def test_threads_do_not_matter(model: Any, inside: Inside) -> None:
    one = whole(model, 2)
    inside.threads_from(1)
    torch.set_num_threads(2)
    try:
        assert_same(one, dz.simulate(model, STEPS, replicates=2))
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("direction", [float("inf"), -1.0])
def test_push_and_pull(model: Any, direction: float, inside: Inside) -> None:
    free = whole(model, 2)
    inside.push_up_to(direction)
    assert_same(free, dz.simulate(model, STEPS, replicates=2))


@pytest.mark.parametrize("replicates", [1, 3])
def test_the_reference_ops(model: Any, replicates: int) -> None:
    fast = whole(model, replicates)
    with ops.reference_only():
        slow = dz.simulate(model, STEPS, replicates=replicates)
        assert slow.stats()["ops"] == "reference"
    assert_same(fast, slow)


@pytest.mark.parametrize(
    ("name", "replicates"),
    [
        ("village", 3),  # which has every kind of field and law
        ("covid", 1),
        ("sir", 3),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("village", 1), ("covid", 3), ("sir", 1))),
    ],
)
def test_compiled(name: str, replicates: int, inside: Inside) -> None:
    """One graph without inductor: the same bits as eager, on any machine."""
    model = MODELS[name]()
    eager = whole(model, replicates)
    inside.backend("aot_eager")
    torch._dynamo.reset()
    compiled = dz.simulate(model, STEPS, replicates=replicates, compile=True)
    assert (eager.stats()["path"], compiled.stats()["path"]) == ("eager", "compiled")
    assert_same(eager, compiled)


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated:DeprecationWarning")  # inductor's own imports
@pytest.mark.parametrize("name", ["sir", "covid"])
def test_compiled_by_inductor(name: str, inside: Inside) -> None:
    """Models whose events go through `event` keep their bits."""
    inside.without_native()
    eager = dz.simulate(MODELS[name](), STEPS, replicates=2, compile=False)
    compiled = dz.simulate(MODELS[name](), STEPS, replicates=2, compile=True)
    assert compiled.stats()["path"] == "compiled"
    for series in eager.series_names:
        torch.testing.assert_close(eager[series], compiled[series])
    assert torch.equal(everything(eager)[f"series {eager.series_names[0]}"], compiled[eager.series_names[0]])


@pytest.mark.cuda
@pytest.mark.parametrize("replicates", [1, 3])
def test_on_cuda(model: Any, replicates: int) -> None:
    """What comes of events has the bits of the CPU; wealth, made of logarithms, is as near as they are."""
    host = dz.simulate(model, STEPS, replicates=replicates, device="cpu")
    there = dz.simulate(model, STEPS, replicates=replicates, device="cuda", compile=False)
    assert there.stats()["ops"] == "triton"
    for name in host.series_names:
        if name == "wealth_sum":
            torch.testing.assert_close(there[name].cpu().double(), host[name].double(), rtol=1e-5, atol=1.0)
        else:
            assert torch.equal(there[name].cpu(), host[name]), name


@pytest.mark.parametrize("replicates", [1, 3])
def test_agents_in_another_order(replicates: int) -> None:
    order = torch.from_numpy(np.random.default_rng(5).permutation(AGENTS))
    for build in (sir, village):
        model = build()
        field = "contacts" if build is sir else "layers"
        moved = model.replace(**{field: getattr(model, field).renumber(order)})
        # A birth takes the first free place, and places are what renumbering changes: without births.
        options = {} if build is sir else {"birth": 0.0}
        plain = dz.simulate(model.replace(**options), STEPS, replicates=replicates)
        other = dz.simulate(moved.replace(**options), STEPS, replicates=replicates, ids=order)
        for name in plain.series_names:
            assert torch.equal(plain[name], other[name]), name
        for (name, a), b in zip(everything(plain).items(), everything(other).values(), strict=True):
            if a.shape[-1] == AGENTS:
                assert torch.equal(a[..., order].expand_as(b), b), name


def test_parameters_of_each_replicate(model: Any) -> None:
    name = next(iter(model.params))
    value = getattr(model, name)
    factors = [0.5, 1.0, 2.0]
    batch = dz.simulate(model, STEPS, replicates=3, params={name: torch.stack([f * value for f in factors])})
    for k, factor in enumerate(factors):
        lone = dz.simulate(model.replace(**{name: factor * value}), STEPS, worlds=[k])
        assert_same(batch, lone, k)
    many = {name: getattr(model, name).expand(2, *getattr(model, name).shape) for name in model.params}
    assert_same(dz.simulate(model, STEPS, replicates=2, params=many), dz.simulate(model, STEPS, replicates=2))


class Days(dz.State):
    day: Tensor = dz.count()


class Calendar(dz.Model):
    num_agents: int = 1

    def init(self, rng: dz.rng.Rng) -> Days:
        return Days(day=torch.zeros((), dtype=torch.int32))

    def step(self, now: Days, rng: dz.rng.Rng) -> Days:
        return now.replace(day=now.day + 1)

    @dz.series
    def level(self, now: Days) -> Tensor:
        return 1 * now.day

    @dz.series
    def flow(self, before: Days, now: Days) -> Tensor:
        return 100 * before.day + now.day


def test_records_are_those_of_the_step_that_is_done() -> None:
    """A level is of the state after the step, a flow of both; the clock is that of each state."""
    more = {"clock": lambda now: 1 * now.time.step, "change": lambda before, now: 10 * before.time.step + now.time.step}
    run = dz.simulate(Calendar(), 4, replicates=2, record=more, snapshots=Snapshots(every=2))
    expected = {"level": [1, 2, 3, 4], "flow": [1, 102, 203, 304], "clock": [1, 2, 3, 4], "change": [1, 12, 23, 34]}
    for name, values in expected.items():
        assert run[name].tolist() == [values] * 2, name
    assert run.snapshots["day"].tolist() == [[0, 2, 4]] * 2


@pytest.mark.parametrize("replicates", [1, 2])
def test_flows_leave_out_what_interventions_did(replicates: int) -> None:
    """A flow goes from what the step found, after the interventions, to what it left."""
    skip = Act(name="skip", when=During(1, 3), change=lambda model, now, rng: now.replace(day=now.day + 10))
    run = dz.simulate(Calendar(), 4, replicates=replicates, interventions=[skip])
    assert run["level"].tolist() == [[1, 12, 23, 24]] * replicates
    assert run["flow"].tolist() == [[1, 1112, 2223, 2324]] * replicates


# --- what changes nothing ---------------------------------------------------------------------------------------------


def busy(model: Any, now: Any, rng: dz.rng.Rng) -> Any:
    """Draws a lot and changes nothing."""
    rng.event("catch", 0.5)
    rng.normal("luck")
    return now.replace()


def upside_down(model: Any, now: Any, rng: dz.rng.Rng) -> Any:
    """Would change everything."""
    return now.replace(
        **{name: pytree.tree_map_only(torch.Tensor, torch.zeros_like, getattr(now, name)) for name in now.kinds}
    )


@pytest.mark.parametrize("replicates", [1, 3])
def test_interventions_that_change_nothing(model: Any, replicates: int) -> None:
    name = next(iter(model.params))
    idle = [
        Act(name="watch", when=During(0), change=busy),
        Act(name="late", when=During(1000), change=upside_down),
        Scale(name="one", when=During(2, 9), target=name, factor=1.0),
        Scale(name="never", when=Trigger(lambda now: now.time.step > 10**6), target=name, factor=0.0),
    ]
    assert_same(whole(model, replicates), dz.simulate(model, STEPS, replicates=replicates, interventions=idle))


@pytest.mark.parametrize("replicates", [1, 3])
def test_recording_and_snapshots_change_nothing(model: Any, replicates: int) -> None:
    bare = whole(model, replicates)
    run = dz.simulate(
        model,
        STEPS,
        replicates=replicates,
        snapshots=Snapshots(every=3),
        record={"clock": lambda now: now.time.value, "change": lambda before, now: now.time.step - before.time.step},
    )
    assert torch.equal(run["clock"], torch.arange(1, STEPS + 1.0).expand(replicates, -1))
    assert torch.equal(run["change"], torch.ones(replicates, STEPS, dtype=torch.int64))
    for name in bare.series_names:
        assert torch.equal(bare[name], run[name])


def test_snapshots_are_copies_of_the_states(model: Any) -> None:
    run = dz.simulate(model, 9, replicates=2, snapshots=Snapshots(every=3))
    taken = run.snapshots
    assert taken["step"].tolist() == [0, 3, 6, 9]
    kept = {name: value.clone() for name, value in taken.items()}
    run.extend(6)
    assert run.snapshots["step"].tolist() == [0, 3, 6, 9, 12, 15]
    for name, value in kept.items():
        if name != "step":
            assert torch.equal(run.snapshots[name][:, :4], value)
    for k, step in enumerate([0, 3, 6, 9, 12, 15]):
        state = dz.simulate(model, step, replicates=2).state
        for name in state.kinds:
            assert torch.equal(run.snapshots[name][:, k], pytree.tree_leaves(getattr(state, name))[0]), (name, step)
    for leaf in pytree.tree_leaves(run.state):
        if leaf.dim() > 1:
            leaf.zero_()  # the present state overwritten: what was kept stays
    for name, value in kept.items():
        assert torch.equal(run.snapshots[name][:, :4] if name != "step" else value, value)


def test_the_seed_and_the_world_decide() -> None:
    runs = [
        dz.simulate(sir(), STEPS, worlds=[w], seed=s)["cases"] for s in (0, 1, 2**32 - 1) for w in (0, 1, 2**32 - 1)
    ]
    assert len({tuple(run.flatten().tolist()) for run in runs}) == 9


# --- births -----------------------------------------------------------------------------------------------------------


def test_births_leave_the_draws_of_others_alone() -> None:
    """In a village where nobody acts on anybody, those who never die live the same lives with and without births."""
    alone = Layers({name: Graph.from_edges([], [], AGENTS) for name in ("home", "work")})
    model = village().replace(rate=0.0, death=0.0, layers=alone)
    quiet = dz.simulate(model.replace(birth=0.0), STEPS, replicates=2).state
    busy = dz.simulate(model.replace(birth=0.04), STEPS, replicates=2).state
    same = quiet.id == busy.id
    assert (~same).any()
    assert torch.equal(same, busy.id < AGENTS)
    for name in ("stage", "exposed"):
        assert torch.equal(getattr(quiet, name).value[same], getattr(busy, name).value[same])
    assert torch.equal(quiet.prices, busy.prices)


# --- time -------------------------------------------------------------------------------------------------------------


def test_halving_the_step_keeps_the_curve() -> None:
    """Means over 64 replicates agree within 4 standard errors and a bias of order dt."""
    model = SIR(Graph.from_edges(*edges(4, 1000), AGENTS), infect_rate=0.05, seed_share=0.2)
    coarse = dz.simulate(model, 40, replicates=64, dt=0.25)
    fine = dz.simulate(model, 80, replicates=64, dt=0.125, seed=1)
    for name in ("infected", "recovered"):
        a, b = coarse[name].double(), fine[name].double()[:, 1::2]
        error = ((a.var(dim=0) + b.var(dim=0)) / 64).sqrt()
        assert ((a.mean(dim=0) - b.mean(dim=0)).abs() <= 4 * error + 0.02 * AGENTS).all()
    assert fine.state.time.value == coarse.state.time.value == 10.0
    assert fine.state.time.unit == "day"


# --- memory -----------------------------------------------------------------------------------------------------------


RUNS = 30


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_runs_leave_nothing_behind(name: str) -> None:
    """Build, run, delete: Python's memory grows by less than 1 kB a run, the process by less than 160 kB."""

    def cycle() -> None:
        run = dz.simulate(MODELS[name](), 5, replicates=2, snapshots=Snapshots(every=2))
        run.extend(3)
        run[run.series_names[0]].sum().item()

    for number in range(35):  # caches of torch and Python fill up first, and what is traced replaces what is not
        if number == 15:
            tracemalloc.start()  # which makes a cycle take twice as long
        cycle()
    gc.collect()
    before, resident = tracemalloc.get_traced_memory()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(RUNS):
        cycle()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 1000 * RUNS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 160 * RUNS  # kB
