"""Convolutions channels last: values and gradients of torch's own, in both variants."""

import os
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from denizen import ops

# Triton's interpreter multiplies the bits of bfloat16 as if they were whole numbers.
HALF = torch.float16 if os.environ.get("TRITON_INTERPRET") == "1" else torch.bfloat16
SHAPES = [(3, 5, 4, 8, 16), (2, 11, 11, 5, 70), (1, 3, 3, 66, 7), (40, 4, 4, 16, 16)]


def numbers(*shape: int) -> torch.Tensor:
    """Multiples of 1/8, of which products and short sums are exact in every precision."""
    return torch.randint(-8, 9, shape) / 8


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("offsets", [1, 9])
@pytest.mark.parametrize("shape", SHAPES)
def test_convolutions_and_their_gradients(tools: Any, shape: tuple[int, ...], offsets: int, dtype: torch.dtype) -> None:
    n, height, width, inputs, outputs = shape
    side = 3 if offsets == 9 else 1
    x, weight, bias = numbers(n, height, width, inputs), numbers(offsets, inputs, outputs), numbers(outputs)
    grad = numbers(n, height, width, outputs)
    image = x.permute(0, 3, 1, 2).clone().requires_grad_()
    kernel = weight.permute(2, 1, 0).reshape(outputs, inputs, side, side).clone().requires_grad_()
    plain = F.conv2d(image, kernel, bias, padding=side // 2)
    slopes = torch.autograd.grad(plain, (image, kernel), grad.permute(0, 3, 1, 2))
    expected = plain.detach().relu().permute(0, 2, 3, 1)
    masked = torch.where(x > 0, slopes[0].permute(0, 2, 3, 1), 0.0)
    x, weight, grad = x.to(dtype), weight.to(dtype), grad.to(dtype)
    found = (ops.conv(x, weight, bias), *ops.conv_gradients(x, grad, weight))
    exact = (expected.to(dtype), masked.to(dtype), slopes[1].flatten(2).permute(2, 1, 0), grad.float().sum((0, 1, 2)))
    for mine, theirs in zip(found, exact, strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)
    for one, other in zip(ops.conv_weight_gradient(x, grad, offsets), found[2:], strict=True):
        assert torch.equal(one, other)
