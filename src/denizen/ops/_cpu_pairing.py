"""Pairs of two kinds on the CPU with numba; the values of `_pairing.pair_kinds`.

A group keeps a list of who is in it, of the second kind only where there is one of the first. Words are drawn for those
who have rivals of their own kind, in groups where both are.
"""

import numpy as np
import torch
from torch import Tensor

from denizen.ops._cpu import _jit, over_ranges
from denizen.ops._cpu_couples import _FEW, _sorted
from denizen.ops._cpu_draws import _MASK, _32, _philox


@_jit
def _ordered(who, words, num, ids):
    """Put the first `num` agents, who are in order of places, in order of words, equal ones of identities."""
    named = ids.shape[0] > 0
    if num > _FEW:
        place, given, lots = np.arange(num, dtype=np.int32), who[:num].copy(), words[:num].copy()
        _sorted(place, 0, num, lots, given, ids, named)
        for j in range(num):
            who[j], words[j] = given[place[j]], lots[place[j]]
        return
    for j in range(1, num):
        one, word, k = who[j], words[j], j
        while k > 0 and (words[k - 1] > word or (words[k - 1] == word and named and ids[who[k - 1]] > ids[one])):
            who[k], words[k] = who[k - 1], words[k - 1]
            k -= 1
        who[k], words[k] = one, word


@_jit
def _listed(last, before, ids, step, stream, key, who, words):
    """Those of a list that begins with its last, in order of words, equal ones of identities; how many they are."""
    num = 0
    while last >= 0:
        who[num] = last
        num += 1
        last = before[last]
    for k in range(num // 2):  # in order of places
        who[k], who[num - 1 - k] = who[num - 1 - k], who[k]
    if num == 1:
        return num
    k0, k1, named = np.uint64(key[0]), np.uint64(key[1]), ids.shape[0] > 0
    for j in range(num):
        number = ids[who[j]] if named else np.int64(who[j])
        a, b, c, d = _philox(np.uint64(number >> 2) & _MASK, np.uint64(number >> 2) >> _32, step, stream, k0, k1)
        lane = number & 3
        words[j] = a if lane == 0 else b if lane == 1 else c if lane == 2 else d
    _ordered(who, words, num, ids)
    return num


@_jit
def _pair(first, second, first_ids, second_ids, groups, key, step, first_stream, second_stream, a, b, bad, start, stop):
    n, m = first.shape[1], second.shape[1]
    head, other = np.empty(groups, np.int32), np.empty(groups, np.int32)
    before, before_other = np.empty(n, np.int32), np.empty(m, np.int32)
    who, who_other, words = np.empty(n, np.int32), np.empty(m, np.int32), np.empty(max(n, m), np.uint32)
    met = np.empty(groups, np.int32)
    for w in range(start, stop):
        beyond, beyond_other, num = False, False, 0
        head[:] = -1
        other[:] = -1
        for i in range(n):
            group = first[w, i]
            a[w, i] = -1
            if group >= 0:
                if group < groups:
                    before[i] = head[group]
                    head[group] = i
                else:
                    beyond = True
            elif group < -1:
                beyond = True
        for i in range(m):
            group = second[w, i]
            b[w, i] = -1
            if group >= 0:
                if group >= groups:
                    beyond_other = True
                elif head[group] >= 0:
                    if other[group] < 0:
                        met[num] = group
                        num += 1
                    before_other[i] = other[group]
                    other[group] = i
            elif group < -1:
                beyond_other = True
        bad[w, 0], bad[w, 1] = beyond, beyond_other
        ids, other_ids = first_ids[min(w, first_ids.shape[0] - 1)], second_ids[min(w, second_ids.shape[0] - 1)]
        for k in range(num):
            x, y = head[met[k]], other[met[k]]
            if before[x] < 0 and before_other[y] < 0:
                a[w, x], b[w, y] = y, x
                continue
            pairs = min(
                _listed(x, before, ids, step, first_stream, key[w], who, words),
                _listed(y, before_other, other_ids, step, second_stream, key[w], who_other, words),
            )
            for j in range(pairs):
                a[w, who[j]], b[w, who_other[j]] = who_other[j], who[j]


def _rows(ids: Tensor) -> np.ndarray:
    return ids.contiguous().numpy() if ids.numel() else np.empty((1, 0), np.int64)


def pair(
    first: Tensor,
    second: Tensor,
    first_ids: Tensor,
    second_ids: Tensor,
    num_groups: int,
    key: Tensor,
    step: Tensor,
    first_stream: int,
    second_stream: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """`_pairing.pair_rows`."""
    a, b = torch.empty(first.shape, dtype=torch.int64), torch.empty(second.shape, dtype=torch.int64)
    bad = torch.empty(first.shape[0], 2, dtype=torch.int8)
    kinds = first.contiguous().numpy(), second.contiguous().numpy(), _rows(first_ids), _rows(second_ids)
    draws = key.contiguous().numpy(), np.uint64(step.item()), np.uint64(first_stream), np.uint64(second_stream)
    args = *kinds, num_groups, *draws, a.numpy(), b.numpy(), bad.numpy()
    over_ranges(lambda start, stop: _pair(*args, start, stop), first.shape[0], a.numel() + b.numel())
    return a, b, bad
