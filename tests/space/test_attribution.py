"""Who caused it where there are no edges: random mixing, places and grids, against the law of competing hazards."""

from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import ModelError
from denizen.rng import Rng
from denizen.run import EventLog
from denizen.space import Graph, Grid, Layers, Mixing, Places
from denizen.space.generators import erdos_renyi
from denizen.zoo.sir import infections, sir

WORLDS, NUM = 6_000, 8
VALUES = torch.tensor([0.0, 1.0, 2.0, 0.0, 0.5, 3.0, -1.0, 1.0])
GROUP, PLACE = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0]), torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
MIXING = Mixing(GROUP, [[3.0, 1.0], [0.5, 2.0]])
RING = Grid((2, 4), torus=False, neighbours="von_neumann")
EDGES = Graph.from_edges([1, 5, 2, 0, 4, 1], [0, 0, 3, 3, 6, 6], NUM, weight=[1.0, 0.5, 2.0, 1.0, 1.0, 3.0])
LAYERS = Layers({"home": EDGES, "town": MIXING, "train": MIXING}, strength={"town": 0.5})
FREE = torch.tensor([1, 1, 0, 1, 1, 1, 1, 1])  # whom the town reaches
OFTEN = torch.linspace(0.0, 3.0, NUM)  # how often each takes the train
THERE = torch.tensor([1, 1, 1, 1, 1, 0, 1, 1], dtype=torch.int8)


def rates(what: str) -> Tensor:
    """By how much each agent (column) sends to each (row): float64 `[agents, agents]`."""
    value = VALUES.double().clamp(min=0)
    if what == "mixing":
        return (MIXING.matrix.double() / MIXING.size)[GROUP][:, GROUP] * value
    if what == "places":
        return (PLACE[:, None] == PLACE) * (PLACE != 2) * (1 - torch.eye(NUM)) * value
    if what == "layers":
        edges = torch.zeros(NUM, NUM, dtype=torch.float64)
        target = torch.repeat_interleave(torch.arange(NUM), EDGES.in_ptr.diff())
        edges[target, EDGES.in_idx.long()] = EDGES.weight.double()
        there = torch.bincount(GROUP, THERE, minlength=2)
        mixed = (MIXING.matrix.double() / there)[GROUP][:, GROUP]
        return (edges + (0.5 * FREE + OFTEN.double())[:, None] * mixed) * value * THERE
    near = RING.neighbour_cells(torch.arange(NUM))
    there = torch.zeros(NUM, NUM + 1, dtype=torch.float64)
    there.scatter_(1, torch.where(near < 0, NUM, near), 1.0)
    return there[:, :NUM] * value


def one(what: str, rng: Any, happened: Tensor, values: Tensor) -> Any:
    if what == "mixing":
        return Mixing(GROUP, MIXING.matrix).attribute(rng, "by", happened, values)
    if what == "places":
        return Places(2).attribute(rng, "by", happened, values, PLACE)
    if what == "layers":
        options = {"reached": {"town": FREE}, "scale": {"train": OFTEN}, "alive": THERE}
        return LAYERS.attribute(rng, "by", happened, values, **options)
    return RING.attribute(rng, "by", happened, values)


HAPPENED = torch.tensor([1, 1, 1, 1, 1, 1, 1, 0], dtype=torch.int8)


class Found(dz.State):
    by: Tensor = dz.real("agents")
    layer: Tensor = dz.real("agents")


class Once(dz.Model):
    num_agents: int = NUM
    what: str = ""

    def init(self, rng: dz.rng.Rng) -> Found:
        return Found(by=torch.full((NUM,), -9.0), layer=torch.full((NUM,), -9.0))

    def step(self, now: Found, rng: dz.rng.Rng) -> Found:
        by, layer = one(self.what, rng, HAPPENED, VALUES)
        return now.replace(by=by.float(), layer=layer.float())


def sources(what: str, worlds: int) -> Tensor:
    """Who it was: int64 `[worlds, agents]`."""
    return dz.simulate(Once(what=what), 1, replicates=worlds, compile=False).state.by.long()


def test_layers_share_it_in_proportion_to_their_parts() -> None:
    found = dz.simulate(Once(what="layers"), 1, replicates=WORLDS, compile=False).state.layer.long()
    mixed = MIXING.sum(VALUES.clamp(min=0), alive=THERE).double()
    home = EDGES.sum(VALUES.clamp(min=0) * THERE).double()
    for agent in (0, 2, 3):  # of whom the town does not reach the second
        part = torch.stack([home[agent], 0.5 * FREE[agent] * mixed[agent], OFTEN[agent] * mixed[agent]])
        share = part / part.sum()
        seen = torch.bincount(found[:, agent], minlength=3) / WORLDS
        assert ((seen - share).abs() < 4.5 * (share * (1 - share) / WORLDS).sqrt() + 1e-12).all(), (agent, seen, share)


@pytest.mark.parametrize("what", ["mixing", "places", "grid", "layers"])
def test_each_causes_it_in_proportion_to_its_part_of_the_sum(what: str) -> None:
    found, rate = sources(what, WORLDS), rates(what)
    assert (found[:, 7] == -1).all()  # nothing happened to it
    for agent in range(7):
        total = rate[agent].sum()
        if total == 0:
            assert (found[:, agent] == -1).all()
            continue
        wanted = rate[agent] / total * WORLDS
        seen = torch.bincount(found[:, agent], minlength=NUM).double()
        assert (seen[wanted == 0] == 0).all()
        chi = ((seen - wanted) ** 2 / wanted.clamp(min=1e-9))[wanted > 0].sum()
        assert chi < 30, (agent, seen, wanted)  # of at most 6 degrees of freedom: 4e-5
    assert torch.equal(sources(what, 3), found[:3])


@pytest.mark.parametrize("layers", [False, True])
def test_neither_order_nor_a_log_leaves_a_trace(layers: bool) -> None:
    """A town by groups in two orders of its agents: the same people infect one another."""
    group, order = torch.arange(60) % 3, torch.randperm(60, generator=torch.Generator().manual_seed(0))
    matrix = [[3.0, 1.0, 0.5], [1.0, 2.0, 1.0], [0.5, 1.0, 4.0]]
    homes = Graph.from_edges(erdos_renyi(60, mean_degree=3, seed=1))
    by = {}
    for name, ids in (("as they are", torch.arange(60)), ("renumbered", order)):
        town: Any = Mixing(group[ids], matrix)
        town = Layers({"home": homes.renumber(ids), "town": town}) if layers else town
        model = sir(town, infect_rate=0.2, seed_share=0.1)
        run = dz.simulate(model, 12, replicates=2, ids=ids, log=EventLog({"caught": infections}), compile=False)
        rows = run.events("caught").columns
        by[name] = {
            (int(w), int(k), int(who)): (int(source), int(layer))
            for w, k, who, source, layer in zip(
                *[rows[column] for column in ("replicate", "step", "id", "by", "layer")], strict=True
            )
        }
        plain = dz.simulate(model, 12, replicates=2, ids=ids, compile=False)
        assert torch.equal(plain["cases"], run["cases"])
    assert by["as they are"] == by["renumbered"]
    assert min(source for source, _ in by["renumbered"].values()) >= 0
    assert {layer for _, layer in by["renumbered"].values()} == ({0, 1} if layers else {0})


def test_streams_of_other_agents_are_refused() -> None:
    """Identities of fewer would be read beyond their end."""
    graph, rng = Graph.from_edges(erdos_renyi(20, mean_degree=4)), Rng(torch.tensor([1, 0]), torch.tensor(0), num=20)
    ones = torch.ones(20, dtype=torch.int8)
    graph.attribute(rng, "by", ones, ones)
    with pytest.raises(ModelError, match=r"Graph\.attribute: rng is of 7 on 'cells', expected that of the 20 agents"):
        graph.attribute(rng.on("cells", 7), "by", ones, ones)
