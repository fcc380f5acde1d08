"""Layers: strengths, schedules and scales against the sum of the graphs."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from denizen.errors import InputError, ModelError
from denizen.space import EdgeList, Graph, Layers

AGENTS = 12


def graphs(seed: int, *, weighted: bool = False) -> dict[str, Graph]:
    gen = np.random.default_rng(seed)
    out = {}
    for name, edges in (("home", 20), ("work", 35), ("school", 0)):
        weight = gen.integers(0, 2**12, edges).astype(np.float32) / 2**10 if weighted else None
        ends = gen.integers(0, AGENTS, (2, edges))
        out[name] = Graph.from_edges(*ends, AGENTS, weight=weight)
    return out


def mask(seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 2, AGENTS)).to(torch.int8)


@given(
    seed=st.integers(0, 999),
    weighted=st.booleans(),
    masked=st.booleans(),
    home=st.floats(0, 4, width=32),
    schedule=st.lists(st.floats(0, 4, width=32), min_size=1, max_size=5),
    scale=st.floats(0, 4, width=32),
    step=st.integers(0, 9),
)
def test_sum(
    seed: int, weighted: bool, masked: bool, home: float, schedule: list[float], scale: float, step: int
) -> None:
    by_name = graphs(seed, weighted=weighted)
    layers = Layers(by_name, {"home": home, "work": schedule})
    values, where = mask(seed), mask(seed + 1) if masked else None
    factor = {"home": home, "work": schedule[min(step, len(schedule) - 1)] * scale, "school": 1.0}
    expected = sum(factor[n] * g.sum(values, where=where).double() for n, g in by_name.items())
    out = layers.sum(values, where=where, step=torch.tensor(step), scale={"work": scale})
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-6)


@given(seed=st.integers(0, 999))
def test_a_closed_layer_is_no_layer(seed: int) -> None:
    by_name, values = graphs(seed), mask(seed)
    without = Layers({name: g for name, g in by_name.items() if name != "work"})
    wanted = without.sum(values)
    assert torch.equal(Layers(by_name, {"work": 0.0}).sum(values), wanted)
    assert torch.equal(Layers(by_name).sum(values, scale={"work": 0.0}), wanted)
    assert torch.equal(Layers(by_name, {"work": [1.0, 0.0]}).sum(values, step=torch.tensor(1)), wanted)
    assert torch.equal(Layers(by_name).sum(values, scale={"work": torch.tensor(0.0)}), wanted)


@given(seed=st.integers(0, 999))
def test_escape_is_the_product_over_layers(seed: int) -> None:
    """Hazards add up, hence the chance to escape multiplies, in any order of the layers."""
    by_name, values = graphs(seed), mask(seed)
    strength = {"home": 0.5, "work": 0.25, "school": 2.0}
    escape = torch.ones(AGENTS)
    for name, graph in by_name.items():
        escape = escape * torch.exp(-strength[name] * graph.sum(values))
    torch.testing.assert_close(torch.exp(-Layers(by_name, strength).sum(values)), escape)
    backwards = dict(reversed(by_name.items()))
    assert torch.equal(Layers(by_name, strength).sum(values), Layers(backwards, strength).sum(values))  # dyadic


def test_real_values_and_bounds() -> None:
    by_name = graphs(1)
    layers, values = Layers(by_name), torch.rand(AGENTS)
    torch.testing.assert_close(layers.sum(values, max=1.0), layers.sum(values))
    assert layers.sum(values + 1.5, max=1.0).isnan().all()


def test_renumber_and_move() -> None:
    layers = Layers(graphs(2, weighted=True), {"work": [1.0, 0.5]})
    order, values = torch.randperm(AGENTS), mask(3)
    step = torch.tensor(1)
    assert torch.equal(layers.renumber(order).sum(values[order], step=step), layers.sum(values, step=step)[order])
    assert torch.equal(layers.to("cpu").sum(values, step=step), layers.sum(values, step=step))


def test_under_vmap_and_with_gradients() -> None:
    layers = Layers(graphs(2), {"work": [1.0, 0.5]})
    values, scales = torch.rand(4, AGENTS), torch.rand(4)

    def one(v: Tensor, s: Tensor) -> Tensor:
        return layers.sum(v, step=torch.tensor(3), scale={"work": s})

    together = torch.vmap(one)(values, scales)
    assert torch.equal(together, torch.stack([one(v, s) for v, s in zip(values, scales, strict=True)]))
    scale = torch.tensor(0.7, requires_grad=True)
    one(values[0], scale).sum().backward()
    torch.testing.assert_close(scale.grad, 0.5 * layers["work"].sum(values[0]).sum())


def test_parts() -> None:
    home, work = graphs(1)["home"], graphs(1)["work"]
    layers = Layers({"home": home, "work": work})
    assert layers["work"] is work
    assert layers.num_agents == AGENTS
    assert layers.num_edges == home.num_edges + work.num_edges
    assert repr(layers) == f"Layers(home: {home.num_edges} edges, work: {work.num_edges} edges)"
    ids = np.array([0, 1], np.int32)
    assert Layers({"pairs": EdgeList(AGENTS, ids, ids[::-1].copy())}).sum(torch.ones(AGENTS))[:3].tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (({},), "no graph"),
        (({"a": Graph.from_edges([0], [1], 2), "b": Graph.from_edges([0], [1], 3)},), "different numbers of agents"),
        (({"home": Graph.from_edges([0], [1])}, {"hame": 1.0}), "unknown layer 'hame'; did you mean 'home'"),
        (({"home": Graph.from_edges([0], [1])}, {"home": torch.ones(2, 2)}), r"shape \(2, 2\)"),
        (({"home": Graph.from_edges([0], [1])}, {"home": []}), "strength of 'home'"),
        (({"home": Graph.from_edges([0], [1])}, {"home": "strong"}), "strength of 'home'"),
        (({"home": Graph.from_edges([0], [1])}, {"home": float("nan")}), "strength of 'home'"),
        (({"home": 5},), "home"),
    ],
)
def test_unusable_arguments(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Layers(*arguments)


def test_unusable_calls() -> None:
    layers = Layers({"home": Graph.from_edges([0], [1]), "work": Graph.from_edges([1], [0])}, {"work": [1.0, 2.0]})
    with pytest.raises(ModelError, match=r"'work' has a schedule; pass step=now.time.step"):
        layers.sum(torch.ones(2))
    with pytest.raises(InputError, match="unknown layer 'werk'"):
        layers.sum(torch.ones(2), step=torch.tensor(0), scale={"werk": 0.0})
    with pytest.raises(InputError, match="unknown layer 'school'"):
        layers["school"]
    with pytest.raises(ModelError, match=r"values is list \[1, 2\], expected a tensor"):
        layers.sum([1, 2])
    with pytest.raises(ModelError, match="values has shape"):
        layers.sum(torch.ones(3), step=torch.tensor(0))
