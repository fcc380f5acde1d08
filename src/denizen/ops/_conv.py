"""Convolutions with ReLU over many small images, channels last, and their gradients.

The plain torch forms are the references: a sum of one matrix product for each offset. On CUDA `_cuda_conv` gathers the
neighbours of a tile of cells while it multiplies, so that patches are never written, and applies bias, ReLU and the
ReLU's mask of the gradient to the tile before it is stored.

Images are `[n, height, width, channels]`, weights `[offsets, channels, out]` with offsets in reading order: 9 for
3 x 3 with padding 1, or 1.
"""

import torch
from torch import Tensor

from denizen.ops._library import once_for_all, register, variant

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def conv_fits(x: Tensor) -> bool:
    """Whether the kernels take tensors like this one: on a GPU of Ampere's generation or later."""
    if variant(x.device) != "triton" or x.dtype not in DTYPES:
        return False
    return _new_enough()


@once_for_all
def _new_enough() -> bool:
    return torch.cuda.get_device_capability() >= (8, 0)


def _shifted(x: Tensor, offsets: int) -> list[Tensor]:
    """What lies at each offset of every cell, 0 beyond the border."""
    if offsets == 1:
        return [x]
    height, width = x.shape[1:3]
    wide = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))
    return [wide[:, dy : dy + height, dx : dx + width] for dy in range(3) for dx in range(3)]


def _summed(x: Tensor, weight: Tensor) -> Tensor:
    """The convolution in float32, of operands as they are."""
    real = weight.to(torch.float32)
    parts = [part.to(torch.float32) @ one for part, one in zip(_shifted(x, len(weight)), real, strict=True)]
    return torch.stack(parts).sum(0)


@register
def conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """ReLU of a convolution.

    Args:
        x: `[n, height, width, channels]`.
        weight: `[offsets, channels, out]` of the same dtype.
        bias: float32 `[out]`.

    Returns:
        `[n, height, width, out]` of the dtype of `x`; sums are float32.
    """
    if variant(x.device) == "triton":
        from denizen.ops import _cuda_conv

        return _cuda_conv.convolved(x, weight, bias, None)
    return (_summed(x, weight) + bias).relu().to(x.dtype)


@torch.library.register_fake("denizen::conv")
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[-1])


@register
def conv_weight_gradient(x: Tensor, grad: Tensor, offsets: int) -> tuple[Tensor, Tensor]:
    """Gradients of weight and bias, float32.

    Args:
        x: the input, `[n, height, width, channels]`.
        grad: `[n, height, width, out]`: of the convolution before its ReLU.
        offsets: of the weight.
    """
    if variant(x.device) == "triton":
        from denizen.ops import _cuda_conv

        return _cuda_conv.weight_gradient(x, grad, offsets)
    given = grad.to(torch.float32).flatten(0, 2)
    found = [part.to(torch.float32).flatten(0, 2).t() @ given for part in _shifted(x, offsets)]
    return torch.stack(found), given.sum(0)


@torch.library.register_fake("denizen::conv_weight_gradient")
def _(x: Tensor, grad: Tensor, offsets: int) -> tuple[Tensor, Tensor]:
    real = {"dtype": torch.float32, "device": x.device}
    out = grad.shape[-1]
    return torch.empty(offsets, x.shape[-1], out, **real), torch.empty(out, **real)


@register
def conv_gradients(x: Tensor, grad: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the input, weight and bias; that of the input is 0 where `x`, a ReLU's output, is not above 0.

    Args:
        x: the input, `[n, height, width, channels]`.
        grad: `[n, height, width, out]`: of the convolution before its ReLU.
        weight: `[offsets, channels, out]`.
    """
    turned = weight.flip(0).transpose(1, 2).contiguous()
    if variant(x.device) == "triton":
        from denizen.ops import _cuda_conv

        return _cuda_conv.convolved(grad, turned, None, x), *_cuda_conv.weight_gradient(x, grad, len(weight))
    masked = torch.where(x > 0, _summed(grad, turned), 0.0).to(x.dtype).contiguous()
    return masked, *conv_weight_gradient(x, grad, len(weight))


@torch.library.register_fake("denizen::conv_gradients")
def _(x: Tensor, grad: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    real = {"dtype": torch.float32, "device": x.device}
    return x.new_empty(x.shape), torch.empty(weight.shape, **real), torch.empty(weight.shape[-1], **real)
