"""An encoder of small images: 3 x 3 convolutions with ReLU, channels last, and a linear layer; with their gradients.

`encode` is all of it as one operation, since the gradient of one layer's input passes the ReLU of the layer before as
it is computed. It is a registered operation, where a `torch.autograd.Function` would keep torch from caching what it
traces.

The plain torch forms are the references: a sum of one matrix product for each offset. On CUDA `_cuda_conv_encoder`
takes a few images through several layers in one program, and `_cuda_conv` gathers the neighbours of a tile of cells
while it multiplies, so that patches are never written; bias, ReLU and the ReLU's mask of the gradient are applied to a
tile before it is stored.

Images are `[n, height, width, channels]`, the first ones, of few channels, planes `[n, channels, height, width]`.
Weights are `[offsets, channels, out]` with the 9 offsets in reading order; the first one's `[channels * offsets, out]`,
as `nn.Conv2d` has them. Padding is 1.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from denizen.ops import once_for_all, register, variant

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def conv_fits(x: Tensor) -> bool:
    """Whether the kernels take tensors like this one: on a GPU of Ampere's generation or later."""
    if variant(x.device) != "triton" or x.dtype not in DTYPES:
        return False
    return _new_enough()


@once_for_all
def _new_enough() -> bool:
    return torch.cuda.get_device_capability() >= (8, 0)


def _shifted(x: Tensor) -> list[Tensor]:
    """What lies at each offset of every cell, 0 beyond the border."""
    height, width = x.shape[1:3]
    wide = F.pad(x, (0, 0, 1, 1, 1, 1))
    return [wide[:, dy : dy + height, dx : dx + width] for dy in range(3) for dx in range(3)]


def _summed(x: Tensor, weight: Tensor) -> Tensor:
    """The convolution in float32, of operands as they are."""
    real = weight.to(torch.float32)
    parts = [part.to(torch.float32) @ one for part, one in zip(_shifted(x), real, strict=True)]
    return torch.stack(parts).sum(0)


def _slopes(x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    given = grad.to(torch.float32).flatten(0, 2)
    return torch.stack([part.to(torch.float32).flatten(0, 2).t() @ given for part in _shifted(x)]), given.sum(0)


@register
def conv(planes: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> list[Tensor]:
    """What convolutions, each with ReLU, make of planes one after the other.

    Args:
        planes: `[n, channels, height, width]`.
        weights: of the same dtype, the first `[channels * 9, out]`, then `[9, channels, out]`.
        biases: float32 `[out]`.

    Returns:
        After each: `[n, height, width, out]` of the dtype of the planes; sums are float32.
    """
    if variant(planes.device) == "triton":
        from denizen.nn.kernels import _cuda_conv_encoder

        return _cuda_conv_encoder.conv(planes, weights, biases)
    seen, found = planes.permute(0, 2, 3, 1), []
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        each = weight if number else weight.unflatten(0, (-1, 9)).transpose(0, 1)
        seen = (_summed(seen, each) + bias).relu().to(planes.dtype).contiguous()
        found.append(seen)
    return found


@torch.library.register_fake("denizen::conv")
def _(planes: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> list[Tensor]:
    n, _, height, width = planes.shape
    return [planes.new_empty(n, height, width, weight.shape[-1]) for weight in weights]


@register
def conv_first_gradient(planes: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the first weight, float32 `[channels * 9, out]`, and of its bias.

    Args:
        planes: `[n, channels, height, width]`.
        grad: `[n, height, width, out]`: of the convolution before its ReLU.
    """
    if variant(planes.device) == "triton":
        from denizen.nn.kernels import _cuda_conv_encoder

        return _cuda_conv_encoder.first_gradient(planes, grad)
    slopes, sums = _slopes(planes.permute(0, 2, 3, 1), grad)
    return slopes.transpose(0, 1).flatten(0, 1).contiguous(), sums


@torch.library.register_fake("denizen::conv_first_gradient")
def _(planes: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    out, real = grad.shape[-1], {"dtype": torch.float32, "device": grad.device}
    return torch.empty(9 * planes.shape[1], out, **real), torch.empty(out, **real)


@register
def conv_weight_gradient(x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of a later weight, float32 `[9, channels, out]`, and of its bias.

    Args:
        x: the input, `[n, height, width, channels]`.
        grad: `[n, height, width, out]`: of the convolution before its ReLU.
    """
    if variant(x.device) == "triton":
        from denizen.nn.kernels import _cuda_conv

        return _cuda_conv.weight_gradient(x, grad)
    return _slopes(x, grad)


@torch.library.register_fake("denizen::conv_weight_gradient")
def _(x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    out, real = grad.shape[-1], {"dtype": torch.float32, "device": x.device}
    return torch.empty(9, x.shape[-1], out, **real), torch.empty(out, **real)


@register
def conv_input_gradient(grad: Tensor, weight: Tensor, shown: Tensor) -> Tensor:
    """Gradient of an input, 0 where `shown`, that input and a ReLU's output, is not above 0.

    Args:
        grad: `[n, height, width, out]`: of the convolution before its ReLU.
        weight: `[9, channels, out]`.
        shown: `[n, height, width, channels]`.
    """
    turned = weight.flip(0).transpose(1, 2).contiguous()
    if variant(grad.device) == "triton":
        from denizen.nn.kernels import _cuda_conv

        return _cuda_conv.input_gradient(grad, turned, shown)
    return _masked(_summed(grad, turned), shown)


@register
def linear_gradient(grad: Tensor, weight: Tensor, shown: Tensor) -> Tensor:
    """Gradient of the input of a linear layer over images, else as `conv_input_gradient`.

    Args:
        grad: `[n, hidden]`: of what the layer gives.
        weight: `[hidden, height * width * channels]`.
        shown: `[n, height, width, channels]`.
    """
    if variant(grad.device) == "triton":
        from denizen.nn.kernels import _cuda_linear_gradient

        return _cuda_linear_gradient.reach(grad, weight, shown)
    return _masked((grad.to(torch.float32) @ weight.to(torch.float32)).view(shown.shape), shown)


def _masked(found: Tensor, shown: Tensor) -> Tensor:
    return torch.where(shown > 0, found, 0.0).to(shown.dtype).contiguous()


def _like(grad: Tensor, weight: Tensor, shown: Tensor) -> Tensor:
    return shown.new_empty(shown.shape)


torch.library.register_fake("denizen::conv_input_gradient")(_like)
torch.library.register_fake("denizen::linear_gradient")(_like)


# --- all layers as one operation --------------------------------------------------------------------------------------


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
    """A linear layer with ReLU, which cuBLAS adds as it writes."""
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
    seen = _cuda_conv_encoder.conv(planes, convolutions, biases[:-1])
    passed = _cuda_linear_gradient.reach(planes.new_empty(planes.shape[0], last.shape[0]), last, seen[-1])
    for number in reversed(range(1, len(seen))):
        _cuda_conv.weight_gradient(seen[number - 1], passed)
        turned = convolutions[number].transpose(1, 2)
        passed = _cuda_conv.input_gradient(passed, turned, seen[number - 1])
    _cuda_conv_encoder.first_gradient(planes, passed)
