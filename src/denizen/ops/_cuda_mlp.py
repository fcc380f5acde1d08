"""`_mlp` on CUDA with Triton: a program takes tiles of rows through all layers of a tower.

Products run on tensor cores: with TF32 where torch's matrix products may use it, else as three TF32 products, whose
error is that of float32.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from denizen.ops import _mlp

_FORWARD = {"ROWS": 64, "num_warps": 4}
_FORWARD_FEW = {"ROWS": 16, "num_warps": 4}  # where there are few rows, so that every multiprocessor has some
_FEW = 1 << 14
_GRADIENTS = {"ROWS": 32, "num_warps": 4}
_PROGRAMS = 264  # of the gradients of a tower, two a multiprocessor of an H100: each leaves a part of the sum over rows
_COLUMNS = 32  # of the parts, which one program adds up


@triton.jit
def _active(x, RELU: tl.constexpr):
    return tl.maximum(x, 0.0) if RELU else 1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))  # exp may give 0 and inf


@triton.jit
def _slope(y, RELU: tl.constexpr):
    return tl.where(y > 0, 1.0, 0.0) if RELU else 1.0 - y * y


@triton.jit
def _transposed(w, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A weight `[ROWS, COLUMNS]` as `[columns, rows]`; 0 beyond its ends."""
    inside = (columns < COLUMNS)[:, None] & (rows < ROWS)[None, :]
    return tl.load(w + rows[None, :] * COLUMNS + columns[:, None], mask=inside, other=0.0)


@triton.jit
def _forward(
    x, w, out, rows, n, AT: tl.constexpr, P3: tl.constexpr, H3: tl.constexpr, WIDTH: tl.constexpr, IN: tl.constexpr,
    H1: tl.constexpr, H2: tl.constexpr, PI: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, RELU: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    k, a, b, c = tl.arange(0, PI), tl.arange(0, P1), tl.arange(0, P2), tl.arange(0, P3)
    inside = (rows < n)[:, None]
    given = tl.load(x + rows[:, None] * IN + k[None, :], mask=inside & (k < IN)[None, :], other=0.0)
    first, second = _transposed(w[0], a, k, H1, IN), _transposed(w[2], b, a, H2, H1)
    third = _transposed(w[4], c, b, H3, H2)
    bias1 = tl.load(w[1] + a, mask=a < H1, other=0.0)
    bias2 = tl.load(w[3] + b, mask=b < H2, other=0.0)
    bias3 = tl.load(w[5] + c, mask=c < H3, other=0.0)
    y = _active(tl.dot(given, first, input_precision=PRECISION) + bias1[None, :], RELU)
    y = _active(tl.dot(y, second, input_precision=PRECISION) + bias2[None, :], RELU)
    y = tl.dot(y, third, input_precision=PRECISION) + bias3[None, :]
    tl.store(out + rows[:, None] * WIDTH + AT + c[None, :], y, mask=inside & (c < H3)[None, :])


@triton.jit
def _mlp_kernel(
    x, one, two, out, n, HA: tl.constexpr, PA: tl.constexpr, HB: tl.constexpr, PB: tl.constexpr, WIDTH: tl.constexpr,
    IN: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, PI: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr,
    RELU: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    if tl.program_id(1) == 0:
        _forward(x, one, out, rows, n, 0, PA, HA, WIDTH, IN, H1, H2, PI, P1, P2, RELU, PRECISION)
    else:
        _forward(x, two, out, rows, n, HA, PB, HB, WIDTH, IN, H1, H2, PI, P1, P2, RELU, PRECISION)


@triton.jit
def _gradients(
    grad, x, w, part, n, tiles, AT: tl.constexpr, P3: tl.constexpr, H3: tl.constexpr, WIDTH: tl.constexpr,
    IN: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, PI: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr,
    RELU: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    k, a, b, c = tl.arange(0, PI), tl.arange(0, P1), tl.arange(0, P2), tl.arange(0, P3)
    first, second = _transposed(w[0], a, k, H1, IN), _transposed(w[2], b, a, H2, H1)
    back2 = tl.load(w[2] + b[:, None] * H1 + a[None, :], mask=(b < H2)[:, None] & (a < H1)[None, :], other=0.0)
    back3 = tl.load(w[4] + c[:, None] * H2 + b[None, :], mask=(c < H3)[:, None] & (b < H2)[None, :], other=0.0)
    bias1 = tl.load(w[1] + a, mask=a < H1, other=0.0)
    bias2 = tl.load(w[3] + b, mask=b < H2, other=0.0)
    # Sums over rows are products with ones, of which 16 columns are the fewest: adding rows takes a barrier a tile.
    ones = tl.full((ROWS, 16), 1.0, tl.float32)
    dw1, db1 = tl.zeros((P1, PI), tl.float32), tl.zeros((P1, 16), tl.float32)
    dw2, db2 = tl.zeros((P2, P1), tl.float32), tl.zeros((P2, 16), tl.float32)
    dw3, db3 = tl.zeros((P2, P3), tl.float32), tl.zeros((ROWS, P3), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        inside = (rows < n)[:, None]
        given = tl.load(x + rows[:, None] * IN + k[None, :], mask=inside & (k < IN)[None, :], other=0.0)
        g = tl.load(grad + rows[:, None] * WIDTH + AT + c[None, :], mask=inside & (c < H3)[None, :], other=0.0)
        one = _active(tl.dot(given, first, input_precision=PRECISION) + bias1[None, :], RELU)
        two = _active(tl.dot(one, second, input_precision=PRECISION) + bias2[None, :], RELU)
        dw3 += tl.dot(tl.trans(two), g, input_precision=PRECISION)
        db3 += g
        g = tl.dot(g, back3, input_precision=PRECISION) * _slope(two, RELU)
        dw2 += tl.dot(tl.trans(g), one, input_precision=PRECISION)
        db2 += tl.dot(tl.trans(g), ones, input_precision=PRECISION)
        g = tl.dot(g, back2, input_precision=PRECISION) * _slope(one, RELU)
        dw1 += tl.dot(tl.trans(g), given, input_precision=PRECISION)
        db1 += tl.dot(tl.trans(g), ones, input_precision=PRECISION)
    # Each begins at a multiple of 4 numbers, as `_mlp.starts` has it.
    tl.store(part + a[:, None] * IN + k[None, :], dw1, mask=(a < H1)[:, None] & (k < IN)[None, :])
    part += (H1 * IN + 3) // 4 * 4
    tl.store(part + a, tl.max(db1, 1), mask=a < H1)
    part += (H1 + 3) // 4 * 4
    tl.store(part + b[:, None] * H1 + a[None, :], dw2, mask=(b < H2)[:, None] & (a < H1)[None, :])
    part += (H2 * H1 + 3) // 4 * 4
    tl.store(part + b, tl.max(db2, 1), mask=b < H2)
    part += (H2 + 3) // 4 * 4
    tl.store(part + c[None, :] * H2 + b[:, None], dw3, mask=(c < H3)[None, :] & (b < H2)[:, None])
    part += (H3 * H2 + 3) // 4 * 4
    tl.store(part + c, tl.sum(db3, 0), mask=c < H3)


@triton.jit
def _mlp_gradients_kernel(
    grad, x, one, two, parts, n, tiles, length, begin, HA: tl.constexpr, PA: tl.constexpr, HB: tl.constexpr,
    PB: tl.constexpr, WIDTH: tl.constexpr, IN: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, PI: tl.constexpr,
    P1: tl.constexpr, P2: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    part = parts + tl.program_id(0).to(tl.int64) * length
    if tl.program_id(1) == 0:
        _gradients(grad, x, one, part, n, tiles, 0, PA, HA, WIDTH, IN, H1, H2, PI, P1, P2, RELU, PRECISION, ROWS)
    else:
        part += begin
        _gradients(grad, x, two, part, n, tiles, HA, PB, HB, WIDTH, IN, H1, H2, PI, P1, P2, RELU, PRECISION, ROWS)


@triton.jit
def _add_parts_kernel(parts, out, count, length, COLUMNS: tl.constexpr, PARTS: tl.constexpr):
    """Sum over the parts `[count, length]`."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.arange(0, PARTS)
    inside = (part < count)[:, None] & (column < length)[None, :]
    held = tl.load(parts + part[:, None] * length + column[None, :], mask=inside, other=0.0)
    tl.store(out + column, tl.sum(held, 0), mask=column < length)


def _settings(weights: Sequence[torch.Tensor], activation: str) -> dict[str, object]:
    (hidden, inputs), outputs = weights[0].shape, weights[2].shape[0]
    heads = [head.shape[0] for head in weights[4 :: _mlp.TOWER]]
    padded = [max(16, triton.next_power_of_2(size)) for size in (inputs, hidden, outputs, heads[0], heads[-1])]
    return {
        "IN": inputs, "H1": hidden, "H2": outputs, "HA": heads[0], "HB": heads[-1], "WIDTH": sum(heads),
        "PI": padded[0], "P1": padded[1], "P2": padded[2], "PA": padded[3], "PB": padded[4],
        "RELU": activation == "relu", "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3",
    }  # fmt: skip


def _in_towers(weights: Sequence[torch.Tensor]) -> tuple[int, tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """(number of towers, weights of the first, of the last)."""
    held = [weight.contiguous() for weight in weights]
    return len(held) // _mlp.TOWER, tuple(held[: _mlp.TOWER]), tuple(held[-_mlp.TOWER :])


def forward(x: torch.Tensor, weights: Sequence[torch.Tensor], activation: str) -> torch.Tensor:
    """`_mlp.mlp`."""
    n, x, settings = x.shape[0], x.contiguous(), _settings(weights, activation)
    out = torch.empty(n, settings["WIDTH"], dtype=torch.float32, device=x.device)  # type: ignore[call-overload]
    if n:
        count, one, two = _in_towers(weights)
        tile = _FORWARD_FEW if n <= _FEW else _FORWARD
        _mlp_kernel[(triton.cdiv(n, tile["ROWS"]), count)](x, one, two, out, n, **settings, **tile)
    return out


def gradients(grad: torch.Tensor, x: torch.Tensor, weights: Sequence[torch.Tensor], activation: str) -> torch.Tensor:
    """`_mlp.mlp_gradients`; parts of the sums over rows are added in a fixed order."""
    n, grad, x = x.shape[0], grad.contiguous(), x.contiguous()
    count, one, two = _in_towers(weights)
    starts = _mlp.starts(weights)
    length = starts[-1]
    tiles = triton.cdiv(n, _GRADIENTS["ROWS"])
    programs = min(tiles, _PROGRAMS)
    parts = torch.empty(programs, length, dtype=torch.float32, device=x.device)
    if not programs:
        return parts.new_zeros(length)
    _mlp_gradients_kernel[(programs, count)](
        grad, x, one, two, parts, n, tiles, length, starts[_mlp.TOWER], **_settings(weights, activation), **_GRADIENTS
    )
    out = torch.empty(length, dtype=torch.float32, device=x.device)
    _add_parts_kernel[(triton.cdiv(length, _COLUMNS),)](
        parts, out, programs, length, COLUMNS=_COLUMNS, PARTS=triton.next_power_of_2(programs)
    )
    return out
