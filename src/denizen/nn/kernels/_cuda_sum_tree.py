"""The operations of `_sum_tree` on CUDA with Triton."""

import itertools

import torch
import triton
import triton.language as tl

from denizen.nn.kernels._sum_tree import FAN, levels

_ROWS = 16  # of a program that searches


@triton.jit
def _clear_leaves_kernel(tree, index, rows, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    leaf = tl.load(index + i, mask=i < rows, other=0)
    tl.store(tree + leaf, tl.zeros((BLOCK,), tl.int64), mask=i < rows)


@triton.jit
def _set_leaves_kernel(tree, index, weight, rows, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    leaf = tl.load(index + i, mask=i < rows, other=0)
    tl.atomic_max(tree + leaf, tl.load(weight + i, mask=i < rows, other=0), mask=i < rows)


@triton.jit
def _sum_nodes_kernel(tree, index, below, above, width, FAN: tl.constexpr):
    node = tl.load(index + tl.program_id(0)) // width
    total = tl.sum(tl.load(tree + below + FAN * node + tl.arange(0, FAN)))
    tl.store(tree + above + node, total)


@triton.jit
def _find_level_kernel(tree, target, node, rows, begin, FAN: tl.constexpr, ROWS: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    aim = tl.load(target + i, mask=i < rows, other=0)
    at = tl.load(node + i, mask=i < rows, other=0)
    near = tl.arange(0, FAN)
    ends = tl.cumsum(tl.load(tree + begin + FAN * at[:, None] + near[None, :]), 1)
    passed = ends <= aim[:, None]
    rank = tl.minimum(tl.sum(passed.to(tl.int64), 1), FAN - 1)
    before = tl.max(tl.where(passed & (near[None, :] < rank[:, None]), ends, 0), 1)
    tl.store(target + i, aim - before, mask=i < rows)
    tl.store(node + i, FAN * at + rank, mask=i < rows)


def tree_set(tree: torch.Tensor, size: int, index: torch.Tensor, weight: torch.Tensor) -> None:
    """`_sum_tree.tree_set`."""
    rows, index, weight = len(index), index.contiguous(), weight.contiguous()
    if not rows:
        return
    grid, width = (triton.cdiv(rows, 256),), 1
    _clear_leaves_kernel[grid](tree, index, rows, BLOCK=256)
    _set_leaves_kernel[grid](tree, index, weight, rows, BLOCK=256)
    for (begin, _), (above, _) in itertools.pairwise(levels(size)):
        width *= FAN
        _sum_nodes_kernel[(rows,)](tree, index, begin, above, width, FAN=FAN)


def tree_find(tree: torch.Tensor, size: int, target: torch.Tensor) -> torch.Tensor:
    """`_sum_tree.tree_find`."""
    target, node = target.clone(), torch.zeros_like(target)
    rows = len(target)
    for begin, _ in reversed(levels(size)) if rows else ():
        _find_level_kernel[(triton.cdiv(rows, _ROWS),)](tree, target, node, rows, begin, FAN=FAN, ROWS=_ROWS)
    return node.clamp_(max=size - 1)
