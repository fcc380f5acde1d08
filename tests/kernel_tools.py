"""What tests of ops and of nn.kernels share: a device, random graphs, both variants of an op, comparison of bits.

Tests that use `tools` run on the CPU and, marked `cuda`, on a GPU: whatever they make with torch is made there. With
`TRITON_INTERPRET=1` the Triton kernels take the place of the CPU's own (see test_interpreter.py).
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from denizen import ops
from denizen.ops import _library
from denizen.space import Graph

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
FEWER = int(os.environ.get("DENIZEN_EXAMPLES", "0"))
HOST = torch.device("cpu")


class Tools:
    """What the tests of ops share; `device` is where tensors are made by default."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.examples = FEWER or (60 if device == HOST and not INTERPRETED else 15)  # of a property
        self.empty = torch.empty(0, dtype=torch.int64, device=device)  # ids left out
        self.step = torch.tensor(5, device=device)

    def random_graph(self, agents: int, edges: int, *, weighted: bool = False, seed: int = 0) -> Graph:
        """A graph with self-loops and repeated edges whose last third of agents has no contact."""
        gen = np.random.default_rng(seed)
        reach = max(1, agents - agents // 3)
        source, target = gen.integers(0, reach, edges), gen.integers(0, reach, edges)
        weight = gen.random(edges, dtype=np.float32) if weighted else None
        return self.graph(source, target, agents, weight)

    def graph(self, source: Any, target: Any, agents: int, weight: Any = None) -> Graph:
        """The graph of an edge list."""
        with HOST:
            return Graph.from_edges(source, target, agents, weight=weight, self_loops="keep").to(self.device)

    def hub(self, degree: int, *, outwards: bool, weighted: bool = False) -> Graph:
        """A star of `degree` contacts around agent 1, every third of them with another contact."""
        spokes, middle = np.arange(2, degree + 2), np.full(degree, 1)
        ends = (middle, spokes) if outwards else (spokes, middle)
        source, target = np.append(ends[0], spokes[::3]), np.append(ends[1], np.roll(spokes[::3], 1))
        weight = np.random.default_rng(0).random(source.size, dtype=np.float32) if weighted else None
        return self.graph(source, target, degree + 3, weight)

    def hazards(self, worlds: int, num: int) -> Tensor:
        """Ordinary values mixed with every special one."""
        special = torch.tensor([0.0, -0.0, 1e-45, 1e-38, 1e-12, 1e-6, 0.5, 1.0, 20.0, 40.0, 41.0, 1e3, float("inf")])
        values = torch.rand(worlds, num) * 3
        where = torch.randint(0, 4, values.shape) == 0
        return torch.where(where, special[torch.randint(0, special.numel(), values.shape)], values)

    def assert_same_bits(self, left: Any, right: Any) -> None:
        """Equal dtype, shape and bits (any NaN equals any NaN; zero differs from minus zero)."""
        if isinstance(left, tuple | list):
            for a, b in zip(left, right, strict=True):
                self.assert_same_bits(a, b)
            return
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        if left.dtype.is_floating_point:
            assert torch.equal(left.isnan(), right.isnan())
            assert torch.equal(left.signbit() & ~left.isnan(), right.signbit() & ~right.isnan())
            left, right = left.nan_to_num(nan=7.0), right.nan_to_num(nan=7.0)
        assert torch.equal(left, right)

    def both(self, op: Callable[..., Any], *args: Any) -> Any:
        """The result of an op, after checking that its variants agree in every bit: on this device and the CPU's."""
        fast = op(*args)
        with ops.reference_only():
            self.assert_same_bits(fast, op(*args))
            if self.device != HOST:
                with HOST:
                    self.assert_same_bits(moved(fast, HOST), op(*moved(args, HOST)))
        return fast

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """One graph: without inductor on the CPU, with it, its fused draws included, on CUDA."""
        torch._dynamo.reset()
        backend = "aot_eager" if self.device == HOST else "inductor"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about itself
            if backend == "inductor":
                assert ops.fuse_draws() or torch.version.hip
            made = torch.compile(function, fullgraph=True, dynamic=False, backend=backend)

        def call(*args: Any) -> Any:
            torch.set_default_device(None)  # which torch.compile would have to trace
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = made(*args)
            torch.set_default_device(None if self.device == HOST else self.device)
            return out

        return call


def moved(value: Any, device: torch.device) -> Any:
    """Tensors and graphs, also within tuples and lists, on a device."""
    if isinstance(value, tuple | list):
        return type(value)(moved(v, device) for v in value)
    return value.to(device) if isinstance(value, Tensor | Graph) else value


@pytest.fixture
def tools(device: torch.device) -> Iterator[Tools]:
    """`Tools` of a device, which also is where torch makes tensors during the test."""
    torch.manual_seed(0)
    if device == HOST:  # without torch's function mode, which costs time in each call
        yield Tools(device)
        return
    torch.set_default_device(device)
    yield Tools(device)
    torch.set_default_device(None)


launched: set[str] = set()  # names of the kernels that the interpreter has run


@pytest.fixture(autouse=INTERPRETED)
def _triton_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the interpreter the ops take CPU tensors to the Triton kernels."""
    from triton.runtime import interpreter

    patch, run = interpreter._patch_lang_tensor, interpreter.InterpretedFunction.run

    def noted(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        launched.add(kernel.fn.__name__)
        return run(kernel, *args, **kwargs)

    def with_indices(tensor: Any, scope: Any) -> None:
        """Triton 3.6 makes int() of arrays of one element, which NumPy refuses since 2.4."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter.InterpretedFunction, "run", noted)
    monkeypatch.setattr(interpreter, "_patch_lang_tensor", with_indices)
    for name, module in list(sys.modules.items()):
        if name.startswith(("denizen.ops.", "denizen.nn.kernels.")) and hasattr(module, "variant"):
            monkeypatch.setattr(module, "variant", lambda device: "reference" if _library._reference_only else "triton")
