"""Random words and 0/1 draws on the CPU with numba; the bits of `_draws`.

Where ids are positions, Philox runs over the list of blocks that need words, which the compiler turns into vector
instructions. Custom ids take the plain loop.
"""

from functools import partial

import numpy as np
import torch

from denizen.ops import _draws as reference
from denizen.ops._cpu import _divides, _inline, _jit, over_ranges
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

_ABOVE = _f(reference.TWO32 * (1 + 2.0**-12))  # no threshold of a hazard x is above x times this
_RARE = 8  # words that are not above their hazard, from one in so many on all thresholds are worked out
_L1, _L2, _L3, _L4, _L5, _L6, _L7 = (  # of fdlibm's `log`: (ln m - 2 s) / s by powers of s^2
    *(6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01),
    *(1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01),
)
_LN2_HEAD, _LN2_TAIL = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_FRACTION, _CARRY, _EXPONENT, _ABOVE_ROOT = (1 << 52) - 1, 1 << 52, 1023 << 52, 0x95F64 << 32  # fields of a float64
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
def _waits(word, num, x, wait):
    """Exponential times with the rate 1 of 32-bit words: -ln(1 - (word + 0.5) / 2^32), in float64 by fdlibm's `log`.

    1 - (word + 0.5) / 2^32 is m 2^k with m between sqrt(1/2) and sqrt(2), and ln m = 2 atanh(s), s = (m - 1) / (m + 1).
    The error is below one unit in the last place of float64. `x` is scratch.
    """
    bits = x.view(np.int64)
    for j in range(num):
        x[j] = (4294967296.0 - np.float64(word[j])) - 0.5
    for j in range(num):
        one = bits[j]
        part = one & _FRACTION
        up = (part + _ABOVE_ROOT) & _CARRY
        k = np.float64((one >> 52) - 1023 - 32 + (up >> 52))
        bits[j] = part | (up ^ _EXPONENT)
        f = x[j] - 1.0
        s = f / (2.0 + f)
        z = s * s
        v = z * z
        r = v * (_L2 + v * (_L4 + v * _L6)) + z * (_L1 + v * (_L3 + v * (_L5 + v * _L7)))
        half = 0.5 * f * f
        wait[j] = _f((half - (s * (half + r) + k * _LN2_TAIL)) - f - k * _LN2_HEAD)


@_divides
def _exponential(rates, where, ids, named, key, step, stream, out, bad, start, stop):
    """Times of agents start … stop - 1 in the mask, 0 for the others."""
    who, lot = np.empty(_NAMED, np.int32), np.empty(_NAMED, np.int64)
    x, wait = np.empty(_NAMED, np.float64), np.empty(_NAMED, np.float32)
    for w in range(out.shape[0]):
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        rate, mask, o = rates[min(w, rates.shape[0] - 1)], where[w], out[w]
        name = ids[min(w, ids.shape[0] - 1)] if named else lot
        alone, last = rate.shape[0] == 1, start
        eights = mask[start : start + ((stop - start) & ~7)].view(np.uint64)
        o[start:stop] = 0
        while last < stop:
            many = 0
            while last < stop and many + 32 <= _NAMED:
                g = (last - start) >> 3
                if last + 32 > stop or (eights[g] | eights[g + 1] | eights[g + 2] | eights[g + 3]) != 0:
                    for i in range(last, min(last + 32, stop)):
                        who[many] = i
                        many += mask[i] != 0
                last += 32
            words_of_few(who[:many], name, named, k0, k1, step, stream, lot[:many])
            _waits(lot, many, x, wait)
            for j in range(many):
                r = rate[0 if alone else who[j]]
                o[who[j]] = wait[j] / r
                if not (r >= _ZERO):
                    bad[w] = 1


@_jit
def _hits(x, word, hazard, num, hit):
    """0/1 in `hit`; returns whether a value was unusable.

    A chance is at most its hazard, so thresholds are worked out for words that are not above their hazards alone,
    where those are few.
    """
    wrong = False
    if hazard:
        for j in range(num):
            wrong |= not (x[j] >= _ZERO)
        for j in range(num):
            hit[j] = _f(word[j]) < x[j] * _ABOVE
        near = np.int32(0)
        for j in range(num):
            near += np.int32(hit[j])
        if near * _RARE < num:
            eights = hit[: num & ~7].view(np.uint64)
            for first in range(0, num, 8):
                if first + 8 > num or eights[first >> 3] != 0:
                    for j in range(first, min(first + 8, num)):
                        if hit[j] != 0:
                            hit[j] = np.uint64(word[j]) < _hazard_threshold(x[j])
        else:
            for j in range(num):
                hit[j] = (np.uint64(word[j]) < _hazard_threshold(x[j])) & (x[j] > _ZERO)
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
def _philox_fours(blocks, num, step, stream, k0, k1, word):
    for j in range(num):
        a, b, c, d = _philox(blocks[j] & _MASK, blocks[j] >> _32, step, stream, k0, k1)
        word[4 * j], word[4 * j + 1], word[4 * j + 2], word[4 * j + 3] = a, b, c, d


@_jit
def _draw_all(most, first, num, step, stream, k0, k1, fours):
    """Draws of four agents each, 0/1 in the bytes of `fours`, with one threshold and no mask."""
    for j in range(num):
        block = np.uint64(first + j)
        a, b, c, d = _philox(block & _MASK, block >> _32, step, stream, k0, k1)
        low = np.uint32(np.uint32(a) <= most) | np.uint32(np.uint32(b) <= most) << np.uint32(8)
        high = np.uint32(np.uint32(c) <= most) | np.uint32(np.uint32(d) <= most) << np.uint32(8)
        fours[j] = low | high << np.uint32(16)


@_jit
def _draw_blocks(values, where, alive, hazard, key, step, stream, out, bad, start, stop):
    """Agents start … stop - 1, whose ids are their positions; `start` is a multiple of 4."""
    blocks = np.empty(_TILE + 1, np.uint64)
    word, x = np.empty(4 * (_TILE + 1), np.uint32), np.empty(4 * (_TILE + 1), np.float32)
    hit, y = np.empty(4 * (_TILE + 1), np.int8), np.empty(4 * (_TILE + 1), np.float32)
    two, pairs, hits = x.view(np.uint64), y.view(np.uint64), hit.view(np.uint32)
    for w in range(out.shape[0]):
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        v, o = values[w], out[w]
        alone = v.shape[0] == 1 and _usable(v[0], hazard)
        limit = _limit(v[0], hazard) if alone else np.int64(-1)
        plain = limit >= 0 and where.shape[1] == 0 and alive.shape[1] == 0
        for low in range(start, stop, 4 * _TILE):
            high = min(low + 4 * _TILE, stop)
            whole = (high - low) & ~3
            fours = o[low : low + whole].view(np.uint32)
            if plain:
                _draw_all(np.uint32(limit), low >> 2, whole >> 2, step, stream, k0, k1, fours)
                if low + whole == high:
                    continue
                low, whole = low + whole, 0
            alike = _gated(v, where[w], alive[w], low, high, y)
            num = 0
            for first in range(0, whole >> 1, _LOOK >> 1):
                some = np.uint64(0)
                for k in range(_LOOK >> 1):  # what lies behind the last agent is at worst looked at for nothing
                    some |= pairs[first + k]
                if some == 0:
                    continue
                for j in range(first, min(first + (_LOOK >> 1), whole >> 1), 2):
                    p, q = pairs[j], pairs[j + 1]
                    blocks[num], two[2 * num], two[2 * num + 1] = np.uint64((low >> 2) + (j >> 1)), p, q
                    num += (p | q) != 0
            last = num
            if low + whole < high:
                blocks[num] = np.uint64((low + whole) >> 2)
                for lane in range(4):
                    x[4 * num + lane] = y[whole + lane] if low + whole + lane < high else _ZERO
                num += 1
            o[low:high] = 0
            if num == 0:
                continue
            _philox_fours(blocks, num, step, stream, k0, k1, word)
            if alike and limit >= 0:
                most = np.uint32(limit)
                for j in range(4 * num):
                    hit[j] = (word[j] <= most) & (x[j] != _ZERO)
            elif _hits(x, word, hazard, 4 * num, hit):
                bad[w] = 1
            for j in range(last):
                fours[blocks[j] - np.uint64(low >> 2)] = hits[j]
            if last < num:
                for i in range(low + whole, high):
                    o[i] = hit[4 * last + i - low - whole]


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


def exponential(
    rates: torch.Tensor, where: torch.Tensor, ids: torch.Tensor, key: torch.Tensor, step: torch.Tensor, stream: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """`_draws.draw_exponential`."""
    named = ids.numel() > 0
    out, bad = torch.empty(where.shape), torch.zeros(len(where), dtype=torch.int8)
    draws = _rows(ids) if named else np.empty((0, 0), np.int64), named, key.numpy(), np.uint64(step.item())
    args = rates.contiguous().numpy(), where.contiguous().numpy(), *draws, np.uint64(stream), out.numpy(), bad.numpy()
    over_ranges(lambda start, stop: _exponential(*args, start, stop), where.shape[1], out.numel())
    return out, bad
