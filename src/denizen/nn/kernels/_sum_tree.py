"""A sum tree over whole numbers: draws by weights that change, each in as many steps as the tree has levels.

A node is the sum of 64 below it. Sums of whole numbers are exact whatever their order, so that no error adds up and all
variants give the same bits. `_cuda_sum_tree` is the form with Triton.
"""

import math

import torch
from torch import Tensor

from denizen.ops import register, register_mutating, variant

FAN = 64  # nodes below one


def levels(size: int) -> list[tuple[int, int]]:
    """(place of the first node, nodes) of each level of a tree over so many leaves, leaves first; each is filled up."""
    found, begin, nodes = [], 0, size
    while True:
        nodes = FAN * math.ceil(nodes / FAN)
        found.append((begin, nodes))
        begin += nodes
        if nodes == FAN:
            return found
        nodes //= FAN


def sum_tree(size: int, device: torch.device) -> Tensor:
    """A tree over so many leaves, all of them 0: int64."""
    begin, nodes = levels(size)[-1]
    return torch.zeros(begin + nodes, dtype=torch.int64, device=device)


def tree_total(tree: Tensor) -> Tensor:
    """Sum of all leaves: int64 `[]`."""
    return tree[-FAN:].sum()


@register_mutating("tree")
def tree_set(tree: Tensor, size: int, index: Tensor, weight: Tensor) -> None:
    """Give leaves new weights; of several for one leaf the largest.

    Args:
        tree: of `sum_tree`.
        size: leaves.
        index: int64 `[rows]`: leaves.
        weight: int64 `[rows]`, at least 0; all of them together below 2**62.
    """
    if variant(tree.device) == "triton":
        from denizen.nn.kernels import _cuda_sum_tree

        _cuda_sum_tree.tree_set(tree, size, index, weight)
        return
    tree[index] = 0
    tree.scatter_reduce_(0, index, weight, "amax")
    below, near = levels(size), torch.arange(FAN, device=tree.device)
    for (begin, _), (above, _) in zip(below[:-1], below[1:], strict=True):  # noqa: RUF007  # torch traces this
        index = index // FAN
        tree[above + index] = tree[begin + FAN * index[:, None] + near].sum(1)


@torch.library.register_fake("denizen::tree_set")
def _(tree: Tensor, size: int, index: Tensor, weight: Tensor) -> None:
    return None


@register
def tree_find(tree: Tensor, size: int, target: Tensor) -> Tensor:
    """The leaf in which each number falls if leaves lie side by side, each as wide as its weight: int64 `[rows]`.

    Args:
        tree: of `sum_tree`.
        size: leaves.
        target: int64 `[rows]`, from 0 to below `tree_total`. A leaf without weight is then never found.
    """
    if variant(tree.device) == "triton":
        from denizen.nn.kernels import _cuda_sum_tree

        return _cuda_sum_tree.tree_find(tree, size, target)
    node, near = torch.zeros_like(target), torch.arange(FAN, device=tree.device)
    for begin, _ in reversed(levels(size)):
        ends = tree[begin + FAN * node[:, None] + near].cumsum(1)
        rank = (ends <= target[:, None]).sum(1).clamp(max=FAN - 1)
        before = torch.where(rank > 0, ends.gather(1, (rank - 1).clamp(min=0)[:, None])[:, 0], 0)
        node, target = FAN * node + rank, target - before
    return node.clamp(max=size - 1)


@torch.library.register_fake("denizen::tree_find")
def _(tree: Tensor, size: int, target: Tensor) -> Tensor:
    return torch.empty_like(target)
