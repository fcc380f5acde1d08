"""`_mlp` on CUDA with Triton: a program takes a tile of rows through both layers.

Products run on tensor cores: with TF32 where torch's matrix products may use it, else as three TF32 products, whose
error is that of float32.
"""

import torch
import triton
import triton.language as tl

_ROWS, _ROWS_FEW = 64, 32  # of a tile; where there are few rows, so that every multiprocessor has one
_FEW = 1 << 14
_ROWS_GRADIENTS = 16  # of which the gradients of both weights stay in registers
_PROGRAMS = 396  # of the gradients, three a multiprocessor of an H100: each leaves a part of the sum over rows


@triton.jit
def _active(x, RELU: tl.constexpr):
    if RELU:
        y = tl.maximum(x, 0.0)
    else:
        e = tl.exp(-2.0 * tl.abs(x))
        y = (1.0 - e) / (1.0 + e)
        y = tl.where(x < 0, -y, y)
    return y


@triton.jit
def _slope(y, RELU: tl.constexpr):
    return tl.where(y > 0, 1.0, 0.0) if RELU else 1.0 - y * y


@triton.jit
def _hidden(
    x, w1, b1, rows, n, IN: tl.constexpr, H1: tl.constexpr, PI: tl.constexpr, P1: tl.constexpr, RELU: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """(inputs [ROWS, PI], first layer [ROWS, P1]) of a tile; 0 beyond their ends."""
    k, a = tl.arange(0, PI), tl.arange(0, P1)
    inside = (rows < n)[:, None]
    given = tl.load(x + rows[:, None] * IN + k[None, :], mask=inside & (k < IN)[None, :], other=0.0)
    first = tl.load(w1 + a[None, :] * IN + k[:, None], mask=(a < H1)[None, :] & (k < IN)[:, None], other=0.0)
    bias = tl.load(b1 + a, mask=a < H1, other=0.0)
    return given, _active(tl.dot(given, first, input_precision=PRECISION) + bias[None, :], RELU)


@triton.jit
def _mlp_kernel(
    x, w1, b1, w2, b2, out, n, IN: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, PI: tl.constexpr,
    P1: tl.constexpr, P2: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    _, hidden = _hidden(x, w1, b1, rows, n, IN, H1, PI, P1, RELU, PRECISION)
    a, b = tl.arange(0, P1), tl.arange(0, P2)
    second = tl.load(w2 + b[None, :] * H1 + a[:, None], mask=(a < H1)[:, None] & (b < H2)[None, :], other=0.0)
    bias = tl.load(b2 + b, mask=b < H2, other=0.0)
    y = _active(tl.dot(hidden, second, input_precision=PRECISION) + bias[None, :], RELU)
    tl.store(out + rows[:, None] * H2 + b[None, :], y, mask=(rows < n)[:, None] & (b < H2)[None, :])


@triton.jit
def _mlp_gradients_kernel(
    grad, x, out, w1, b1, w2, parts, n, tiles, width, IN: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr,
    PI: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    k, a, b = tl.arange(0, PI), tl.arange(0, P1), tl.arange(0, P2)
    second = tl.load(w2 + b[:, None] * H1 + a[None, :], mask=(b < H2)[:, None] & (a < H1)[None, :], other=0.0)
    dw1, db1 = tl.zeros((P1, PI), tl.float32), tl.zeros((P1,), tl.float32)
    dw2, db2 = tl.zeros((P2, P1), tl.float32), tl.zeros((P2,), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        given, hidden = _hidden(x, w1, b1, rows, n, IN, H1, PI, P1, RELU, PRECISION)
        at, there = rows[:, None] * H2 + b[None, :], (rows < n)[:, None] & (b < H2)[None, :]
        y = tl.load(out + at, mask=there, other=0.0)
        g2 = tl.load(grad + at, mask=there, other=0.0) * _slope(y, RELU)
        dw2 += tl.dot(tl.trans(g2), hidden, input_precision=PRECISION)
        db2 += tl.sum(g2, 0)
        g1 = tl.dot(g2, second, input_precision=PRECISION) * _slope(hidden, RELU)
        dw1 += tl.dot(tl.trans(g1), given, input_precision=PRECISION)
        db1 += tl.sum(g1, 0)
    base = parts + tl.program_id(0).to(tl.int64) * width
    tl.store(base + a[:, None] * IN + k[None, :], dw1, mask=(a < H1)[:, None] & (k < IN)[None, :])
    base += H1 * IN
    tl.store(base + a, db1, mask=a < H1)
    base += H1
    tl.store(base + b[:, None] * H1 + a[None, :], dw2, mask=(b < H2)[:, None] & (a < H1)[None, :])
    base += H2 * H1
    tl.store(base + b, db2, mask=b < H2)


def _settings(w1: torch.Tensor, w2: torch.Tensor, activation: str) -> dict[str, object]:
    (hidden, inputs), outputs = w1.shape, w2.shape[0]
    padded = [max(16, triton.next_power_of_2(size)) for size in (inputs, hidden, outputs)]
    return {
        "IN": inputs, "H1": hidden, "H2": outputs, "PI": padded[0], "P1": padded[1], "P2": padded[2],
        "RELU": activation == "relu", "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3",
    }  # fmt: skip


def forward(
    x: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor, b2: torch.Tensor, activation: str
) -> torch.Tensor:
    """`_mlp.mlp`."""
    n, x = x.shape[0], x.contiguous()
    out = torch.empty(n, w2.shape[0], dtype=torch.float32, device=x.device)
    if n:
        settings = _settings(w1, w2, activation)
        _mlp_kernel[(triton.cdiv(n, _ROWS),)](
            x, w1.contiguous(), b1, w2.contiguous(), b2, out, n, ROWS=_ROWS, **settings
        )
    return out


def gradients(
    grad: torch.Tensor, x: torch.Tensor, out: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor,
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """`_mlp.mlp_gradients`; parts of the sums over rows are added in a fixed order."""
    n, grad, x = x.shape[0], grad.contiguous(), x.contiguous()
    sizes = [w1.numel(), b1.numel(), w2.numel(), w2.shape[0]]
    tiles = triton.cdiv(n, _ROWS_GRADIENTS)
    programs = min(tiles, _PROGRAMS)
    parts = torch.empty(programs, sum(sizes), dtype=torch.float32, device=x.device)
    if programs:
        _mlp_gradients_kernel[(programs,)](
            grad, x, out.contiguous(), w1.contiguous(), b1, w2.contiguous(), parts, n, tiles, sum(sizes),
            ROWS=_ROWS_GRADIENTS, **_settings(w1, w2, activation),
        )  # fmt: skip
    # Results of an operation must not share memory, and compiled code takes them for aligned to 16 bytes.
    dw1, *others = parts.sum(0).split(sizes)
    db1, dw2, db2 = (one.clone() for one in others)
    return dw1.view_as(w1), db1, dw2.view_as(w2), db2
