"""What graphs and layers compute on CUDA: the bits of the CPU."""

import numpy as np
import pytest
import torch
from torch import Tensor

from denizen.space import Graph, Layers

pytestmark = pytest.mark.cuda
AGENTS = 203


def graph(weighted: bool, seed: int = 0) -> Graph:
    gen = np.random.default_rng(seed)
    source, target = gen.integers(0, AGENTS - 40, (2, 900))  # the last have no contacts
    return Graph.from_edges(source, target, AGENTS, weight=gen.random(900, dtype=np.float32) if weighted else None)


def values() -> dict[str, Tensor]:
    whole = torch.randint(-100, 100, (AGENTS,)) * torch.randint(0, 2, (AGENTS,))
    return {
        "mask": (whole > 0).to(torch.int8),
        "bool": whole > 0,
        "int8": whole.to(torch.int8),
        "int32": whole.int(),
        "int64": whole,
        "float32": whole * torch.rand(AGENTS),
        "float64": whole.double(),
    }


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("worlds", [None, 3])
def test_graphs(weighted: bool, masked: bool, worlds: int | None) -> None:
    host = graph(weighted)
    there = host.to("cuda")
    where = torch.randint(0, 2, (AGENTS,)).to(torch.int8) if masked else None
    for name, value in values().items():
        rows = value if worlds is None else torch.stack([value.roll(k) for k in range(worlds)])
        for method, options in (
            ("sum", {}),
            ("sum", {"max": 128.0}),
            ("mean", {"max": 128.0}),
            ("max", {}),
            ("any", {}),
        ):
            if method == "max" and value.dtype == torch.bool:
                continue

            def on(g: Graph, x: Tensor, method: str = method, options: dict = options) -> Tensor:
                listening = None if where is None else where.to(g.device)
                call = lambda one: getattr(g, method)(one, where=listening, **options)
                return call(x) if worlds is None else torch.vmap(call)(x)

            expected, got = on(host, rows), on(there, rows.cuda())
            assert got.is_cuda
            assert got.dtype == expected.dtype
            assert torch.equal(got.cpu(), expected), (name, method, options)


def test_layers_with_schedules() -> None:
    home, work = graph(False), graph(True, seed=1)
    layers = Layers({"home": home, "work": work}, {"home": 0.7, "work": [1.0, 0.5, 0.25]})
    there = layers.to("cuda")
    sick = values()["mask"]
    for step in range(5):
        expected = layers.sum(sick, where=1 - sick, step=torch.tensor(step))
        assert torch.equal(
            there.sum(sick.cuda(), where=1 - sick.cuda(), step=torch.tensor(step).cuda()).cpu(), expected
        )


def test_another_order_of_agents() -> None:
    order = torch.randperm(AGENTS)
    moved, sick = graph(True).to("cuda").renumber(order), values()["mask"]
    assert moved.device.type == "cuda"
    assert torch.equal(moved.sum(sick[order].cuda()).cpu(), graph(True).sum(sick)[order])
