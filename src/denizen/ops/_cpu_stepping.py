"""Steps aside on the CPU with numba; the values of `Grid.random_neighbour`."""

import numpy as np
import torch
from torch import Tensor

from denizen.ops._cpu import _jit, over_ranges
from denizen.ops._cpu_draws import _TILE, _philox_list


@_jit
def _step_aside(place, who, shape, radius, torus, ids, key, step, stream, out, start, stop):
    n, axes = place.shape[1], shape.shape[0]
    cells, masked, named = np.int64(1), who.shape[0] > 0, ids.shape[0] > 0
    for axis in range(axes):
        cells *= shape[axis]
    movers, lanes, blocks = np.empty(_TILE, np.int64), np.empty(_TILE, np.uint8), np.empty(_TILE, np.uint64)
    word = np.empty((4, _TILE), np.uint32)
    at, before, many = np.empty(axes, np.int64), np.empty(axes, np.int64), np.empty(axes, np.int64)
    for w in range(start, stop):
        row, low = min(w, ids.shape[0] - 1), 0
        while low < n:
            num = 0
            while low < n and num < _TILE:
                cell = place[w, low]
                out[w, low] = cell
                if (not masked or who[w, low] != 0) and cell >= 0 and cell < cells:
                    number = ids[row, low] if named else np.int64(low)
                    movers[num], blocks[num], lanes[num] = low, np.uint64(number) >> np.uint64(2), number & 3
                    num += 1
                low += 1
            _philox_list(
                blocks,
                num,
                step,
                stream,
                np.uint64(key[w, 0]),
                np.uint64(key[w, 1]),
                word[0],
                word[1],
                word[2],
                word[3],
            )
            for j in range(num):
                rest, box, own = place[w, movers[j]], np.int64(1), np.int64(0)
                for axis in range(axes - 1, -1, -1):
                    above = rest // shape[axis]
                    at[axis] = rest - above * shape[axis]
                    rest = above
                    if torus:
                        before[axis], many[axis] = radius, 2 * radius + 1
                    else:
                        before[axis] = min(at[axis], radius)
                        many[axis] = before[axis] + min(shape[axis] - 1 - at[axis], radius) + 1
                for axis in range(axes):
                    box, own = box * many[axis], own * many[axis] + before[axis]
                if box == 1:
                    continue
                number = (np.int64(word[lanes[j], j] >> np.uint32(1)) * (box - 1)) >> 31
                number += number >= own
                cell, scale = np.int64(0), np.int64(1)
                for axis in range(axes - 1, -1, -1):
                    above = number // many[axis]
                    to = at[axis] + (number - above * many[axis]) - before[axis]
                    number = above
                    if to < 0:  # of a torus
                        to += shape[axis]
                    elif to >= shape[axis]:
                        to -= shape[axis]
                    cell += to * scale
                    scale *= shape[axis]
                out[w, movers[j]] = cell


def step_aside(
    place: Tensor,
    who: Tensor | None,
    shape: list[int],
    radius: int,
    torus: bool,
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    stream: int,
) -> Tensor:
    """`_stepping.step_rows`."""
    out = torch.empty(place.shape, dtype=torch.int64)
    mask = np.empty((0, 0), np.int8) if who is None else who.contiguous().numpy()
    named = ids.contiguous().numpy() if ids.numel() else np.empty((0, 0), np.int64)
    draws = named, key.contiguous().numpy(), np.uint64(step.item()), np.uint64(stream)
    args = place.contiguous().numpy(), mask, np.array(shape), radius, torus, *draws, out.numpy()
    over_ranges(lambda start, stop: _step_aside(*args, start, stop), place.shape[0], out.numel())
    return out
