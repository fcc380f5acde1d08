"""Kernels that may replace those of `denizen.ops._cuda_conv`, by shape and settings; compiled by several processes."""

import torch
import triton
import triton.language as tl


@triton.jit
def turned_kernel(
    x, weight, bias, shown, out, sums, cells, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, IN: tl.constexpr,
    OUT: tl.constexpr, TI: tl.constexpr, TO: tl.constexpr, RELU: tl.constexpr, CELLS: tl.constexpr,
    CACHE: tl.constexpr, TURNED: tl.constexpr,
):  # fmt: skip
    """3 x 3, channels down and cells across where turned: an operand of 256 columns is read from shared memory once."""
    start = tl.program_id(0) * CELLS
    cell = tl.arange(0, CELLS)
    inside = start + cell < cells
    row, column = (start + cell) // WIDTH % HEIGHT, (start + cell) % WIDTH
    x += start.to(tl.int64) * IN
    o, i = tl.arange(0, TO), tl.arange(0, TI)
    if TURNED:  # noqa: SIM108
        total = tl.zeros((TO, CELLS), tl.float32)
    else:
        total = tl.zeros((CELLS, TO), tl.float32)
    BLOCKS: tl.constexpr = IN // TI
    for step in range(9 * BLOCKS):
        offset = step // BLOCKS
        dy, dx = offset // 3 - 1, offset % 3 - 1
        there = inside & (row + dy >= 0) & (row + dy < HEIGHT) & (column + dx >= 0) & (column + dx < WIDTH)
        at = (cell + (dy * WIDTH + dx))[:, None] * IN + ((step % BLOCKS) * TI + i)[None, :]
        given = tl.load(x + at, mask=there[:, None], other=0.0, cache_modifier=CACHE)
        factors = tl.load(weight + (step * TI + i)[:, None] * OUT + o[None, :])
        if TURNED:  # noqa: SIM108
            total = tl.dot(tl.trans(factors), tl.trans(given), total)
        else:
            total = tl.dot(given, factors, total)
    at, known = cell[:, None] * OUT + o[None, :], inside[:, None]
    ahead = start.to(tl.int64) * OUT
    if RELU:
        offsets = tl.load(bias + o)
        total = tl.maximum(total + (offsets[:, None] if TURNED else offsets[None, :]), 0.0)
    total = total.to(out.dtype.element_ty)
    if TURNED:
        total = tl.trans(total)
    if not RELU:
        total = tl.where(tl.load(shown + ahead + at, mask=known, other=0.0) > 0, total, 0.0)
        tl.store(sums + tl.program_id(0) * OUT + o, tl.sum(total.to(tl.float32), 0))
    tl.store(out + ahead + at, total, mask=known)


@triton.jit
def _block(
    total, x, turned, cell, row, column, inside, first, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, IN: tl.constexpr,
    N: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """Add what N columns, several offsets of all channels side by side, give."""
    c = tl.arange(0, N)
    offset = first + c // IN
    dy, dx = offset // 3 - 1, offset % 3 - 1
    y, z = row[:, None] + dy[None, :], column[:, None] + dx[None, :]
    there = inside[:, None] & (y >= 0) & (y < HEIGHT) & (z >= 0) & (z < WIDTH)
    at = cell[:, None] * IN + ((dy * WIDTH + dx) * IN + c % IN)[None, :]
    return tl.dot(turned, tl.load(x + at, mask=there, other=0.0, cache_modifier=CACHE), total)


@triton.jit
def _keep(parts, total, first, o, IN: tl.constexpr, OUT: tl.constexpr, N: tl.constexpr):
    tl.store(parts + (first * IN + tl.arange(0, N))[None, :] * OUT + o[:, None], total)


@triton.jit
def slope_kernel(
    x, grad, parts, cells, steps, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
    A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, DEEP: tl.constexpr, CACHE: tl.constexpr,
):  # fmt: skip
    """Weight gradient of a 3 x 3 convolution; a program has A + B + C columns, several offsets side by side."""
    split, line = tl.program_id(0), tl.program_id(1)
    o, cell = tl.arange(0, OUT), tl.arange(0, DEEP)
    first = line * ((A + B + C) // IN)
    one = tl.zeros((OUT, A), tl.float32)
    two = tl.zeros((OUT, B if B else 16), tl.float32)
    three = tl.zeros((OUT, C if C else 16), tl.float32)
    for step in range(steps):
        start = (split * steps + step) * DEEP
        inside = start + cell < cells
        row, column = (start + cell) // WIDTH % HEIGHT, (start + cell) % WIDTH
        seen = x + start.to(tl.int64) * IN
        where = grad + start.to(tl.int64) * OUT + cell[:, None] * OUT + o[None, :]
        turned = tl.trans(tl.load(where, mask=inside[:, None], other=0.0))
        one = _block(one, seen, turned, cell, row, column, inside, first, HEIGHT, WIDTH, IN, A, CACHE)
        if B:
            two = _block(two, seen, turned, cell, row, column, inside, first + A // IN, HEIGHT, WIDTH, IN, B, CACHE)
        if C:
            three = _block(
                three, seen, turned, cell, row, column, inside, first + (A + B) // IN, HEIGHT, WIDTH, IN, C, CACHE
            )
    parts += split * (9 * IN * OUT)
    _keep(parts, one, first, o, IN, OUT, A)
    if B:
        _keep(parts, two, first + A // IN, o, IN, OUT, B)
    if C:
        _keep(parts, three, first + (A + B) // IN, o, IN, OUT, C)


def turned_calls():
    """(kind, inputs, outputs, options) of each candidate of `turned_kernel`."""
    for kind, inputs, outputs in (("forward", 64, 64), ("input", 64, 64), ("forward", 32, 64), ("input", 64, 32)):
        for cells, block, turned, cache, warps, stages in (
            (128, 64, False, "", 4, 3), (128, 64, False, "", 4, 1), (256, 64, True, "", 4, 3),
            (256, 64, True, "", 4, 2), (256, 32, True, "", 4, 4), (256, 64, True, "", 8, 3),
            (256, 64, True, "", 8, 1), (256, 64, False, "", 8, 4), (128, 64, True, "", 4, 3), (128, 64, True, "", 4, 1),
        ):  # fmt: skip
            if outputs == 32 and turned:  # 64 rows at least
                continue
            options = {"CELLS": cells, "TI": min(block, inputs), "TURNED": turned, "CACHE": cache}
            yield kind, inputs, outputs, {**options, "num_warps": warps, "num_stages": stages}


def slope_calls():
    """(inputs, options) of each candidate of `slope_kernel`; outputs are 64."""
    for inputs, widths, deep, warps, stages in (
        (64, (256, 256, 64), 64, 8, 2), (64, (256, 256, 64), 32, 8, 4), (64, (256, 256, 64), 32, 8, 5),
        (64, (128, 64, 0), 64, 4, 3), (64, (128, 64, 0), 64, 4, 2), (64, (128, 64, 0), 32, 4, 4),
        (32, (256, 32, 0), 64, 8, 4), (32, (256, 32, 0), 64, 8, 3), (32, (256, 32, 0), 64, 4, 3),
        (32, (256, 32, 0), 32, 4, 4), (32, (128, 128, 32), 64, 4, 2), (32, (64, 32, 0), 64, 4, 4),
    ):  # fmt: skip
        options = {"A": widths[0], "B": widths[1], "C": widths[2], "DEEP": deep, "CACHE": ""}
        yield inputs, {**options, "num_warps": warps, "num_stages": stages}


def turned(x, weight, bias, shown, options, launch=None):
    """`ops.conv`, or the gradient of an input and its sums over cells."""
    (n, height, width, inputs), (_, _, outputs) = x.shape, weight.shape
    cells = n * height * width
    out = torch.empty(n, height, width, outputs, dtype=x.dtype, device=x.device)
    tiles = triton.cdiv(cells, options["CELLS"])
    sums = torch.empty(tiles, outputs, device=x.device)
    (launch or turned_kernel[(tiles,)])(
        x, weight, bias if bias is not None else sums, shown if shown is not None else x, out, sums, cells,
        HEIGHT=height, WIDTH=width, IN=inputs, OUT=outputs, TO=outputs, RELU=bias is not None, **options,
    )  # fmt: skip
    return out, sums


def slope(x, grad, options, launch=None):
    """`ops.conv_weight_gradient` without the bias."""
    (n, height, width, inputs), outputs = x.shape, grad.shape[-1]
    cells, columns = n * height * width, options["A"] + options["B"] + options["C"]
    lines = 9 * inputs // columns
    splits = 132 * (1 if options["num_warps"] == 8 else 2) // lines
    steps = triton.cdiv(cells, splits * options["DEEP"])
    parts = torch.empty(splits, 9, inputs, outputs, device=x.device)
    (launch or slope_kernel[(splits, lines)])(
        x, grad, parts, cells, steps, HEIGHT=height, WIDTH=width, IN=inputs, OUT=outputs, **options
    )
    return parts.sum(0)


def compile_ahead(share, of, device="cuda"):
    """Compile a share of the candidates, into Triton's cache; facts of each where asked on a machine without a GPU."""
    told = []
    make = {"device": device, "dtype": torch.bfloat16}
    for number, (kind, inputs, outputs, options) in enumerate(turned_calls()):
        if number % of == share:
            x, weight = torch.empty(24576, 11, 11, inputs, **make), torch.empty(9, inputs, outputs, **make)
            other = torch.empty(24576, 11, 11, outputs, **make) if kind == "input" else None
            bias = torch.empty(outputs, device=device) if kind == "forward" else None
            turned(x, weight, bias, other, options, lambda *a, k=(kind, inputs, outputs, options), **o: told.append(
                (k, turned_kernel.warmup(*a, grid=(1,), **o))
            ))  # fmt: skip
    for number, (inputs, options) in enumerate(slope_calls()):
        if number % of == share:
            x, grad = torch.empty(24576, 11, 11, inputs, **make), torch.empty(24576, 11, 11, 64, **make)
            slope(x, grad, options, lambda *a, k=("slope", inputs, options), **o: told.append(
                (k, slope_kernel.warmup(*a, grid=(1,), **o))
            ))  # fmt: skip
    return told
