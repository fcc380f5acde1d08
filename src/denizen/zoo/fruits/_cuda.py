"""A step of many fruit catchers on CUDA with Triton, in place: one world a lane, its slots along a second axis.

Multiplication and addition are kept apart (`enable_fp_fusion=False`), as the plain form rounds them.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from denizen.ops.for_triton import one_word
from denizen.zoo.fruits._fast import WHOLE

BLOCK = 32  # worlds of a program: few worlds are spread over the multiprocessors


@triton.jit
def _step_kernel(
    sprites,
    xs,
    ys,
    actives,
    caughts,
    misseds,
    ages,
    waiting_of,
    faults,
    waited,
    clock_in,
    keys,
    actions,
    prob_of,
    clock_out,
    look,
    rewards,
    terminated,
    truncated,
    valid,
    flow_caught,
    flow_missed,
    n,
    WIDTH: tl.constexpr,
    HEIGHT: tl.constexpr,
    HALF: tl.constexpr,
    SLOTS: tl.constexpr,
    LEAST: tl.constexpr,
    GAP: tl.constexpr,
    STEPS: tl.constexpr,
    WIN: tl.constexpr,
    FAIL: tl.constexpr,
    STOPS: tl.constexpr,
    RAW: tl.constexpr,
    CLOCK: tl.constexpr,
    SPAWN: tl.constexpr,
    COLUMN: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    world = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.arange(0, LANES)[None, :]
    inside = world < n
    there = inside[:, None] & (slot < SLOTS)
    at = world[:, None] * SLOTS + slot
    clock = tl.load(clock_in)
    prob = tl.load(prob_of + world * 0)
    first = tl.load(keys + 2 * world, mask=inside, other=0).to(tl.uint32)
    second = tl.load(keys + 2 * world + 1, mask=inside, other=0).to(tl.uint32)
    live = inside & (tl.load(waiting_of + world, mask=inside, other=True).to(tl.int32) == 0)
    action = tl.load(actions + world, mask=inside, other=1)
    sprite = tl.load(sprites + world, mask=inside, other=0)
    x = tl.load(xs + at, mask=there, other=0)
    y = tl.load(ys + at, mask=there, other=0)
    active = tl.load(actives + at, mask=there, other=0).to(tl.int32)
    caught = tl.load(caughts + world, mask=inside, other=0)
    missed = tl.load(misseds + world, mask=inside, other=0)
    age = tl.load(ages + world, mask=inside, other=0)
    fault = tl.load(faults + world, mask=inside, other=0)
    waits = tl.load(waited + world, mask=inside, other=0)

    moved = tl.minimum(tl.maximum(sprite + action - 1, 0), WIDTH - 1).to(tl.int32)
    sprite = tl.where(live, moved, sprite)
    flying = (active != 0) & live[:, None]
    y = y + flying.to(tl.int32)
    lands = flying & (y == HEIGHT - 1)
    off = x - sprite[:, None]
    hit = lands & (off <= HALF) & (off >= -HALF)
    hits = tl.sum(hit.to(tl.int32), 1)
    landed = tl.sum(lands.to(tl.int32), 1)
    stays = flying & (lands == 0)
    count = tl.sum(stays.to(tl.int32), 1)
    newest = tl.min(tl.where(stays, y, HEIGHT), 1)
    gate = (count == 0) | (newest >= GAP)
    forced = tl.maximum(LEAST - count, 0)
    word = one_word(world * 0, clock.to(tl.uint32), SPAWN, first, second).to(tl.int64)
    usable = (prob > 0) & (prob <= 1)
    chance = usable & (word < (tl.where(usable, prob, 0.0) * 4294967296.0).to(tl.int64))
    optional = chance & (forced == 0) & (landed == 0) & (count < SLOTS)
    new = tl.where(gate & live, forced + optional.to(tl.int32), 0)
    free = live[:, None] & (stays == 0) & (slot < SLOTS)
    born = free & (tl.cumsum(free.to(tl.int32), 1) <= new[:, None])
    ids = world[:, None] * 0 + slot
    column = one_word(ids, clock.to(tl.uint32), COLUMN, first[:, None], second[:, None]).to(tl.int64)
    x = tl.where(born, ((column * WIDTH) >> 32).to(tl.int32), x)
    y = tl.where(born, 0, y)
    active = tl.where(live[:, None], (stays | born).to(tl.int32), active)
    caught, missed, age = caught + hits, missed + landed - hits, age + live.to(tl.int64)

    cut = live & (age < 0)
    if STEPS > 0:
        cut = live & (age >= STEPS)
    over = cut
    if STOPS:
        over = over | (live & ((caught - missed >= WIN) | (caught - missed <= FAIL)))
    wrong = live & ((action < 0) | (action > 2))
    odd = live & ((prob >= 0) & (prob <= 1) == 0)
    fault = tl.where((wrong | odd) & (fault < 0), clock * 4 + tl.where(wrong, 0, 2), fault)
    waits = waits + (inside & (live == 0)).to(tl.int64)
    tl.debug_barrier()  # a lane that several threads have is read by all of them before one writes
    tl.store(sprites + world, sprite, mask=inside)
    tl.store(xs + at, x, mask=there)
    tl.store(ys + at, y, mask=there)
    tl.store(actives + at, active.to(tl.int8), mask=there)
    tl.store(caughts + world, caught, mask=inside)
    tl.store(misseds + world, missed, mask=inside)
    tl.store(ages + world, age, mask=inside)
    tl.store(waiting_of + world, over | cut | (live == 0), mask=inside)
    tl.store(faults + world, fault, mask=inside)
    tl.store(waited + world, waits, mask=inside)
    tl.store(rewards + world, (2 * hits - landed).to(tl.float32), mask=inside)
    tl.store(terminated + world, over, mask=inside)
    tl.store(truncated + world, cut, mask=inside)
    tl.store(valid + world, live, mask=inside)
    tl.store(flow_caught + world, hits.to(tl.float32), mask=inside)
    tl.store(flow_missed + world, (landed - hits).to(tl.float32), mask=inside)
    if tl.program_id(0) == 0:
        tl.store(clock_out, clock + 1)

    shown, shown_x, shown_y = sprite.to(tl.float32), x.to(tl.float32), y.to(tl.float32)
    if not RAW:
        shown = shown * (2.0 / (WIDTH - 1)) - 1.0
        shown_x = tl.where(active != 0, shown_x * (2.0 / (WIDTH - 1)) - 1.0, 0.0)
        shown_y = tl.where(active != 0, shown_y * (2.0 / (HEIGHT - 1)) - 1.0, 0.0)
    row = look + world * (1 + 3 * SLOTS + CLOCK)
    tl.store(row, shown, mask=inside)
    place = row[:, None] + 1 + 3 * slot
    tl.store(place, shown_x, mask=there)
    tl.store(place + 1, shown_y, mask=there)
    tl.store(place + 2, active.to(tl.float32), mask=there)
    if CLOCK:
        tl.store(row + 1 + 3 * SLOTS, 1.0 - age.to(tl.float32) * (1.0 / STEPS), mask=inside)


def step(
    state: list[Tensor],
    books: list[Tensor],
    clock: Tensor,
    keys: Tensor,
    action: Tensor,
    prob: Tensor,
    out: Any,
    whole: list[int],
) -> None:
    """One step; see `_fast.fruits_step`. `out` is what it returns, to be filled."""
    sizes = dict(zip(WHOLE, whole, strict=True))
    n = keys.shape[0]
    _step_kernel[(triton.cdiv(n, BLOCK),)](
        *state,
        *books,
        clock,
        keys,
        action,
        prob,
        *out,
        n,
        **sizes,
        LANES=triton.next_power_of_2(sizes["SLOTS"]),
        BLOCK=BLOCK,
        num_warps=1,
        enable_fp_fusion=False,
    )
