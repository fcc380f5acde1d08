"""Shared means of the op tests: random graphs, both variants of an op, comparison of bits."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from denizen import ops
from denizen.space import Graph


def random_graph(agents: int, edges: int, *, weighted: bool = False, seed: int = 0) -> Graph:
    """A graph with self-loops and repeated edges whose last third of agents has no contact."""
    gen = np.random.default_rng(seed)
    reach = max(1, agents - agents // 3)
    source, target = gen.integers(0, reach, edges), gen.integers(0, reach, edges)
    weight = gen.random(edges, dtype=np.float32) if weighted else None
    return Graph.from_edges(source, target, agents, weight=weight, self_loops="keep")


def assert_same_bits(left: Any, right: Any) -> None:
    """Equal dtype, shape and bits (any NaN equals any NaN; zero differs from minus zero)."""
    if isinstance(left, tuple | list):
        for a, b in zip(left, right, strict=True):
            assert_same_bits(a, b)
        return
    assert (left.dtype, left.shape) == (right.dtype, right.shape)
    if left.dtype.is_floating_point:
        assert torch.equal(left.isnan(), right.isnan())
        assert torch.equal(left.signbit() & ~left.isnan(), right.signbit() & ~right.isnan())
        left, right = left.nan_to_num(nan=7.0), right.nan_to_num(nan=7.0)
    assert torch.equal(left, right)


def both(op: Callable[..., Any], *args: Any) -> Any:
    """The result of an op, after checking that its two variants agree in every bit."""
    fast = op(*args)
    with ops.reference_only():
        slow = op(*args)
    assert_same_bits(fast, slow)
    return fast


@pytest.fixture
def tools() -> Any:
    """`random_graph`, `assert_same_bits` and `both`."""
    return type("Tools", (), {f.__name__: staticmethod(f) for f in (random_graph, assert_same_bits, both)})


@pytest.fixture(params=["auto", "push", "pull"])
def direction(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test as it comes, pushing always and pulling always."""
    if request.param != "auto":
        monkeypatch.setattr(
            "denizen.ops._cpu_neighbours._PUSH_UP_TO", {"push": float("inf"), "pull": -1.0}[request.param]
        )
    return request.param


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """One and two threads, with the work split at once instead of from 200,000 elements on."""
    monkeypatch.setattr("denizen.ops._cpu._PARALLEL_FROM", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def active(shape: tuple[int, ...], share: float, seed: int) -> Tensor:
    """A random mask int8."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share).to(torch.int8)
