"""Two layers as one operation: values and gradients of plain torch, in both variants."""

from typing import Any

import pytest
import torch
from torch import nn

from denizen import ops
from denizen.ops import _mlp

SHAPES = [(1, 1, 16, 16), (70, 4, 64, 64), (130, 6, 17, 30), (64, 64, 64, 64), (300, 3, 64, 32)]


@pytest.mark.parametrize("activation", _mlp.ACTIVATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(tools: Any, shape: tuple[int, int, int, int], activation: str) -> None:
    rows, inputs, hidden, out = shape
    x, grad = torch.randn(rows, inputs), torch.randn(rows, out)
    plain = nn.Sequential(nn.Linear(inputs, hidden), {"tanh": nn.Tanh(), "relu": nn.ReLU()}[activation])
    plain.extend(nn.Sequential(nn.Linear(hidden, out), {"tanh": nn.Tanh(), "relu": nn.ReLU()}[activation]))
    expected = plain(x)
    slopes = torch.autograd.grad(expected, list(plain.parameters()), grad)
    for way in ("fast", "reference"):
        weights = [p.detach().clone().requires_grad_() for p in plain.parameters()]
        if way == "reference":
            with ops.reference_only():
                found = ops.mlp(x, *weights, activation)
                mine = torch.autograd.grad(found, weights, grad)
        else:
            found = ops.mlp(x, *weights, activation)
            mine = torch.autograd.grad(found, weights, grad)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)
        for one, slope in zip(mine, slopes, strict=True):
            torch.testing.assert_close(one, slope, rtol=1e-4, atol=1e-5 * rows**0.5)
            assert one.data_ptr() % 16 == 0  # as inductor takes them to be


def test_within_a_compiled_loss(tools: Any) -> None:
    x = torch.randn(40, 5)
    weights = [torch.randn(16, 5), torch.randn(16), torch.randn(16, 16) / 4, torch.randn(16)]

    def loss(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return (ops.mlp(x + 1, *weights, "tanh") * x.sum(1, keepdim=True)).square().mean()

    slopes = []
    for function in (loss, tools.compiled(loss)):
        given = [w.clone().requires_grad_() for w in weights]
        function(x, *given).backward()
        slopes.append([w.grad for w in given])
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
