"""What rows of infections tell, against theory: shares of layers, generation times, R by cohort, the tree."""

import math

import networkx as nx
import numpy as np
import pytest
import torch

import denizen as dz
from denizen.run import EventLog, EventTable
from denizen.zoo.sir import SIR, People, infections, sir

LOG = EventLog({"caught": infections})
RATE = 0.2


def stars(number: int, leaves: int) -> dz.Graph:
    """Many centres, each with its own leaves; agents 0 … number - 1 are the centres."""
    centre = np.repeat(np.arange(number), leaves)
    return dz.Graph.from_edges(centre, number + np.arange(number * leaves), number * (leaves + 1))


class FromCentres(SIR):
    """SIR in which the centres of the stars are infected at the start, and nobody else."""

    centres: int = 1

    def init(self, rng: dz.rng.Rng) -> People:
        start = super().init(rng)
        seed = (torch.arange(self.num_agents) < self.centres).to(torch.int8)
        return start.replace(stage=start.stage.move(seed, "infected", source="susceptible"))


def infected_by_centres(phases: int, days: float) -> EventTable:
    model = FromCentres(
        stars(700, 3), infect_rate=RATE, infectious_days=days, seed_share=0.0, infectious_phases=phases, centres=700
    )
    return dz.simulate(model, 40, replicates=2, seed=4, compile=False, log=LOG).events("caught")


def chi_squared(counts: np.ndarray, shares: np.ndarray) -> float:
    expected = counts.sum() * shares / shares.sum()
    assert expected.min() > 5
    return float(((counts - expected) ** 2 / expected).sum())


def test_generation_times_of_a_memoryless_infection_are_geometric() -> None:
    """A leaf is infected g days after its centre where it escaped g - 1 days, and the centre was ill as long."""
    table = infected_by_centres(1, 5.0)
    times = table.generation_times(initial=True)
    assert len(times) == len(table)
    stays = math.exp(-RATE) * (1 - 1 / 5)
    counts = np.bincount(times.astype(int), minlength=41)[1:13]
    assert chi_squared(counts, stays ** np.arange(12)) < 31.3  # of 11: p = 0.001
    assert abs(times.mean() - 1 / (1 - stays)) < 4 * times.std() / len(times) ** 0.5
    assert len(table.generation_times()) == 0  # no centre has a row


def test_generation_times_of_a_fixed_duration_end_with_it() -> None:
    times = infected_by_centres(6, 6.0).generation_times(initial=True)
    assert times.max() == 6
    counts = np.bincount(times.astype(int), minlength=7)[1:]
    assert chi_squared(counts, math.exp(-RATE) ** np.arange(6)) < 20.5  # of 5: p = 0.001


@pytest.fixture(scope="module")
def epidemic() -> tuple[dz.run.Run, EventTable]:
    """SIR on a random graph, most of it before contacts run out."""
    graph = dz.Graph.from_edges(dz.space.generators.erdos_renyi(20_000, 6.0, seed=1))
    model = sir(graph, infect_rate=0.1, infectious_days=5.0, seed_share=0.002)
    run = dz.simulate(model, 45, replicates=4, seed=1, compile=False, log=LOG)
    return run, run.events("caught")


def test_early_cohorts_have_the_r0_of_a_branching_process(epidemic: tuple[dz.run.Run, EventTable]) -> None:
    """A case that was infected along an edge has as many others as anybody on average, each infected with T."""
    _, table = epidemic
    escape = math.exp(-0.1)
    transmission = (1 - escape) / (1 - escape * (1 - 1 / 5))
    expected = 6.0 * transmission
    early = table["step"] <= 5
    offspring = table.offspring()[early]
    error = offspring.std() / len(offspring) ** 0.5
    assert len(offspring) > 300
    assert abs(offspring.mean() - expected) < 3 * error + 0.05 * expected  # contacts that were infected already
    cohorts, cases = table.reproduction()[:, :5], table.incidence()[:, :5]
    assert np.isclose(np.nansum(cohorts * cases) / cases.sum(), offspring.mean())
    assert np.nanmean(table.reproduction()[:, 30:34]) < 1  # the susceptible run out


def test_the_tree_is_a_forest_of_all_cases(epidemic: tuple[dz.run.Run, EventTable]) -> None:
    run, table = epidemic
    parents, known = table.parents, table.parents >= 0
    assert (table["step"][known] > table["step"][parents[known]]).all()
    assert np.array_equal(table["id"][parents[known]], table["by"][known])
    assert np.array_equal(table["replicate"][parents[known]], table["replicate"][known])
    tree = table.to_networkx(replicate=2)
    rows = table["replicate"] == 2
    seeds = [node for node in tree if node[1] == 0]
    assert nx.is_forest(tree)
    assert max(dict(tree.in_degree()).values()) == 1
    assert tree.number_of_nodes() == rows.sum() + len(seeds)
    assert tree.number_of_edges() == rows.sum() == int(run["cases"][2].sum())
    assert nx.number_weakly_connected_components(tree) == len(seeds)
    one = next(node for node in tree if node[1] > 0)
    assert tree.nodes[one]["time"] == one[1] * run.dt


def test_shares_of_layers_are_shares_of_the_hazard() -> None:
    """Everybody has 4 infected contacts at home and 2 at work, at strengths of 0.5 and 3; one of home's weighs 5."""
    number = 3000
    sick, well = np.arange(6), 6 + np.arange(number)
    ends = [np.tile(part, number) for part in (sick[:4], sick[4:])]
    weight = np.tile(np.array([1, 1, 1, 5], dtype=np.float32), number)
    home = dz.Graph.from_edges(ends[0], np.repeat(well, 4), number + 6, weight=weight)
    work = dz.Graph.from_edges(ends[1], np.repeat(well, 2), number + 6)
    layers = dz.space.Layers({"home": home, "work": work}, {"home": 0.5, "work": 3.0})
    values, happened = torch.zeros(number + 6, dtype=torch.int8), torch.zeros(number + 6, dtype=torch.int8)
    values[:6], happened[6:] = 1, 1
    found = layers.attribute(dz.rng.Rng(torch.tensor([3, 0]), torch.tensor(0), num=number + 6), "by", happened, values)
    assert (found.source[:6] == -1).all()
    counts = np.bincount(found.source[6:].numpy(), minlength=6)
    assert chi_squared(counts, np.array([0.5, 0.5, 0.5, 2.5, 3.0, 3.0])) < 20.5  # of 5: p = 0.001
    assert torch.equal(found.layer[6:] == 1, found.source[6:] >= 4)


def test_who_catches_it_again_is_a_case_of_its_own() -> None:
    """Two agents that infect one another in turns."""

    class Turns(dz.State):
        sick: torch.Tensor = dz.mask("agents")

    class Pair(dz.Model):
        contacts: dz.Graph

        def init(self, rng: dz.rng.Rng) -> Turns:
            return Turns(sick=torch.tensor([1, 0], dtype=torch.int8))

        def step(self, now: Turns, rng: dz.rng.Rng) -> Turns:
            caught = rng.record(
                "caught",
                1 - now.sick,
                by=lambda: self.contacts.attribute(rng, "by", 1 - now.sick, now.sick),
            )
            return now.replace(sick=caught)

    run = dz.simulate(Pair(dz.Graph.from_edges([0, 1], [1, 0], 2)), 5, compile=False, log=EventLog("caught"))
    table = run.events("caught")
    assert table["id"].tolist() == [1, 0, 1, 0, 1]
    assert table.parents.tolist() == [-1, 0, 1, 2, 3]
    assert table.generation_times().tolist() == [1.0] * 4
    assert list(nx.topological_sort(table.to_networkx())) == [(0, 0), (1, 1), (0, 2), (1, 3), (0, 4), (1, 5)]
