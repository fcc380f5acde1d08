"""Layers of a critic that sees what is privileged beside the features of its policy."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_ALIGNED = 8  # entries of a row of 16 bytes in bfloat16, which matrix products want


def _pays(tensor: Tensor) -> bool:
    """Whether matrix products with this tensor want rows of 16 bytes."""
    return tensor.is_cuda


def launches(tensor: Tensor) -> bool:
    """Whether a layer of few rows costs what its launch costs."""
    return tensor.is_cuda


class Critic(nn.Sequential):
    """Layers on features with what is privileged beside them.

    On CUDA rows are filled up with zeros to 16 bytes: matrix products of 756 numbers a row took 7.1 us in place of 3.
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
