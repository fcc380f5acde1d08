"""Parameters and models: conversion, bounds, replacement, trees, devices, series."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.space import Graph, Layers


class One(dz.State):
    on: Tensor = dz.mask("agents")


class Small(dz.Model):
    """A parameter of each sort."""

    contacts: Graph
    rate: Tensor = dz.param(0.5, low=0.0, high=2.0, unit="1/day", about="how fast")
    shares: Tensor = dz.param([0.1, 0.2, 0.7], low=0.0)
    free: Tensor = dz.param(-3, learnable=False)
    table: Tensor = dz.param([[1.0, 2.0], [3.0, 4.0]])
    name: str = "small"
    size: int = 3

    def init(self, rng: dz.rng.Rng) -> One:
        return One(on=rng.bernoulli("on", 0.5))

    def step(self, now: One, rng: dz.rng.Rng) -> One:
        return now

    @dz.series
    def level(self, now: One) -> Tensor:
        return now.on.sum() * self.rate


GRAPH = Graph.from_edges([0, 1], [1, 2], 3)


def test_declarations() -> None:
    assert list(Small.params) == ["rate", "shares", "free", "table"]
    rate = Small.params["rate"]
    assert (rate.low, rate.high, rate.unit, rate.learnable, rate.about) == (0.0, 2.0, "1/day", True, "how fast")
    assert not Small.params["free"].learnable
    model = Small(GRAPH)
    assert (model.rate.dtype, model.rate.shape, model.rate.item()) == (torch.float32, (), 0.5)
    assert model.shares.shape == (3,)
    assert model.free.item() == -3.0
    assert Small(GRAPH).shares is not Small(GRAPH).shares  # nobody shares a default


@pytest.mark.parametrize(
    "value", [1, 1.0, np.float32(1), np.float64(1), np.int64(1), np.array(1.0), torch.tensor(1.0), torch.tensor(1)]
)
def test_values_become_float32(value: Any) -> None:
    for model in (Small(GRAPH, rate=value), Small(GRAPH).replace(rate=value)):
        assert model.rate.dtype == torch.float32
        assert model.rate.item() == 1.0


@pytest.mark.parametrize(
    "value", [[0.1, 0.2, 0.7], (0.1, 0.2, 0.7), np.array([0.1, 0.2, 0.7]), torch.tensor([0.1, 0.2, 0.7])]
)
def test_vectors(value: Any) -> None:
    assert torch.equal(Small(GRAPH, shares=value).shares, torch.tensor([0.1, 0.2, 0.7]))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate": -0.1}, r"Small.rate = -0.1: expected 0 to 2 1/day"),
        ({"rate": 2.5}, "Small.rate = 2.5"),
        ({"rate": float("nan")}, "Small.rate = nan: expected finite numbers"),
        ({"rate": torch.tensor(float("inf"))}, "Small.rate = inf"),
        ({"shares": [0.1, -0.2, 1.0]}, r"Small.shares = \[.*\]: expected at least 0"),
        ({"free": float("inf")}, "Small.free = inf"),
        ({"rate": "fast"}, "Small.rate = 'fast'"),
        ({"rate": None}, "Small.rate = None"),
        ({"rate": ["a"]}, r"Small.rate = \['a'\]"),
        ({"shares": [[0.1], [0.2, 0.3]]}, "Small.shares"),
        ({"rate": True}, "Small.rate = True"),
        ({"rate": 1 + 2j}, "Small.rate"),
        ({"rate": torch.tensor(1 + 2j)}, "Small.rate"),
        ({"rat": 1.0}, "unknown field 'rat'; did you mean 'rate'"),
    ],
)
def test_wrong_values(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Small(GRAPH).replace(**changes)
    if "rat" not in changes:
        with pytest.raises(InputError, match=words):
            Small(GRAPH, **changes)


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (float("nan"), None), ("a", None)])
def test_wrong_bounds(low: Any, high: Any) -> None:
    with pytest.raises(InputError, match="param: low="):
        dz.param(0.5, low=low, high=high)


def test_a_default_out_of_its_bounds() -> None:
    with pytest.raises(InputError, match=r"param: default = -1: expected at least 0"):
        dz.param(-1.0, low=0.0)


def test_models_are_frozen() -> None:
    model = Small(GRAPH)
    with pytest.raises(ModelError, match=r"model\.replace\(rate=…\)"):
        model.rate = torch.tensor(1.0)  # type: ignore[misc]
    assert model.replace(rate=1.0) is not model
    assert model.rate.item() == 0.5


def test_parameters_that_need_a_gradient_keep_it() -> None:
    rate = torch.tensor(0.7, requires_grad=True)
    model = Small(GRAPH, rate=rate)
    assert model.rate is rate
    assert model.replace(name="other").rate is rate


def test_is_a_tree() -> None:
    model = Small(GRAPH, rate=1.0)
    again = pytree.tree_map(lambda leaf: None if leaf is None else leaf + 0, model)
    assert isinstance(again, Small)
    assert again.name == "small"
    assert again.size == 3
    assert again.contacts.num_agents == 3
    assert torch.equal(again.contacts.in_idx, GRAPH.in_idx)
    below = pytree.tree_map(
        lambda leaf: None if leaf is None else -1 * leaf, model
    )  # no check on the way: placeholders may be anything
    assert below.rate.item() == -1.0
    rates = torch.vmap(lambda r: model.with_values({"rate": r}).rate * 2)(torch.tensor([1.0, 2.0]))
    assert rates.tolist() == [2.0, 4.0]


def test_number_of_agents() -> None:
    assert Small(GRAPH).num_agents == 3

    class Layered(dz.Model):
        rate: Tensor = dz.param(1.0)
        layers: Any = None

    assert Layered(layers=Layers({"home": GRAPH})).num_agents == 3
    with pytest.raises(ModelError, match="Layered does not say how many agents it has"):
        _ = Layered().num_agents

    class Counted(dz.Model):
        num_agents: int = 7

    assert Counted().num_agents == 7


def test_moving_and_names() -> None:
    module = torch.nn.Linear(2, 2)

    class Learned(Small):
        policy: Any = None

    model = Learned(GRAPH, policy=module).to("cpu")
    assert model.policy is module
    assert "rate=0.5" in repr(model)
    assert "contacts=Graph(3 agents, 2 edges, cpu)" in repr(model)


def test_inheritance_of_parameters_and_series() -> None:
    class More(Small):
        extra: Tensor = dz.param(9.0)

        @dz.series
        def change(self, before: One, now: One) -> Tensor:
            return now.on.sum() - before.on.sum()

        @dz.series
        def level(self, now: One) -> Tensor:
            return now.on.sum() * self.extra

    assert list(More.params) == ["rate", "shares", "free", "table", "extra"]
    assert More.all_series == {"level": "level", "change": "flow"}
    run = dz.simulate(More(GRAPH), 2)
    assert (run["level"] == 9 * run.state.on.sum()).all()
    assert (run["change"] == 0).all()


def test_series_of_other_arguments() -> None:
    for function in (lambda self: 0, lambda self, a, b, c: 0):
        with pytest.raises(ModelError, match="expected \\(self, now\\) or \\(self, before, now\\)"):
            dz.series(function)


def test_bounds_in_words() -> None:
    def bounds(low: float | None, high: float | None) -> str:
        return dz.param(2.0, low=low, high=high).metadata["param"].bounds()

    words = [bounds(low, high) for low in (None, 1.0) for high in (None, 2.5)]
    assert words == ["any", "at most 2.5", "at least 1", "1 to 2.5"]


@pytest.mark.parametrize(
    ("annotation", "refused"),
    [
        (Graph, True),
        (Layers, True),
        (Graph | Layers, True),
        ("dz.Graph", True),
        ("Graph | Layers", True),
        (Graph | None, False),
        (Any, False),
        ("Graph | None", False),
    ],
)
def test_what_is_no_graph(annotation: Any, refused: bool) -> None:
    cls: Any = type("Mine", (dz.Model,), {"__annotations__": {"contacts": annotation}})
    assert cls(Graph.from_edges([0], [1])).num_agents == 2
    if refused:
        with pytest.raises(InputError, match=r"Mine\.contacts is list \[1, 2\], expected a dz\.Graph"):
            cls([1, 2])
    else:
        assert cls([1, 2]).contacts == [1, 2]


def test_misspelt_arguments_are_told():
    class Lynx(dz.Model):
        catch: float = dz.param(0.5)
        num_agents: int = 3

    class Bobcat(Lynx):
        def __init__(self, young: int) -> None:
            super().__init__(num_agents=young)

    class Caracal(Lynx):
        pairs: dataclasses.InitVar[int] = 1

        def __post_init__(self, pairs: int) -> None:
            object.__setattr__(self, "num_agents", 2 * pairs)
            super().__post_init__()

    with pytest.raises(InputError, match=r"^Lynx: unknown argument 'catchh'; did you mean 'catch'\? valid: catch"):
        Lynx(catchh=0.2)
    assert Lynx(0.25, num_agents=2).num_agents == 2
    assert Bobcat(4).num_agents == 4
    assert Caracal(pairs=3).num_agents == 6
    with pytest.raises(InputError, match=r"^Caracal: unknown argument 'pair'; did you mean 'pairs'\?"):
        Caracal(pair=3)


def test_a_field_without_default_in_the_place_of_a_property():
    """`num_agents: int` alone, as the message of a model without agents has it; in subclasses and environments too."""

    class Crowd(dz.Model):
        num_agents: int
        k: float = dz.param(0.5)

    class Larger(Crowd):
        more: int = 3

    class Again(Larger):
        num_agents: int

    class Team(dz.Env):
        num_actors: int

    for kind in (Crowd, Larger, Again):
        model = kind(7)
        assert (model.num_agents, model.replace(k=0.1).num_agents, model.replace(num_agents=4).num_agents) == (7, 7, 4)
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'num_agents'"):
            kind()
    assert Team(num_actors=3).num_agents == 3


def test_options_are_of_their_kind():
    """A switch is True or False and a count a whole number, of any package, also in `replace`; None where it may be."""

    class Otter(dz.Model):
        num_agents: int
        dives: bool = False
        pups: int = 2
        most: int = None
        limit: int | None = 9
        depth: float | None = None
        map: torch.Tensor | None = None

    made = Otter(np.int64(4), dives=np.True_, pups=torch.tensor(3))
    assert (made.num_agents, made.pups, made.most) == (4, 3, None)
    assert {type(made.num_agents), type(made.pups)} == {int}
    assert made.dives is True
    for wrong, told in (
        ({"dives": "no"}, "Otter: dives='no', expected True or False"),
        ({"dives": 1}, "Otter: dives=1, expected True or False"),
        ({"pups": 2.0}, r"Otter: pups=2\.0, expected a whole number"),
        ({"num_agents": float("nan")}, "Otter: num_agents=nan, expected a whole number"),
        ({"limit": 2.5}, r"Otter: limit=2\.5, expected a whole number, or None"),
        ({"depth": "deep"}, "Otter: depth='deep', expected a number, or None"),
        ({"map": [[1]]}, r"Otter: map=\[\[1\]\], expected a torch\.Tensor, or None"),
    ):
        with pytest.raises(InputError, match=told):
            made.replace(**wrong)
