"""Inference in eight bits: weights of each agent's own as int8, activations rounded row by row as they come."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from denizen.errors import InputError
from denizen.nn._layers import PerAgentLinear

M = TypeVar("M", bound=nn.Module)
_MAX = 127
_EXACT = 2**24 // _MAX**2  # products that float32 adds up without rounding
_SMALLEST_ROWS, _MULTIPLE = 17, 8  # what torch._int_mm takes on CUDA


class Int8PerAgentLinear(nn.Module):
    """A linear map of each agent's own with int8 weights, a scale for each output column.

    Attributes:
        weight: int8 `[agents, in, out]`.
        scale: float32 `[agents, 1, out]`.
        bias: `[agents, out]` or None.
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: PerAgentLinear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scale = (weight.abs().amax(1, keepdim=True) / _MAX).clamp(min=torch.finfo(torch.float32).tiny)
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def forward(self, u: Tensor) -> Tensor:
        """`[agents, rows, in]` to `[agents, rows, out]` in the dtype of `u`."""
        values = u.float()
        scale = (values.abs().amax(-1, keepdim=True) / _MAX).clamp(min=torch.finfo(torch.float32).tiny)
        out = int8_bmm((values / scale).round().to(torch.int8), self.weight).float() * scale * self.scale
        return (out if self.bias is None else out + self.bias[:, None]).to(u.dtype)


def int8_bmm(x: Tensor, weight: Tensor) -> Tensor:
    """Exact products of int8 `[agents, rows, in]` and `[agents, in, out]`: int32, or float32 with whole numbers.

    On CUDA by `torch._int_mm` for each agent where the sizes allow it; elsewhere in float32, which is exact up to 1,040
    inputs, and beyond that in float64.
    """
    fits = x.shape[1] >= _SMALLEST_ROWS and x.shape[2] % _MULTIPLE == 0 and weight.shape[2] % _MULTIPLE == 0
    if x.is_cuda and fits:
        return torch.stack([torch._int_mm(mine, theirs) for mine, theirs in zip(x, weight, strict=True)])
    exact = torch.float32 if x.shape[2] <= _EXACT else torch.float64
    with torch.autocast(x.device.type, enabled=False):
        return torch.bmm(x.to(exact), weight.to(exact))


def quantize_int8(model: M) -> M:
    """A copy of a network for inference, its per-agent weights as int8.

    Embedding, shared value matrices, norms and edge biases stay as they are: a small part of the weights.

    Args:
        model: a `DynamicDotGAT`, `DotGAT`, or a module that holds one.

    Raises:
        InputError: there is nothing to quantize in it, or it is done already.
    """
    found = [name for name, part in model.named_modules() if isinstance(part, PerAgentLinear)]
    if any(isinstance(part, Int8PerAgentLinear) for part in model.modules()):
        raise InputError(f"quantize_int8: {type(model).__name__} is quantized already")
    if not found:
        raise InputError(
            f"quantize_int8: {type(model).__name__} has no weights of each agent's own; expected a DynamicDotGAT or "
            "DotGAT (a reference goes in as DynamicDotGAT.from_reference(reference))"
        )
    quantized = copy.deepcopy(model).eval().requires_grad_(False)
    for name in found:
        owner, _, leaf = name.rpartition(".")
        setattr(quantized.get_submodule(owner), leaf, Int8PerAgentLinear(quantized.get_submodule(name)))  # pyrefly: ignore
    return quantized
