"""A step of many fruit catchers on the CPU with numba, in place: move, fall, land, spawn, look."""

from typing import Any

import numpy as np
from torch import Tensor

from denizen.ops.for_numba import jit, over_ranges, philox_worlds

_TILE = 512  # worlds at a time: the scratch stays in the first-level cache
_TWO32 = np.float32(2.0**32)


@jit
def _step(
    sprites,
    xs,
    ys,
    actives,
    caughts,
    misseds,
    ages,
    waiting,
    faults,
    waited,
    clock,
    keys,
    actions,
    prob,
    look,
    rewards,
    terminated,
    truncated,
    valid,
    flow_caught,
    flow_missed,
    whole,
    start,
    stop,
):  # type: ignore[no-untyped-def]
    width, height, half, slots, least, gap, steps = whole[:7]
    win, fail, stops, raw, tells = whole[7:12]
    word = np.empty((4 * ((slots + 3) // 4), _TILE), np.uint32)
    spawn, spare = np.empty(_TILE, np.uint32), np.empty((3, _TILE), np.uint32)
    threshold = np.uint64(prob * _TWO32) if prob > 0 and prob <= 1 else np.uint64(0)
    bad_prob = not (prob >= 0 and prob <= 1)
    one, passing = np.float32(1), np.float32(1.0 / steps) if steps > 0 else np.float32(0)
    across, down = np.float32(2.0 / (width - 1)), np.float32(2.0 / (height - 1))
    for low in range(start, stop, _TILE):
        num = min(_TILE, stop - low)
        philox_worlds(
            keys, low, np.uint64(0), num, np.uint64(clock), np.uint64(whole[12]), spawn, spare[0], spare[1], spare[2]
        )
        for b in range(0, slots, 4):
            philox_worlds(
                keys,
                low,
                np.uint64(b >> 2),
                num,
                np.uint64(clock),
                np.uint64(whole[13]),
                word[b],
                word[b + 1],
                word[b + 2],
                word[b + 3],
            )
        for j in range(num):
            w = low + j
            live = not waiting[w]
            valid[w], over, cut, change, hits, falls = live, False, False, 0, 0, 0
            if live:
                action = actions[w]
                sprite = min(max(sprites[w] + action - 1, 0), width - 1)
                count, newest, freed = 0, height, False
                for s in range(slots):
                    if actives[w, s] != 0:
                        y = ys[w, s] + 1
                        ys[w, s] = y
                        if y == height - 1:
                            freed = True
                            actives[w, s] = 0
                            if abs(xs[w, s] - sprite) <= half:
                                hits += 1
                            else:
                                falls += 1
                        else:
                            count += 1
                            newest = min(newest, y)
                new = 0
                if count == 0 or newest >= gap:
                    new = max(least - count, 0)
                    if new == 0 and not freed and count < slots and np.uint64(spawn[j]) < threshold:
                        new = 1
                for s in range(slots):
                    if new > 0 and actives[w, s] == 0:
                        actives[w, s], ys[w, s] = 1, 0
                        xs[w, s] = np.int64((np.uint64(word[s, j]) * np.uint64(width)) >> np.uint64(32))
                        new -= 1
                sprites[w] = sprite
                caughts[w] += hits
                misseds[w] += falls
                ages[w] += 1
                change = hits - falls
                score = caughts[w] - misseds[w]
                if steps > 0 and ages[w] >= steps:
                    over = cut = True
                if stops and (score >= win or score <= fail):
                    over = True
                if (action < 0 or action > 2) and faults[w] < 0:
                    faults[w] = clock * 4
                elif bad_prob and faults[w] < 0:
                    faults[w] = clock * 4 + 2
            else:
                waited[w] += 1
            rewards[w], flow_caught[w], flow_missed[w] = change, hits, falls
            terminated[w], truncated[w] = over, cut
            waiting[w] = over or cut or not live
            look[w, 0] = sprites[w] if raw else np.float32(sprites[w]) * across - one
            for s in range(slots):
                there = actives[w, s] != 0
                x, y = np.float32(xs[w, s]), np.float32(ys[w, s])
                if not raw:
                    x = x * across - one if there else np.float32(0)
                    y = y * down - one if there else np.float32(0)
                look[w, 1 + 3 * s], look[w, 2 + 3 * s], look[w, 3 + 3 * s] = x, y, there
            if tells:
                look[w, 1 + 3 * slots] = one - np.float32(ages[w]) * passing


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
    now, worlds = int(clock), keys.shape[0]
    out[0].fill_(now + 1)
    args = [tensor.numpy() for tensor in (*state, *books)]
    rest = [tensor.numpy() for tensor in out[1:]]
    numbers = np.array(whole, np.int64)
    given = [*args, now, keys.numpy(), action.numpy(), np.float32(prob.item()), *rest, numbers]
    work: Any = _step
    over_ranges(lambda start, stop: work(*given, start, stop), worlds, worlds * len(whole))
