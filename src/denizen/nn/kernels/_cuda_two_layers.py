"""`_two_layers` on CUDA with Triton. Sums are float32 and added in a fixed order."""

import torch
import triton
import triton.language as tl

from denizen.nn.kernels._precompile import launch

_ROWS, _COLUMNS, _DEEP = 64, 128, 64  # of a tile of the first product, and of a step of it
_WARPS, _STAGES = 4, 4
_PROGRAMS = 132  # of the first product, about: one a multiprocessor of an H100


@triton.jit
def _split_kernel(
    x,
    weight,
    parts,
    rows,
    steps,
    INPUTS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEEP: tl.constexpr,
):
    """A tile of the first product, over `steps` of the inputs."""
    r, c = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    split = tl.program_id(2)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(steps):
        k = (split * steps + step) * DEEP + tl.arange(0, DEEP)
        given = tl.load(
            x + r[:, None] * INPUTS + k[None, :], mask=(r < rows)[:, None] & (k < INPUTS)[None, :], other=0.0
        )
        factors = tl.load(
            weight + c[None, :] * INPUTS + k[:, None], mask=(c < WIDTH)[None, :] & (k < INPUTS)[:, None], other=0.0
        )
        total = tl.dot(given, factors, total)
    known = (r < rows)[:, None] & (c < WIDTH)[None, :]
    tl.store(parts + (split * rows + r)[:, None] * WIDTH + c[None, :], total, mask=known)


@triton.jit
def _top_kernel(
    parts,
    bias,
    top,
    top_bias,
    shown,
    out,
    rows,
    WIDTH: tl.constexpr,
    NUMBERS: tl.constexpr,
    SPLITS: tl.constexpr,
    C: tl.constexpr,
    N: tl.constexpr,
):
    """Adds up a row, and the second layer of it."""
    row, c, n = tl.program_id(0), tl.arange(0, C), tl.arange(0, N)
    factors = tl.load(
        top + n[:, None] * WIDTH + c[None, :], mask=(n < NUMBERS)[:, None] & (c < WIDTH)[None, :], other=0.0
    )
    total = tl.load(bias + c, mask=c < WIDTH, other=0.0).to(tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(parts + (split * rows + row) * WIDTH + c, mask=c < WIDTH, other=0.0)
    found = tl.maximum(total.to(shown.dtype.element_ty), 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(shown + row * WIDTH + c, found, mask=c < WIDTH)
    numbers = tl.sum(factors.to(tl.float32) * found.to(tl.float32)[None, :], 1)
    numbers += tl.load(top_bias + n, mask=n < NUMBERS, other=0.0).to(tl.float32)
    tl.store(out + row * NUMBERS + n, numbers.to(out.dtype.element_ty), mask=n < NUMBERS)


def two_layers(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, top: torch.Tensor, top_bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """`_two_layers.two_layers`."""
    (rows, inputs), width, numbers = x.shape, weight.shape[0], top.shape[0]
    lines, columns, blocks = triton.cdiv(rows, _ROWS), triton.cdiv(width, _COLUMNS), triton.cdiv(inputs, _DEEP)
    steps = triton.cdiv(blocks, max(1, _PROGRAMS // (lines * columns)))
    splits = triton.cdiv(blocks, steps)
    parts = torch.empty(splits, rows, width, dtype=torch.float32, device=x.device)
    shown, out = x.new_empty(rows, width), x.new_empty(rows, numbers)
    launch(
        _split_kernel,
        (lines, columns, splits),
        x.contiguous(),
        weight.contiguous(),
        parts,
        rows,
        steps,
        INPUTS=inputs,
        WIDTH=width,
        ROWS=_ROWS,
        COLUMNS=_COLUMNS,
        DEEP=_DEEP,
        num_warps=_WARPS,
        num_stages=_STAGES,
    )
    launch(
        _top_kernel,
        (rows,),
        parts,
        bias,
        top.contiguous(),
        top_bias,
        shown,
        out,
        rows,
        WIDTH=width,
        NUMBERS=numbers,
        SPLITS=splits,
        C=triton.next_power_of_2(width),
        N=triton.next_power_of_2(numbers),
        num_warps=4,
    )
    return shown, out
