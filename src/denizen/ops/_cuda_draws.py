"""Random words and masks on CUDA with Triton; the same bits as `_draws`.

Multiplication and addition are kept apart (`enable_fp_fusion=False`): a fused multiply-add rounds once where the
reference rounds twice.
"""

import torch
import triton
import triton.language as tl

from denizen.ops import _draws as reference

_BLOCK = 256  # blocks of four agents for each program


@triton.jit
def _philox(c0, c1, c2, c3, k0, k1):
    for _ in tl.static_range(10):
        high0 = tl.umulhi(c0, 0xD2511F53)
        low0 = c0 * 0xD2511F53
        high1 = tl.umulhi(c2, 0xCD9E8D57)
        low1 = c2 * 0xCD9E8D57
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def _four_words(block, step, stream, k0, k1, BLOCK: tl.constexpr):
    """Words of BLOCK Philox blocks in the order of ids: uint32 [4 * BLOCK]."""
    low = block.to(tl.uint32)
    high = (block >> 32).to(tl.uint32)
    a, b, c, d = _philox(low, high, low * 0 + step, low * 0 + stream, k0, k1)
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (4 * BLOCK,))


@triton.jit
def _one_word(ids, step, stream, k0, k1):
    """Word of each id: uint32, same shape."""
    block = ids >> 2
    low = block.to(tl.uint32)
    high = (block >> 32).to(tl.uint32)
    a, b, c, d = _philox(low, high, low * 0 + step, low * 0 + stream, k0, k1)
    lane = ids & 3
    return tl.where(lane < 2, tl.where(lane == 0, a, b), tl.where(lane == 2, c, d))


@triton.jit
def _hazard_threshold(x, LOG2E, HIGH, LOW, C0, C1, C2, C3, C4, C5):
    x = tl.minimum(x, 40.0)
    n = tl.floor(x * LOG2E + 0.5)
    y = n * HIGH - x
    y = y + n * LOW
    q = C0
    q = q * y + C1
    q = q * y + C2
    q = q * y + C3
    q = q * y + C4
    q = q * y + C5
    q = q * y * y + y
    s = ((127 - n.to(tl.int32)) << 23).to(tl.float32, bitcast=True)
    p = (1.0 - s) - s * q
    return (p * 4294967296.0).to(tl.int64)


@triton.jit
def _whose(worlds, n, FLAT: tl.constexpr, BLOCK: tl.constexpr):
    """(world, place within it, whether there is one, first Philox block) of this program's 4 * BLOCK lanes.

    FLAT: lanes go on from world to world, for worlds of few agents; else a program has one world.
    """
    lanes = tl.arange(0, 4 * BLOCK)
    program = tl.program_id(0).to(tl.int64)
    if FLAT:
        at = program * (4 * BLOCK) + lanes
        world, places, inside, base = at // n, at % n, at < worlds * n, program
    else:
        blocks = tl.cdiv(n, 4 * BLOCK)
        places = program % blocks * (4 * BLOCK) + lanes
        world, inside, base = program // blocks, places < n, program % blocks * BLOCK
    return world, places, inside, base


@triton.jit
def _drawn(
    ids,
    key,
    step_ptr,
    stream,
    row_stride,
    world,
    places,
    inside,
    base,
    ARANGE: tl.constexpr,
    FLAT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The word of every lane."""
    if FLAT:
        k0 = tl.load(key + 2 * world, mask=inside, other=0).to(tl.uint32)
        k1 = tl.load(key + 2 * world + 1, mask=inside, other=0).to(tl.uint32)
    else:
        k0 = tl.load(key + 2 * world).to(tl.uint32)
        k1 = tl.load(key + 2 * world + 1).to(tl.uint32)
    step, word_stream = tl.load(step_ptr).to(tl.uint32), stream.to(tl.uint32)
    if not ARANGE:
        who = tl.load(ids + world * row_stride + places, mask=inside, other=0)
        word = _one_word(who, step, word_stream, k0, k1)
    elif FLAT:
        word = _one_word(places, step, word_stream, k0, k1)
    else:
        word = _four_words(base + tl.arange(0, BLOCK), step, word_stream, k0, k1, BLOCK)
    return word


@triton.jit(do_not_specialize=["stream"])  # else a stream of 1 would be no tensor
def _draw_mask_kernel(
    values,
    ids,
    key,
    step_ptr,
    out,
    bad,
    worlds,
    n,
    stream,
    row_stride,
    LOG2E,
    HIGH,
    LOW,
    C0,
    C1,
    C2,
    C3,
    C4,
    C5,
    HAZARD: tl.constexpr,
    ARANGE: tl.constexpr,
    FLAT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    world, places, inside, base = _whose(worlds, n, FLAT, BLOCK)
    x = tl.load(values + world * n + places, mask=inside, other=0.0)
    fine = x >= 0
    if not HAZARD:
        fine = fine & (x <= 1)
    if tl.sum((inside & ~fine).to(tl.int32)) > 0:
        tl.atomic_max(bad + world + places * 0, 1, mask=inside & ~fine)
    x = tl.where(fine, x, 0.0)
    hit = (places * 0).to(tl.int8)
    if tl.max(x) > 0:  # a block in which nothing can happen draws nothing
        word = _drawn(ids, key, step_ptr, stream, row_stride, world, places, inside, base, ARANGE, FLAT, BLOCK)
        if HAZARD:
            threshold = _hazard_threshold(x, LOG2E, HIGH, LOW, C0, C1, C2, C3, C4, C5)
        else:
            threshold = (x * 4294967296.0).to(tl.int64)
        hit = (word.to(tl.int64) < threshold).to(tl.int8)
    tl.store(out + world * n + places, hit, mask=inside)


@triton.jit(do_not_specialize=["stream"])
def _words_kernel(
    ids,
    key,
    step_ptr,
    out,
    worlds,
    n,
    stream,
    row_stride,
    ARANGE: tl.constexpr,
    FLAT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    world, places, inside, base = _whose(worlds, n, FLAT, BLOCK)
    word = _drawn(ids, key, step_ptr, stream, row_stride, world, places, inside, base, ARANGE, FLAT, BLOCK)
    tl.store(out + world * n + places, word.to(tl.int64), mask=inside)


def _programs(worlds: int, num: int) -> tuple[tuple[int], bool]:
    """(grid, whether lanes go on from world to world). One axis: a second one ends at 65,535 worlds."""
    if num <= 2 * _BLOCK:
        return (triton.cdiv(worlds * num, 4 * _BLOCK),), True
    return (worlds * triton.cdiv(num, 4 * _BLOCK),), False


def _rows(ids: torch.Tensor) -> int:
    """Distance between the ids of two worlds: 0 where all worlds share them."""
    return ids.shape[1] if ids.dim() == 2 and ids.shape[0] > 1 else 0


def words(ids: torch.Tensor, num: int, key: torch.Tensor, step: torch.Tensor, stream: int) -> torch.Tensor:
    """`_draws.words`; empty `ids` stand for 0 … num - 1."""
    out = torch.empty(key.shape[0], num, dtype=torch.int64, device=key.device)
    if out.numel():
        grid, flat = _programs(*out.shape)
        arange = ids.numel() == 0
        ids = ids.contiguous()
        _words_kernel[grid](
            ids,
            key.contiguous(),
            step,
            out,
            out.shape[0],
            num,
            stream,
            _rows(ids),
            ARANGE=arange,
            FLAT=flat,
            BLOCK=_BLOCK,
        )
    return out


def draw_mask(
    values: torch.Tensor, hazard: bool, ids: torch.Tensor, key: torch.Tensor, step: torch.Tensor, stream: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """0/1 draws int8 `[worlds, ids]` from float32 hazards or probabilities, and which worlds held a bad one."""
    values, ids = values.contiguous(), ids.contiguous()
    worlds, num = values.shape
    out = torch.empty(values.shape, dtype=torch.int8, device=values.device)
    bad = torch.zeros(worlds, dtype=torch.int32, device=values.device)
    if out.numel():
        grid, flat = _programs(worlds, num)
        constants = (reference.LOG2E, reference.LN2_HIGH, reference.LN2_LOW, *reference.COEFFICIENTS)
        _draw_mask_kernel[grid](
            values,
            ids,
            key.contiguous(),
            step,
            out,
            bad,
            worlds,
            num,
            stream,
            _rows(ids),
            *constants,
            HAZARD=hazard,
            ARANGE=ids.numel() == 0,
            FLAT=flat,
            BLOCK=_BLOCK,
            enable_fp_fusion=False,
        )
    return out, bad.to(torch.int8)
