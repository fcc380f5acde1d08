"""`conv` and `conv_first_gradient` of `_conv_encoder` on CUDA with Triton: layers of a few images in one program.

What a program has written it reads again for its next layer: nothing passes between programs, so one barrier of the
program between layers is enough. Sums are float32 and added in a fixed order.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from denizen.nn.kernels._cuda_conv import _add_patches, _near, _precision, _stages, _tile
from denizen.nn.kernels._precompile import launch

_CELLS = 128  # of a tile
_WARPS = 4
_LAYERS = 2  # of a launch, beside the first layer of all
_DEEP = 128  # cells that a step of the first weight's gradient multiplies
_PROGRAMS = 1056  # of it: eight a multiprocessor of an H100


@triton.jit
def _first_patch(planes, cell, row, column, inside, k, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PLANES: tl.constexpr):
    """What is around cells in every plane, `[cells, k]`; `planes` begin with the image of cell 0."""
    dy, dx = (k % 9 // 3 - 1)[None, :], (k % 3 - 1)[None, :]
    there = _near(row[:, None], column[:, None], inside[:, None], dy, dx, HEIGHT, WIDTH) & (k < 9 * PLANES)[None, :]
    image = cell // (HEIGHT * WIDTH) * ((PLANES - 1) * HEIGHT * WIDTH)
    at = (image + cell)[:, None] + (k // 9 * (HEIGHT * WIDTH))[None, :] + dy * WIDTH + dx
    return tl.load(planes + at, mask=there, other=0.0)


@triton.jit
def _layer(
    seen,
    weight,
    bias,
    out,
    count,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    TI: tl.constexpr,
    TO: tl.constexpr,
    SIZE: tl.constexpr,
    CELLS: tl.constexpr,
    PRECISION: tl.constexpr,
    WORD: tl.constexpr,
):
    """A 3 x 3 convolution with ReLU of the `count` cells, at most SIZE, of a program's images."""
    TURNED: tl.constexpr = (WORD == 2) & (TO == 64)  # see `_turned`
    for begin in tl.static_range(0, SIZE, CELLS):
        cell = begin + tl.arange(0, CELLS)
        inside, row, column = cell < count, cell // WIDTH % HEIGHT, cell % WIDTH
        for left in tl.static_range(0, OUT, TO):
            o = left + tl.arange(0, TO)
            total = tl.zeros((TO, CELLS) if TURNED else (CELLS, TO), tl.float32)
            total = _add_patches(
                total,
                seen,
                weight,
                9 * ((IN + TI - 1) // TI),
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
            _keep(out, total, bias, cell, o, inside, OUT, TURNED)


@triton.jit
def _keep(out, total, bias, cell, o, inside, OUT: tl.constexpr, TURNED: tl.constexpr):
    """Bias, ReLU, and into memory."""
    beside = tl.load(bias + o, mask=o < OUT, other=0.0)
    found = total + (beside[:, None] if TURNED else beside[None, :])
    found = tl.maximum(found, 0.0, propagate_nan=tl.PropagateNan.ALL).to(out.dtype.element_ty)
    if TURNED:
        found = tl.trans(found)
    tl.store(out + cell[:, None] * OUT + o[None, :], found, mask=inside[:, None] & (o < OUT)[None, :])


@triton.jit
def _encode_kernel(
    given,
    weight_0,
    bias_0,
    out_0,
    weight_1,
    bias_1,
    out_1,
    weight_2,
    bias_2,
    out_2,
    images,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    PLANES: tl.constexpr,
    C0: tl.constexpr,
    C1: tl.constexpr,
    C2: tl.constexpr,
    TK: tl.constexpr,
    T0: tl.constexpr,
    T1: tl.constexpr,
    T2: tl.constexpr,
    IMAGES: tl.constexpr,
    CELLS: tl.constexpr,
    PRECISION: tl.constexpr,
    WORD: tl.constexpr,
):
    """The first layer where PLANES is not 0 (`given` are planes, else images of C0 channels), then up to two more."""
    SPAN: tl.constexpr = HEIGHT * WIDTH
    SIZE: tl.constexpr = IMAGES * SPAN
    start = tl.program_id(0) * IMAGES
    count = tl.minimum(images - start, IMAGES) * SPAN
    first = start.to(tl.int64) * SPAN
    seen = given + first * C0
    if PLANES:
        planes, seen = given + first * PLANES, out_0 + first * C0
        for begin in tl.static_range(0, SIZE, CELLS):
            cell = begin + tl.arange(0, CELLS)
            inside, row, column = cell < count, cell // WIDTH % HEIGHT, cell % WIDTH
            for left in tl.static_range(0, C0, T0):
                o = left + tl.arange(0, T0)
                total = tl.zeros((CELLS, T0), tl.float32)
                for top in range(0, 9 * PLANES, TK):
                    k = top + tl.arange(0, TK)
                    patch = _first_patch(planes, cell, row, column, inside, k, HEIGHT, WIDTH, PLANES)
                    where = weight_0 + k[:, None] * C0 + o[None, :]
                    factors = tl.load(where, mask=(k < 9 * PLANES)[:, None] & (o < C0)[None, :], other=0.0)
                    total = tl.dot(patch, factors, total, input_precision=PRECISION)
                _keep(seen, total, bias_0, cell, o, inside, C0, False)
        tl.debug_barrier()
    if C1:
        out_1 += first * C1
        _layer(seen, weight_1, bias_1, out_1, count, HEIGHT, WIDTH, C0, C1, T0, T1, SIZE, CELLS, PRECISION, WORD)
    if C2:
        tl.debug_barrier()
        out_2 += first * C2
        _layer(out_1, weight_2, bias_2, out_2, count, HEIGHT, WIDTH, C1, C2, T1, T2, SIZE, CELLS, PRECISION, WORD)


def conv(planes: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """`_conv_encoder.conv`."""
    n, count, height, width = planes.shape
    made = [planes.new_empty(n, height, width, weight.shape[-1]) for weight in weights]
    images = max(1, _CELLS // (height * width))
    given, first = planes.contiguous(), True
    layers = list(zip(weights, biases, made, strict=True))
    while n and layers:
        now, layers = layers[: _LAYERS + first], layers[_LAYERS + first :]
        channels = [out.shape[-1] for _, _, out in now]
        sizes = [given.shape[-1], *channels] if not first else channels
        sizes += [0] * (3 - len(sizes))
        parts = [part for weight, bias, out in now for part in (weight.contiguous(), bias, out)]
        parts = parts if first else [given, given, given, *parts]  # no first layer
        parts += [given] * (9 - len(parts))
        launch(
            _encode_kernel,
            (triton.cdiv(n, images),),
            given,
            *parts,
            n,
            HEIGHT=height,
            WIDTH=width,
            PLANES=count if first else 0,
            C0=sizes[0],
            C1=sizes[1],
            C2=sizes[2],
            TK=_tile(9 * count),
            T0=_tile(sizes[0]),
            T1=_tile(sizes[1]),
            T2=_tile(sizes[2]),
            IMAGES=images,
            CELLS=_CELLS,
            PRECISION=_precision(),
            WORD=planes.element_size(),
            num_warps=_WARPS,
            num_stages=_stages(planes),
        )
        given, first = now[-1][2], False
    return made


@triton.jit
def _first_slope_kernel(
    planes,
    grad,
    parts,
    images,
    steps,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    PLANES: tl.constexpr,
    OUT: tl.constexpr,
    TK: tl.constexpr,
    TO: tl.constexpr,
    PRECISION: tl.constexpr,
    DEEP: tl.constexpr,
):
    split, o = tl.program_id(0), tl.program_id(1) * TO + tl.arange(0, TO)
    k = tl.program_id(2) * TK + tl.arange(0, TK)
    SPAN: tl.constexpr = HEIGHT * WIDTH
    total = tl.zeros((TK, TO), tl.float32)
    for step in range(steps):
        start = (split * steps + step) * DEEP
        image = start // SPAN
        cell = start % SPAN + tl.arange(0, DEEP)  # from the image of the first cell on
        inside, row, column = image * SPAN + cell < images * SPAN, cell // WIDTH % HEIGHT, cell % WIDTH
        patch = _first_patch(
            planes + image.to(tl.int64) * PLANES * SPAN, cell, row, column, inside, k, HEIGHT, WIDTH, PLANES
        )
        patch = tl.where((k == 9 * PLANES)[None, :], 1.0, patch)  # for the bias
        where = grad + start.to(tl.int64) * OUT + tl.arange(0, DEEP)[:, None] * OUT + o[None, :]
        given = tl.load(where, mask=inside[:, None] & (o < OUT)[None, :], other=0.0)
        total = tl.dot(tl.trans(patch), given, total, input_precision=PRECISION)
    known = (k <= 9 * PLANES)[:, None] & (o < OUT)[None, :]
    tl.store(parts + split * ((9 * PLANES + 1) * OUT) + k[:, None] * OUT + o[None, :], total, mask=known)


def first_gradient(planes: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`_conv_encoder.conv_first_gradient`; parts of the sum over cells are added in a fixed order."""
    (n, count, height, width), outputs = planes.shape, grad.shape[-1]
    cells, tile, deep = n * height * width, _tile(outputs), _tile(9 * count + 1)
    splits = max(1, min(_PROGRAMS, triton.cdiv(cells, _DEEP)))
    parts = torch.empty(splits, 9 * count + 1, outputs, dtype=torch.float32, device=grad.device)
    launch(
        _first_slope_kernel,
        (splits, triton.cdiv(outputs, tile), triton.cdiv(9 * count + 1, deep)),
        planes.contiguous(),
        grad.contiguous(),
        parts,
        n,
        triton.cdiv(cells, splits * _DEEP),
        HEIGHT=height,
        WIDTH=width,
        PLANES=count,
        OUT=outputs,
        TK=deep,
        TO=tile,
        PRECISION=_precision(),
        DEEP=_DEEP,
        num_warps=_WARPS,
        num_stages=_stages(grad),
    )
    whole = parts.sum(0)
    return whole[:-1].clone(), whole[-1].clone()
