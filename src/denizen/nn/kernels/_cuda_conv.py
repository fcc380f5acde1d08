"""Gradients of later convolutions of `_conv_encoder` on CUDA with Triton: implicit matrix products over tiles of cells.

Sums are float32 and added in a fixed order. Products of float32 are TF32 where cuDNN may use that, else three TF32
products, whose error is that of float32.
"""

import functools

import torch
import triton
import triton.language as tl

from denizen.nn.kernels._precompile import launch
from denizen.perf.watch import takes_tf32

_CELLS = 128  # of a tile of an input's gradient
_WARPS = 4
_WIDEST = 64  # channels of a tile
# Of a weight's gradient by channels of a tile: (columns of three products, several offsets side by side, cells of a
# step of 16 bits, warps, loads under way), with much shared memory and with little.
_MUCH = {64: ((256, 256, 64), 32, 8, 4), 32: ((128, 128, 32), 32, 4, 4), 16: ((128, 16, 0), 64, 4, 3)}
_LITTLE = {64: ((128, 64, 0), 64, 4, 3), 32: ((64, 32, 0), 64, 4, 4), 16: ((32, 16, 0), 64, 4, 4)}
_MUCH_FROM = 160 * 1024  # bytes
_PROGRAMS = 264  # of a weight's gradient: two a multiprocessor of an H100


@triton.jit
def _near(row, column, inside, dy, dx, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Whether a cell's neighbour is in the image."""
    row, column = row + dy, column + dx
    return inside & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)


@triton.jit
def _add_patches(
    total,
    seen,
    weight,
    steps,
    cell,
    row,
    column,
    inside,
    o,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    TI: tl.constexpr,
    TO: tl.constexpr,
    TURNED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add a 3 x 3 convolution of a tile of cells, `[cells, TO]`, or `[TO, cells]` where turned.

    Turned, the wide operand of tensor cores' products is the one that is long, which reads shared memory less. `steps`
    is 9 times the blocks of channels. Where a mask chooses from the sums afterwards it must be told when the kernel
    runs: if it is known before, the assembler of CUDA 12.8 unrolls all steps and may then take the sums for the zeros
    with which they began.
    """
    BLOCKS: tl.constexpr = (IN + TI - 1) // TI
    for step in range(steps):
        dy, dx = step // BLOCKS // 3 - 1, step // BLOCKS % 3 - 1
        i = step % BLOCKS * TI + tl.arange(0, TI)
        there = _near(row, column, inside, dy, dx, HEIGHT, WIDTH)[:, None]
        if IN % TI:
            there = there & (i < IN)[None, :]
        given = tl.load(seen + (cell + (dy * WIDTH + dx))[:, None] * IN + i[None, :], mask=there, other=0.0)
        where = weight + (step // BLOCKS * IN + i)[:, None] * OUT + o[None, :]
        if (IN % TI == 0) & (OUT % TO == 0):
            factors = tl.load(where)
        else:
            factors = tl.load(where, mask=(i < IN)[:, None] & (o < OUT)[None, :], other=0.0)
        if TURNED:
            total = tl.dot(tl.trans(factors), tl.trans(given), total, input_precision=PRECISION)
        else:
            total = tl.dot(given, factors, total, input_precision=PRECISION)
    return total


@triton.jit
def _input_kernel(
    grad,
    weight,
    shown,
    out,
    cells,
    steps,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    TI: tl.constexpr,
    TO: tl.constexpr,
    TURNED: tl.constexpr,
    PRECISION: tl.constexpr,
    CELLS: tl.constexpr,
):
    """IN channels of the gradient that is given, OUT of the one that is found."""
    start = tl.program_id(0) * CELLS
    cell = tl.arange(0, CELLS)  # within the tile: indices of entries are 32 bits from here on
    inside = start + cell < cells
    row, column = (start + cell) // WIDTH % HEIGHT, (start + cell) % WIDTH
    o = tl.program_id(1) * TO + tl.arange(0, TO)
    at, known = start.to(tl.int64) * OUT + cell[:, None] * OUT + o[None, :], inside[:, None] & (o < OUT)[None, :]
    kept = tl.load(shown + at, mask=known, other=0.0)  # on its way while the products are made
    total = tl.zeros((TO, CELLS) if TURNED else (CELLS, TO), tl.float32)
    total = _add_patches(
        total,
        grad + start.to(tl.int64) * IN,
        weight,
        steps,
        cell,
        row,
        column,
        inside,
        o,
        HEIGHT,
        WIDTH,
        IN,
        OUT,
        TI,
        TO,
        TURNED,
        PRECISION,
    )
    found = total.to(out.dtype.element_ty)
    if TURNED:
        found = tl.trans(found)
    tl.store(out + at, tl.where(kept > 0, found, 0.0), mask=known)


@triton.jit
def _slope_step(
    total,
    x,
    turned,
    cell,
    row,
    column,
    inside,
    first,
    i,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN: tl.constexpr,
    TI: tl.constexpr,
    N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add the parts of N columns, from the channels after i of offset `first` on."""
    c = tl.arange(0, N)
    offset, i = first + c // TI, i + c % TI
    dy, dx = (offset // 3 - 1)[None, :], (offset % 3 - 1)[None, :]
    there = _near(row[:, None], column[:, None], inside[:, None], dy, dx, HEIGHT, WIDTH)
    if IN % TI:
        there = there & (i < IN)[None, :]
    at = cell[:, None] * IN + ((dy * WIDTH + dx) * IN + i[None, :])
    return tl.dot(turned, tl.load(x + at, mask=there, other=0.0), total, input_precision=PRECISION)


@triton.jit
def _keep_slope(parts, total, first, i, o, IN: tl.constexpr, OUT: tl.constexpr, TI: tl.constexpr, N: tl.constexpr):
    c = tl.arange(0, N)
    offset, i = first + c // TI, i + c % TI
    known = (i < IN)[None, :] & (o < OUT)[:, None]
    tl.store(parts + (offset * IN + i)[None, :] * OUT + o[:, None], total, mask=known)


@triton.jit
def _slope_kernel(
    x,
    grad,
    parts,
    cells,
    steps,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    TI: tl.constexpr,
    TO: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
    C: tl.constexpr,
    PRECISION: tl.constexpr,
    DEEP: tl.constexpr,
):
    """A program has some of the nine offsets, in products of A, B and C columns."""
    split, tile = tl.program_id(0), tl.program_id(2)
    BLOCKS: tl.constexpr = (IN + TI - 1) // TI
    i, o = tile % BLOCKS * TI, tile // BLOCKS * TO + tl.arange(0, TO)
    first = tl.program_id(1) * ((A + B + C) // TI)
    cell = tl.arange(0, DEEP)
    one = tl.zeros((TO, A), tl.float32)
    two = tl.zeros((TO, B), tl.float32)
    three = tl.zeros((TO, C if C else 16), tl.float32)
    ones, beside = tl.full((DEEP, 16), 1.0, x.dtype.element_ty), tl.zeros((TO, 16), tl.float32)
    for step in range(steps):
        start = (split * steps + step) * DEEP
        inside = start + cell < cells
        row, column = (start + cell) // WIDTH % HEIGHT, (start + cell) % WIDTH
        seen = x + start.to(tl.int64) * IN
        where = grad + start.to(tl.int64) * OUT + cell[:, None] * OUT + o[None, :]
        known = inside[:, None]
        if OUT % TO:
            known = known & (o < OUT)[None, :]
        turned = tl.trans(tl.load(where, mask=known, other=0.0))
        beside = tl.dot(turned, ones, beside, input_precision=PRECISION)
        one = _slope_step(one, seen, turned, cell, row, column, inside, first, i, HEIGHT, WIDTH, IN, TI, A, PRECISION)
        two = _slope_step(
            two, seen, turned, cell, row, column, inside, first + A // TI, i, HEIGHT, WIDTH, IN, TI, B, PRECISION
        )
        if C:
            three = _slope_step(
                three,
                seen,
                turned,
                cell,
                row,
                column,
                inside,
                first + (A + B) // TI,
                i,
                HEIGHT,
                WIDTH,
                IN,
                TI,
                C,
                PRECISION,
            )
    parts += split * (9 * IN * OUT + OUT)
    if (tl.program_id(1) == 0) & (i == 0):
        tl.store(parts + 9 * IN * OUT + o, tl.max(beside, 1), mask=o < OUT)  # columns are alike
    _keep_slope(parts, one, first, i, o, IN, OUT, TI, A)
    _keep_slope(parts, two, first + A // TI, i, o, IN, OUT, TI, B)
    if C:
        _keep_slope(parts, three, first + (A + B) // TI, i, o, IN, OUT, TI, C)


def _tile(channels: int) -> int:
    return min(_WIDEST, max(16, triton.next_power_of_2(channels)))


def _stages(x: torch.Tensor) -> int:
    """Loads under way, as many as the shared memory of small GPUs of Ampere's generation holds."""
    return 3 if x.element_size() == 2 else 2


def _turned(x: torch.Tensor, tile: int) -> bool:
    """Whether products are made with cells as columns: tensor cores take 64 rows, and turn operands of 16 bits only."""
    return x.element_size() == 2 and tile == _WIDEST


def _slopes(x: torch.Tensor, tile: int) -> tuple[tuple[int, int, int], int, int, int]:
    """A row of `_MUCH` or `_LITTLE`."""
    if x.element_size() == 2 and _has_much(x.device):
        return _MUCH[tile]
    columns, deep, warps, stages = _LITTLE[tile]
    return (columns, deep, warps, stages) if x.element_size() == 2 else (columns, deep // 2, warps, 2)


@functools.cache
def _has_much(device: torch.device) -> bool:
    """Whether a program may have much shared memory; on a CPU, where kernels are interpreted, it may."""
    if device.type != "cuda":
        return True
    return getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0) >= _MUCH_FROM


def _precision() -> str:
    return "tf32" if takes_tf32(torch.backends.cudnn) else "tf32x3"


def input_gradient(grad: torch.Tensor, weight: torch.Tensor, shown: torch.Tensor) -> torch.Tensor:
    """`_conv_encoder.conv_input_gradient`, of a weight that is turned already."""
    (n, height, width, inputs), outputs = grad.shape, weight.shape[-1]
    cells, tile = n * height * width, _tile(outputs)
    out = torch.empty(shown.shape, dtype=grad.dtype, device=grad.device)
    if cells:
        launch(
            _input_kernel,
            (triton.cdiv(cells, _CELLS), triton.cdiv(outputs, tile)),
            grad.contiguous(),
            weight.contiguous(),
            shown.contiguous(),
            out,
            cells,
            9 * triton.cdiv(inputs, _tile(inputs)),
            HEIGHT=height,
            WIDTH=width,
            IN=inputs,
            OUT=outputs,
            TI=_tile(inputs),
            TO=tile,
            TURNED=_turned(grad, tile),
            PRECISION=_precision(),
            CELLS=_CELLS,
            num_warps=_WARPS,
            num_stages=_stages(grad),
        )
    return out


def weight_gradient(x: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`_conv_encoder.conv_weight_gradient`; parts of the sums over cells are added in a fixed order."""
    n, height, width, inputs = x.shape
    outputs, cells, tile = grad.shape[-1], n * height * width, _tile(inputs)
    columns, deep, warps, stages = _slopes(x, tile)
    lines = 9 * tile // sum(columns)
    splits = max(1, min(_PROGRAMS * 4 // (warps * lines), triton.cdiv(cells, deep)))
    size = 9 * inputs * outputs
    parts = torch.empty(splits, size + outputs, dtype=torch.float32, device=x.device)
    tiles = triton.cdiv(inputs, tile) * triton.cdiv(outputs, _tile(outputs))
    launch(
        _slope_kernel,
        (splits, lines, tiles),
        x.contiguous(),
        grad.contiguous(),
        parts,
        cells,
        triton.cdiv(cells, splits * deep),
        HEIGHT=height,
        WIDTH=width,
        IN=inputs,
        OUT=outputs,
        TI=tile,
        TO=_tile(outputs),
        A=columns[0],
        B=columns[1],
        C=columns[2],
        PRECISION=_precision(),
        DEEP=deep,
        num_warps=warps,
        num_stages=stages,
    )
    weight, bias = parts.sum(0).split([size, outputs])
    return weight.view(9, inputs, outputs).clone(), bias.clone()
