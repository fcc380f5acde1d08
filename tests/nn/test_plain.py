"""The form that benchmarks measure against: the reference's results, the published network's count of kernels."""

import collections
import runpy
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.nn import DotGATConfig, DynamicDotGATReference

from .configurations import CONFIGURATIONS, random_model, some_sensing

PLAIN = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/_dotgat_plain.py"))["PlainDotGAT"]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_it_is_the_reference(name):
    config = CONFIGURATIONS[name]
    reference = random_model(DynamicDotGATReference, config, some_sensing(config))
    plain = PLAIN(config, some_sensing(config)).double().eval()
    plain.load_state_dict(reference.state_dict())
    series, found = torch.randn(2, 6, 4, dtype=torch.float64), []
    for model in (reference, plain):
        h, y = model(series)
        (h.sin().sum() + y.square().sum()).backward()
        found.append([h, y, *(weight.grad for weight in model.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


class Kernels(TorchDispatchMode):
    """Counts operations other than views and allocations."""

    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view and not any(word in func.__name__ for word in ("empty", "view", "detach")):
            self.counts[func.__name__] += 1
        return func(*args, **(kwargs or {}))


def counted(model, learns):
    """Kernels forward and backward; the CPU attends in one kernel only where the bias does not learn."""
    model.bias.requires_grad_(learns)
    with Kernels() as forward:
        outputs = model(torch.randn(1, 50, 25)).outputs
    loss = outputs.square().mean()
    with Kernels() as backward:
        loss.backward()
    return forward.counts, backward.counts


def test_it_is_as_plain_as_the_original():
    """Which launches 270 kernels, 42 of them batched products, and 557 backward (spec/dotgat.md, 7): no straw man.

    A GPU attends in one kernel and finds the gradient of the bias as well; the CPU either does not find it, or attends
    in several. The truth lies between.
    """
    model = PLAIN(DotGATConfig(num_agents=20, num_features=25)).train()
    fewest, most = counted(model, False), counted(model, True)
    assert fewest[0]["bmm.default"] == 42
    assert 260 <= fewest[0].total() <= 270 <= most[0].total() <= 300
    assert 490 <= fewest[1].total() <= 557 <= most[1].total() <= 600


def test_floors_are_those_of_the_description():
    """Batch 32: 45.8 GFLOP forward, 0.046 ms of arithmetic in 16 bits (spec/dotgat.md, 8)."""
    parts = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/_dotgat_parts.py"))
    row = parts["floors"](DotGATConfig(num_agents=20, num_features=25), 50, 32, {"forward_ms": 0.7, "total_ms": 2.2})
    assert (row["forward_gflop"], row["forward_arithmetic_ms"], row["backward_arithmetic_ms"]) == (45.8, 0.046, 0.093)
    assert row["forward_gb"] == pytest.approx(20 * 5 * 2 * 32 * 50 * 20 * 128 / 1e9, abs=1e-3)
    assert row["forward_times_over"] == pytest.approx(0.7 / row["forward_memory_ms"], abs=0.02)
    assert row["share_of_peak_arithmetic"] == pytest.approx(137.5 / 2.2 / 989, abs=1e-3)
