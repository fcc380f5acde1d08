"""Pairs of seekers on the CPU with numba: seekers go into buckets by pool, and those are sorted; see `_couples`."""

import numpy as np
import torch

from denizen.ops._cpu import _inline, _jit, over_ranges
from denizen.ops._cpu_draws import found

_FEW = 48  # seekers of a pool that are put in order one by one
_DIGIT = 11  # bits of a word that others are put in order by at a time


@_inline
def _before(word, seeker, ids, named, a, b):
    if word[a] != word[b]:
        return word[a] < word[b]
    return ids[seeker[a]] < ids[seeker[b]] if named else a < b


@_jit
def _sorted(who, first, last, word, seeker, ids, named):
    """Put who[first:last] in order of words, equal ones of ids."""
    many = last - first
    if many > _FEW:
        part, other = who[first:last], np.empty(many, np.int32)
        begin = np.empty((1 << _DIGIT) + 1, np.int64)
        for shift in range(0, 32, _DIGIT):
            begin[:] = 0
            for k in range(many):
                begin[((word[part[k]] >> shift) & ((1 << _DIGIT) - 1)) + 1] += 1
            for d in range(1 << _DIGIT):
                begin[d + 1] += begin[d]
            for k in range(many):
                digit = (word[part[k]] >> shift) & ((1 << _DIGIT) - 1)
                other[begin[digit]] = part[k]
                begin[digit] += 1
            part, other = other, part
        for k in range(many):  # slices of unequal shapes would raise, whose words take numba seconds to compile
            who[first + k] = part[k]
    for k in range(first + 1, last):
        one, j = who[k], k
        while j > first and _before(word, seeker, ids, named, one, who[j - 1]):
            who[j] = who[j - 1]
            j -= 1
        who[j] = one


@_jit
def matched(seeker, row, word, ids, named, num_pools, sides):
    """Pairs of seekers: two arrays of positions in `seeker`, whose `word`s are in its order.

    `row` and `ids` are read at the places of seekers alone.
    """
    many = seeker.shape[0]
    end = np.zeros(num_pools + 1, np.int32)
    for k in range(many):
        end[row[seeker[k]] + 1] += 1
    for p in range(num_pools):
        end[p + 1] += end[p]
    who = np.empty(many, np.int32)
    for k in range(many):  # in order of places, which leaves end[p] where pool p ends
        p = row[seeker[k]]
        who[end[p]] = k
        end[p] += 1
    left, right, pairs = np.empty(many // 2, np.int32), np.empty(many // 2, np.int32), 0
    for p in range(0, num_pools, 2 if sides else 1):
        first = end[p - 1] if p else 0
        if sides:
            middle, last = end[p], end[p + 1]
            both = min(middle - first, last - middle)
            if both:
                _sorted(who, first, middle, word, seeker, ids, named)
                _sorted(who, middle, last, word, seeker, ids, named)
            for k in range(both):
                left[pairs], right[pairs] = who[first + k], who[middle + k]
                pairs += 1
        elif end[p] - first > 1:
            _sorted(who, first, end[p], word, seeker, ids, named)
            for k in range(first, end[p] - 1, 2):
                left[pairs], right[pairs] = who[k], who[k + 1]
                pairs += 1
    return left[:pairs], right[:pairs]


@_jit
def _couples(pool, word, ids, num_pools, sides, out, start, stop):
    named = ids.shape[0] > 0
    for w in range(start, stop):
        row, all_words, pairs_of = pool[w], word[w], out[w]
        seeker = found(row, np.int32(0))
        lot = np.empty(seeker.shape[0], np.int64)
        for k in range(seeker.shape[0]):
            lot[k] = all_words[seeker[k]]
        name = ids[min(w, ids.shape[0] - 1)] if named else all_words
        left, right = matched(seeker, row, lot, name, named, num_pools, sides)
        pairs_of[:] = -1
        for k in range(left.shape[0]):
            a, b = seeker[left[k]], seeker[right[k]]
            pairs_of[a], pairs_of[b] = b, a


def couples(pool: torch.Tensor, word: torch.Tensor, ids: torch.Tensor, num_pools: int, sides: bool) -> torch.Tensor:
    """`_couples.couples`."""
    out = torch.empty_like(pool, memory_format=torch.contiguous_format)
    named = ids.contiguous().numpy() if ids.numel() else np.empty((0, 0), np.int64)
    args = (pool.contiguous().numpy(), word.contiguous().numpy(), named, num_pools, sides, out.numpy())
    over_ranges(lambda a, b: _couples(*args, a, b), pool.shape[0], pool.numel())
    return out
