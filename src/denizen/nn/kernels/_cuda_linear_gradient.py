"""`_conv_encoder.linear_gradient` on CUDA with Triton: a matrix product that passes a ReLU before it is stored.

Where the GPU copies whole tiles by itself (Hopper and later), `_reach_tiles_kernel` has it do so: in the other
kernel the assembler serializes the products.
"""

import functools
import importlib.util

import torch
import triton
import triton.language as tl

from denizen.nn.kernels._cuda_conv import _precision
from denizen.nn.kernels._precompile import launch

_ROWS, _COLUMNS, _DEEP = 128, 128, 64  # of a tile of the result, and of a step
_WARPS, _STAGES = 4, 3


@triton.jit
def _reach_kernel(
    grad,
    weight,
    shown,
    out,
    rows,
    HIDDEN: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEEP: tl.constexpr,
):
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


@triton.jit
def _reach_tiles_kernel(
    grad, weight, shown, out, HIDDEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr
):
    """The same of descriptors of tensors; beyond their borders there is 0, and nothing is stored."""
    r, c = tl.program_id(1) * ROWS, tl.program_id(0) * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(0, HIDDEN, DEEP):
        total = tl.dot(grad.load([r, k]), weight.load([k, c]), total)
    kept = shown.load([r, c])
    out.store([r, c], tl.where(kept > 0, total.to(kept.dtype), 0.0))


def reach(grad: torch.Tensor, weight: torch.Tensor, shown: torch.Tensor) -> torch.Tensor:
    """`_conv_encoder.linear_gradient`."""
    (rows, hidden), wide = grad.shape, weight.shape[1]
    out = torch.empty(shown.shape, dtype=grad.dtype, device=grad.device)
    grid = (triton.cdiv(wide, _COLUMNS), triton.cdiv(rows, _ROWS))
    given = (grad.contiguous(), weight.contiguous(), shown.contiguous(), out)
    tile = {"HIDDEN": hidden, "ROWS": _ROWS, "COLUMNS": _COLUMNS, "num_warps": _WARPS, "num_stages": _STAGES}
    if rows and grad.element_size() == 2 and hidden % 8 == 0 and wide % 8 == 0 and _copies_tiles(grad.device):
        from triton.tools.tensor_descriptor import TensorDescriptor

        blocks = [_ROWS, _DEEP], [_DEEP, _COLUMNS], [_ROWS, _COLUMNS], [_ROWS, _COLUMNS]
        tiles = [TensorDescriptor.from_tensor(t.flatten(1), block) for t, block in zip(given, blocks, strict=True)]
        launch(_reach_tiles_kernel, grid, *tiles, DEEP=_DEEP, **tile)
    else:
        scale = grad.element_size() // 2 or 1  # float32 takes twice the room
        launch(_reach_kernel, grid, *given, rows, WIDE=wide, PRECISION=_precision(), DEEP=_DEEP // scale, **tile)
    return out


@functools.cache
def _copies_tiles(device: torch.device) -> bool:
    """Whether a GPU copies tiles by itself and Triton knows how; on a CPU, where kernels are interpreted, it does."""
    if importlib.util.find_spec("triton.tools.tensor_descriptor") is None or torch.version.hip is not None:
        return False
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)
