"""`_mlp` on CUDA with Triton: a program takes tiles of rows through all layers of a tower.

Products run on tensor cores: with TF32 where torch's matrix products may use it, else as three TF32 products, whose
error is that of float32. Inputs of bytes are exact in half precision, in which products are twice as fast. Weights then
take float16, which has as many bits as TF32, or three parts in bfloat16, which have all; gradients, which may be small,
two parts or three.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from denizen.nn.kernels import _mlp
from denizen.nn.kernels._precompile import launch
from denizen.perf.watch import takes_tf32

_FORWARD = {"ROWS": 64, "num_warps": 4}
_FORWARD_FEW = {"ROWS": 16, "num_warps": 4}  # where there are few rows, so that every multiprocessor has some
_FEW = 1 << 14
_WIDE = {"ROWS": 128, "STEP": 64, "num_warps": 8, "num_stages": 3}  # of wide inputs, so many at a time
_WIDE_FEW = {"ROWS": 64, "STEP": 64, "num_warps": 4, "num_stages": 3}
_GRADIENTS = {"ROWS": 32, "num_warps": 4}
_PROGRAMS = 264  # of the gradients of a tower, two a multiprocessor of an H100: each leaves a part of the sum over rows
_FIRST = {"ROWS": 64, "STEP": 128, "num_warps": 8, "num_stages": 3}  # of the gradients of a wide first layer
_FIRST_PROGRAMS = 66
_COLUMNS = 32  # of the parts, which one program adds up


@triton.jit
def _active(x, RELU: tl.constexpr):
    if RELU:
        return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * x))  # exp may give 0 and inf


@triton.jit
def _slope(y, RELU: tl.constexpr):
    return tl.where(y > 0, 1.0, 0.0) if RELU else 1.0 - y * y


@triton.jit
def _transposed(w, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A weight `[ROWS, COLUMNS]` as `[columns, rows]`; 0 beyond its ends."""
    inside = (columns < COLUMNS)[:, None] & (rows < ROWS)[None, :]
    return tl.load(w + rows[None, :] * COLUMNS + columns[:, None], mask=inside, other=0.0)


@triton.jit
def _given(x, rows, columns, n, IN: tl.constexpr, PARTS: tl.constexpr):
    """A tile of the inputs, in the precision in which the other side of a product has so many parts."""
    inside = (rows < n)[:, None] & (columns < IN)[None, :]
    held = tl.load(x + rows[:, None] * IN + columns[None, :], mask=inside, other=0)
    return held.to(tl.float32 if PARTS == 0 else tl.float16 if PARTS == 1 else tl.bfloat16)


@triton.jit
def _first(
    x,
    w,
    bias,
    rows,
    n,
    a,
    IN: tl.constexpr,
    H1: tl.constexpr,
    ROWS: tl.constexpr,
    P1: tl.constexpr,
    STEP: tl.constexpr,
    PARTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The first layer of wide inputs before its activation."""
    y = tl.zeros((ROWS, P1), tl.float32) + bias[None, :]
    for begin in range(0, IN, STEP):
        k = begin + tl.arange(0, STEP)
        given, rest = _given(x, rows, k, n, IN, PARTS), _transposed(w, a, k, H1, IN)
        if PARTS == 0:
            y = tl.dot(given, rest, y, input_precision=PRECISION)
        elif PARTS == 1:
            y = tl.dot(given, tl.clamp(rest, -65504.0, 65504.0).to(tl.float16), y)
        else:
            for _ in tl.static_range(PARTS):
                part = rest.to(tl.bfloat16)
                y = tl.dot(given, part, y)
                rest -= part.to(tl.float32)
    return y


@triton.jit
def _forward(
    x,
    w,
    out,
    kept,
    rows,
    n,
    TOWER: tl.constexpr,
    AT: tl.constexpr,
    P3: tl.constexpr,
    H3: tl.constexpr,
    WIDTH: tl.constexpr,
    KEPT: tl.constexpr,
    IN: tl.constexpr,
    H1: tl.constexpr,
    H2: tl.constexpr,
    PI: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
    RELU: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PARTS: tl.constexpr,
):
    k, a, b, c = tl.arange(0, PI), tl.arange(0, P1), tl.arange(0, P2), tl.arange(0, P3)
    inside = (rows < n)[:, None]
    second, third = _transposed(w[2], b, a, H2, H1), _transposed(w[4], c, b, H3, H2)
    bias1 = tl.load(w[1] + a, mask=a < H1, other=0.0)
    bias2 = tl.load(w[3] + b, mask=b < H2, other=0.0)
    bias3 = tl.load(w[5] + c, mask=c < H3, other=0.0)
    if KEPT:
        y = _active(_first(x, w[0], bias1, rows, n, a, IN, H1, ROWS, P1, STEP, PARTS, PRECISION), RELU)
        tl.store(kept + rows[:, None] * KEPT + TOWER * H1 + a[None, :], y, mask=inside & (a < H1)[None, :])
    else:
        given, first = _given(x, rows, k, n, IN, 0), _transposed(w[0], a, k, H1, IN)
        y = _active(tl.dot(given, first, input_precision=PRECISION) + bias1[None, :], RELU)
    y = _active(tl.dot(y, second, input_precision=PRECISION) + bias2[None, :], RELU)
    y = tl.dot(y, third, input_precision=PRECISION) + bias3[None, :]
    tl.store(out + rows[:, None] * WIDTH + AT + c[None, :], y, mask=inside & (c < H3)[None, :])


@triton.jit
def _mlp_kernel(
    x,
    one,
    two,
    out,
    kept,
    n,
    HA: tl.constexpr,
    PA: tl.constexpr,
    HB: tl.constexpr,
    PB: tl.constexpr,
    WIDTH: tl.constexpr,
    KEPT: tl.constexpr,
    IN: tl.constexpr,
    H1: tl.constexpr,
    H2: tl.constexpr,
    PI: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
    RELU: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    PARTS: tl.constexpr,
    TOWERS: tl.constexpr,
):
    # Both towers of a tile beside each other, so that the second one finds the inputs in the cache.
    rows = (tl.program_id(0) // TOWERS).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    if tl.program_id(0) % TOWERS == 0:
        _forward(
            x,
            one,
            out,
            kept,
            rows,
            n,
            0,
            0,
            PA,
            HA,
            WIDTH,
            KEPT,
            IN,
            H1,
            H2,
            PI,
            P1,
            P2,
            RELU,
            PRECISION,
            ROWS,
            STEP,
            PARTS,
        )
    else:
        _forward(
            x,
            two,
            out,
            kept,
            rows,
            n,
            1,
            HA,
            PB,
            HB,
            WIDTH,
            KEPT,
            IN,
            H1,
            H2,
            PI,
            P1,
            P2,
            RELU,
            PRECISION,
            ROWS,
            STEP,
            PARTS,
        )


@triton.jit
def _gradients(
    grad,
    x,
    kept,
    back,
    w,
    part,
    n,
    tiles,
    part1,
    TOWER: tl.constexpr,
    AT: tl.constexpr,
    P3: tl.constexpr,
    H3: tl.constexpr,
    WIDTH: tl.constexpr,
    KEPT: tl.constexpr,
    IN: tl.constexpr,
    H1: tl.constexpr,
    H2: tl.constexpr,
    PI: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
    RELU: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
):
    # Rows are columns here: weights come first in each product, and sums over rows take what is in registers as it is.
    k, a, b, c = tl.arange(0, PI), tl.arange(0, P1), tl.arange(0, P2), tl.arange(0, P3)
    first = tl.load(w[0] + a[:, None] * IN + k[None, :], mask=(a < H1)[:, None] & (k < IN)[None, :], other=0.0)
    second = tl.load(w[2] + b[:, None] * H1 + a[None, :], mask=(b < H2)[:, None] & (a < H1)[None, :], other=0.0)
    back2, back3 = _transposed(w[2], b, a, H2, H1), _transposed(w[4], c, b, H3, H2)
    bias1 = tl.load(w[1] + a, mask=a < H1, other=0.0)
    bias2 = tl.load(w[3] + b, mask=b < H2, other=0.0)
    # Sums over rows are products with ones, of which 16 columns are the fewest: adding rows takes a barrier a tile.
    ones = tl.full((ROWS, 16), 1.0, tl.float32)
    dw1, db1 = tl.zeros((P1, PI), tl.float32), tl.zeros((P1, 16), tl.float32)
    dw2, db2 = tl.zeros((P2, P1), tl.float32), tl.zeros((P2, 16), tl.float32)
    dw3, db3 = tl.zeros((P2, P3), tl.float32), tl.zeros((P3, ROWS), tl.float32)
    for tile in range(tl.program_id(1), tiles, tl.num_programs(1)):
        rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[None, :]
        inside = rows < n
        there, at = inside & (a < H1)[:, None], rows * KEPT + TOWER * H1 + a[:, None]
        g = tl.load(grad + rows * WIDTH + AT + c[:, None], mask=inside & (c < H3)[:, None], other=0.0)
        given = tl.load(x + rows * IN + k[:, None], mask=inside & (k < IN)[:, None], other=0).to(tl.float32)
        if KEPT:
            one = tl.load(kept + at, mask=there, other=0.0)
        else:
            one = _active(tl.dot(first, given, input_precision=PRECISION) + bias1[:, None], RELU)
        two = _active(tl.dot(second, one, input_precision=PRECISION) + bias2[:, None], RELU)
        dw3 += tl.dot(two, tl.trans(g), input_precision=PRECISION)
        db3 += g
        g = tl.dot(back3, g, input_precision=PRECISION) * _slope(two, RELU)
        dw2 += tl.dot(g, tl.trans(one), input_precision=PRECISION)
        db2 += tl.dot(g, ones, input_precision=PRECISION)
        g = tl.dot(back2, g, input_precision=PRECISION) * _slope(one, RELU)
        db1 += tl.dot(g, ones, input_precision=PRECISION)
        if KEPT:
            tl.store(back + at, g, mask=there)
        else:
            dw1 += tl.dot(g, tl.trans(given), input_precision=PRECISION)
    if not KEPT:
        tl.store(part1 + a[:, None] * IN + k[None, :], dw1, mask=(a < H1)[:, None] & (k < IN)[None, :])
    tl.store(part + a, tl.max(db1, 1), mask=a < H1)
    part += H1
    tl.store(part + b[:, None] * H1 + a[None, :], dw2, mask=(b < H2)[:, None] & (a < H1)[None, :])
    part += H2 * H1
    tl.store(part + b, tl.max(db2, 1), mask=b < H2)
    part += H2
    tl.store(part + c[None, :] * H2 + b[:, None], dw3, mask=(c < H3)[None, :] & (b < H2)[:, None])
    part += H3 * H2
    tl.store(part + c, tl.sum(db3, 1), mask=c < H3)


@triton.jit
def _mlp_gradients_kernel(
    grad,
    x,
    kept,
    back,
    one,
    two,
    parts,
    n,
    tiles,
    length,
    begin,
    first,
    HA: tl.constexpr,
    PA: tl.constexpr,
    HB: tl.constexpr,
    PB: tl.constexpr,
    WIDTH: tl.constexpr,
    KEPT: tl.constexpr,
    IN: tl.constexpr,
    H1: tl.constexpr,
    H2: tl.constexpr,
    PI: tl.constexpr,
    P1: tl.constexpr,
    P2: tl.constexpr,
    RELU: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
):
    part = parts + tl.program_id(1).to(tl.int64) * length
    if tl.program_id(0) == 0:
        _gradients(
            grad,
            x,
            kept,
            back,
            one,
            part,
            n,
            tiles,
            part + first,
            0,
            0,
            PA,
            HA,
            WIDTH,
            KEPT,
            IN,
            H1,
            H2,
            PI,
            P1,
            P2,
            RELU,
            PRECISION,
            ROWS,
        )
    else:
        part1 = part + first + H1 * IN
        part += begin
        _gradients(
            grad,
            x,
            kept,
            back,
            two,
            part,
            n,
            tiles,
            part1,
            1,
            HA,
            PB,
            HB,
            WIDTH,
            KEPT,
            IN,
            H1,
            H2,
            PI,
            P1,
            P2,
            RELU,
            PRECISION,
            ROWS,
        )


@triton.jit
def _mlp_first_kernel(
    back,
    x,
    parts,
    n,
    tiles,
    length,
    IN: tl.constexpr,
    KEPT: tl.constexpr,
    H1: tl.constexpr,
    P1: tl.constexpr,
    TOWERS: tl.constexpr,
    PARTS: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
):
    """Gradient of the weights of wide first layers, of some columns: a part of the sum over rows."""
    unit, k = tl.arange(0, TOWERS * P1), tl.program_id(0) * STEP + tl.arange(0, STEP)
    a = unit % P1
    column = unit // P1 * H1 + a
    found = tl.zeros((TOWERS * P1, STEP), tl.float32)
    for tile in range(tl.program_id(1), tiles, tl.num_programs(1)):
        rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        given = _given(x, rows, k, n, IN, PARTS)
        there = (rows < n)[:, None] & (a < H1)[None, :]
        rest = tl.load(back + rows[:, None] * KEPT + column[None, :], mask=there, other=0.0)
        if PARTS:
            for _ in tl.static_range(PARTS):
                part = rest.to(tl.bfloat16)
                found = tl.dot(tl.trans(part), given, found)
                rest -= part.to(tl.float32)
        else:
            found = tl.dot(tl.trans(rest), given, found, input_precision=PRECISION)
    out = parts + tl.program_id(1).to(tl.int64) * length
    tl.store(out + column[:, None] * IN + k[None, :], found, mask=(a < H1)[:, None] & (k < IN)[None, :])


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
    wide = _mlp.wide(weights)
    sizes = (16 if wide else inputs, hidden, outputs, heads[0], heads[-1])
    padded = [max(16, triton.next_power_of_2(size)) for size in sizes]
    return {
        "IN": inputs,
        "H1": hidden,
        "H2": outputs,
        "HA": heads[0],
        "HB": heads[-1],
        "WIDTH": sum(heads),
        "PI": padded[0],
        "P1": padded[1],
        "P2": padded[2],
        "PA": padded[3],
        "PB": padded[4],
        "KEPT": len(heads) * hidden if wide else 0,
        "RELU": activation == "relu",
        "PRECISION": _precision(),
    }


def _precision() -> str:
    return "tf32" if takes_tf32(torch.backends.cuda.matmul) else "tf32x3"


def _parts(x: torch.Tensor, few: int) -> int:
    """Parts in half precision of the other side of a product with inputs; 0: it is float32, as they are."""
    if x.dtype == torch.float32 or not isinstance(_mlp_kernel, triton.JITFunction):  # interpreted: knows no bfloat16
        return 0
    return few if takes_tf32(torch.backends.cuda.matmul) else 3


def _in_towers(weights: Sequence[torch.Tensor]) -> tuple[int, tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """(number of towers, weights of the first, of the last)."""
    held = [weight.contiguous() for weight in weights]
    return len(held) // _mlp.TOWER, tuple(held[: _mlp.TOWER]), tuple(held[-_mlp.TOWER :])


def forward(x: torch.Tensor, weights: Sequence[torch.Tensor], activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    """`_mlp.mlp`."""
    n, x, settings = x.shape[0], x.contiguous(), _settings(weights, activation)
    out = torch.empty(n, settings["WIDTH"], dtype=torch.float32, device=x.device)  # type: ignore[call-overload]
    kept = torch.empty(n, settings["KEPT"], dtype=torch.float32, device=x.device)  # type: ignore[call-overload]
    if n:
        count, one, two = _in_towers(weights)
        if settings["KEPT"]:
            tile = _WIDE_FEW if n <= _FEW else _WIDE
        else:
            tile = {**(_FORWARD_FEW if n <= _FEW else _FORWARD), "STEP": 0}
        launch(
            _mlp_kernel,
            (count * triton.cdiv(n, tile["ROWS"]),),
            x,
            one,
            two,
            out,
            kept,
            n,
            PARTS=_parts(x, 1),
            TOWERS=count,
            **settings,
            **tile,
        )
    return out, kept


def gradients(
    grad: torch.Tensor, x: torch.Tensor, kept: torch.Tensor, weights: Sequence[torch.Tensor], activation: str
) -> torch.Tensor:
    """`_mlp.mlp_gradients`; parts of the sums over rows are added in a fixed order."""
    n, grad, x, kept = x.shape[0], grad.contiguous(), x.contiguous(), kept.contiguous()
    count, one, two = _in_towers(weights)
    places, end = _mlp.starts(weights)
    settings, wide = _settings(weights, activation), _mlp.wide(weights)
    out = torch.zeros(end, dtype=torch.float32, device=x.device) if not n else grad.new_empty(end)
    if not n:
        return out
    back = torch.empty_like(kept)
    tiles, length = triton.cdiv(n, _GRADIENTS["ROWS"]), places[0] if wide else end
    parts = grad.new_empty(min(tiles, _PROGRAMS), length)
    begin = places[_mlp.TOWER + 1] if count > 1 else 0
    launch(
        _mlp_gradients_kernel,
        (count, parts.shape[0]),
        grad,
        x,
        kept,
        back,
        one,
        two,
        parts,
        n,
        tiles,
        length,
        begin,
        places[0],
        **settings,
        **_GRADIENTS,
    )
    _add(parts, out)
    if wide:
        inputs, tiles = weights[0].shape[1], triton.cdiv(n, _FIRST["ROWS"])
        parts = grad.new_empty(min(tiles, _FIRST_PROGRAMS), end - length)
        names = ("IN", "KEPT", "H1", "P1", "PRECISION")
        launch(
            _mlp_first_kernel,
            (triton.cdiv(inputs, _FIRST["STEP"]), parts.shape[0]),
            back,
            x,
            parts,
            n,
            tiles,
            end - length,
            TOWERS=count,
            PARTS=_parts(x, 2),
            **{name: settings[name] for name in names},
            **_FIRST,
        )
        _add(parts, out[length:])
    return out


def _add(parts: torch.Tensor, out: torch.Tensor) -> None:
    """The sum of parts into the beginning of a tensor."""
    count, length = parts.shape
    launch(
        _add_parts_kernel,
        (triton.cdiv(length, _COLUMNS),),
        parts,
        out,
        count,
        length,
        COLUMNS=_COLUMNS,
        PARTS=triton.next_power_of_2(count),
    )
