"""Convolutions channels last: values and gradients of torch's own, in both variants."""

import os
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from denizen.nn import kernels

# Triton's interpreter multiplies the bits of bfloat16 as if they were whole numbers.
HALF = torch.float16 if os.environ.get("TRITON_INTERPRET") == "1" else torch.bfloat16
SHAPES = [(3, 5, 4, 8, 16), (2, 11, 11, 5, 70), (1, 3, 3, 66, 7), (40, 4, 4, 16, 64)]


def numbers(*shape: int) -> torch.Tensor:
    """Multiples of 1/8, of which products and short sums are exact in every precision."""
    return torch.randint(-8, 9, shape) / 8


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("shape", SHAPES)
def test_convolutions_and_their_gradients(tools: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    n, height, width, inputs, outputs = shape
    x, weight = numbers(n, height, width, inputs), numbers(9, inputs, outputs)
    grad = numbers(n, height, width, outputs)
    image = x.permute(0, 3, 1, 2).clone().requires_grad_()
    kernel = weight.permute(2, 1, 0).reshape(outputs, inputs, 3, 3).clone().requires_grad_()
    slopes = torch.autograd.grad(F.conv2d(image, kernel, padding=1), (image, kernel), grad.permute(0, 3, 1, 2))
    masked = torch.where(x > 0, slopes[0].permute(0, 2, 3, 1), 0.0)
    x, weight, grad = x.to(dtype), weight.to(dtype), grad.to(dtype)
    planes = x.permute(0, 3, 1, 2).contiguous()
    found = (
        kernels.conv_input_gradient(grad, weight, x),
        *kernels.conv_weight_gradient(x, grad),
        *kernels.conv_first_gradient(planes, grad),
    )
    sums = grad.float().sum((0, 1, 2))
    exact = (
        masked.to(dtype),
        slopes[1].flatten(2).permute(2, 1, 0),
        sums,
        slopes[1].flatten(1).t(),
        sums,
    )
    for mine, theirs in zip(found, exact, strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize(
    ("shape", "channels"),
    [
        ((3, 2, 5, 4), (8,)),
        ((2, 3, 11, 11), (16, 64)),
        ((5, 1, 3, 3), (5, 70, 3)),
        ((2, 2, 12, 13), (8, 4, 3, 2, 5, 1)),
    ],
)
def test_several_layers(
    tools: Any, monkeypatch: Any, shape: tuple[int, ...], channels: tuple[int, ...], dtype: torch.dtype
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    planes, count = numbers(*shape).to(dtype), shape[1]
    weights, biases, expected = [], [], []
    seen = planes.float()
    for size in channels:
        kernel, bias = numbers(size, count, 3, 3), numbers(size)
        weights.append(kernel.flatten(2).permute(2, 1, 0) if weights else kernel.flatten(1).t())
        biases.append(bias)
        seen = F.conv2d(seen.double(), kernel.double(), bias.double(), padding=1).relu().to(dtype).float()
        expected.append(seen.permute(0, 2, 3, 1).to(dtype))
        count = size
    found = kernels.conv(planes, [weight.to(dtype) for weight in weights], biases)
    close = {"rtol": 2e-2, "atol": 1e-2} if dtype == HALF else {"rtol": 1e-5, "atol": 1e-5}
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, **close)


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_gradients_have_the_same_bits_again(tools: Any, dtype: torch.dtype) -> None:
    """Also of numbers whose sums round."""
    x, weight, grad = (torch.randn(*size).to(dtype) for size in ((40, 4, 4, 16), (9, 16, 64), (40, 4, 4, 64)))
    planes = x.permute(0, 3, 1, 2).contiguous()
    calls = [
        lambda: [kernels.conv_input_gradient(grad, weight, x)],
        lambda: kernels.conv_weight_gradient(x, grad),
        lambda: kernels.conv_first_gradient(planes, grad),
    ]
    for call in calls:
        for one, other in zip(call(), call(), strict=True):
            assert torch.equal(one, other)


def test_what_is_not_a_number_stays_so(tools: Any) -> None:
    planes, weights = torch.ones(2, 1, 3, 4), [torch.ones(9, 2), torch.ones(9, 2, 3)]
    planes[1, 0, 0, 0] = torch.nan
    _, last = kernels.conv(planes, weights, [torch.zeros(2), torch.zeros(3)])
    assert last.flatten(1).isnan().any(1).tolist() == [False, True]


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize(("rows", "hidden", "shape"), [(3, 7, (2, 3, 5)), (130, 16, (3, 3, 8))])
def test_gradient_of_a_linear_layer(
    tools: Any, rows: int, hidden: int, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    grad, shown = numbers(rows, hidden).to(dtype), numbers(rows, *shape).to(dtype)
    weight = numbers(hidden, shown[0].numel()).to(dtype)
    expected = torch.where(shown > 0, (grad.float() @ weight.float()).view(shown.shape), 0.0).to(dtype)
    assert torch.equal(kernels.linear_gradient(grad, weight, shown), expected)
