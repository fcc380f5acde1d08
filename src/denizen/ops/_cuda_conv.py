"""`_conv` on CUDA with Triton: implicit matrix products over tiles of cells.

Sums are float32 and added in a fixed order. Products of float32 are TF32 where cuDNN may use that, else three TF32
products, whose error is that of float32.
"""

import torch
import triton
import triton.language as tl

_CELLS = 128  # of a tile of the output
_WARPS = 4
_DEEP = 64  # cells that a step of the weight's gradient multiplies; half as many in float32
_WIDEST = 64  # channels of a tile
_SPLITS = 88  # of the cells for the weight's gradient: three rows of offsets each make two programs a multiprocessor


@triton.jit
def _near(row, column, inside, dy, dx, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Whether a cell's neighbour is in the image."""
    row, column = row + dy, column + dx
    return inside & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)


@triton.jit
def _conv_kernel(
    x, weight, bias, shown, out, cells, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, IN: tl.constexpr,
    OUT: tl.constexpr, SIDE: tl.constexpr, TI: tl.constexpr, TO: tl.constexpr, RELU: tl.constexpr,
    PRECISION: tl.constexpr, CELLS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0) * CELLS
    cell = tl.arange(0, CELLS)  # within the tile: indices of entries are 32 bits from here on
    inside = start + cell < cells
    row, column = (start + cell) // WIDTH % HEIGHT, (start + cell) % WIDTH
    x += start.to(tl.int64) * IN
    o = tl.program_id(1) * TO + tl.arange(0, TO)
    BLOCKS: tl.constexpr = (IN + TI - 1) // TI
    total = tl.zeros((CELLS, TO), tl.float32)
    for step in range(SIDE * SIDE * BLOCKS):
        offset = step // BLOCKS
        dy, dx = offset // SIDE - SIDE // 2, offset % SIDE - SIDE // 2
        i = (step % BLOCKS) * TI + tl.arange(0, TI)
        there = _near(row, column, inside, dy, dx, HEIGHT, WIDTH)
        at = (cell + (dy * WIDTH + dx))[:, None] * IN + i[None, :]
        given = tl.load(x + at, mask=there[:, None] & (i < IN)[None, :], other=0.0)
        where = weight + (offset * IN + i)[:, None] * OUT + o[None, :]
        factors = tl.load(where, mask=(i < IN)[:, None] & (o < OUT)[None, :], other=0.0)
        total = tl.dot(given, factors, total, input_precision=PRECISION)
    at, known = cell[:, None] * OUT + o[None, :], inside[:, None] & (o < OUT)[None, :]
    ahead = start.to(tl.int64) * OUT
    if RELU:
        total = tl.maximum(total + tl.load(bias + o, mask=o < OUT, other=0.0)[None, :], 0.0)
    else:
        total = tl.where(tl.load(shown + ahead + at, mask=known, other=0.0) > 0, total, 0.0)
    tl.store(out + ahead + at, total.to(out.dtype.element_ty), mask=known)


@triton.jit
def _weight_step(
    total, x, turned, cell, row, column, inside, dy, dx, i, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    IN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the part of one offset, `[TO, TI]`."""
    there = _near(row, column, inside, dy, dx, HEIGHT, WIDTH)
    at = (cell + (dy * WIDTH + dx))[:, None] * IN + i[None, :]
    seen = tl.load(x + at, mask=there[:, None] & (i < IN)[None, :], other=0.0)
    return tl.dot(turned, seen, total, input_precision=PRECISION)


@triton.jit
def _conv_weight_kernel(
    x, grad, parts, cells, steps, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
    SIDE: tl.constexpr, TI: tl.constexpr, TO: tl.constexpr, PRECISION: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    split, line, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    BLOCKS: tl.constexpr = (IN + TI - 1) // TI
    i, o = (tile % BLOCKS) * TI + tl.arange(0, TI), (tile // BLOCKS) * TO + tl.arange(0, TO)
    dy, cell = line - SIDE // 2, tl.arange(0, DEEP)
    left, middle, right = (
        tl.zeros((TO, TI), tl.float32), tl.zeros((TO, TI), tl.float32), tl.zeros((TO, TI), tl.float32)
    )  # fmt: skip
    beside = tl.zeros((TO,), tl.float32)
    for step in range(steps):
        start = (split * steps + step) * DEEP
        inside = start + cell < cells
        row, column = (start + cell) // WIDTH % HEIGHT, (start + cell) % WIDTH
        images = x + start.to(tl.int64) * IN
        where = grad + start.to(tl.int64) * OUT + cell[:, None] * OUT + o[None, :]
        given = tl.load(where, mask=inside[:, None] & (o < OUT)[None, :], other=0.0)
        turned = tl.trans(given)
        middle = _weight_step(middle, images, turned, cell, row, column, inside, dy, 0, i, HEIGHT, WIDTH, IN, PRECISION)
        if SIDE == 3:
            left = _weight_step(
                left, images, turned, cell, row, column, inside, dy, -1, i, HEIGHT, WIDTH, IN, PRECISION
            )
            right = _weight_step(
                right, images, turned, cell, row, column, inside, dy, 1, i, HEIGHT, WIDTH, IN, PRECISION
            )
        beside += tl.sum(given.to(tl.float32), 0)
    whole = parts + split * (SIDE * SIDE * IN * OUT + OUT)
    base = whole + line * SIDE * IN * OUT
    at, known = i[None, :] * OUT + o[:, None], (i < IN)[None, :] & (o < OUT)[:, None]
    if SIDE == 3:
        tl.store(base + at, left, mask=known)
        tl.store(base + IN * OUT + at, middle, mask=known)
        tl.store(base + 2 * IN * OUT + at, right, mask=known)
    else:
        tl.store(base + at, middle, mask=known)
    if (line == 0) & (tile % BLOCKS == 0):
        tl.store(whole + SIDE * SIDE * IN * OUT + o, beside, mask=o < OUT)


def _tile(channels: int) -> int:
    return min(_WIDEST, max(16, triton.next_power_of_2(channels)))


def _stages(x: torch.Tensor) -> int:
    """Loads under way, as many as the shared memory of small GPUs of Ampere's generation holds."""
    return 3 if x.element_size() == 2 else 2


def _precision() -> str:
    return "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"


def convolved(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, shown: torch.Tensor | None
) -> torch.Tensor:
    """ReLU of a convolution with a bias, or one that is 0 where `shown` is not above 0."""
    (n, height, width, inputs), (offsets, _, outputs) = x.shape, weight.shape
    cells, tile = n * height * width, _tile(outputs)
    out = torch.empty(n, height, width, outputs, dtype=x.dtype, device=x.device)
    if cells:
        _conv_kernel[(triton.cdiv(cells, _CELLS), triton.cdiv(outputs, tile))](
            x.contiguous(), weight.contiguous(), bias if bias is not None else out,
            shown.contiguous() if shown is not None else out, out, cells, HEIGHT=height, WIDTH=width, IN=inputs,
            OUT=outputs, SIDE=3 if offsets == 9 else 1, TI=_tile(inputs), TO=tile, RELU=bias is not None,
            PRECISION=_precision(), CELLS=_CELLS, num_warps=_WARPS, num_stages=_stages(x),
        )  # fmt: skip
    return out


def weight_gradient(x: torch.Tensor, grad: torch.Tensor, offsets: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`_conv.conv_weight_gradient`; parts of the sums over cells are added in a fixed order."""
    n, height, width, inputs = x.shape
    cells, outputs, side = n * height * width, grad.shape[-1], 3 if offsets == 9 else 1
    deep = _DEEP * 2 // x.element_size()
    splits = max(1, min(_SPLITS * (3 // side), triton.cdiv(cells, deep)))
    size = offsets * inputs * outputs
    parts = torch.empty(splits, size + outputs, dtype=torch.float32, device=x.device)
    tiles = triton.cdiv(inputs, _tile(inputs)) * triton.cdiv(outputs, _tile(outputs))
    _conv_weight_kernel[(splits, side, tiles)](
        x.contiguous(), grad.contiguous(), parts, cells, triton.cdiv(cells, splits * deep), HEIGHT=height,
        WIDTH=width, IN=inputs, OUT=outputs, SIDE=side, TI=_tile(inputs), TO=_tile(outputs), PRECISION=_precision(),
        DEEP=deep, num_warps=_WARPS, num_stages=_stages(x),
    )  # fmt: skip
    weight, bias = parts.sum(0).split([size, outputs])
    return weight.view(offsets, inputs, outputs).clone(), bias.clone()
