"""Who caused what on CUDA with Triton; the bits of `_attribution`.

A program looks at a block of agents and notes those to whom it happened; then each lane reads one's list of
in-neighbours.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from denizen.ops._attribution import BITS
from denizen.ops._cuda_draws import _philox
from denizen.ops._cuda_neighbours import _launch, _note

assert BITS == 52  # as shifts and exponents below have it
RACES = {"LANES": 32, "BITS": 28, "AT_ONCE": 4}  # agents at once, edges that are marked in a word and loaded at once


@triton.jit
def _arrival(first, second, rate):
    """Exponential times float64 of two uint32 words each and a positive rate, float64."""
    odd = ((first.to(tl.int64) << 20) | (second.to(tl.int64) >> 12)) * 2 + 1
    bits = odd.to(tl.float64).to(tl.int64, bitcast=True)
    exponent = (bits >> 52) - 1022
    m = ((bits & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000).to(tl.float64, bitcast=True)
    one = tl.full(rate.shape, 1.0, tl.float64)
    low = m < one * 0.7071067690849304
    m = tl.where(low, m * 2.0, m)
    halvings = (53 - exponent + low.to(tl.int64)).to(tl.float64)
    t = (m - 1.0) / (m + 1.0)
    s = t * t
    q = one / 21.0
    q = q * s + one / 19.0
    q = q * s + one / 17.0
    q = q * s + one / 15.0
    q = q * s + one / 13.0
    q = q * s + one / 11.0
    q = q * s + one / 9.0
    q = q * s + one / 7.0
    q = q * s + one / 5.0
    q = q * s + one / 3.0
    q = q * s + one
    high = halvings * 0.693145751953125
    return (high + (halvings * 1.428606765330187e-06 - 2.0 * t * q)) / rate


@triton.jit
def _rate(values, weight, idx, row, edge, use, by, HAS_WEIGHT: tl.constexpr):
    """(sender, rate float64) of an edge of each lane."""
    place = tl.load(idx + edge, mask=use, other=0).to(tl.int64)
    message = tl.load(values + row + place, mask=use, other=0).to(tl.float32)
    if HAS_WEIGHT:
        message = tl.where(message == 0, message, message * tl.load(weight + edge, mask=use, other=0.0))
    return place, message.to(tl.float64) * by


@triton.jit
def _race(
    values,
    weight,
    ptr,
    idx,
    ids,
    agent,
    use_agent,
    row,
    id_row,
    by,
    k0,
    k1,
    step,
    stream,
    HAS_WEIGHT: tl.constexpr,
    HAS_IDS: tl.constexpr,
    LANES: tl.constexpr,
    BITS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """(time, id, place) of the winner of each of LANES agents; inf where nobody runs.

    A lane has an agent. First it marks who runs, in a word for so many edges: times are long to compute, and most
    neighbours do not run.
    """
    goal = agent
    if HAS_IDS:
        goal = tl.load(ids + id_row + agent, mask=use_agent, other=0)
    low, high = goal.to(tl.uint32), (goal >> 32).to(tl.uint32)
    a, b, c, _d = _philox(low, high, low * 0 + step, low * 0 + stream, k0, k1)
    start = tl.load(ptr + agent, mask=use_agent, other=0)
    degree = (tl.load(ptr + agent + 1, mask=use_agent, other=0) - start).to(tl.int32)
    best = tl.full((LANES,), float("inf"), tl.float64)
    best_id = tl.full((LANES,), 0x7FFFFFFFFFFFFFFF, tl.int64)
    best_place = tl.full((LANES,), -1, tl.int64)
    most = tl.max(degree)
    for base in range(0, most, BITS):
        marks = tl.zeros((LANES,), tl.int32)
        count = tl.zeros((LANES,), tl.int32)
        for k in range(0, tl.minimum(most - base, BITS), AT_ONCE):
            some = tl.zeros((LANES,), tl.int32)
            for u in tl.static_range(AT_ONCE):
                use = base + k + u < degree
                _place, rate = _rate(values, weight, idx, row, start + base + k + u, use, by, HAS_WEIGHT)
                runs = (use & (rate > 0)).to(tl.int32)
                some = some | (runs << u)
                count += runs
            marks = marks | (some << k)
        for _ in range(tl.max(count)):
            bit = marks & (0 - marks)
            at = base - 127 + (bit.to(tl.float32).to(tl.int32, bitcast=True) >> 23)
            runs = marks != 0
            marks = marks ^ bit
            edge = start + at
            place, rate = _rate(values, weight, idx, row, edge, runs, by, HAS_WEIGHT)
            repeat = tl.zeros((LANES,), tl.int64)
            back = 1
            same = runs & (at >= 1)
            same = same & (tl.load(idx + edge - 1, mask=same, other=-1).to(tl.int64) == place)
            while tl.max(same.to(tl.int32)) > 0:
                repeat += same.to(tl.int64)
                back += 1
                same = same & (at >= back)
                same = same & (tl.load(idx + edge - back, mask=same, other=-1).to(tl.int64) == place)
            sender = place
            if HAS_IDS:
                sender = tl.load(ids + id_row + place, mask=runs, other=0)
            s_low, s_high = sender.to(tl.uint32), (sender >> 32).to(tl.uint32)
            first, second, _e, _f = _philox(s_low, s_high, repeat.to(tl.uint32), s_low * 0 + c, a, b)
            time = tl.where(runs, _arrival(first, second, tl.where(runs, rate, 1.0)), float("inf"))
            better = runs & ((time < best) | ((time == best) & (sender < best_id)))
            best = tl.where(better, time, best)
            best_id = tl.where(better, sender, best_id)
            best_place = tl.where(better, place, best_place)
    return best, best_id, best_place


@triton.jit(do_not_specialize=["stream"])
def _attribute_kernel(
    values,
    where,
    factor,
    factor_stride,
    weight,
    notes,
    ptr,
    idx,
    ids,
    id_stride,
    key,
    step_ptr,
    stream,
    source,
    layer,
    time,
    n,
    NUMBER: tl.constexpr,
    KEEPS_TIME: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    HAS_IDS: tl.constexpr,
    SIZE: tl.constexpr,
    LANES: tl.constexpr,
    BITS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """The races of graph NUMBER; `time` is that of the winner so far, of those alone to whom it happened."""
    blocks = tl.cdiv(n, SIZE)
    world = (tl.program_id(0) // blocks).to(tl.int64)
    row, first = world * n, (tl.program_id(0) % blocks).to(tl.int64) * SIZE
    i = first + tl.arange(0, SIZE)
    chosen = tl.load(where + row + i, mask=i < n, other=0) != 0
    if NUMBER == 0:  # the others here and the chosen below: each place is written once
        tl.store(source + row + i, tl.full((SIZE,), -1, tl.int32), mask=(i < n) & ~chosen)
        tl.store(layer + row + i, tl.full((SIZE,), -1, tl.int8), mask=(i < n) & ~chosen)
    if tl.max(chosen.to(tl.int32)) > 0:
        num = _note(chosen, notes + row + first, SIZE)
        k0, k1 = tl.load(key + 2 * world).to(tl.uint32), tl.load(key + 2 * world + 1).to(tl.uint32)
        by = tl.load(factor + world * factor_stride + NUMBER).to(tl.float64)
        step = tl.load(step_ptr).to(tl.uint32)
        for c in range(0, num, LANES):
            lane = c + tl.arange(0, LANES)
            agent = first + tl.load(notes + row + first + lane, mask=lane < num, other=0).to(tl.int64)
            best, _id, place = _race(
                values,
                weight,
                ptr,
                idx,
                ids,
                agent,
                lane < num,
                row,
                world * id_stride,
                by,
                k0,
                k1,
                step,
                stream.to(tl.uint32),
                HAS_WEIGHT,
                HAS_IDS,
                LANES,
                BITS,
                AT_ONCE,
            )
            first_one = lane < num
            which = tl.where(place >= 0, NUMBER, -1)
            if NUMBER > 0:
                none = tl.load(layer + row + agent, mask=first_one, other=0) < 0  # who has no time yet
                sooner = best < tl.load(time + row + agent, mask=first_one & ~none, other=float("inf"))
                first_one = first_one & (none | sooner)
            tl.store(source + row + agent, place.to(tl.int32), mask=first_one)
            tl.store(layer + row + agent, which.to(tl.int8), mask=first_one)
            if KEEPS_TIME:
                tl.store(time + row + agent, best, mask=first_one)


def attribute(
    values: Sequence[torch.Tensor],
    where: Sequence[torch.Tensor],
    factor: torch.Tensor,
    weights: Sequence[torch.Tensor],
    in_ptr: Sequence[torch.Tensor],
    in_idx: Sequence[torch.Tensor],
    ids: torch.Tensor,
    key: torch.Tensor,
    step: torch.Tensor,
    streams: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """`_attribution.attribute`."""
    shape, device = where[0].shape, key.device
    source = torch.empty(shape, dtype=torch.int32, device=device)
    layer = torch.empty(shape, dtype=torch.int8, device=device)
    if not source.numel():
        return source, layer
    last = len(weights) - 1
    time = torch.empty(shape, dtype=torch.float64, device=device) if last else source
    factor, ids, key = factor.contiguous(), ids.contiguous(), key.contiguous()
    grid, notes, constants = _launch(source)
    constants = {name: constants[name] for name in ("SIZE", "num_warps")}
    for number, (weight, pointer, index) in enumerate(zip(weights, in_ptr, in_idx, strict=True)):
        _attribute_kernel[grid](
            values[number].contiguous(),
            where[number].contiguous(),
            factor,
            factor.shape[1] if factor.shape[0] > 1 else 0,
            weight,
            notes,
            pointer,
            index,
            ids if ids.numel() else key,
            ids.shape[1] if ids.numel() and ids.shape[0] > 1 else 0,
            key,
            step,
            streams[number],
            source,
            layer,
            time,
            shape[1],
            NUMBER=number,
            KEEPS_TIME=number < last,
            HAS_WEIGHT=weight.numel() > 0,
            HAS_IDS=ids.numel() > 0,
            enable_fp_fusion=False,
            **constants,
            **RACES,
        )
    return source, layer
