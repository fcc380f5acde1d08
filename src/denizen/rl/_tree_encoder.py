"""Features of inputs that are a tree: convolutions over its planes, and the rest beside them."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from denizen import _tree
from denizen.rl._conv_encoder import ConvEncoder


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
