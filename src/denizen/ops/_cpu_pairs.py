"""Sums over pairs on the CPU with numba; the bits of `_pairs`.

Pairs that are found near each other are noted by the hundred; then each operation of the function runs over all of
them, which the compiler turns into vector instructions. So no function has to be compiled.
"""

import functools
import math

import numpy as np
import torch

from denizen.ops import _pair_program
from denizen.ops._cpu import _jit, over_ranges
from denizen.ops._pair_program import ARITY, MOST_POWER
from denizen.ops._pairs import reach_of

_BATCH = 128  # pairs at once: the values of a function of fifty operations stay in the first-level cache
_STRETCH = 256  # slots that are looked at together
_NUMBER = {name: number for number, name in enumerate(ARITY)}
_CONST, _ABS, _SQRT, _FLOOR, _POW2, _NOT = (_NUMBER[n] for n in ("const", "abs", "sqrt", "floor", "pow2", "not"))
_ADD, _SUB, _MUL, _DIV = (_NUMBER[n] for n in ("add", "sub", "mul", "div"))
_LT, _LE, _EQ, _AND, _OR = (_NUMBER[n] for n in ("lt", "le", "eq", "and", "or"))
_POWERS = np.array([2.0**k for k in range(-MOST_POWER, MOST_POWER + 1)], dtype=np.float32)
_0, _1 = np.float32(0), np.float32(1)


@_jit
def _bin(position, by_id, present, has_present, size, counts, order, start, cell, place, first, last):
    num, dims = position.shape[1], position.shape[2]
    named = by_id.shape[1] > 0
    cells = 1
    for axis in range(dims):
        cells *= counts[axis]
    at = np.empty(num, np.int32)
    for w in range(first, last):
        bad = 0
        begin = start[w]
        begin[:] = 0
        there = present[min(w, present.shape[0] - 1)]
        for i in range(num):
            c, out = 0, False
            for axis in range(dims):
                x = position[w, i, axis]
                if not ((x >= _0) and (x <= np.float32(size[axis]))):
                    out, x = True, _0
                c = c * counts[axis] + min(np.int64(np.float64(x) * (counts[axis] / size[axis])), counts[axis] - 1)
            if has_present and there[i] == 0:
                c, out = cells, False
            bad += out
            at[i] = c
            begin[c + 1] += 1
        for c in range(1, cells + 2):
            begin[c] += begin[c - 1]
        begin[cells + 2] = num + bad
        fill, turn = begin[: cells + 1].copy(), by_id[min(w, by_id.shape[0] - 1)]
        for k in range(num):
            i = turn[k] if named else k
            slot = fill[at[i]]
            fill[at[i]] += 1
            order[w, slot], cell[w, slot] = i, at[i]
            for axis in range(dims):
                place[w, axis, slot] = position[w, i, axis] + _0


@_jit
def _run(ops, args, values, num):
    """Every operation of a program, over the first `num` pairs; `values` has its inputs and constants."""
    inputs = values.shape[0] - ops.shape[0]
    for line in range(ops.shape[0]):
        op, out = ops[line], values[inputs + line]
        a, b = values[args[line, 0]], values[args[line, 1]]
        if op == _ADD:
            for k in range(num):
                out[k] = a[k] + b[k]
        elif op == _SUB:
            for k in range(num):
                out[k] = a[k] - b[k]
        elif op == _MUL:
            for k in range(num):
                out[k] = a[k] * b[k]
        elif op == _DIV:
            for k in range(num):
                # numba divides as Python does: 0 is an error
                out[k] = a[k] / b[k] if b[k] != _0 else _over_zero(a[k], b[k])
        elif op == _LT:
            for k in range(num):
                out[k] = _1 if a[k] < b[k] else _0
        elif op == _LE:
            for k in range(num):
                out[k] = _1 if a[k] <= b[k] else _0
        elif op == _EQ:
            for k in range(num):
                out[k] = _1 if a[k] == b[k] else _0
        elif op == _AND:
            for k in range(num):
                out[k] = _1 if (a[k] != _0) & (b[k] != _0) else _0
        elif op == _OR:
            for k in range(num):
                out[k] = _1 if (a[k] != _0) | (b[k] != _0) else _0
        elif op == _NOT:
            for k in range(num):
                out[k] = _1 if a[k] == _0 else _0
        elif op == _ABS:
            for k in range(num):
                out[k] = abs(a[k])
        elif op == _SQRT:
            for k in range(num):
                out[k] = np.sqrt(a[k])
        elif op == _FLOOR:
            for k in range(num):
                out[k] = np.floor(a[k])
        elif op == _POW2:
            for k in range(num):
                inside = min(max(a[k], np.float32(-MOST_POWER)), np.float32(MOST_POWER)) if a[k] == a[k] else _0
                out[k] = _POWERS[np.int64(inside) + MOST_POWER]
        elif op != _CONST:  # where
            c = values[args[line, 2]]
            for k in range(num):
                out[k] = b[k] if a[k] != _0 else c[k]


@_jit
def _over_zero(a, b):
    if a != a or a == _0:
        return np.float32(np.nan)
    up = np.signbit(a) == np.signbit(b)
    return np.float32(np.inf) if up else np.float32(-np.inf)


@_jit
def _hits(ways, place, s, first, num, torus, length, half, limit, hits):
    """Notes who of `num` agents from slot `first` on is near the one at slot s; offsets and squares are in `ways`."""
    square = ways[place.shape[0]]
    for axis in range(place.shape[0]):
        x, there, way = place[axis, s], place[axis, first : first + num], ways[axis]
        for k in range(num):
            way[k] = there[k] - x
        if torus:
            whole, part = length[axis], half[axis]
            for k in range(num):
                d = way[k]
                d = d - whole if d > part else d
                way[k] = d + whole if d < -part else d
        if axis == 0:
            for k in range(num):
                square[k] = way[k] * way[k]
        else:
            for k in range(num):
                square[k] += way[k] * way[k]
    found = 0
    for k in range(num):
        hits[found] = k
        found += (square[k] <= limit) & (first + k != s)
    return found


@_jit
def _sum(
    theirs,
    own,
    shared,
    order,
    start,
    cell,
    place,
    size,
    counts,
    torus,
    radius,
    reach,
    ops,
    args,
    consts,
    outputs,
    out,
    best,
    only_best,
    first,
    last,
):
    """Receivers at slots first … last - 1 of all worlds: sums of a program, or the nearest neighbour."""
    dims = place.shape[1]
    inputs = dims + 1 + theirs.shape[2] + own.shape[2] + shared.shape[1]
    values = np.empty((inputs + ops.shape[0], _BATCH), np.float32)
    for line in range(ops.shape[0]):
        if ops[line] == _CONST:
            values[inputs + line, :] = consts[line]
    receiver = np.empty(_BATCH, np.int64)
    limit = np.float32(radius * radius)
    cells, around, blocks = 1, 1, np.empty(dims, np.int64)
    for axis in range(dims):
        cells *= counts[axis]
        if axis < dims - 1:
            around *= 3 if counts[axis] > 1 else 1
    wide = counts[dims - 1]
    ways, hits = np.empty((dims + 1, _STRETCH), np.float32), np.empty(_STRETCH + 1, np.int64)
    length, half = np.empty(dims, np.float32), np.empty(dims, np.float32)
    for axis in range(dims):
        length[axis], half[axis] = size[axis], np.float32(size[axis]) / np.float32(2)
    for w in range(order.shape[0]):
        for k in range(shared.shape[1]):
            values[inputs - shared.shape[1] + k, :] = shared[w, k]
        noted = 0
        for s in range(first, last):
            c = cell[w, s]
            i = order[w, s]
            if only_best:
                best[w, i] = -1
            if c >= cells:
                continue
            x_cell, rest = c % wide, c // wide
            for axis in range(dims - 2, -1, -1):
                blocks[axis] = rest % counts[axis]
                rest //= counts[axis]
            closest = np.float32(np.inf)
            for turn in range(around):
                row, left, valid = 0, turn, True
                scale = around
                for axis in range(dims - 1):
                    move = 0
                    if counts[axis] > 1:
                        scale //= 3
                        move = left // scale - 1
                        left = left % scale
                    at = blocks[axis] + move
                    if at < 0 or at >= counts[axis]:
                        if torus:
                            at = at + counts[axis] if at < 0 else at - counts[axis]
                        else:
                            valid = False
                    row = row * counts[axis] + at
                if not valid:
                    continue
                row *= wide
                for part in range(2):  # a stretch of cells that crosses the side of a torus has two parts
                    low, high = x_cell - reach, x_cell + reach
                    if part == 0:
                        if low < 0:
                            low, high = (low + wide, wide - 1) if torus else (0, high)
                        high = min(high, wide - 1)
                    elif not torus or (low >= 0 and high < wide):
                        break
                    elif low < 0:
                        low = 0
                    else:
                        low, high = 0, high - wide
                    end = start[w, row + high + 1]
                    for j in range(start[w, row + low], end, _STRETCH):
                        found = _hits(ways, place[w], s, j, min(end - j, _STRETCH), torus, length, half, limit, hits)
                        for h in range(found):
                            k = hits[h]
                            if only_best:
                                if ways[dims, k] < closest:
                                    closest = ways[dims, k]
                                    best[w, i] = order[w, j + k]
                                continue
                            for axis in range(dims + 1):
                                values[axis, noted] = ways[axis, k]
                            if theirs.shape[2]:
                                told = theirs[w, order[w, j + k]]
                                for f in range(theirs.shape[2]):
                                    values[dims + 1 + f, noted] = told[f]
                            for f in range(own.shape[2]):
                                values[dims + 1 + theirs.shape[2] + f, noted] = own[w, i, f]
                            receiver[noted] = i
                            noted += 1
                            if noted == _BATCH:
                                _run(ops, args, values, noted)
                                _add(values, outputs, receiver, noted, out[w])
                                noted = 0
        if noted:
            _run(ops, args, values, noted)
            _add(values, outputs, receiver, noted, out[w])


@_jit
def _add(values, outputs, receiver, num, out):
    for o in range(outputs.shape[0]):
        value = values[outputs[o]]
        for k in range(num):
            out[receiver[k], o] += value[k]


@_jit
def _spoil(start, num, out):
    """NaN throughout a world with a position that was NaN or outside."""
    for w in range(start.shape[0]):
        if start[w, start.shape[1] - 1] != num:
            out[w] = np.float32(np.nan)


_NONE_INT, _NONE_BYTE = np.zeros((1, 0), np.int64), np.zeros((1, 1), np.int8)


def bin_agents(
    position: torch.Tensor,
    key: torch.Tensor,
    present: torch.Tensor | None,
    size: list[float],
    counts: list[int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """`_pairs.bin_agents`."""
    worlds, num, dims = position.shape
    order, cell = (torch.empty(worlds, num, dtype=torch.int32) for _ in range(2))
    start = torch.empty(worlds, math.prod(counts) + 3, dtype=torch.int32)
    place = torch.empty(worlds, dims, num)
    args = (
        position.detach().contiguous().numpy(),
        torch.argsort(key, dim=-1, stable=True).numpy() if key.numel() else _NONE_INT,
        _NONE_BYTE if present is None else (present != 0).to(torch.int8).contiguous().numpy(),
        present is not None,
        *_shape(tuple(size), tuple(counts)),
        order.numpy(),
        start.numpy(),
        cell.numpy(),
        place.numpy(),
    )
    over_ranges(lambda a, b: _bin(*args, a, b), worlds, position.numel())
    return order, start, cell, place


@functools.lru_cache(maxsize=64)
def _shape(size: tuple[float, ...], counts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(size), np.array(counts)


@functools.lru_cache(maxsize=256)
def _arrays(text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A program as (operations, their operands, constants, outputs)."""
    program = _pair_program.read(text)
    ops = np.array([_NUMBER[name] for name, _ in program.lines], np.int64)
    args, consts = np.zeros((len(ops), 3), np.int64), np.zeros(len(ops), np.float32)
    for line, (name, operands) in enumerate(program.lines):
        if name == "const":
            consts[line] = operands[0]
        else:
            args[line, : len(operands)] = operands
    return ops, args, consts, np.array(program.outputs, np.int64)


def _over_slots(fields, binned, spec, program, best):
    order, start, cell, place = (t.numpy() for t in binned)
    size, counts, torus, radius = spec
    ops, args, consts, outputs = _arrays(program)
    out = torch.zeros(*order.shape, len(outputs))
    theirs, own, shared = (f.detach().to(torch.float32).contiguous().numpy() for f in fields)
    given = (
        theirs,
        own,
        shared,
        order,
        start,
        cell,
        place,
        *_shape(tuple(size), tuple(counts)),
        torus,
        np.float32(radius),
        reach_of(size[-1], counts[-1], radius),
        ops,
        args,
        consts,
        outputs,
        out.numpy(),
        best.numpy(),
        not len(outputs),
    )
    over_ranges(lambda a, b: _sum(*given, a, b), order.shape[1], 20 * order.size)
    return out


def _bad(start: torch.Tensor, num: int) -> torch.Tensor:
    return start[:, -1] != num


def sum_pairs(
    theirs: torch.Tensor,
    own: torch.Tensor,
    shared: torch.Tensor,
    binned: tuple[torch.Tensor, ...],
    size: list[float],
    counts: list[int],
    torus: bool,
    radius: float,
    program: str,
) -> torch.Tensor:
    """`_pairs.sum_pairs`."""
    spec = (size, counts, torus, radius)
    out = _over_slots((theirs, own, shared), binned, spec, program, torch.empty(1, 1, dtype=torch.int64))
    bad = _bad(binned[1], out.shape[1])
    return out.masked_fill_(bad[:, None, None], torch.nan) if bool(bad.any()) else out


def nearest_agent(
    binned: tuple[torch.Tensor, ...], size: list[float], counts: list[int], torus: bool, radius: float
) -> torch.Tensor:
    """`_pairs.nearest_agent`."""
    worlds, num = binned[0].shape
    best = torch.empty(worlds, num, dtype=torch.int64)
    empty = torch.empty(worlds, num, 0)
    nothing = _pair_program.Program(len(size), 0, 0, 0, (), ()).text
    _over_slots((empty, empty, empty[:, 0]), binned, (size, counts, torus, radius), nothing, best)
    return best.masked_fill_(_bad(binned[1], num)[:, None], -2)
