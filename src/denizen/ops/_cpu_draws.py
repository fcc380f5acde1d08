"""Random words and 0/1 draws on the CPU with numba; the bits of `_draws`.

Where ids are positions, Philox runs over the list of blocks that need words, which the compiler turns into vector
instructions. Custom ids take the plain loop.
"""

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
    for w in range(out.shape[0]):
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        row = min(w, ids.shape[0] - 1)
        for i in range(start, stop):
            block = np.uint64(ids[row, i]) >> np.uint64(2)
            a, b, c, d = _philox(block & _MASK, block >> _32, step, stream, k0, k1)
            lane = ids[row, i] & 3
            out[w, i] = a if lane == 0 else b if lane == 1 else c if lane == 2 else d


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
def _draw_blocks(values, hazard, key, step, stream, out, bad, start, stop):
    """Agents start … stop - 1, whose ids are their positions; `start` is a multiple of 4."""
    blocks = np.empty(_TILE, np.uint64)
    word = np.empty((4, _TILE), np.uint32)
    x = np.empty((4, _TILE), np.float32)
    hit = np.empty((4, _TILE), np.int8)
    for w in range(out.shape[0]):
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        v, o = values[w], out[w]
        for low in range(start, stop, 4 * _TILE):
            high = min(low + 4 * _TILE, stop)
            whole = low + ((high - low) & ~3)
            num = 0
            for i in range(low, whole, 4):
                p, q, r, s = v[i], v[i + 1], v[i + 2], v[i + 3]
                blocks[num] = np.uint64(i >> 2)
                x[0, num], x[1, num], x[2, num], x[3, num] = p, q, r, s
                num += (p != _ZERO) | (q != _ZERO) | (r != _ZERO) | (s != _ZERO)
            if whole < high:  # the last, partial block
                blocks[num] = np.uint64(whole >> 2)
                for lane in range(4):
                    x[lane, num] = v[whole + lane] if whole + lane < high else _ZERO
                num += 1
            for i in range(low, high):
                o[i] = 0
            if num == 0:
                continue
            _philox_list(blocks, num, step, stream, k0, k1, word[0], word[1], word[2], word[3])
            for lane in range(4):
                if _hits(x[lane], word[lane], hazard, num, hit[lane]):
                    bad[w] = 1
            last = num - 1 if whole < high else num
            for j in range(last):
                i = np.int64(blocks[j]) << 2
                o[i], o[i + 1], o[i + 2], o[i + 3] = hit[0, j], hit[1, j], hit[2, j], hit[3, j]
            if last < num:
                for i in range(whole, high):
                    o[i] = hit[i - whole, last]


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
def _draw_ids(values, hazard, ids, key, step, stream, out, bad, start, stop):  # type: ignore[no-untyped-def]
    """Events from hazards, or Bernoulli draws from probabilities; lanes that cannot fire draw nothing."""
    for w in range(out.shape[0]):
        k0, k1 = np.uint64(key[w, 0]), np.uint64(key[w, 1])
        row = min(w, ids.shape[0] - 1)
        drawn = np.int64(-1)  # block whose words are at hand
        a = b = c = d = np.uint64(0)
        for i in range(start, stop):
            x = values[w, i]
            if x == _ZERO:
                out[w, i] = 0
                continue
            if not hazard and x == _ONE:  # certain: no word is below its threshold by chance
                out[w, i] = 1
                continue
            if not (x > _ZERO) or (not hazard and x > _ONE):
                bad[w] = 1
                out[w, i] = 0
                continue
            agent = ids[row, i]
            if agent >> 2 != drawn:
                drawn = agent >> 2
                block = np.uint64(drawn)
                a, b, c, d = _philox(block & _MASK, block >> _32, step, stream, k0, k1)
            lane = agent & 3
            word = a if lane == 0 else b if lane == 1 else c if lane == 2 else d
            threshold = _hazard_threshold(x) if hazard else np.uint64(x * _TWO32)
            out[w, i] = word < threshold


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
    out = torch.empty(values.shape, dtype=torch.int8)
    bad = torch.zeros(values.shape[0], dtype=torch.int8)
    given = values.contiguous().numpy()
    args = (key.numpy(), np.uint64(step.item()), np.uint64(stream), out.numpy(), bad.numpy())
    if ids.numel() == 0 and values.shape[1] <= _FEW:
        over_ranges(lambda start, stop: _draw_worlds(given, hazard, *args, start, stop), values.shape[0], out.numel())
        return out, bad
    if ids.numel() == 0:
        work = lambda start, stop: _draw_blocks(given, hazard, *args, start, stop)  # noqa: E731
    else:
        rows = _rows(ids)
        work = lambda start, stop: _draw_ids(given, hazard, rows, *args, start, stop)  # noqa: E731
    over_ranges(work, values.shape[1], out.numel(), multiple=4)
    return out, bad
