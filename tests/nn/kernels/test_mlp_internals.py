"""Towers as one operation: values and gradients of plain torch, in both variants."""

import contextlib
import functools
from typing import Any

import pytest
import torch
from torch import nn

from denizen import ops
from denizen.nn import kernels
from denizen.nn.kernels import _mlp

# Rows, inputs, hidden, out, heads, whether inputs are bytes.
SHAPES = [
    (1, 1, 16, 16, (1,), False),
    (70, 4, 64, 64, (2, 1), False),
    (130, 6, 17, 30, (5, 1), True),
    (64, 64, 64, 64, (64,), False),
    (300, 3, 64, 32, (1, 18), False),
    (70, 130, 64, 64, (3, 1), True),
    (40, 100, 17, 40, (2, 1), False),
    (3, 77, 64, 16, (2,), True),
]


def towers(inputs: int, hidden: int, out: int, heads: tuple[int, ...], activation: str) -> list[nn.Sequential]:
    between = {"tanh": nn.Tanh, "relu": nn.ReLU}[activation]
    return [
        nn.Sequential(nn.Linear(inputs, hidden), between(), nn.Linear(hidden, out), between(), nn.Linear(out, head))
        for head in heads
    ]


@pytest.mark.parametrize("activation", _mlp.ACTIVATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(tools: Any, shape: Any, activation: str) -> None:
    rows, inputs, _, _, heads, whole = shape
    x, grad = torch.randn(rows, inputs), torch.randn(rows, sum(heads))
    x = torch.randint(0, 4, x.shape, dtype=torch.uint8) if whole else x
    plain = towers(*shape[1:5], activation)
    parameters = [p for tower in plain for p in tower.parameters()]
    expected = torch.cat([tower(x.float()) for tower in plain], 1)
    slopes = torch.autograd.grad(expected, parameters, grad)
    for way in ("fast", "reference"):
        weights = [p.detach().clone().requires_grad_() for p in parameters]
        if way == "reference":
            with ops.reference_only():
                found, _ = kernels.mlp(x, weights, activation)
                mine = torch.autograd.grad(found, weights, grad)
        else:
            found, _ = kernels.mlp(x, weights, activation)
            mine = torch.autograd.grad(found, weights, grad)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)
        for one, slope in zip(mine, slopes, strict=True):
            torch.testing.assert_close(one, slope, rtol=1e-4, atol=1e-5 * rows**0.5)


@pytest.mark.parametrize("activation", _mlp.ACTIVATIONS)
def test_what_is_not_a_number_stays_so(tools: Any, activation: str) -> None:
    """Diverged weights or observations must not look finite."""
    x = torch.randn(3, 4)
    x[1, 2] = torch.nan
    weights = [p.detach() for tower in towers(4, 16, 16, (3, 1), activation) for p in tower.parameters()]
    for way in (contextlib.nullcontext(), ops.reference_only()):
        with way:
            found, _ = kernels.mlp(x, weights, activation)
        assert found.isnan().all(dim=1).tolist() == [False, True, False]
        assert not found[::2].isnan().any()


def test_within_a_compiled_loss(tools: Any) -> None:
    x = torch.randn(40, 5)
    weights = [p.detach() for tower in towers(5, 16, 16, (3, 1), "tanh") for p in tower.parameters()]

    def loss(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        numbers, value = kernels.mlp(x + 1, weights, "tanh")[0].split([3, 1], 1)
        return (numbers.square() * x.sum(1, keepdim=True) + value).square().mean()

    slopes = []
    for function in (loss, tools.compiled(loss)):
        given = [w.clone().requires_grad_() for w in weights]
        function(x, *given).backward()
        slopes.append([w.grad for w in given])
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.cuda
@pytest.mark.parametrize("inputs", [4, 400])
def test_tf32_is_off_by_its_rounding_only(inputs: int, request: pytest.FixtureRequest) -> None:
    products = torch.backends.cuda.matmul  # which monkeypatch cannot put back: its attributes are in no `__dict__`
    request.addfinalizer(functools.partial(setattr, products, "allow_tf32", products.allow_tf32))
    products.allow_tf32 = True
    weights = [p.detach().cuda() for tower in towers(inputs, 64, 64, (3, 1), "tanh") for p in tower.parameters()]
    double = [weight.double() for weight in weights]
    x, grad = torch.randn(20_000, inputs).cuda(), torch.randn(20_000, 4).cuda()
    x = (x > 1).to(torch.uint8) if inputs > _mlp.WIDEST else x
    with ops.reference_only():
        expected, first = kernels.mlp(x if x.dtype == torch.uint8 else x.double(), double, "tanh")
        slopes = _mlp.mlp_gradients(grad.double(), x, first, double, "tanh")
    found, first = kernels.mlp(x, weights, "tanh")
    mine = _mlp.mlp_gradients(grad, x, first, weights, "tanh")
    for one, exact in ((found, expected), (mine, slopes)):
        assert (one - exact).abs().max() < 5e-3 * exact.abs().max()
    assert torch.equal(mine, _mlp.mlp_gradients(grad, x, first, weights, "tanh"))
