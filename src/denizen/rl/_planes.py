"""Convolutions over planes, on CUDA channels last and as matrix products of denizen's own kernels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from denizen import ops

_ALIGNED = 8  # entries of a row of 16 bytes in bfloat16, which tensor cores want
_READY = "ready_"


class Planes(nn.Sequential):
    """3 x 3 convolutions with padding 1 and ReLU over planes `[rows, channels, height, width]`, then a linear layer.

    On CUDA (`spread_out`) activations are `[rows, height, width, channels]`. The first convolution has so few channels
    that cuDNN leaves the tensor cores aside (23.6 of 97 ms of a foraging update went into its weight gradient, 18 ms
    into layouts): its patches, `9 * channels` numbers for each cell, are written out and multiplied. Patches of later
    layers would be 1.7 GB for 24,576 looks of 11 x 11 cells; `ops.conv` gathers them as it multiplies. Elsewhere the
    layers run as they are; keys and shapes of parameters are those of `nn.Sequential` everywhere.
    """

    def __init__(self, planes: Sequence[int], channels: Sequence[int], hidden: int) -> None:
        """Args:
        planes: (channels, height, width) of the input.
        channels: of the convolutions.
        hidden: width of the linear layer.
        """
        layers: list[nn.Module] = []
        count = planes[0]
        for size in channels:
            layers += [nn.Conv2d(count, size, 3, padding=1), nn.ReLU()]
            count = size
        super().__init__(*layers, nn.Flatten(), nn.Linear(count * planes[1] * planes[2], hidden), nn.ReLU())

    def forward(self, input: Tensor) -> Tensor:
        """Features `[rows, hidden]` of planes `[rows, channels, height, width]`."""
        return self.spread_out(input) if spreads(input) and self._layers()[1:] else super().forward(input)

    def spread_out(self, planes: Tensor) -> Tensor:
        """The form for CUDA; runs everywhere."""
        kind = planes.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else planes.dtype
        *weights, last = self._held() or self._weights(dtype)
        *biases, bias = [self._numbers(layer, "bias") for layer in self._layers()]
        given = patches(planes, weights[0].shape[1], dtype)
        seen = _Convolutions.apply(given, *weights, *biases)
        return F.relu(F.linear(seen.flatten(1), last.to(dtype), bias.to(dtype)))

    def _layers(self) -> list[nn.Module]:
        """Those with weights: convolutions, then the linear layer."""
        return [layer for layer in self if isinstance(layer, nn.Conv2d | nn.Linear)]

    @staticmethod
    def _numbers(layer: nn.Module, name: str) -> Tensor:
        """A layer's parameter."""
        found = getattr(layer, name)
        assert isinstance(found, Tensor)
        return found

    def _weights(self, dtype: torch.dtype) -> list[Tensor]:
        """Weights as `spread_out` takes them.

        Of convolutions `[offsets, channels, out]`, the first with one offset and patches for channels; of the linear
        layer with the inputs in the order of (height, width, channels).
        """
        first, *rest, linear = [self._numbers(layer, "weight") for layer in self._layers()]
        flat, count = first.flatten(1), (rest[-1] if rest else first).shape[0]
        convolutions = [
            F.pad(flat, (0, -flat.shape[1] % _ALIGNED)).t()[None],
            *[weight.flatten(2).permute(2, 1, 0) for weight in rest],
        ]
        linear = linear.to(dtype).unflatten(1, (count, -1)).transpose(1, 2).flatten(1)
        return [*convolutions, linear]

    def _held(self) -> list[Tensor]:
        return [buffer for name, buffer in self._buffers.items() if name.startswith(_READY) and buffer is not None]

    @contextmanager
    def prepared(self, dtype: torch.dtype) -> Iterator[None]:
        """While this lasts the weights stay as they are, and are brought into their form once rather than at each use.

        They are buffers meanwhile, since what records a function of a module takes those as inputs.
        """
        with torch.no_grad():
            weights = [one.to(dtype).contiguous() for one in self._weights(dtype)] if self._layers()[1:] else []
        for number, weight in enumerate(weights):
            self.register_buffer(f"{_READY}{number}", weight, persistent=False)
        try:
            yield
        finally:
            for number in range(len(weights)):
                delattr(self, f"{_READY}{number}")


def spreads(tensor: Tensor) -> bool:
    """Whether a network over this tensor, or with this weight, takes the form for CUDA."""
    return tensor.is_cuda and ops.conv_fits(tensor)


class _Convolutions(torch.autograd.Function):
    """Convolutions with ReLU one after the other: of images, weights and biases.

    Together, since the gradient of one layer's input passes the ReLU of the layer before as it is computed.
    """

    @staticmethod
    def forward(ctx: Any, given: Tensor, *parameters: Tensor) -> Tensor:  # type: ignore[override]  # pyrefly: ignore
        """See `ops.conv`; parameters are float32 or in the dtype of the images."""
        half = len(parameters) // 2
        weights = [weight.to(given.dtype).contiguous() for weight in parameters[:half]]
        seen = [given]
        for weight, bias in zip(weights, parameters[half:], strict=True):
            seen.append(ops.conv(seen[-1], weight, bias.to(torch.float32)))
        ctx.save_for_backward(*seen, *weights)
        return seen[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]  # pyrefly: ignore
        """Gradients of all arguments; of the images where asked."""
        half = len(ctx.saved_tensors) // 2
        seen, weights = ctx.saved_tensors[: half + 1], ctx.saved_tensors[half + 1 :]
        gradient = torch.where(seen[-1] > 0, gradient, 0.0)
        slopes: list[Tensor] = []
        biases: list[Tensor] = []
        for number in reversed(range(half)):
            if number:  # one operation, so that inductor hands the same gradient to both products
                gradient, slope, bias = ops.conv_gradients(seen[number], gradient, weights[number])
            else:
                slope, bias = ops.conv_weight_gradient(seen[0], gradient, 1)
            slopes.insert(0, slope)
            biases.insert(0, bias)
        wanted = ctx.needs_input_grad[0]  # to look into a network; learning needs none
        return gradient @ weights[0][0].t() if wanted else None, *slopes, *biases


def patches(planes: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """What a 3 x 3 convolution with padding 1 sees at each cell: `[rows, height, width, patch]`.

    Args:
        planes: `[rows, channels, height, width]`.
        width: of a patch: 9 numbers a channel, in the order of a weight's, then zeros.
        dtype: of the result.
    """
    around = F.pad(planes.to(dtype), (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
    flat = around.permute(0, 2, 3, 1, 4, 5).flatten(3)
    return F.pad(flat, (0, width - flat.shape[3]))
