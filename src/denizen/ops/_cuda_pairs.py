"""Sums over pairs on CUDA with Triton; the bits of `_pairs`.

Agents are sorted by counting: each takes a number within its cell, in any order; cells are added up; within a cell an
agent's slot is the number of smaller ids. Then one lane goes through the rows of cells around its agent, one neighbour
after another in canonical order. Lanes beside each other have neighbouring agents, so what they read is in the first
cache. A lane marks who is near before it computes anything for them: most that it looks at are not, and all lanes of a
warp would wait for one that is. The kernel of a function is written as Triton, from its program.
"""

import dataclasses
import functools
import hashlib
import linecache
import math
from typing import Any

import torch
import triton
import triton.language as tl

from denizen.ops import _pair_program
from denizen.ops._inductor import interleaved
from denizen.ops._pair_program import MOST_POWER, Program
from denizen.ops._pairs import reach_of

_BLOCK = 256  # agents of a program that sorts
_GATHERED = 10_000_000  # bytes of positions that are gathered from the cache, of more they are scattered with agents
_BITS, _AT_ONCE = 28, 4  # agents of a row that are marked in one word, and loaded at once
_TOGETHER = 3  # rows of cells that are gone through as one
_LANES, _WARPS = 32, 1  # agents of a program that sums: one for each lane of one warp, the fastest that was timed


@triton.jit
def _bin_kernel(
    position,
    present,
    present_stride,
    cell,
    rank,
    start,
    n,
    cells,
    L0,
    L1,
    L2,
    C0: tl.constexpr,
    C1: tl.constexpr,
    C2: tl.constexpr,
    DIMS: tl.constexpr,
    HAS_PRESENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    blocks = tl.cdiv(n, BLOCK)
    world = (tl.program_id(0) // blocks).to(tl.int64)
    i = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    at = (world * n + i) * DIMS
    c = tl.zeros((BLOCK,), tl.int32)
    out = tl.zeros((BLOCK,), tl.int32)
    for axis in tl.static_range(DIMS):
        length, count = (L0, C0) if axis == 0 else ((L1, C1) if axis == 1 else (L2, C2))
        x = tl.load(position + at + axis, mask=live, other=0.0)
        good = (x >= 0) & (x <= length)  # not for NaN
        out = tl.where(good, out, 1)
        scale = tl.full((), count, tl.float64) / length
        place = (tl.where(good, x, 0.0).to(tl.float64) * scale).to(tl.int32)
        c = c * count + tl.minimum(place, count - 1)
    if HAS_PRESENT:
        gone = tl.load(present + world * present_stride + i, mask=live, other=0) == 0
        c = tl.where(gone, cells, c)
        out = tl.where(gone, 0, out)
    first = start + world * (cells + 3)
    number = tl.atomic_add(first + c + 1, 1, mask=live, sem="relaxed")
    tl.store(cell + world * n + i, c, mask=live)
    tl.store(rank + world * n + i, number, mask=live)
    bad = tl.sum(tl.where(live, out, 0))
    if bad > 0:
        tl.atomic_add(first + cells + 2, bad, sem="relaxed")


@triton.jit
def _fill_kernel(
    position, cell, rank, start, filled, n, cells, DIMS: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr
):
    """Who is in each slot; with several WORDS also the cell and the position, in one piece of memory.

    What is scattered once is read in order then, where positions are too many for the cache to gather from.
    """
    blocks = tl.cdiv(n, BLOCK)
    world = (tl.program_id(0) // blocks).to(tl.int64)
    i = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    c = tl.load(cell + world * n + i, mask=live, other=0)
    slot = tl.load(start + world * (cells + 3) + c, mask=live, other=0)
    slot += tl.load(rank + world * n + i, mask=live, other=0)
    if WORDS == 1:
        tl.store(filled + world * n + slot, i, mask=live)
    else:
        at = position + (world * n + i) * DIMS
        x = tl.load(at, mask=live, other=0.0).to(tl.int32, bitcast=True)
        y, z = x, x
        if DIMS > 1:
            y = tl.load(at + 1, mask=live, other=0.0).to(tl.int32, bitcast=True)
        if DIMS > 2:
            z = tl.load(at + 2, mask=live, other=0.0).to(tl.int32, bitcast=True)
            words = tl.join(tl.join(tl.join(i, z), tl.join(x, z)), tl.join(tl.join(c, z), tl.join(y, z)))
        else:
            words = tl.join(tl.join(i, x), tl.join(c, y))
        words = tl.reshape(words, (BLOCK, WORDS))
        to = filled + ((world * n + slot) * WORDS)[:, None] + tl.arange(0, WORDS)[None, :]
        tl.store(to, words, mask=live[:, None])


@triton.jit
def _settle_kernel(
    position,
    key,
    key_stride,
    cell,
    start,
    filled,
    order,
    cell_of,
    place,
    n,
    cells,
    DIMS: tl.constexpr,
    WORDS: tl.constexpr,
    HAS_KEY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    blocks = tl.cdiv(n, BLOCK)
    world = (tl.program_id(0) // blocks).to(tl.int64)
    s = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    live = s < n
    row = world * n
    own = filled + (row + s) * WORDS
    agent = tl.load(own, mask=live, other=0)
    c = tl.load(cell + row + agent if WORDS == 1 else own + 1, mask=live, other=0)
    first = start + world * (cells + 3)
    there = live & (c < cells)
    begin = tl.load(first + c, mask=there, other=0)
    end = tl.load(first + c + 1, mask=there, other=0)
    mine = agent.to(tl.int64)
    if HAS_KEY:
        mine = tl.load(key + world * key_stride + agent, mask=live, other=0)
    smaller = tl.zeros((BLOCK,), tl.int32)
    for k in range(tl.max(end - begin)):
        use = begin + k < end
        other = tl.load(filled + (row + begin + k) * WORDS, mask=use, other=0)
        theirs = other.to(tl.int64)
        if HAS_KEY:
            theirs = tl.load(key + world * key_stride + other, mask=use, other=0)
        smaller += (use & ((theirs < mine) | ((theirs == mine) & (other < agent)))).to(tl.int32)
    slot = tl.where(there, begin + smaller, s)
    tl.store(order + row + slot, agent, mask=live)
    tl.store(cell_of + row + slot, c, mask=live)
    for axis in tl.static_range(DIMS):
        if WORDS == 1:
            x = tl.load(position + (row + agent) * DIMS + axis, mask=live, other=0.0)
        else:
            x = tl.load(own + 2 + axis, mask=live, other=0).to(tl.float32, bitcast=True)
        tl.store(place + (world * DIMS + axis) * n + slot, x + 0.0, mask=live)


@triton.jit
def _gather_kernel(values, order, out, n, NUM: tl.constexpr, BLOCK: tl.constexpr):
    blocks = tl.cdiv(n, BLOCK)
    world = (tl.program_id(0) // blocks).to(tl.int64)
    s = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    live = s < n
    agent = tl.load(order + world * n + s, mask=live, other=0)
    for k in tl.static_range(NUM):
        x = tl.load(values + (world * n + agent) * NUM + k, mask=live, other=0.0)
        tl.store(out + (world * NUM + k) * n + s, x, mask=live)


def _added_up(number: torch.Tensor) -> torch.Tensor:
    """Sums from the start of each row, int32 `[W, C]`: one scan over all of them, since a row is one block's."""
    if len(number) == 1:
        return torch.cumsum(number, dim=1, dtype=torch.int32)
    total = torch.cumsum(number.view(-1), dim=0, dtype=torch.int32).view(number.shape)
    before = total[:-1, -1:].clone()
    total[1:] -= before  # also where the sum over all rows has wrapped around
    return total


def bin_agents(
    position: torch.Tensor,
    key: torch.Tensor,
    present: torch.Tensor | None,
    size: list[float],
    counts: list[int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """`_pairs.bin_agents`."""
    worlds, num, dims = position.shape
    position = position.detach().contiguous()
    cells = math.prod(counts)

    def room() -> torch.Tensor:
        return torch.empty(worlds, num, dtype=torch.int32, device=position.device)

    order, cell_of = room(), room()
    start = torch.zeros(worlds, cells + 3, dtype=torch.int32, device=position.device)
    place = torch.empty(worlds, dims, num, device=position.device)
    if not position.numel():
        return order, start, cell_of, place
    cell, rank = room(), room()
    words = 1 if 4 * position.numel() <= _GATHERED else 4 if dims < 3 else 8
    filled = torch.empty(worlds, num, words, dtype=torch.int32, device=position.device)
    grid = (triton.cdiv(num, _BLOCK) * worlds,)
    lengths, along = [*size, 1.0, 1.0][:3], [*counts, 1, 1][:3]
    there = None if present is None else (present != 0).to(torch.int8).contiguous()
    key = key.contiguous()
    _bin_kernel[grid](
        position,
        there,
        num if there is not None and len(there) > 1 else 0,
        cell,
        rank,
        start,
        num,
        cells,
        *lengths,
        *along,
        DIMS=dims,
        HAS_PRESENT=there is not None,
        BLOCK=_BLOCK,
    )
    start = _added_up(start)
    _fill_kernel[grid](position, cell, rank, start, filled, num, cells, DIMS=dims, WORDS=words, BLOCK=_BLOCK)
    _settle_kernel[grid](
        position,
        key,
        num if key.numel() and len(key) > 1 else 0,
        cell,
        start,
        filled,
        order,
        cell_of,
        place,
        num,
        cells,
        DIMS=dims,
        WORDS=words,
        HAS_KEY=key.numel() > 0,
        BLOCK=_BLOCK,
    )
    return order, start, cell_of, place


# --- kernels written for a function -----------------------------------------------------------------------------------

_OPS = {
    "abs": "tl.abs({0})",
    "sqrt": "tl.sqrt_rn({0})",
    "floor": "tl.floor({0})",
    "pow2": f"((tl.minimum(tl.maximum({{0}}, -{MOST_POWER}.0), {MOST_POWER}.0).to(tl.int32) + 127) << 23)"
    ".to(tl.float32, bitcast=True)",
    "not": "{0} == 0",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "tl.div_rn({0}, {1})",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "eq": "{0} == {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "where": "tl.where({0}, {1}, {2})",
}


@dataclasses.dataclass(frozen=True)
class _Writer:
    """Writes the kernel that goes through pairs in one form of space: sums of outputs, or the nearest neighbour.

    Attributes:
        program: the function.
        counts: cells along each axis.
        reach: cells to either side along the last axis.
        torus: whether each side continues on the opposite one.
        nearest: look for the nearest neighbour.
    """

    program: Program
    counts: tuple[int, ...]
    reach: int
    torus: bool
    nearest: bool

    @property
    def many(self) -> list[bool]:
        """Along which axes there is more than one cell."""
        return [count > 1 for count in self.counts]

    @property
    def outer(self) -> list[int]:
        """Axes across which there are several rows of cells."""
        return [axis for axis, many in enumerate(self.many[:-1]) if many]

    @property
    def last(self) -> int:
        """The axis along rows."""
        return self.program.dims - 1

    def text(self) -> str:
        """The module of the kernel."""
        body = [*self._head(), *self._through(), *self._tail()]
        return "\n".join(["import triton", "import triton.language as tl", "", "", "@triton.jit", *body, ""])

    def _head(self) -> list[str]:
        """Receivers: their cells, places and numbers, and sums of nothing."""
        program, dims = self.program, self.program.dims
        text = [
            "def pairs(place, order, cell, start, theirs, own, shared, out,"
            "          n, cells, limit, L0, L1, L2, LANES: tl.constexpr):",
            "    blocks = tl.cdiv(n, LANES)",
            "    world = (tl.program_id(0) // blocks).to(tl.int64)",
            "    s = (tl.program_id(0) % blocks) * LANES + tl.arange(0, LANES)",
            "    live = s < n",
            "    first = start + world * (cells + 3)",
            "    c = tl.load(cell + world * n + s, mask=live, other=cells)",
            "    there = c < cells",
            "    agent = tl.load(order + world * n + s, mask=live, other=0).to(tl.int64)",
            f"    ring = place + world * {dims} * n",
            "    rest = tl.where(there, c, 0)",
        ]
        for axis in reversed(range(dims)):
            text += [f"    i{axis} = rest % {self.counts[axis]}", f"    rest = rest // {self.counts[axis]}"]
        text += [f"    x{axis} = tl.load(ring + {axis} * n + s, mask=live, other=0.0)" for axis in range(dims)]
        text += [f"    h{axis} = L{axis} / 2" for axis in range(dims) if self.torus and not self.many[axis]]
        for k in range(program.own):
            text.append(f"    m{k} = tl.load(own + (world * n + agent) * {program.own} + {k}, mask=live, other=0.0)")
        for k in range(program.shared):
            text.append(f"    g{k} = tl.load(shared + world * {program.shared} + {k} + tl.zeros((LANES,), tl.int32))")
        for k, (name, args) in enumerate(program.lines):
            if name == "const":
                text.append(f"    v{k} = tl.full((LANES,), {_literal(args[0])}, tl.float32)")
        if self.nearest:
            text += [
                "    best = tl.full((LANES,), -1, tl.int32)",
                '    closest = tl.full((LANES,), float("inf"), tl.float32)',
            ]
        return text + [f"    a{k} = tl.zeros((LANES,), tl.float32)" for k in range(len(program.outputs))]

    def _through(self) -> list[str]:
        """All pairs. Where no row of a lane goes over an edge of the torus, nothing is asked about edges."""
        if not self.torus or not any(self.many):
            return _in(1, self._rows(False))
        edges = [f"(i{axis} < 1) | (i{axis} >= {self.counts[axis] - 1})" for axis in self.outer]
        if self.many[self.last]:
            edges.append(f"(i{self.last} < {self.reach}) | (i{self.last} >= {self.counts[self.last] - self.reach})")
        test = f"    if tl.max((there & ({' | '.join(edges)})).to(tl.int32)) > 0:"
        return [test, *_in(2, self._rows(True)), "    else:", *_in(2, self._rows(False))]

    def _rows(self, wraps: bool) -> list[str]:
        """Rows one after the other; few that do not wrap as one: lanes wait once for the one with the most."""
        rows = 3 ** len(self.outer)
        if wraps or rows > _TOGETHER:
            text = [*self._row("turn", wraps), f"most = tl.max({'num + more' if self._around(wraps) else 'num'})"]
            text += self._pairs(wraps, "begin", "num")
            return [f"for turn in range({rows}):", *_in(1, text)]
        text, shift, ends = [], "0", []
        for turn in range(rows):
            text += [*self._row(str(turn), False), f"begin{turn} = begin - ({shift})", f"end{turn} = {shift} + num"]
            shift = f"end{turn}"
            ends.append(shift)
        begin = f"begin{rows - 1}"
        for turn in reversed(range(rows - 1)):
            begin = f"tl.where(K < end{turn}, begin{turn}, {begin})"
        text += [f"most = tl.max({ends[-1]})", f"seat = s - begin{rows // 2}"]
        return [*text, *self._pairs(False, begin, ends[-1], ours=True)]

    def _around(self, wraps: bool) -> bool:
        """Whether a row may go on at its other end."""
        return wraps and self.many[self.last]

    def _row(self, turn: str, wraps: bool) -> list[str]:
        """Where a row of cells begins and how many it holds, in two pieces where it may wrap."""
        last, wide, reach = self.last, self.counts[-1], self.reach
        text = ["use = there", "row = tl.zeros((LANES,), tl.int32)"]
        for axis in range(last):
            if not self.many[axis]:
                text.append(f"row = row * {self.counts[axis]} + i{axis}")
                continue
            divide = 3 ** (len(self.outer) - 1 - self.outer.index(axis))
            text.append(f"j{axis} = i{axis} + ({turn} // {divide}) % 3 - 1")
            if wraps:
                text += [
                    f"below, above = j{axis} < 0, j{axis} >= {self.counts[axis]}",
                    f"f{axis} = tl.where(below, -L{axis}, tl.where(above, L{axis}, 0.0))",
                    f"j{axis} = tl.where(below, {self.counts[axis] - 1}, tl.where(above, 0, j{axis}))",
                ]
            elif not self.torus:
                text.append(f"use = use & (j{axis} >= 0) & (j{axis} < {self.counts[axis]})")
            text.append(f"row = row * {self.counts[axis]} + j{axis}")
        text.append(f"row = row * {wide}")
        if not self.many[last]:
            text += ["low, high = row, row"]
        elif wraps:
            text += [
                f"low = row + tl.where(i{last} < {reach}, i{last} + {wide - reach}, i{last} - {reach})",
                f"high = row + tl.where(i{last} < {reach}, {wide - 1}, tl.minimum(i{last} + {reach}, {wide - 1}))",
            ]
        else:
            text += [
                f"low = row + tl.maximum(i{last} - {reach}, 0)",
                f"high = row + tl.minimum(i{last} + {reach}, {wide - 1})",
            ]
        text += [
            "begin = tl.load(first + low, mask=use, other=0)",
            "num = tl.load(first + high + 1, mask=use, other=0) - begin",
        ]
        if self._around(wraps):
            text += [
                f"left, right = i{last} < {reach}, i{last} >= {wide - reach}",
                f"upto = tl.where(left, i{last} + {reach}, i{last} + {reach - wide})",
                "cross = use & (left | right)",
                "again = tl.load(first + row, mask=cross, other=0)",
                "more = tl.load(first + row + upto + 1, mask=cross, other=0) - again",
                f"one, two = tl.where(left, -L{last}, 0.0), tl.where(right, L{last}, 0.0)",
                "again = again - num",
            ]
        return text

    def _looked_at(self, k: str, wraps: bool, begin: str, end: str, suffix: str = "") -> tuple[list[str], list[str]]:
        """(loads, the rest) that give offset, square and `hit` of the k-th agent from a beginning to an end."""
        around, last, j, hit = self._around(wraps), self.last, f"j{suffix}", f"hit{suffix}"
        where = [f"{j} = tl.where({k} < num, begin, again) + {k}" if around else f"{j} = {begin.replace('K', k)} + {k}"]
        where.append(f"{hit} = {k} < {end}" + (" + more" if around else ""))
        for axis in range(self.program.dims):
            where.append(f"o{axis}{suffix} = tl.load(ring + {axis} * n + {j}, mask={hit})")
        rest = [f"f{last} = tl.where({k} < num, one, two)"] if around else []
        for axis in range(self.program.dims):
            way = f"o{axis}{suffix}"
            rest.append(f"{way} = {way} - x{axis}")
            if self.torus and self.many[axis]:
                rest += [f"{way} = {way} + f{axis}"] * wraps
            elif self.torus:
                rest.append(f"{way} = tl.where({way} > h{axis}, {way} - L{axis}, {way})")
                rest.append(f"{way} = tl.where({way} < -h{axis}, {way} + L{axis}, {way})")
        square = " + ".join(f"o{axis}{suffix} * o{axis}{suffix}" for axis in range(self.program.dims))
        return where, [*rest, f"q{suffix} = {square}"]

    def _pairs(self, wraps: bool, begin: str, end: str, ours: bool = False) -> list[str]:
        """Those up to `most`: who is near in one word of bits, several loads at once, then the function for those.

        With `ours` the receiver's own number is in `seat`: its mark is taken away, instead of asking at each look.
        """
        text = ["marks = tl.zeros((LANES,), tl.int32)", "count = tl.zeros((LANES,), tl.int32)"]
        text.append(f"for k in range(0, tl.minimum(most - base, {_BITS}), {_AT_ONCE}):")
        pieces = [self._looked_at(f"(base + k + {u})", wraps, begin, end, f"_{u}") for u in range(_AT_ONCE)]
        text += _in(1, [line for where, _ in pieces for line in where])
        for u, (_, rest) in enumerate(pieces):
            hit = f"hit_{u} & (q_{u} <= limit)" + (f" & (j_{u} != s)" if not ours else "")
            text += _in(1, [*rest, f"hit_{u} = ({hit}).to(tl.int32)"])
        some = " | ".join(f"(hit_{u} << {u})" for u in range(_AT_ONCE))
        count = " + ".join(f"hit_{u}" for u in range(_AT_ONCE))
        text += _in(1, [f"marks = marks | (({some}) << k)", f"count += {count}"])
        if ours:
            text += [
                f"inside = (seat >= base) & (seat < base + {_BITS})",
                "bit = marks & (inside.to(tl.int32) << tl.where(inside, seat - base, 0))",
                "marks = marks ^ bit",
                "count -= (bit != 0).to(tl.int32)",
            ]
        text += ["for _ in range(tl.max(count)):", *_in(1, self._evaluated(wraps, begin, end))]
        return [f"for base in range(0, most, {_BITS}):", *_in(1, text)]

    def _evaluated(self, wraps: bool, begin: str, end: str) -> list[str]:
        """The function for the lowest mark of each lane."""
        program = self.program
        where, rest = self._looked_at("at", wraps, begin, end)
        where[1] = "hit = marks != 0"
        text = ["low = marks & (0 - marks)", "at = base - 127 + (low.to(tl.float32).to(tl.int32, bitcast=True) >> 23)"]
        text += where
        for k in range(program.theirs):
            text.append(f"t{k} = tl.load(theirs + (world * {program.theirs} + {k}) * n + j, mask=hit, other=0.0)")
        text += [*rest, "marks = marks ^ low", "q = tl.where(hit, q, 1.0)"]  # 0 takes a root the long way
        if self.nearest:
            text.append("best = tl.where(hit & (q < closest), j, best)")
            text.append("closest = tl.where(hit & (q < closest), q, closest)")
        names = [f"o{axis}" for axis in range(program.dims)] + ["q"]
        names += [f"t{k}" for k in range(program.theirs)] + [f"m{k}" for k in range(program.own)]
        names += [f"g{k}" for k in range(program.shared)] + [f"v{k}" for k in range(len(program.lines))]
        for k, (name, args) in enumerate(program.lines):
            if name != "const":
                text.append(f"v{k} = {_OPS[name].format(*[names[arg] for arg in args])}")
        return text + [f"a{k} = tl.where(hit, a{k} + {names[at]}, a{k})" for k, at in enumerate(program.outputs)]

    def _tail(self) -> list[str]:
        """Results at the agents' own places, all of an agent by one store."""
        text = ["    bad = tl.load(first + cells + 2) != n"]
        if self.nearest:
            text += [
                "    found = tl.load(order + world * n + best, mask=live & (best >= 0), other=-1).to(tl.int64)",
                "    tl.store(out + world * n + agent, tl.where(bad, -2, found), mask=live)",
            ]
        num = len(self.program.outputs)
        if num:
            wide = 1 << (num - 1).bit_length()
            side = interleaved([f"a{min(k, num - 1)}" for k in range(wide)])
            text += [
                f"    column = tl.arange(0, {wide})[None, :]",
                f'    every = tl.where(bad, float("nan"), tl.reshape({side}, (LANES, {wide})))',
                f"    at = out + ((world * n + agent) * {num})[:, None] + column",
                f"    tl.store(at, every, mask=live[:, None] & (column < {num}))",
            ]
        return text


def _in(depth: int, lines: list[str]) -> list[str]:
    """Lines that far in."""
    return ["    " * depth + line for line in lines]


def _literal(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value}")'


@functools.lru_cache(maxsize=256)
def _built(text: str, counts: tuple[int, ...], reach: int, torus: bool, nearest: bool) -> Any:
    """The kernel of a program; what it is made of is denizen's own text, of names and numbers alone."""
    source = _Writer(_pair_program.read(text), counts, reach, torus, nearest).text()
    name = f"<denizen pairs {hashlib.blake2s(source.encode()).hexdigest()}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)  # where Triton looks for its source
    there: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, name, "exec"), there)  # noqa: S102
    return there["pairs"]


def _launch(
    program: str,
    fields: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    binned: tuple[torch.Tensor, ...],
    spec: tuple[list[float], list[int], bool, float],
    out: torch.Tensor,
) -> torch.Tensor:
    (theirs, own, shared), (order, start, cell, place) = fields, binned
    size, counts, torus, radius = spec
    worlds, num = order.shape
    if not out.numel():
        return out
    if theirs.shape[2]:
        rows = theirs.to(torch.float32).contiguous()
        theirs = torch.empty(worlds, rows.shape[2], num, device=out.device)
        grid = (triton.cdiv(num, _BLOCK) * worlds,)
        _gather_kernel[grid](rows, order, theirs, num, NUM=rows.shape[2], BLOCK=_BLOCK)
    reach = reach_of(size[-1], counts[-1], radius)
    kernel = _built(program, tuple(counts), reach, torus, not out.dtype.is_floating_point)
    kernel[(triton.cdiv(num, _LANES) * worlds,)](
        place,
        order,
        cell,
        start,
        theirs,
        own.to(torch.float32).contiguous(),
        shared.to(torch.float32).contiguous(),
        out,
        num,
        math.prod(counts),
        radius * radius,
        *[*size, 1.0, 1.0][:3],
        LANES=_LANES,
        num_warps=_WARPS,
        enable_fp_fusion=False,
    )
    return out


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
    out = torch.empty(*binned[0].shape, len(_pair_program.read(program).outputs), device=theirs.device)
    return _launch(program, (theirs, own, shared), binned, (size, counts, torus, radius), out)


def nearest_agent(
    binned: tuple[torch.Tensor, ...], size: list[float], counts: list[int], torus: bool, radius: float
) -> torch.Tensor:
    """`_pairs.nearest_agent`."""
    out = torch.empty(binned[0].shape, dtype=torch.int64, device=binned[0].device)
    none = torch.empty(*out.shape, 0, device=out.device)
    program = Program(len(size), 0, 0, 0, (), ()).text
    return _launch(program, (none, none, none[:, 0]), binned, (size, counts, torus, radius), out)
