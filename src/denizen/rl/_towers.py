"""Layers of policies that a GPU has forms of its own for."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
