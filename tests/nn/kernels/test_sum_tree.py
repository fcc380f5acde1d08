"""The sum tree against plain sums: both variants, weights that change, and draws by them."""

from typing import Any

import pytest
import torch

from denizen.nn import kernels


@pytest.mark.parametrize("size", [1, 64, 65, 5000])
def test_sum_tree(tools: Any, size: int) -> None:
    tree, plain = kernels.sum_tree(size, torch.get_default_device()), torch.zeros(size, dtype=torch.int64)

    def after(tree: torch.Tensor, index: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        tree = tree.clone()
        kernels.tree_set(tree, size, index, weight)
        return tree

    for _ in range(4):
        index = torch.randint(0, size, (40,))
        weight = torch.randint(0, 3, (40,)) * torch.randint(0, 2**40, (40,))
        tree = tools.both(after, tree, index, weight)
        plain[index] = 0
        plain.scatter_reduce_(0, index, weight, "amax")  # of two weights for one leaf the larger
    assert torch.equal(tree[:size], plain)
    assert kernels.tree_total(tree) == plain.sum()
    if not plain.any():
        return
    ends = plain.cumsum(0)
    inside = (torch.rand(60, dtype=torch.float64) * float(ends[-1])).to(torch.int64).clamp(max=int(ends[-1]) - 1)
    edges = (ends - 1)[plain > 0][:20]  # the last number of a leaf, and the first of the next
    target = torch.cat([inside, edges, (edges + 1).clamp(max=int(ends[-1]) - 1)])
    found = tools.both(kernels.tree_find, tree, size, target)
    assert torch.equal(found, torch.searchsorted(ends, target, right=True))
    assert (plain[found] > 0).all()


def test_traced_trees(tools: Any) -> None:
    tree = kernels.sum_tree(300, torch.get_default_device())

    def function(tree: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        tree = tree.clone()
        kernels.tree_set(tree, 300, index, index + 1)
        return kernels.tree_find(tree, 300, index)

    index = torch.arange(0, 300, 7)
    tools.assert_same_bits(tools.compiled(function)(tree, index), function(tree, index))
