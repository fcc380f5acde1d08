"""Pairs of seekers on the CPU with numba: only seekers are sorted; the values of `_couples`."""

import numpy as np
import torch

from denizen.ops._cpu import _jit, over_ranges


@_jit
def _couples(pool, word, ids, num_pools, sides, out, start, stop):
    n = pool.shape[1]
    who, key = np.empty(n, np.int32), np.empty(n, np.int64)
    begin = np.zeros(num_pools + 1, np.int64)
    for w in range(start, stop):
        num = 0
        for i in range(n):
            out[w, i] = -1
            if pool[w, i] >= 0:
                who[num], key[num] = i, (np.int64(pool[w, i]) << 32) | word[w, i]
                num += 1
        order = np.argsort(key[:num], kind="mergesort")  # stable: equal words are in order of places
        if ids.shape[0]:  # of ids then
            row = ids[min(w, ids.shape[0] - 1)]
            for k in range(1, num):
                j = k
                while j > 0 and key[order[j - 1]] == key[order[j]] and row[who[order[j - 1]]] > row[who[order[j]]]:
                    order[j - 1], order[j] = order[j], order[j - 1]
                    j -= 1
        place = 0
        for p in range(num_pools):
            begin[p] = place
            while place < num and key[order[place]] >> 32 == p:
                place += 1
        begin[num_pools] = place
        step = 2 if sides else 1
        for p in range(0, num_pools, step):
            if sides:
                first, second, stride = begin[p], begin[p + 1], 1
                pairs = min(second - first, begin[p + 2] - second)
            else:
                first, second, stride = begin[p], begin[p] + 1, 2
                pairs = (begin[p + 1] - first) // 2
            for k in range(pairs):
                a, b = who[order[first + stride * k]], who[order[second + stride * k]]
                out[w, a], out[w, b] = b, a


def couples(pool: torch.Tensor, word: torch.Tensor, ids: torch.Tensor, num_pools: int, sides: bool) -> torch.Tensor:
    """`_couples.couples`."""
    out = torch.empty_like(pool, memory_format=torch.contiguous_format)
    named = ids.contiguous().numpy() if ids.numel() else np.empty((0, 0), np.int64)
    args = (pool.contiguous().numpy(), word.contiguous().numpy(), named, num_pools, sides, out.numpy())
    over_ranges(lambda a, b: _couples(*args, a, b), pool.shape[0], pool.numel())
    return out
