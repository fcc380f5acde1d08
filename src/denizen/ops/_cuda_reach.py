"""`_conv.linear_gradient` on CUDA with Triton: a matrix product that passes a ReLU before it is stored."""

import torch
import triton
import triton.language as tl

from denizen.ops._ahead import launch
from denizen.ops._cuda_conv import _precision

_ROWS, _COLUMNS, _DEEP = 128, 128, 64  # of a tile of the result, and of a step
_WARPS, _STAGES = 4, 3


@triton.jit
def _reach_kernel(
    grad, weight, shown, out, rows, HIDDEN: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    line, c = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    start = tl.program_id(1) * ROWS
    inside = start + line < rows
    grad += start.to(tl.int64) * HIDDEN
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(0, HIDDEN, DEEP):
        k = begin + tl.arange(0, DEEP)
        given = tl.load(
            grad + line[:, None] * HIDDEN + k[None, :], mask=inside[:, None] & (k < HIDDEN)[None, :], other=0.0
        )
        factors = tl.load(
            weight + k[:, None] * WIDE + c[None, :], mask=(k < HIDDEN)[:, None] & (c < WIDE)[None, :], other=0.0
        )
        total = tl.dot(given, factors, total, input_precision=PRECISION)
    at, known = line[:, None] * WIDE + c[None, :], inside[:, None] & (c < WIDE)[None, :]
    ahead = start.to(tl.int64) * WIDE
    found = total.to(out.dtype.element_ty)
    found = tl.where(tl.load(shown + ahead + at, mask=known, other=0.0) > 0, found, 0.0)
    tl.store(out + ahead + at, found, mask=known)


def reach(grad: torch.Tensor, weight: torch.Tensor, shown: torch.Tensor) -> torch.Tensor:
    """`_conv.linear_gradient`."""
    (rows, hidden), wide = grad.shape, weight.shape[1]
    scale = grad.element_size() // 2 or 1  # float32 takes twice the room
    tiles = triton.cdiv(rows, _ROWS)
    out = torch.empty(shown.shape, dtype=grad.dtype, device=grad.device)
    launch(
        _reach_kernel, (triton.cdiv(wide, _COLUMNS), tiles),
        grad.contiguous(), weight.contiguous(), shown.contiguous(), out, rows, HIDDEN=hidden, WIDE=wide,
        PRECISION=_precision(), ROWS=_ROWS, COLUMNS=_COLUMNS, DEEP=_DEEP // scale, num_warps=_WARPS,
        num_stages=_STAGES,
    )  # fmt: skip
    return out
