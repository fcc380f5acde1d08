"""Sums over neighbours on a GPU: worlds in groups, the way by a sample, the device of the tensors."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.ops.test_edges import BITS, BOUND, mask, sums
from torch import Tensor

from denizen import ops
from denizen.ops import _library


@pytest.mark.parametrize("together", [1, 2, 5])
def test_worlds_in_groups(tools: Any, monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    """Of one world, of a few with a last group that is smaller, of all."""
    kernels = pytest.importorskip("denizen.ops._cuda_neighbours", exc_type=ImportError)
    worlds, agents = 5, 130
    graph, weighted = tools.random_graph(agents, 250), tools.random_graph(agents, 250, weighted=True)
    values, masks = mask(worlds, agents), mask(worlds, agents)
    monkeypatch.setattr(kernels, "_group", lambda *scattered: min(together, len(scattered[0])))
    for where in (None, masks[:1], masks):
        sums(tools, graph, values, where)
    sums(tools, weighted, 5 * values, masks[:1])
    sums(tools, graph, values[:1], None)


def test_worlds_go_together_while_they_fit_the_cache() -> None:
    kernels = pytest.importorskip("denizen.ops._cuda_neighbours", exc_type=ImportError)
    masks, bytes_ = (torch.zeros(16, 1_000_000, dtype=dtype) for dtype in (torch.int8, torch.uint8))
    assert kernels._group(masks, bytes_) == 8
    assert kernels._group(masks[:5], bytes_[:5]) == 5
    assert kernels._group(masks, bytes_.int()) == 6
    assert kernels._group(masks.double()) == 3
    assert kernels._group(torch.zeros(2, 30_000_000, dtype=torch.int8)) == 1


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_the_way_of_many_agents_is_chosen_by_a_sample(
    tools: Any, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Where no step before tells how many are active: of whole sums, such as those of a gradient."""
    kernels = pytest.importorskip("denizen.ops._cuda_neighbours", exc_type=ImportError)
    monkeypatch.setattr(kernels, "_FEW", 100)
    agents = 3000 if tools.device.type == "cuda" else 300
    values = torch.rand(2, agents) * (torch.rand(2, agents) < share)
    seen, seeing, _ = kernels._sampled(values)
    assert seen[:, 1].tolist() == [-(-agents // 32)] * 2
    assert torch.equal(seen[:, 0], (values[:, ::32] != 0).sum(dim=1, dtype=torch.int32))
    assert not seeing.any()
    graph = tools.random_graph(agents, 3 * agents, weighted=True)
    for where in (None, mask(1, agents)):
        tools.both(
            ops.sum_fixed,
            values,
            where,
            graph.weight,
            graph.in_ptr,
            graph.in_idx,
            graph.out_ptr,
            graph.out_idx,
            graph.out_edge,
            BITS,
            BOUND,
        )
    assert kernels._sampled(values[:, :100]) is None


class OfAGpu(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True  # type: ignore[assignment]


def test_ops_launch_on_the_device_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton launches on CUDA's current device, wherever the tensors are."""
    seen: list[Any] = []

    @contextlib.contextmanager
    def device_of(tensor: Tensor) -> Iterator[None]:
        seen.append(tensor)
        yield

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    host, there = torch.zeros(3), torch.zeros(3).as_subclass(OfAGpu)
    assert _library._on_its_device(lambda *args: len(args))(host, 7, there) == 3
    assert seen[0] is there
