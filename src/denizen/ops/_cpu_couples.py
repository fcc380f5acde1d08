"""Pairs of seekers on the CPU with numba: seekers go into buckets by pool, and those are sorted; see `_couples`."""

import numpy as np
import torch

from denizen.ops._cpu import _inline, _jit, over_ranges

_FEW = 48  # seekers of a pool that are put in order one by one


@_inline
def _before(word, ids, named, a, b):
    if word[a] != word[b]:
        return word[a] < word[b]
    return ids[a] < ids[b] if named else a < b


@_jit
def _sorted(who, first, last, word, ids, named):
    """Put who[first:last] in order of words, equal ones of ids."""
    many = last - first
    if many > _FEW:
        part = who[first:last].copy()
        key = np.empty(many, np.int64)
        for k in range(many):
            key[k] = word[part[k]]
        order = np.argsort(key, kind="mergesort")
        for k in range(many):
            who[first + k] = part[order[k]]
    for k in range(first + 1, last):
        one, j = who[k], k
        while j > first and _before(word, ids, named, one, who[j - 1]):
            who[j] = who[j - 1]
            j -= 1
        who[j] = one


@_jit
def _couples(pool, word, ids, num_pools, sides, out, start, stop):
    n = pool.shape[1]
    who = np.empty(n, np.int32)
    end = np.empty(num_pools + 1, np.int32)
    named = ids.shape[0] > 0
    for w in range(start, stop):
        row, lot, pairs_of = pool[w], word[w], out[w]
        name = ids[min(w, ids.shape[0] - 1)] if named else lot
        end[:] = 0
        for i in range(n):
            pairs_of[i] = -1
            if row[i] >= 0:
                end[row[i] + 1] += 1
        for p in range(num_pools):
            end[p + 1] += end[p]
        for i in range(n):  # in order of places, which leaves end[p] where pool p ends
            if row[i] >= 0:
                who[end[row[i]]] = i
                end[row[i]] += 1
        for p in range(0, num_pools, 2 if sides else 1):
            first = end[p - 1] if p else 0
            if sides:
                middle, last = end[p], end[p + 1]
                pairs = min(middle - first, last - middle)
                if pairs:
                    _sorted(who, first, middle, lot, name, named)
                    _sorted(who, middle, last, lot, name, named)
                for k in range(pairs):
                    a, b = who[first + k], who[middle + k]
                    pairs_of[a], pairs_of[b] = b, a
            elif end[p] - first > 1:
                _sorted(who, first, end[p], lot, name, named)
                for k in range(first, end[p] - 1, 2):
                    a, b = who[k], who[k + 1]
                    pairs_of[a], pairs_of[b] = b, a


def couples(pool: torch.Tensor, word: torch.Tensor, ids: torch.Tensor, num_pools: int, sides: bool) -> torch.Tensor:
    """`_couples.couples`."""
    out = torch.empty_like(pool, memory_format=torch.contiguous_format)
    named = ids.contiguous().numpy() if ids.numel() else np.empty((0, 0), np.int64)
    args = (pool.contiguous().numpy(), word.contiguous().numpy(), named, num_pools, sides, out.numpy())
    over_ranges(lambda a, b: _couples(*args, a, b), pool.shape[0], pool.numel())
    return out
