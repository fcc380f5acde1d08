"""Random words and 0/1 draws on the CPU with numba; the bits of `_draws`.

Where ids are positions, Philox runs over the list of blocks that need words, which the compiler turns into vector
instructions. Custom ids take the plain loop.
"""

from functools import partial

import numpy as np
import torch

from denizen.ops import _draws as reference
from denizen.ops._cpu import _inline, _jit, over_ranges
from denizen.ops._draws import MULTIPLIERS, ROUNDS, WEYL

_M0, _M1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_W0, _W1 = np.uint64(WEYL[0]), np.uint64(WEYL[1])
_MASK = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

_f = np.float32
_LOG2E, _LN2_HIGH, _LN2_LOW = _f(reference.LOG2E), _f(reference.LN2_HIGH), _f(reference.LN2_LOW)
_C0, _C1, _C2, _C3, _C4, _C5 = (_f(c) for c in reference.COEFFICIENTS)
_HALF, _ONE, _ZERO = _f(0.5), _f(1.0), _f(0.0)
_MAX, _TWO32 = _f(reference.MAX_EXPONENT), _f(reference.TWO32)
_POWERS = np.array([2.0**-k for k in range(64)], dtype=np.float32)

_TILE = 512  # blocks at a time: the scratch stays in the first-level cache
_NAMED = 1024  # agents with identities of their own at a time
_LOOK = 16  # neighbours that are passed over at once where nothing can happen to any
_FEW = 16  # agents of a world up to which the vector instructions go over worlds, one block of each


@_inline
def _philox(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]  # numba infers the types
    for _ in range(ROUNDS):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _MASK, (p0 >> _32) ^ c3 ^ k1, p0 & _MASK
        k0 = (k0 + _W0) & _MASK
        k1 = (k1 + _W1) & _MASK
    return c0, c1, c2, c3


@_inline
def _hazard_threshold(x):  # type: ignore[no-untyped-def]
    x = min(x, _MAX)
    n = np.floor(x * _LOG2E + _HALF)
    y = n * _LN2_HIGH - x
    y = y + n * _LN2_LOW
    q = _C0
    q = q * y + _C1
    q = q * y + _C2
    q = q * y + _C3
    q = q * y + _C4
    q = q * y + _C5
    q = q * y * y + y
    s = _POWERS[np.int64(n)]
    p = (_ONE - s) - s * q
    return np.uint64(p * _TWO32)


@_jit
def _philox_list(blocks, num, step, stream, k0, k1, w0, w1, w2, w3):
    for j in range(num):
        a, b, c, d = _philox(blocks[j] & _MASK, blocks[j] >> _32, step, stream, k0, k1)
        w0[j], w1[j], w2[j], w3[j] = a, b, c, d


@_jit
def _words_blocks(key, step, stream, out, start, stop):
    """Agents start … stop - 1, whose ids are their positions; `start` is a multiple of 4."""
    blocks = np.empty(_TILE, np.uint64)
    word = np.empty((4, _TILE), np.uint32)
    for w in range(out.shape[0]):
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        for low in range(start, stop, 4 * _TILE):
            high = min(low + 4 * _TILE, stop)
            num = (high - low + 3) >> 2
            for j in range(num):
                blocks[j] = np.uint64((low >> 2) + j)
            _philox_list(blocks, num, step, stream, k0, k1, word[0], word[1], word[2], word[3])
            for i in range(low, high):
                out[w, i] = word[i & 3, (i - low) >> 2]


@_jit
def _words_ids(ids, key, step, stream, out, start, stop):
    blocks = np.empty(_NAMED, np.uint64)
    word = np.empty((4, _NAMED), np.uint32)
    place = np.empty(_NAMED, np.int32)
    for w in range(out.shape[0]):
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        name, o = ids[min(w, ids.shape[0] - 1)], out[w]
        for low in range(start, stop, _NAMED):
            high = min(low + _NAMED, stop)
            num, last = 0, np.int64(-1)
            for i in range(low, high):
                block = name[i] >> 2
                if block != last:  # neighbours often share one
                    blocks[num] = np.uint64(block)
                    num, last = num + 1, block
                place[i - low] = num - 1
            _philox_list(blocks, num, step, stream, k0, k1, word[0], word[1], word[2], word[3])
            for i in range(low, high):
                o[i] = word[name[i] & 3, place[i - low]]


@_jit
def words_of_few(who, ids, named, k0, k1, step, stream, lot):
    """The words of agents `who` into `lot`; ids are `ids`, or positions where they are not `named`."""
    many = who.shape[0]
    blocks = np.empty(_NAMED, np.uint64)
    word = np.empty((4, _NAMED), np.uint32)
    place = np.empty(_NAMED, np.int32)
    for low in range(0, many, _NAMED):
        high = min(low + _NAMED, many)
        num, last = 0, np.int64(-1)
        for k in range(low, high):
            agent = ids[who[k]] if named else np.int64(who[k])
            block = agent >> 2
            blocks[num] = np.uint64(block)
            num += block != last
            last = block
            place[k - low] = 4 * (num - 1) + (agent & 3)
        _philox_list(blocks, num, step, stream, k0, k1, word[0], word[1], word[2], word[3])
        for k in range(low, high):
            lot[k] = word[place[k - low] & 3, place[k - low] >> 2]


@_jit
def found(mask, least):
    """Places where a mask is `least` or more, ascending: int32."""
    many = 0
    for i in range(mask.shape[0]):
        many += mask[i] >= least
    who = np.empty(many + 1, np.int32)  # one is written to in vain
    many = 0
    for i in range(mask.shape[0]):
        who[many] = i
        many += mask[i] >= least
    return who[:many]


@_jit
def _words_of_some(where, ids, named, key, step, stream):
    n, total = where.shape[1], 0
    for w in range(where.shape[0]):
        for i in range(n):
            total += where[w, i] != 0
    lot, at, first = np.empty(total, np.int64), np.empty(total, np.int64), 0
    for w in range(where.shape[0]):
        who = found(where[w], np.uint8(1))
        last = first + who.shape[0]
        name = ids[min(w, ids.shape[0] - 1)] if named else lot
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        words_of_few(who, name, named, k0, k1, step, stream, lot[first:last])
        for k in range(who.shape[0]):
            at[first + k] = w * n + who[k]
        first = last
    return lot, at


@_jit
def _hits(x, word, hazard, num, hit):
    """0/1 in `hit` without branches; returns whether a value was unusable."""
    wrong = False
    if hazard:
        for j in range(num):
            hit[j] = (np.uint64(word[j]) < _hazard_threshold(x[j])) & (x[j] > _ZERO)
        for j in range(num):
            wrong |= not (x[j] >= _ZERO)
    else:
        for j in range(num):
            hit[j] = (np.uint64(word[j]) < np.uint64(x[j] * _TWO32)) & (x[j] > _ZERO) & (x[j] <= _ONE)
        for j in range(num):
            wrong |= not ((x[j] >= _ZERO) & (x[j] <= _ONE))
    return wrong


@_jit
def _limit(x, hazard):
    """The largest word that lies below the threshold of a usable value above 0; -1 for none."""
    return np.int64(_hazard_threshold(x) if hazard else np.uint64(x * _TWO32)) - 1


@_jit
def _usable(x, hazard):
    return x >= _ZERO and (hazard or x <= _ONE)


@_jit
def _gated(values, where, alive, low, high, y):
    """Values of agents low … high - 1 in `y`, by both masks; whether all are the one value that is given, or 0."""
    num = high - low
    one = values.shape[0] == 1
    if one:
        y[:num] = values[0]
    else:
        v = values[low:high]
        for j in range(num):
            y[j] = v[j]
    if where.shape[0]:
        g = where[low:high]
        for j in range(num):
            y[j] = y[j] * _f(g[j] != 0)
    if alive.shape[0]:
        a = alive[low:high]
        for j in range(num):
            y[j] = y[j] if a[j] != 0 else _ZERO
    if one:
        x, other = values[0], False
        for j in range(num):
            other |= (y[j] != _ZERO) & (y[j] != x)
        return not other
    return False


@_jit
def _draw_blocks(values, where, alive, hazard, key, step, stream, out, bad, start, stop):
    """Agents start … stop - 1, whose ids are their positions; `start` is a multiple of 4."""
    blocks = np.empty(_TILE, np.uint64)
    word = np.empty((4, _TILE), np.uint32)
    x = np.empty((4, _TILE), np.float32)
    hit = np.empty((4, _TILE), np.int8)
    y = np.empty(4 * _TILE, np.float32)
    bits = y.view(np.int32)
    for w in range(out.shape[0]):
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        v, o = values[w], out[w]
        limit = _limit(v[0], hazard) if v.shape[0] == 1 and _usable(v[0], hazard) else np.int64(-1)
        for low in range(start, stop, 4 * _TILE):
            high = min(low + 4 * _TILE, stop)
            alike = _gated(v, where[w], alive[w], low, high, y)
            whole = (high - low) & ~3
            num = 0
            for first in range(0, whole, _LOOK):
                some = np.int32(0)
                for k in range(_LOOK):  # what lies behind the last agent is at worst looked at for nothing
                    some |= bits[first + k]
                if some == 0:
                    continue
                for j in range(first, min(first + _LOOK, whole), 4):
                    p, q, r, s = y[j], y[j + 1], y[j + 2], y[j + 3]
                    blocks[num] = np.uint64((low + j) >> 2)
                    x[0, num], x[1, num], x[2, num], x[3, num] = p, q, r, s
                    num += (p != _ZERO) | (q != _ZERO) | (r != _ZERO) | (s != _ZERO)
            partial = low + whole < high
            if partial:
                blocks[num] = np.uint64((low + whole) >> 2)
                for lane in range(4):
                    x[lane, num] = y[whole + lane] if low + whole + lane < high else _ZERO
                num += 1
            o[low:high] = 0
            if num == 0:
                continue
            _philox_list(blocks, num, step, stream, k0, k1, word[0], word[1], word[2], word[3])
            for lane in range(4):
                if alike and limit >= 0:
                    most, lot, value, into = np.uint32(limit), word[lane], x[lane], hit[lane]
                    for j in range(num):
                        into[j] = (lot[j] <= most) & (value[j] != _ZERO)
                elif _hits(x[lane], word[lane], hazard, num, hit[lane]):
                    bad[w] = 1
            last = num - 1 if partial else num
            for j in range(last):
                i = np.int64(blocks[j]) << 2
                o[i], o[i + 1], o[i + 2], o[i + 3] = hit[0, j], hit[1, j], hit[2, j], hit[3, j]
            if last < num:
                for i in range(low + whole, high):
                    o[i] = hit[i - low - whole, last]


@_jit
def _philox_worlds(key, first, block, num, step, stream, w0, w1, w2, w3):
    for j in range(num):
        k0, k1 = np.uint64(key[first + j, 0]), np.uint64(key[first + j, 1])
        a, b, c, d = _philox(block, np.uint64(0), step, stream, k0, k1)
        w0[j], w1[j], w2[j], w3[j] = a, b, c, d


@_jit
def _words_worlds(key, step, stream, out, start, stop):
    """Worlds start … stop - 1, of few agents each."""
    word = np.empty((4, _TILE), np.uint32)
    for low in range(start, stop, _TILE):
        num = min(_TILE, stop - low)
        for i in range(0, out.shape[1], 4):
            _philox_worlds(key, low, np.uint64(i >> 2), num, step, stream, word[0], word[1], word[2], word[3])
            for lane in range(min(4, out.shape[1] - i)):
                for j in range(num):
                    out[low + j, i + lane] = word[lane, j]


@_jit
def _draw_worlds(values, hazard, key, step, stream, out, bad, start, stop):
    """Worlds start … stop - 1, of few agents each."""
    word = np.empty((4, _TILE), np.uint32)
    x, hit = np.empty(_TILE, np.float32), np.empty(_TILE, np.int8)
    for low in range(start, stop, _TILE):
        num = min(_TILE, stop - low)
        for i in range(0, out.shape[1], 4):
            _philox_worlds(key, low, np.uint64(i >> 2), num, step, stream, word[0], word[1], word[2], word[3])
            for lane in range(min(4, out.shape[1] - i)):
                for j in range(num):
                    x[j] = values[low + j, i + lane]
                wrong = _hits(x, word[lane], hazard, num, hit)
                for j in range(num):
                    out[low + j, i + lane] = hit[j]
                    if wrong and not (x[j] >= _ZERO and (hazard or x[j] <= _ONE)):
                        bad[low + j] = 1


@_jit
def _is_block(name, i):
    """Whether four neighbours are those of one block, in order."""
    one = name[i]
    return ((one & 3) == 0) & (name[i + 1] == one + 1) & (name[i + 2] == one + 2) & (name[i + 3] == one + 3)


@_jit
def _draw_ids(values, where, alive, hazard, ids, key, step, stream, out, bad, start, stop):
    """Agents start … stop - 1 with identities of their own; who cannot be hit draws nothing."""
    blocks, whole = np.empty(_NAMED, np.uint64), np.empty(_NAMED // 4, np.uint64)
    word = np.empty((4, _NAMED), np.uint32)
    x, y, x4 = np.empty(_NAMED, np.float32), np.empty(_NAMED, np.float32), np.empty((4, _NAMED // 4), np.float32)
    lot, hit, hit4 = np.empty(_NAMED, np.uint32), np.empty(_NAMED, np.int8), np.empty((4, _NAMED // 4), np.int8)
    who, place, four = np.empty(_NAMED, np.int32), np.empty(_NAMED, np.int32), np.empty(_NAMED // 4, np.int32)
    bits = y.view(np.int32)
    for w in range(out.shape[0]):
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        v, o, name = values[w], out[w], ids[min(w, ids.shape[0] - 1)]
        limit = _limit(v[0], hazard) if v.shape[0] == 1 and _usable(v[0], hazard) else np.int64(-1)
        for low in range(start, stop, _NAMED):
            high = min(low + _NAMED, stop)
            alike = _gated(v, where[w], alive[w], low, high, y)
            o[low:high] = 0
            num, many, fours, before = 0, 0, 0, np.int64(-1)
            for first in range(0, high - low, _LOOK):
                some = np.int32(0)
                for k in range(_LOOK):
                    some |= bits[first + k]
                if some == 0:
                    continue
                for j in range(first, min(first + _LOOK, high - low), 4):
                    if j + 4 <= high - low and _is_block(name, low + j):  # as those are who were there at the start
                        p, q, r, s = y[j], y[j + 1], y[j + 2], y[j + 3]
                        whole[fours], four[fours] = np.uint64(name[low + j] >> 2), j
                        x4[0, fours], x4[1, fours], x4[2, fours], x4[3, fours] = p, q, r, s
                        fours += (p != _ZERO) | (q != _ZERO) | (r != _ZERO) | (s != _ZERO)
                        continue
                    for i in range(j, min(j + 4, high - low)):
                        # without branches, which nobody could predict for a mask of half of all
                        agent, live = name[low + i], y[i] != _ZERO
                        block = agent >> 2
                        blocks[num] = np.uint64(block)
                        num += live & (block != before)  # neighbours often share a block
                        before = block if live else before
                        place[many], who[many], x[many] = 4 * (num - 1) + (agent & 3), i, y[i]
                        many += live
            if fours > 0:
                _philox_list(whole, fours, step, stream, k0, k1, word[0], word[1], word[2], word[3])
                for lane in range(4):
                    if alike and limit >= 0:
                        most, lots, value, into = np.uint32(limit), word[lane], x4[lane], hit4[lane]
                        for j in range(fours):
                            into[j] = (lots[j] <= most) & (value[j] != _ZERO)
                    elif _hits(x4[lane], word[lane], hazard, fours, hit4[lane]):
                        bad[w] = 1
                for j in range(fours):
                    i = low + four[j]
                    o[i], o[i + 1], o[i + 2], o[i + 3] = hit4[0, j], hit4[1, j], hit4[2, j], hit4[3, j]
            if many == 0:
                continue
            _philox_list(blocks, num, step, stream, k0, k1, word[0], word[1], word[2], word[3])
            for k in range(many):
                lot[k] = word[place[k] & 3, place[k] >> 2]
            if alike and limit >= 0:
                most = np.uint32(limit)
                for k in range(many):
                    hit[k] = lot[k] <= most
            elif _hits(x, lot, hazard, many, hit):
                bad[w] = 1
            for k in range(many):
                o[low + who[k]] = hit[k]


def _rows(ids: torch.Tensor) -> np.ndarray:
    array = ids.numpy()
    return array if array.ndim == 2 else array[None]


def words(ids: torch.Tensor, num: int, key: torch.Tensor, step: torch.Tensor, stream: int) -> torch.Tensor:
    """`_draws.words`; empty `ids` stand for 0 … num - 1."""
    out = torch.empty(key.shape[0], num, dtype=torch.int64)
    args = (key.numpy(), np.uint64(step.item()), np.uint64(stream), out.numpy())
    if ids.numel() == 0 and num <= _FEW:
        over_ranges(lambda start, stop: _words_worlds(*args, start, stop), key.shape[0], out.numel())
    elif ids.numel() == 0:
        over_ranges(lambda start, stop: _words_blocks(*args, start, stop), num, out.numel(), multiple=4)
    else:
        rows = _rows(ids)
        over_ranges(lambda start, stop: _words_ids(rows, *args, start, stop), num, out.numel())
    return out


def draw_mask(
    values: torch.Tensor, hazard: bool, ids: torch.Tensor, key: torch.Tensor, step: torch.Tensor, stream: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """0/1 draws int8 `[worlds, ids]` from float32 hazards or probabilities, and which worlds held a bad one."""
    none = torch.empty(values.shape[0], 0, dtype=torch.int8)
    return draw_among(values, none, none, values.shape[1], hazard, ids, key, step, stream)


def draw_among(
    values: torch.Tensor,
    where: torch.Tensor,
    alive: torch.Tensor,
    num: int,
    hazard: bool,
    ids: torch.Tensor,
    key: torch.Tensor,
    step: torch.Tensor,
    stream: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`_draws.draw_among`."""
    worlds = key.shape[0]
    out = torch.empty(worlds, num, dtype=torch.int8)
    bad = torch.zeros(worlds, dtype=torch.int8)
    args = (key.numpy(), np.uint64(step.item()), np.uint64(stream), out.numpy(), bad.numpy())
    if ids.numel() == 0 and num <= _FEW:
        given = reference.gated(values, where, alive, num).contiguous().numpy()
        over_ranges(lambda start, stop: _draw_worlds(given, hazard, *args, start, stop), worlds, out.numel())
        return out, bad
    gates = values.contiguous().numpy(), where.contiguous().numpy(), alive.contiguous().numpy()
    work = partial(_draw_ids, *gates, hazard, _rows(ids)) if ids.numel() else partial(_draw_blocks, *gates, hazard)
    over_ranges(lambda start, stop: work(*args, start, stop), num, out.numel(), multiple=4)
    return out, bad


def words_of_some(
    where: torch.Tensor, ids: torch.Tensor, key: torch.Tensor, step: torch.Tensor, stream: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The words of those in a mask int8 `[worlds, num]`, and their places in it, flattened: int64 `[some]` each."""
    named = ids.numel() > 0
    name = _rows(ids) if named else np.empty((0, 0), np.int64)
    mask = where.contiguous().view(torch.uint8).numpy()
    lot, at = _words_of_some(mask, name, named, key.numpy(), np.uint64(step.item()), np.uint64(stream))
    return torch.from_numpy(lot), torch.from_numpy(at)
