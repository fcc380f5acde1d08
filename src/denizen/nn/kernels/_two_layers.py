"""A linear layer with ReLU and a narrow one on top of it, of the few rows that a rollout's step has; no gradient.

The plain torch form is the reference. On CUDA `_cuda_two_layers` splits the sums of the first product among many
programs and adds them up together with bias, ReLU and the second layer: two launches, where torch has five.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from denizen.ops import register, variant

MOST_ROWS, MOST_WIDTH, MOST_NUMBERS = 512, 2048, 32  # beyond that torch's own products are as good


@register
def two_layers(x: Tensor, weight: Tensor, bias: Tensor, top: Tensor, top_bias: Tensor) -> tuple[Tensor, Tensor]:
    """(what the first layer gives after its ReLU `[rows, width]`, what the second makes of it `[rows, numbers]`).

    Args:
        x: `[rows, inputs]`; everything has its dtype.
        weight: `[width, inputs]`.
        bias: `[width]`.
        top: `[numbers, width]`.
        top_bias: `[numbers]`.
    """
    if _few(x, weight, top) and variant(x.device) == "triton":
        from denizen.nn.kernels import _cuda_two_layers

        return _cuda_two_layers.two_layers(x, weight, bias, top, top_bias)
    shown = F.relu(F.linear(x, weight, bias))
    return shown, F.linear(shown, top, top_bias)


@torch.library.register_fake("denizen::two_layers")
def _(x: Tensor, weight: Tensor, bias: Tensor, top: Tensor, top_bias: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], weight.shape[0]), x.new_empty(x.shape[0], top.shape[0])


def _few(x: Tensor, weight: Tensor, top: Tensor) -> bool:
    few = x.shape[0] <= MOST_ROWS and weight.shape[0] <= MOST_WIDTH and top.shape[0] <= MOST_NUMBERS
    return few and x.numel() > 0 and x.element_size() == 2


def precompile_two_layers(x: Tensor, weight: Tensor, bias: Tensor, top: Tensor, top_bias: Tensor) -> None:
    """Compile the kernels of `two_layers`; every tensor is of the device "meta"."""
    from denizen.nn.kernels import _cuda_two_layers

    if _few(x, weight, top):
        _cuda_two_layers.two_layers(x, weight, bias, top, top_bias)
