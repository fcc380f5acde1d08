"""Convolutions over planes, in the form that a GPU takes fastest: channels last, the first one as a matrix product."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_ALIGNED = 8  # entries of a row of 16 bytes in bfloat16, which tensor cores want
_PARTS = 256  # of the rows, whose weight gradients are taken apart: twice the multiprocessors of an H100
_READY = "ready_"


class Planes(nn.Sequential):
    """3 x 3 convolutions with padding 1 and ReLU over planes `[rows, channels, height, width]`, then a linear layer.

    On CUDA (`spread_out`) activations are `[rows, height, width, channels]` in memory. The first convolution has so few
    channels that cuDNN leaves the tensor cores aside (23.6 of 97 ms of a foraging update went into its weight gradient,
    18 ms into layouts): its patches, `9 * channels` numbers for each cell, are written out and multiplied. Patches of
    later layers would be 1.7 GB for 24,576 looks of 11 x 11 cells and are left to cuDNN. Elsewhere the layers run as
    they are; keys and shapes of parameters are those of `nn.Sequential` everywhere.
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
        return self.spread_out(input) if spreads(input) else super().forward(input)

    def spread_out(self, planes: Tensor) -> Tensor:
        """The form for CUDA; runs everywhere."""
        kind = planes.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else planes.dtype
        first, *weights = self._held() or self._weights(dtype)
        start, *biases = [self._numbers(layer, "bias").to(dtype) for layer in self._layers()]
        # Of [rows, height, width, channels]: the memory format channels_last.
        seen = F.relu(product(patches(planes, first.shape[1], dtype), first, start)).permute(0, 3, 1, 2)
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            seen = F.relu(F.conv2d(seen, weight, bias, padding=1))
        return F.relu(F.linear(seen.permute(0, 2, 3, 1).flatten(1), weights[-1], biases[-1]))

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
        """Weights as `spread_out` takes them, in the precision in which it runs.

        Of the first convolution `[channels, patch]`, of the others channels last, of the linear layer with the inputs
        in the order of (height, width, channels).
        """
        first, *rest, linear = [self._numbers(layer, "weight").to(dtype) for layer in self._layers()]
        flat, count = first.flatten(1), (rest[-1] if rest else first).shape[0]
        return [
            F.pad(flat, (0, -flat.shape[1] % _ALIGNED)),
            *[weight.contiguous(memory_format=torch.channels_last) for weight in rest],
            linear.unflatten(1, (count, -1)).transpose(1, 2).flatten(1),
        ]

    def _held(self) -> list[Tensor]:
        return [buffer for name, buffer in self._buffers.items() if name.startswith(_READY) and buffer is not None]

    @contextmanager
    def prepared(self, dtype: torch.dtype) -> Iterator[None]:
        """While this lasts the weights stay as they are, and are brought into their form once rather than at each use.

        They are buffers meanwhile, since what records a function of a module takes those as inputs.
        """
        with torch.no_grad():
            weights = self._weights(dtype)
        for number, weight in enumerate(weights):
            self.register_buffer(f"{_READY}{number}", weight, persistent=False)
        try:
            yield
        finally:
            for number in range(len(weights)):
                delattr(self, f"{_READY}{number}")


def spreads(tensor: Tensor) -> bool:
    """Whether a network over this tensor, or with this weight, takes the form for CUDA."""
    return tensor.is_cuda


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


def product(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer over very many rows: `[rows, …, inputs]` by `[outputs, inputs]` to `[rows, …, outputs]`.

    As a batch of products, so that the gradient of the weight is one as well: a single one, whose inner dimension is
    all rows and whose result is a tile or two, would leave most of the GPU idle.
    """
    parts = math.gcd(inputs.shape[0], _PARTS)
    batch = inputs.reshape(parts, -1, inputs.shape[-1])
    found = torch.bmm(batch, weight.t().expand(parts, -1, -1))
    return found.view(*inputs.shape[:-1], -1) + bias
