"""Every op within a compiled graph: one graph, the bits and the gradients of the eager run; inductor only on CUDA."""

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from denizen import ops

AGENTS = 33


def cases(tools: Any) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions of batched tensors `[worlds, …]` for one world, by name."""
    g = tools.random_graph(AGENTS, 120, weighted=True)
    arrays = (g.in_ptr, g.in_idx, g.out_ptr, g.out_idx)
    key, step = torch.tensor([[3, w] for w in range(4)]), torch.tensor(6)
    real, mask = torch.rand(4, AGENTS), torch.randint(0, 2, (4, AGENTS)).to(torch.int8)
    codes, table = torch.randint(0, 5, (4, AGENTS)).to(torch.int8), torch.randn(4, 2, 5)
    group = torch.randint(0, 2, (1, AGENTS)).to(torch.uint8)
    ids = torch.stack([torch.randperm(AGENTS) for _ in range(4)])
    return {
        "words": (lambda k: ops.draw_words(tools.empty, AGENTS, k[None], step, 1)[0], (key,)),
        "words with ids": (lambda k, i: ops.draw_words(i[None], AGENTS, k[None], step, 1)[0], (key, ids)),
        "event": (lambda k, v: ops.draw_mask(v[None], True, tools.empty, k[None], step, 1)[0][0], (key, real)),
        "bernoulli": (lambda k, v: ops.draw_mask(v[None], False, tools.empty, k[None], step, 1)[0][0], (key, real)),
        "counts": (lambda v, w: ops.sum_counts(v[None], w[None], *arrays)[0], (mask, mask.flip(0))),
        "fixed": (
            lambda v, w: ops.sum_fixed(v[None], w[None], g.weight, *arrays, g.out_edge, 38, 4.0)[0],
            (real, mask),
        ),
        "real": (lambda v, w: ops.sum_real(v[None], w[None], g.weight, *arrays, g.out_edge)[0], (real, mask)),
        "lookup": (lambda t, c: ops.lookup(t[None], c[None], group)[0], (table, codes)),
        "histogram": (lambda c: ops.histogram(c[None], group, 2, 5)[0], (codes,)),
    }


NAMES = ["words", "words with ids", "event", "bernoulli", "counts", "fixed", "real", "lookup", "histogram"]


@pytest.mark.parametrize("name", NAMES)
def test_compiled_equals_eager(tools: Any, name: str) -> None:
    function, args = cases(tools)[name]
    alone = tuple(a[1] for a in args)
    tools.assert_same_bits(tools.compiled(function)(*alone), function(*alone))
    tools.assert_same_bits(tools.compiled(torch.vmap(function))(*args), torch.vmap(function)(*args))


@pytest.mark.parametrize("hazard", [True, False])
@pytest.mark.parametrize(("worlds", "num"), [(1, 1), (1, 1001), (3, 35), (2, 4096), (5, 1023)])
def test_draws_fused_with_their_neighbours(tools: Any, hazard: bool, worlds: int, num: int) -> None:
    """Between arithmetic before and after, on CUDA within its kernel; bad values are flagged in their world."""
    key = torch.stack([torch.full((worlds,), 9), torch.arange(worlds)], dim=1)
    values = tools.hazards(worlds, num) if hazard else torch.rand(worlds, num)
    state = torch.randint(0, 3, (worlds, num)).to(torch.int8)

    def step(state: Tensor, values: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        drawn, bad = ops.draw_mask(values * (state == 1), hazard, tools.empty, key, at, 3)
        again, worse = ops.draw_mask(values - values * (state == 2), hazard, tools.empty, key, at + 1, 4)
        return state + drawn + 2 * again, drawn.sum(dim=1), bad, worse

    fused = tools.compiled(step)
    for at in (0, 7, 2**32 - 2):
        expected = step(state, values.nan_to_num(posinf=1e9), torch.tensor(at))
        tools.assert_same_bits(fused(state, values.nan_to_num(posinf=1e9), torch.tensor(at)), expected)
    if num > 5:
        values[-1, 5], state[-1, 5] = -1.0, 1
        *_, bad, worse = fused(state, values.nan_to_num(posinf=1e9), torch.tensor(1))
        assert bad.tolist() == worse.tolist() == [0] * (worlds - 1) + [1]


@pytest.mark.parametrize("name", ["fixed", "real", "lookup"])
@pytest.mark.parametrize("batched", [False, True])
def test_compiled_gradients_equal_eager_ones(tools: Any, name: str, batched: bool) -> None:
    function, (variable, other) = cases(tools)[name]
    if batched:
        function = torch.vmap(function)
    else:
        variable, other = variable[0], other[0]

    def loss(v: Tensor) -> Tensor:
        return (function(v, other) ** 2).sum()

    grads = []
    for run in (loss, tools.compiled(loss)):
        v = variable.clone().requires_grad_()
        run(v).backward()
        grads.append(v.grad)
    if tools.device.type == "cpu":
        tools.assert_same_bits(*grads)
    else:  # tables of floats are added up in an order of the compiler's choice
        torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-5)


def test_the_reference_is_opaque_too(tools: Any) -> None:
    with ops.reference_only():
        function, args = cases(tools)["event"]
        tools.assert_same_bits(tools.compiled(torch.vmap(function))(*args), torch.vmap(function)(*args))


@pytest.mark.parametrize("name", ["draw_words", "draw_mask", "sum_counts", "pull", "histogram", "lookup"])
def test_registration(tools: Any, name: str) -> None:
    """torch's own checks of schema, fake tensors and autograd registration."""
    g = tools.random_graph(AGENTS, 120)
    arrays = (g.in_ptr, g.in_idx, g.out_ptr, g.out_idx)
    key, step = torch.tensor([[3, 1], [3, 2]]), torch.tensor(6)
    codes = torch.randint(0, 5, (2, AGENTS)).to(torch.int8)
    args = {
        "draw_words": (tools.empty, AGENTS, key, step, 1),
        "draw_mask": (torch.rand(2, AGENTS), True, tools.empty, key, step, 1),
        "sum_counts": (codes, None, *arrays),
        "pull": (torch.rand(2, AGENTS), None, *arrays[:2], tools.empty.int()),
        "histogram": (codes, None, 1, 5),
        "lookup": (torch.rand(2, 1, 5, requires_grad=True), codes, None),
    }[name]
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(getattr(torch.ops.denizen, name).default, args, test_utils=tests)


def test_inductors_processes_are_started_for_cuda_alone(monkeypatch: Any) -> None:
    from torch._inductor import async_compile

    started: list[bool] = []
    monkeypatch.setattr(async_compile, "maybe_warm_pool", lambda: started.append(True))
    ops.start_compilers(torch.device("cpu"))
    assert not started
    ops.start_compilers(torch.device("cuda"))
    assert started


def test_inductors_processes_end_beside_what_follows(monkeypatch: Any) -> None:
    from torch._inductor import async_compile

    class Pool:
        ended, may_end = threading.Event(), threading.Event()

        def shutdown(self) -> None:
            self.may_end.wait(60)
            self.ended.set()

    pools = {Pool(): None}
    monkeypatch.setattr(async_compile, "_pool_set", pools)
    ops.stop_compilers()
    assert not pools  # so that what is compiled next begins a new one
    assert not Pool.ended.is_set()
    Pool.may_end.set()
    assert Pool.ended.wait(60)
    monkeypatch.delitem(sys.modules, "torch._inductor.async_compile")
    ops.stop_compilers()
