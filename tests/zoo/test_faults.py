"""Public faults of other simulators, and the right behaviour of this one.

Rows of shared/spec/simulation_references.md, section 10, and the tests that hold them (of this file unless named):

- starsim#404; vivarium#268, #299 (births or an idle intervention change the draws of others):
  test_births_keep_the_draws_of_others, test_an_idle_intervention_changes_nothing
- starsim#307, #452, #392 (one stream drawn twice, two modules on one stream):
  test_a_second_draw_from_a_stream_is_refused, test_scopes_differ
- FLAMEGPU2#1264 (re-ordering agents changes results): test_renumbered_agents_give_the_same_epidemic
- covid-sim#179, #277, #161 (result depends on threads): test_threads_do_not_matter
- starsim#296, PR #121 (the dead transmit): test_the_dead_neither_infect_nor_catch, test_covid.test_covid_sampled_deaths
- Starsim 3.3.4 (seeds infectious longer than later cases): test_theory.test_durations
- covasim#400 (self contacts): test_no_self_contacts, test_self_contacts_of_a_real_list_are_counted
- starsim PR #389 (a record too many, float time): test_steps_records_and_clock
- mesa#745, #3182; gama.old#3214, #1075 (order of a set): test_order_of_edges_does_not_matter
- Agents.jl#502 (collecting changes the run): test_recording_changes_nothing
- mesa#3035 (history is rewritten): test_records_and_snapshots_are_copies
- mesa#3179 (dead models stay alive): test_runs_are_freed
- epiabm#151, PR #47 (seed not honoured; rounding loses the mean): test_the_seed_decides, test_theory.test_durations
- NetLogo/models#203 (one recovery time for all): test_theory.test_durations, by its variances
- sid#125 (attribution to layers): test_networks.test_layers_share_escape_and_attribution
- starsim PR #121 (order of phases): test_flows_are_the_change_of_stocks

FLAMEGPU2#220, #1157, #1177 and Agents.jl#566 concern radius searches, which do not exist here yet.
"""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import ModelError
from denizen.model import Act, During
from denizen.run import Snapshots
from denizen.space.generators import erdos_renyi, random_in_neighbours
from denizen.zoo.seir import seir
from denizen.zoo.sir import SIR, sir


def outbreak(num: int = 2000, seed: int = 0, **params) -> SIR:
    return sir(random_in_neighbours(num, 8, seed=seed), infect_rate=0.08, **params)


class Vital(dz.State):
    """With places for children."""

    alive: Tensor = dz.mask("agents")
    infected: Tensor = dz.mask("agents")
    hits: Tensor = dz.count("agents")


class Town(dz.Model):
    """Infection along contacts, deaths from it, births at will, and a coin that each agent tosses for itself."""

    contacts: dz.Graph
    first: int
    birth: Tensor = dz.param(0.0, low=0.0)
    death: Tensor = dz.param(0.0, low=0.0)
    infect: Tensor = dz.param(0.1, low=0.0)
    infect_dead: bool = False

    def init(self, rng):
        alive = (torch.arange(self.num_agents) < self.first).to(torch.int8)
        return Vital(alive=alive, infected=alive * rng.bernoulli("seed", 0.05), hits=0 * alive)

    def step(self, now, rng):
        hits = now.hits + now.alive * rng.event("coin", 0.5)
        died = now.alive * rng.event("die", self.death * now.infected)
        pressure = self.contacts.sum(now.infected * now.alive, where=now.alive * (1 - now.infected))
        caught = rng.event("catch", self.infect * pressure)
        now = now.replace(hits=hits, infected=now.infected + caught, alive=now.alive - died)
        return dz.model.births(now, rng, now.alive * rng.event("birth", self.birth), hits=0 * hits)


def test_births_keep_the_draws_of_others():
    graph = dz.Graph.from_edges([0], [1], 3000)
    still, growing = (dz.simulate(Town(graph, 1000, birth=birth, infect=0.0), 8, seed=4).state for birth in (0.0, 0.08))
    assert int(growing.alive.sum()) > 1500
    assert int(still.alive.sum()) == 1000
    assert torch.equal(still.hits[0, :1000], growing.hits[0, :1000])
    children = growing.hits[0, 1000:][growing.alive[0, 1000:] == 1]
    assert children.float().std() > 0.5  # they toss coins of their own
    ids = growing.id[0][growing.alive[0] == 1]
    assert ids.unique().numel() == ids.numel()


def test_an_idle_intervention_changes_nothing():
    def look(model, now, rng):
        rng.bernoulli("see", 0.5)
        return now.replace(stage=now.stage)

    idle = Act(when=During(2, 6), change=look)
    plain, with_it = (dz.simulate(outbreak(), 20, seed=1, interventions=acts) for acts in ((), (idle,)))
    assert torch.equal(plain["cases"], with_it["cases"])
    assert torch.equal(plain.state.stage.value, with_it.state.stage.value)


class Drawing(SIR):
    twice: bool = False

    def step(self, now, rng):
        rng.event("catch", 0.1) if self.twice else None
        return super().step(now, rng)


def test_a_second_draw_from_a_stream_is_refused():
    graph = dz.Graph.from_edges([0], [1], 10)
    dz.simulate(Drawing(graph), 1)
    with pytest.raises(ModelError, match="catch"):
        dz.simulate(Drawing(graph, twice=True), 1)


def test_scopes_differ():
    class Two(SIR):
        def step(self, now, rng):
            first, second, third = (rng[scope].event("catch", 0.5) for scope in (("layer", 1), ("layer", 2), "flu"))
            rng.record("caught", first)
            return now.replace(stage=first + second * third)

    value = dz.simulate(Two(dz.Graph.from_edges([0], [1], 40_000)), 1).state.stage.value.float()
    p = 1 - np.exp(-0.5)
    assert float(value.mean()) == pytest.approx(p + p**2, abs=0.02)
    assert float(value.var()) == pytest.approx(p * (1 - p) + p**2 * (1 - p**2), abs=0.02)  # independent


def test_renumbered_agents_give_the_same_epidemic():
    model = seir(random_in_neighbours(2000, 8, seed=1), infect_rate=0.1)
    order = torch.randperm(2000)
    moved = model.replace(contacts=model.contacts.renumber(order))
    one, two = dz.simulate(model, 40), dz.simulate(moved, 40, ids=order)
    for name in ("cases", "exposed", "infectious", "recovered"):
        assert torch.equal(one[name], two[name])
    assert torch.equal(one.state.stage.value[0, order], two.state.stage.value[0])


def test_threads_do_not_matter():
    model = outbreak(num=120_000, seed_share=0.05)
    one = dz.simulate(model, 6, replicates=2)
    torch.set_num_threads(2)
    try:
        two = dz.simulate(model, 6, replicates=2)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(one.state.stage.value, two.state.stage.value)


def test_the_dead_neither_infect_nor_catch():
    """All the dead's contacts removed, before or after, or kept: the same epidemic among the living."""
    edges = random_in_neighbours(3000, 9, seed=2)
    living = np.arange(3000) < 1500
    kept = living[edges.source] & living[edges.target]
    alone = dz.Graph.from_edges(edges.source[kept], edges.target[kept], 3000)
    with_dead = dz.simulate(Town(dz.Graph.from_edges(edges), 1500), 15, seed=3).state
    without = dz.simulate(Town(alone, 1500), 15, seed=3).state
    assert torch.equal(with_dead.infected, without.infected)
    assert int(with_dead.infected[0, 1500:].sum()) == 0
    assert int(with_dead.infected.sum()) > 500
    mortal = dz.simulate(
        Town(dz.Graph.from_edges(edges), 3000, death=0.5),
        25,
        seed=3,
        record={
            "again": lambda before, now: ((now.infected > before.infected) & (before.alive == 0)).sum(),
            "raised": lambda before, now: (now.alive > before.alive).sum(),
        },
    )
    assert int(mortal["again"].sum()) == 0
    assert int(mortal["raised"].sum()) == 0
    assert int(mortal.state.alive.sum()) < 2900


def test_no_self_contacts():
    assert dz.Graph.from_edges([0, 1, 2], [0, 2, 2], 3).num_edges == 1
    assert dz.Graph.from_edges([0, 1, 2], [0, 2, 2], 3, self_loops="keep").num_edges == 3
    for edges in (erdos_renyi(500, 6, seed=1), random_in_neighbours(500, 6, seed=1)):
        assert not (edges.source == edges.target).any()


@pytest.mark.real
@pytest.mark.parametrize(("network", "loops"), [("0", 6), ("1", 14)])
def test_self_contacts_of_a_real_list_are_counted(data_root, network, loops):
    population = dz.population.load(data_root / "astoria")
    source, target = population.networks[network]
    assert int((source == target).sum()) == loops
    assert any(f"{loops} self-loop" in sentence for sentence in population.report)
    source, target, _ = population.edges(network)
    assert not (source == target).any()


@pytest.mark.parametrize(("steps", "dt"), [(1, 1.0), (33, 0.1), (70, 0.25)])
def test_steps_records_and_clock(steps, dt):
    run = dz.simulate(outbreak(num=200), steps, dt=dt)
    assert run["cases"].shape == (1, steps)
    assert run.state.time.step.dtype == torch.int64
    assert int(run.state.time.step) == steps
    assert float(run.state.time.value) == pytest.approx(steps * dt)
    assert run.extend(4)["infected"].shape == (1, steps + 4)


def test_order_of_edges_does_not_matter():
    edges = random_in_neighbours(1000, 8, seed=5)
    shuffle = np.random.default_rng(0).permutation(edges.source.size)
    one = dz.Graph.from_edges(edges.source, edges.target, 1000)
    two = dz.Graph.from_edges(edges.source[shuffle], edges.target[shuffle], 1000)
    assert torch.equal(one.in_idx, two.in_idx)
    assert torch.equal(one.out_idx, two.out_idx)
    for pointer, index in ((one.in_ptr, one.in_idx), (one.out_ptr, one.out_idx)):
        ascending = index[1:] > index[:-1]
        starts = pointer[1:-1][(pointer[1:-1] > 0) & (pointer[1:-1] < index.numel())]
        ascending[starts - 1] = True
        assert bool(ascending.all())


def test_recording_changes_nothing():
    plain = dz.simulate(outbreak(), 20, seed=1)
    record = {"stages": lambda now: now.stage.value.clone(), "seen": lambda before, now: before.stage.counts()}
    watched = dz.simulate(outbreak(), 20, seed=1, record=record, snapshots=Snapshots(every=3))
    assert torch.equal(plain.state.stage.value, watched.state.stage.value)
    assert torch.equal(plain["cases"], watched["cases"])


def test_records_and_snapshots_are_copies():
    run = dz.simulate(outbreak(), 9, snapshots=Snapshots(every=3), record={"stage": lambda now: now.stage.value})
    stages, kept = run["stage"].clone(), {name: field.clone() for name, field in run.snapshots.items()}
    run.state.stage.value.zero_()
    run.extend(1)
    assert torch.equal(run["stage"][:, :9], stages)
    for name, field in kept.items():
        assert torch.equal(run.snapshots[name], field)
    assert torch.equal(kept["stage"][:, 1:].long(), stages[:, 2::3].long())


def test_runs_are_freed():
    edges, alive = random_in_neighbours(200, 5, seed=0), []
    for _ in range(100):
        model = sir(edges)
        run = dz.simulate(model, 2)
        alive += [weakref.ref(model), weakref.ref(run), weakref.ref(model.contacts)]
        del model, run
    gc.collect()
    assert [reference for reference in alive if reference() is not None] == []


def test_the_seed_decides():
    one, again, other = (dz.simulate(outbreak(), 20, seed=seed)["cases"] for seed in (7, 7, 8))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("build", [sir, seir])
def test_flows_are_the_change_of_stocks(build):
    """Everything is decided from the stages at the start of a step; nobody moves twice in one."""
    model = build(random_in_neighbours(1500, 8, seed=3), infect_rate=0.2, infectious_days=2.0)
    run = dz.simulate(model, 25, record={"stage": lambda now: now.stage.value}, snapshots=Snapshots(every=25))
    stage = torch.cat([run.snapshots["stage"][:, :1], run["stage"]], dim=1)[0]
    change = stage[1:] - stage[:-1]
    assert set(change.unique().tolist()) == {0, 1}
    assert torch.equal(((change == 1) & (stage[:-1] == 0)).sum(dim=1), run["cases"][0])
    recovered = ((change == 1) & (stage[1:] == stage.max())).sum(dim=1)
    assert torch.equal(recovered.cumsum(0), run["recovered"][0])
