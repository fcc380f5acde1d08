"""`conv` and a linear layer on it as one operation with a gradient of its own.

Together, since the gradient of one layer's input passes the ReLU of the layer before as it is computed. A registered
operation, where a `torch.autograd.Function` would keep torch from caching what it traces (1.5 s of every start).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from denizen.nn.kernels._conv import (
    conv,
    conv_first_gradient,
    conv_input_gradient,
    conv_weight_gradient,
    linear_gradient,
)
from denizen.ops._library import register


@register
def encode(
    planes: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], learnt: Sequence[Tensor]
) -> list[Tensor]:
    """What convolutions with ReLU make of planes one after the other, and at last a linear layer with ReLU of that.

    Args:
        planes: `[n, channels, height, width]`.
        weights: as `conv` takes them and `[hidden, height * width * channels]`, of the dtype of the planes.
        biases: float32 of the convolutions, of the dtype of the planes that of the linear layer.
        learnt: the same weights and biases before they were rounded, which get the gradient.

    Returns:
        After each convolution `[n, height, width, out]`, without a gradient; of the linear layer `[n, hidden]`.
    """
    seen = conv(planes, weights[:-1], biases[:-1])
    last = seen[-1].flatten(1), weights[-1], biases[-1]
    return [*seen, _product_with_relu(*last) if planes.is_cuda else F.relu(F.linear(*last))]


def _product_with_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer with ReLU, which cuBLAS adds as it writes; as its own kernel it takes a tenth as long again."""
    return torch._addmm_activation(bias, x, weight.t())


@torch.library.register_fake("denizen::encode")
def _(planes: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], learnt: Sequence[Tensor]) -> list[Tensor]:
    n, _, height, width = planes.shape
    seen = [planes.new_empty(n, height, width, weight.shape[-1]) for weight in weights[:-1]]
    return [*seen, planes.new_empty(n, weights[-1].shape[0])]


def _context(ctx: Any, inputs: Sequence[Any], output: Sequence[Tensor]) -> None:
    planes, weights, _, _ = inputs
    ctx.save_for_backward(planes, *output, *weights)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradients: Sequence[Tensor]) -> Any:
    half = len(ctx.saved_tensors) // 2
    planes, *seen, out = ctx.saved_tensors[: half + 1]
    *weights, last = ctx.saved_tensors[half + 1 :]
    gradient = torch.ops.aten.threshold_backward(gradients[-1], out, 0)
    slopes, biases = [gradient.t() @ seen[-1].flatten(1)], [gradient.sum(0)]
    passed = linear_gradient(gradient, last, seen[-1])
    for number in reversed(range(1, len(weights))):
        slope, bias = conv_weight_gradient(seen[number - 1], passed)
        slopes.insert(0, slope)
        biases.insert(0, bias)
        passed = conv_input_gradient(passed, weights[number], seen[number - 1])
    slope, bias = conv_first_gradient(planes, passed)
    wanted = ctx.needs_input_grad[0]  # to look into a network; learning needs none
    none = [None] * half
    return _to_planes(passed, weights[0]) if wanted else None, none, none, [slope, *slopes, bias, *biases]


def _to_planes(gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient of planes, of the first convolution's `[rows, height, width, out]`."""
    kernel = weight.t().unflatten(1, (-1, 3, 3))
    return F.conv_transpose2d(gradient.permute(0, 3, 1, 2), kernel, padding=1)


torch.library.register_autograd("denizen::encode", _backward, setup_context=_context)


def precompile_encode(planes: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> None:
    """Compile the kernels of `encode` and of its gradient; every tensor is of the device "meta"."""
    from denizen.nn.kernels import _cuda_conv, _cuda_conv_encoder, _cuda_linear_gradient

    *convolutions, last = weights
    seen = _cuda_conv_encoder.encode(planes, convolutions, biases[:-1])
    passed = _cuda_linear_gradient.reach(planes.new_empty(planes.shape[0], last.shape[0]), last, seen[-1])
    for number in reversed(range(1, len(seen))):
        _cuda_conv.weight_gradient(seen[number - 1], passed)
        turned = convolutions[number].transpose(1, 2)
        passed = _cuda_conv.input_gradient(passed, turned, seen[number - 1])
    _cuda_conv_encoder.first_slope(planes, passed)
