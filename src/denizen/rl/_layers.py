"""Layers of policies, with forms for a GPU: towers on flat inputs, convolutions over planes, and both for trees.

On CUDA convolutions run channels last, as matrix products of denizen's own kernels.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from denizen import _tree
from denizen.nn import kernels

_ALIGNED = 8  # entries of a row of 16 bytes in bfloat16, which matrix products want


def _pays(tensor: Tensor) -> bool:
    """Whether matrix products with this tensor want rows of 16 bytes."""
    return tensor.is_cuda


class Tower(nn.Sequential):
    """Layers on flat inputs; two of them, each with tanh or ReLU, are one operation on CUDA with the heads on top."""

    def two_layers(self) -> tuple[nn.Linear, nn.Linear, str] | None:
        """Both layers and their activation, where it has two."""
        match list(self):
            case [nn.Flatten(), nn.Linear() as one, nn.Tanh(), nn.Linear() as two, nn.Tanh()]:
                return one, two, "tanh"
            case [nn.Flatten(), nn.Linear() as one, nn.ReLU(), nn.Linear() as two, nn.ReLU()]:
                return one, two, "relu"
        return None


class Critic(nn.Sequential):
    """Layers on features with what is privileged beside them.

    On CUDA rows are filled up with zeros to 16 bytes: matrix products of other rows take twice as long.
    """

    def missing(self, like: Tensor) -> int:
        """Zeros to fill up rows like these with, where that pays."""
        return -self._first.in_features % _ALIGNED if _pays(like) else 0

    def forward(self, input: Tensor) -> Tensor:
        """Of `[rows, width]`, filled up or not."""
        first, *rest = self
        if isinstance(first, nn.LazyLinear) or input.shape[-1] == self._first.weight.shape[1]:
            return super().forward(input)
        shown = F.linear(input, self._widened(), self._first.bias)
        for layer in rest:
            shown = layer(shown)
        return shown

    @torch.no_grad()
    def widen(self) -> None:
        """Put a weight for filled rows in place of its own."""
        if self.missing(self._first.weight):
            self._first._parameters["weight"] = nn.Parameter(self._widened(), requires_grad=False)

    @property
    def _first(self) -> nn.Linear:
        first = self[0]
        assert isinstance(first, nn.Linear)
        return first

    def _widened(self) -> Tensor:
        weight = self._first.weight
        return F.pad(weight, (0, -weight.shape[1] % _ALIGNED))


_READY = "ready_"
_LAYERS = (nn.Linear, nn.Conv2d)


class ConvEncoder(nn.Sequential):
    """3 x 3 convolutions with padding 1 and ReLU over planes `[rows, channels, height, width]`, then a linear layer.

    On CUDA (`spread_out`) activations are `[rows, height, width, channels]`, and denizen's own kernels run through all
    convolutions at once, gathering neighbours as they multiply: cuDNN leaves the tensor cores aside where there are few
    channels and spends time on layouts, and patches would take memory. Elsewhere the layers run as they are; keys and
    shapes of parameters are those of `nn.Sequential` everywhere.
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
        self.planes = tuple(planes)

    def forward(self, input: Tensor) -> Tensor:
        """Features `[rows, hidden]` of planes `[rows, channels, height, width]`."""
        return self.spread_out(input) if self._spreads(input) else super().forward(input)

    def _spreads(self, input: Tensor) -> bool:
        return bool(spreads(input) and self._layers()[1:] and as_it_is(self))

    def spread_out(self, planes: Tensor) -> Tensor:
        """The form for CUDA; runs everywhere."""
        planes, weights, biases = self._arguments(planes)
        kind = [torch.float32] * (len(biases) - 1) + [planes.dtype]
        rounded = [weight.detach().to(planes.dtype).contiguous() for weight in weights]
        beside = [bias.detach().to(dtype) for bias, dtype in zip(biases, kind, strict=True)]
        return kernels.encode(planes, rounded, beside, [*weights, *biases])[-1]

    def with_top(self, planes: Tensor, top: nn.Module) -> tuple[Tensor, Tensor] | None:
        """(features, what a linear layer makes of them), for which no gradient is kept; None where it is not to be."""
        plain = isinstance(top, nn.Linear) and top.bias is not None and as_it_is(top)
        if torch.is_grad_enabled() or not plain or not self._spreads(planes):
            return None
        planes, (*weights, weight), (*biases, bias) = self._arguments(planes)
        seen = kernels.conv(planes, weights, [bias.to(torch.float32) for bias in biases])[-1].flatten(1)
        layers = (weight, bias, self._numbers(top, "weight"), self._numbers(top, "bias"))
        return kernels.two_layers(seen, *[tensor.to(planes.dtype) for tensor in layers])

    def precompile(self, acting: int, learning: int, dtype: torch.dtype, top: nn.Module) -> None:
        """Have kernels compiled: of features with a layer on top for so many rows, of a gradient for so many."""
        if not (
            spreads(self._numbers(self._layers()[0], "weight")) and self._layers()[1:] and isinstance(top, nn.Linear)
        ):
            return

        def shaped(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=dtype, device="meta")

        weights = [shaped(*weight.shape) for weight in self._weights(dtype)]
        biases = [shaped(*self._numbers(layer, "bias").shape) for layer in self._layers()]
        beside = [*[bias.to(torch.float32) for bias in biases[:-1]], biases[-1]]
        kernels.precompile_encode(shaped(learning, *self.planes), weights, beside)
        features = shaped(acting, weights[-1].shape[1])
        kernels.precompile_two_layers(
            features, weights[-1], biases[-1], shaped(*top.weight.shape), shaped(top.out_features)
        )

    def _arguments(self, planes: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """(planes in the precision of now, weights, biases)."""
        kind = planes.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else planes.dtype
        biases = [self._numbers(layer, "bias") for layer in self._layers()]
        return planes.to(dtype), self._held() or self._weights(dtype), biases

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

        Of convolutions those of `kernels.conv`; of the linear layer with the inputs in the order of (height, width,
        channels).
        """
        first, *rest, linear = [self._numbers(layer, "weight") for layer in self._layers()]
        count = (rest[-1] if rest else first).shape[0]
        linear = linear.to(dtype).unflatten(1, (count, -1)).transpose(1, 2).flatten(1)
        return [first.flatten(1).t(), *[weight.flatten(2).permute(2, 1, 0) for weight in rest], linear]

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


def as_it_is(module: nn.Module) -> bool:
    """Whether nobody put code of his own into a module and its layers: a class that derives from a layer's, a hook."""
    for part in module.modules():
        hooks = part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks
        foreign = any(isinstance(part, kind) and type(part).forward is not kind.forward for kind in _LAYERS)
        if foreign or any(hooks):
            return False
    return True


def spreads(tensor: Tensor) -> bool:
    """Whether a network over this tensor, or with this weight, takes the form for CUDA."""
    return tensor.is_cuda and kernels.conv_fits(tensor)


def side_by_side(given: Any) -> Tensor:
    """A tree of inputs `[rows, …]` as one tensor `[rows, width]`."""
    return torch.cat([_in_a_row(leaf) for leaf in _tree.tensors(given)], 1)


def _in_a_row(leaf: Tensor) -> Tensor:
    """All numbers of each row, also where that is one without an axis: `[rows, width]`."""
    return leaf.reshape(len(leaf), -1)


class TreeEncoder(nn.Module):
    """A `ConvEncoder` for each leaf of planes; their features and all other numbers go through one linear layer."""

    def __init__(self, shapes: Sequence[Sequence[int]], channels: Sequence[int], hidden: int) -> None:
        """Args:
        shapes: of one row of each leaf; those of three axes are planes (channels, height, width).
        channels: of the convolutions.
        hidden: width of the features, of each `ConvEncoder` and of all.
        """
        super().__init__()
        images = [shape for shape in shapes if len(shape) == 3]
        rest = sum(math.prod(shape) for shape in shapes if len(shape) != 3)
        self.images = nn.ModuleList(ConvEncoder(shape, channels, hidden) for shape in images)
        self.top = nn.Sequential(nn.Linear(hidden * len(images) + rest, hidden), nn.ReLU())

    def forward(self, input: Any) -> Tensor:
        """Features `[rows, hidden]` of a tree of inputs `[rows, …]`."""
        leaves, encoders = _tree.tensors(input), iter(self.images)
        seen = [next(encoders)(leaf) if leaf.dim() == 4 else _in_a_row(leaf) for leaf in leaves]
        return self.top(torch.cat([part.to(seen[0].dtype) for part in seen], 1))
