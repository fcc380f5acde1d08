"""What `_native` writes for each operation: expressions of entries, sums over rows, calls of denizen's own loops."""

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor
from torch.fx import Node

from denizen.ops import (
    _cpu_calls,
    _cpu_cell_moves,
    _cpu_draws,
    _cpu_forming,
    _cpu_meeting,
    _cpu_neighbours,
    _cpu_pairing,
    _cpu_pairs,
    _cpu_placing,
    _cpu_slots,
    _cpu_stepping,
)
from denizen.ops._cpu_neighbours import COUNTS
from denizen.ops._pairs import reach_of
from denizen.run._native_parts import Line, most_parts

aten, own = torch.ops.aten, torch.ops.denizen


_LOOPS = {
    *("_draw_blocks", "_draw_ids", "_words_blocks", "_words_ids", "_sum_counts", "_PUSH_UP_TO", "_taken"),
    *("_list_part", "_push_part", "_sum_part", "meet", "_added", "_some", "_every"),
    *("_seated", "_sum_whole", "_sum_real", "_form", "_place", "_pair", "_step_aside", "_fill", "_settle", "_bin"),
    *("_sum", "_spoil", "_exponential", "_clear", "_copy", "whole", "strided", "invoke", "moved"),
}


_MODULES = (
    *(_cpu_cell_moves, _cpu_draws, _cpu_forming, _cpu_neighbours, _cpu_pairing, _cpu_pairs, _cpu_placing, _cpu_slots),
    *(_cpu_stepping, _cpu_calls, _cpu_meeting),
)


class CallError(Exception):
    """An operation that cannot be called so."""


class Argument(NamedTuple):
    """A tensor argument of a loop."""

    node: Node
    meta: Tensor
    array: Callable[[Node, Sequence[int]], str]

    @property
    def flat(self) -> str:
        """As one row."""
        return self.array(self.node, (self.meta.numel(),))

    def rows(self, *shape: int) -> str:
        """As an array of some shape; default: its own."""
        return self.array(self.node, shape or self.meta.shape)

    @property
    def one(self) -> str:
        """Its only entry."""
        return f"{self.array(self.node, (1,))}[0]"


class Result(NamedTuple):
    """A tensor that a loop writes into."""

    buffer: Any
    array: Callable[[Any, Sequence[int]], str]
    scratch: Callable[[Sequence[int], torch.dtype], str] = lambda *_: ""

    def rows(self, *shape: int) -> str:
        """As an array of some shape."""
        return self.array(self.buffer, shape)


NAMES = {
    torch.bool: "np.bool_",
    torch.int8: "np.int8",
    torch.uint8: "np.uint8",
    torch.int16: "np.int16",
    torch.int32: "np.int32",
    torch.int64: "np.int64",
    torch.float32: "np.float32",
    torch.float64: "np.float64",
}


def literal(value: Any) -> str:
    """A number in the code."""
    if isinstance(value, float) and not math.isfinite(value):
        return "np.nan" if math.isnan(value) else "np.inf" if value > 0 else "-np.inf"
    return repr(value)


def cast(dtype: torch.dtype, expression: str) -> str:
    """An expression in a dtype."""
    return f"({expression} != 0)" if dtype == torch.bool else f"{NAMES[dtype]}({expression})"


# --- entries ----------------------------------------------------------------------------------------------------------


_ARITHMETIC = {aten.add: "+", aten.sub: "-", aten.mul: "*", aten.div: "/"}
_COMPARED = {aten.eq: "==", aten.ne: "!=", aten.lt: "<", aten.le: "<=", aten.gt: ">", aten.ge: ">="}
_BITS = {aten.bitwise_and: "&", aten.bitwise_or: "|", aten.bitwise_xor: "^"}
_LOGIC = {aten.logical_and: "&", aten.logical_or: "|", aten.logical_xor: "^"}
_ROUNDED = {aten.floor: "np.floor", aten.ceil: "np.ceil", aten.trunc: "np.trunc", aten.round: "np.rint"}
_LARGEST = {aten.maximum: ">", aten.minimum: "<"}
_CLAMPED = (aten.clamp, aten.clamp_min, aten.clamp_max)
_CODES = (own.code_range, own.grow_codes)
_COPIED = (aten._to_copy, aten.clone)
_OTHERS = (aten.neg, aten.abs, aten.reciprocal, aten.bitwise_not, aten.logical_not, aten.where, aten.rsub)
_SHIFTS = {aten.__rshift__: ">>", aten.__lshift__: "<<"}
_SIGNS = _ARITHMETIC | _BITS | _SHIFTS | {aten.remainder: "%"}
_POINTWISE = {
    *(packet for table in (_ARITHMETIC, _COMPARED, _BITS, _LOGIC, _ROUNDED, _LARGEST, _SHIFTS) for packet in table),
    *(aten.remainder, *_CLAMPED, *_CODES, *_COPIED, *_OTHERS),
}
_OVERLOADS = ("Tensor", "Scalar", "default", "self")


def _dtype(node: Node) -> torch.dtype:
    return node.meta["val"].dtype


def is_pointwise(node: Node) -> bool:
    """Whether there is an expression for each entry, with the bits of torch, whose roots are not exact."""
    packet, overload = getattr(node.target, "overloadpacket", None), getattr(node.target, "_overloadname", "")
    quotient = node.target in (aten.div.Tensor_mode, aten.div.Scalar_mode)
    if packet not in _POINTWISE or not (overload in _OVERLOADS or quotient):
        return False
    dtypes = [_dtype(other) for other in node.all_input_nodes]
    if not dtypes or any(dtype not in NAMES for dtype in (*dtypes, _dtype(node))):
        return False
    if packet is aten.remainder or quotient:
        return set(node.kwargs) <= {"rounding_mode"} and _divides(node)
    if packet in _SHIFTS:
        return _dtype(node) in _WHOLE and _dtype(node) == dtypes[0] and _is_whole(node.args[1], 0, _bits(dtypes[0]) - 1)
    if packet in _COPIED:
        plain = set(node.kwargs) <= {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"}
        cut = dtypes[0].is_floating_point and not _dtype(node).is_floating_point and _dtype(node) != torch.bool
        return plain and not cut
    if node.kwargs.get("alpha", 1) != 1 or set(node.kwargs) - {"alpha"}:
        return False
    if packet in (aten.add, aten.sub, aten.rsub) and len(node.args) > 2:
        return False
    if packet in _LARGEST and _dtype(node).is_floating_point:
        return False  # which of two zeros it is, and NaN
    if packet in _CLAMPED and not _are_ends([one for one in node.args[1:] if one is not None]):
        return False
    return all(fits(one, _common(node)) for one in node.args[1:] if isinstance(one, int) and not isinstance(one, bool))


_WHOLE = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def _bits(dtype: torch.dtype) -> int:
    return torch.iinfo(dtype).bits


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _divides(node: Node) -> bool:
    """Whether whole numbers are divided by a number above 0, the rest left out in either way."""
    dtype, value = _dtype(node), node.args[1]
    same = isinstance(node.args[0], Node) and _dtype(node.args[0]) == dtype
    way = node.kwargs.get("rounding_mode", "floor")
    return dtype in _WHOLE and same and way in ("floor", "trunc") and _is_whole(value, 1, torch.iinfo(dtype).max)


def _are_ends(ends: list[Any]) -> bool:
    numbers = all(isinstance(one, int | float) and one == one for one in ends)  # NaN as an end makes everything NaN
    return numbers and (len(ends) < 2 or ends[0] <= ends[1])


def fits(value: int, dtype: torch.dtype) -> bool:
    """Whether a number keeps its value in a dtype."""
    if dtype.is_floating_point:
        return abs(value) <= 2**24
    if dtype == torch.bool:
        return value in (0, 1)
    return torch.iinfo(dtype).min <= value <= torch.iinfo(dtype).max


def _common(node: Node) -> torch.dtype:
    """The dtype in which operands meet."""
    packet = node.target.overloadpacket  # type: ignore[union-attr]
    if packet in _COMPARED or packet in _LOGIC:
        one, other = (_plain(arg) for arg in node.args[:2])
        return torch.result_type(one, other)
    if packet in _CODES:
        return node.args[0].meta["val"].dtype  # type: ignore[union-attr]
    return _dtype(node)


def _plain(arg: Any) -> Any:
    if not isinstance(arg, Node):
        return arg
    value = arg.meta["val"]
    return torch.empty(value.shape, dtype=value.dtype, device="meta")


def pointwise(node: Node, args: list[str]) -> str:
    """The expression of an entry, in the node's dtype."""
    packet, dtype = node.target.overloadpacket, _dtype(node)  # type: ignore[union-attr]
    if packet in _COMPARED:
        one, other = (cast(_common(node), arg) for arg in args[:2])
        return f"{one} {_COMPARED[packet]} {other}"
    if packet in _LOGIC:
        one, other = (cast(_common(node), arg) for arg in args[:2])  # of which little may be left: 256 as a uint8 is 0
        return f"({one} != 0) {_LOGIC[packet]} ({other} != 0)"
    if packet in _CLAMPED:
        low, high = (["None", args[1]] if packet is aten.clamp_max else [*args[1:], "None"])[:2]
        return _clamped(dtype, cast(dtype, args[0]), low, high)
    if node.target in (aten.div.Tensor_mode, aten.div.Scalar_mode):
        floor, by = f"{cast(dtype, args[0])} // {cast(dtype, args[1])}", cast(dtype, args[1])
        up = (
            f" + (({args[0]} < 0) & (({floor}) * {by} != {args[0]}))" if node.kwargs["rounding_mode"] == "trunc" else ""
        )
        return cast(dtype, f"{floor}{up}")
    if packet in _BY_NAME:
        return _BY_NAME[packet](dtype, args)
    given = [cast(dtype, arg) for arg in args]
    if packet in _ARITHMETIC and dtype == torch.bool:
        return f"{given[0]} {'&' if packet is aten.mul else '|'} {given[1]}"
    if packet in _SIGNS:
        return cast(dtype, f"{given[0]} {_SIGNS[packet]} {given[1]}")
    if packet in _LARGEST:
        return f"{given[0]} if {given[0]} {_LARGEST[packet]} {given[1]} else {given[1]}"
    return f"{_ROUNDED[packet]}({given[0]})" if packet in _ROUNDED and dtype.is_floating_point else given[0]


def _grown(dtype: torch.dtype, args: list[str]) -> str:
    code, event, last = args
    return cast(dtype, f"{code} + (({code} > 0) & ({code} < {last})) + (({code} == 0) & ({event} != 0))")


_BY_NAME: dict[Any, Callable[[torch.dtype, list[str]], str]] = {
    own.code_range: lambda dtype, args: f"np.int8(({args[0]} >= {args[1]}) & ({args[0]} <= {args[2]}))",
    own.grow_codes: _grown,
    aten.where: lambda dtype, args: f"{cast(dtype, args[1])} if {args[0]} else {cast(dtype, args[2])}",
    aten.rsub: lambda dtype, args: cast(dtype, f"{cast(dtype, args[1])} - {cast(dtype, args[0])}"),
    aten.neg: lambda dtype, args: cast(dtype, f"-{args[0]}"),
    aten.abs: lambda dtype, args: cast(dtype, f"abs({args[0]})"),
    aten.reciprocal: lambda dtype, args: f"{cast(dtype, '1')} / {cast(dtype, args[0])}",
    aten.logical_not: lambda dtype, args: f"{args[0]} == 0",
    aten.bitwise_not: lambda dtype, args: f"not {args[0]}" if dtype == torch.bool else cast(dtype, f"~{args[0]}"),
}


def _clamped(dtype: torch.dtype, value: str, low: str, high: str) -> str:
    """NaN stays what it is."""
    out = value
    if high != "None":
        out = f"({cast(dtype, high)} if {value} > {cast(dtype, high)} else {out})"
    if low != "None":
        out = f"({cast(dtype, low)} if {value} < {cast(dtype, low)} else {out})"
    return out


# --- rows -------------------------------------------------------------------------------------------------------------

_REDUCED = {aten.sum, aten.any, aten.all}


def is_reduction(node: Node) -> bool:
    """Whether it is a reduction whose order does not matter."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet not in _REDUCED or set(node.kwargs) - {"dtype"}:
        return False
    (operand,) = node.all_input_nodes
    if packet is aten.sum:
        return not _dtype(operand).is_floating_point and _dtype(node) == torch.int64
    return _dtype(node) == torch.bool and _dtype(operand) in NAMES


def reduced(node: Node, dims: int) -> set[int]:
    """The axes that go."""
    given: Any = node.args[1] if len(node.args) > 1 else None
    if given is None or given == []:
        return set(range(dims))
    return {one % max(dims, 1) for one in (given if isinstance(given, list | tuple) else [given])}


def reduction(node: Node, value: str, name: str) -> tuple[str, str, str]:
    """(what it begins with, what each entry does, what puts results of parts together)."""
    packet = node.target.overloadpacket  # type: ignore[union-attr]
    if packet is aten.sum:
        return f"{name} = np.int64(0)", f"{name} += np.int64({value})", "_added"
    if packet is aten.any:
        return f"{name} = False", f"{name} |= ({value}) != 0", "_some"
    return f"{name} = True", f"{name} &= ({value}) != 0", "_every"


# --- denizen's own loops ----------------------------------------------------------------------------------------------


def _ids(ids: Argument) -> str:
    return ids.rows() if ids.meta.dim() == 2 else ids.rows(1, ids.meta.numel())


def _draw(draw: list[Any], num: int) -> tuple[str, str, str]:
    """(how the loops end that draw, identities, key and counter) for so many agents."""
    ids, key, step, stream = draw
    if ids.meta.numel() == 0 and num <= _cpu_draws._FEW:
        raise CallError("few agents")
    kind, named = ("ids", f"{_ids(ids)}, ") if ids.meta.numel() else ("blocks", "")
    return kind, named, f"{key.rows()}, np.uint64({step.one}), np.uint64({stream})"


def _drawn(values: Argument, gates: str, num: int, hazard: bool, draw: list[Any], out: list[Result]) -> list[str]:
    kind, named, counter = _draw(draw, num)
    worlds = draw[1].meta.shape[0]
    bad = out[-1].rows(worlds)
    given = f"{values.rows()}, {gates}, {hazard}, {named}{counter}, {out[0].rows(worlds, num)}, {bad}"
    return [Line.of(f"_draw_{kind}({given}", worlds, num, 1.0, clears=f"_clear({bad})")]


def _draw_mask(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    values, hazard, *draw = args
    worlds, num = values.meta.shape
    none = constant(np.empty((worlds, 0), np.int8))
    return _drawn(values, f"{none}, {none}", num, hazard, draw, out)


def _draw_among(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    values, where, alive, num, hazard, *draw = args
    return _drawn(values, f"{where.rows()}, {alive.rows()}", num, hazard, draw, out)


def _draw_words(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    ids, num, *draw = args
    kind, named, counter = _draw([ids, *draw], num)
    worlds = draw[0].meta.shape[0]
    return [Line.of(f"_words_{kind}({named}{counter}, {out[0].rows(worlds, num)}", worlds, num, 1.5)]


def _draw_exponential(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    rates, where, ids, key, step, stream = args
    worlds, num = where.meta.shape
    named = f"{_ids(ids)}, True" if ids.meta.numel() else "_NOBODY, False"
    draw = f"{key.rows()}, np.uint64({step.one}), np.uint64({stream})"
    bad = out[1].rows(worlds)
    given = f"{rates.rows()}, {where.rows()}, {named}, {draw}, {out[0].rows(worlds, num)}, {bad}"
    return [Line.of(f"_exponential({given}", worlds, num, 1.0, clears=f"_clear({bad})")]


def _sum_counts(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    values, where, *graph = args
    worlds, num = values.meta.shape
    mask = "_NO_MASK" if where is None else where.rows()
    pull, push = (", ".join(one.flat for one in pair) for pair in (graph[:2], graph[2:]))
    given, made = f"{values.rows()}, {mask}, {where is not None}", out[0].rows(worlds, num)
    if worlds > 1:
        call = f"_sum_counts({given}, {pull}, {push}, _PUSH_UP_TO, {made}"
        return [Line.of(call, 0, worlds, 1.5 * num, None)]
    active, counts = out[0].scratch((num + 1,), torch.int32), out[0].scratch((most_parts(), COUNTS), torch.int64)
    more = out[0].scratch((most_parts() - 1, num), node.meta["val"].dtype)
    ends, here = graph[2].flat, f"{counts}, {more}, {made}, part, parts"
    return [
        Line.of(f"_list_part({values.rows()}, {ends}, {active}, {counts}, part", 1, num, 0.4, joint=True),
        Line.of(
            f"_push_part({given}, {graph[0].flat}, {push}, _PUSH_UP_TO, {active}, {here}", 1, num, 1.0, None, joint=True
        ),
        Line.of(f"_sum_part({given}, {pull}, {here}", 1, num, 0.2, None, joint=True),
    ]


def _slots(until: Argument) -> tuple[int, int]:
    *agents, slots = until.meta.shape
    return math.prod(agents), slots


def _taken(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    until, step = args
    total, slots = _slots(until)
    return [Line.of(f"_taken({until.rows(total, slots)}, int({step.one}), {out[0].rows(total)}", 1, total, 0.2)]


def _seated(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    until, seat, wanted, step = args
    total, slots = _slots(until)
    given = f"{until.rows(total, slots)}, {seat.flat}, {wanted.flat}, int({step.one}), {out[0].rows(total)}"
    return [Line.of(f"_seated({given}", 1, total, 0.3)]


def _sum_in_slots(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    values, who, until, step = args
    loop = {torch.int8: "_sum_whole", torch.float32: "_sum_real"}.get(values.meta.dtype)
    if loop is None:
        raise CallError("wide values")
    total, slots = _slots(until)
    pair = f"{who.rows(total, slots)}, {until.rows(total, slots)}"
    given = f"{values.rows()}, {pair}, int({step.one})"
    return [Line.of(f"{loop}({given}, {out[0].rows(total)}", 1, total, 0.8, [values.rows()])]


def _form_ties(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    who, until, seat, lasts, ids, key, step, draw, stream, pools, sides = args
    (total, slots), worlds = _slots(who), who.meta.shape[0]
    new, after = (one.rows(total, slots) for one in out[:2])
    draws = f"{_ids(ids) if ids.meta.numel() else '_NOBODY'}, {key.rows()}, int({step.one}), np.uint64({draw.one})"
    return [
        f"_copy({out[0].rows(total * slots)}, {who.flat})",
        f"_copy({out[1].rows(total * slots)}, {until.flat})",
        f"_form({seat.rows()}, {lasts.rows()}, {draws}, np.uint64({stream}), {pools}, {sides}, {new}, {after}, "
        f"{out[2].rows(worlds, 2)}, 0, {worlds})",
    ]


def _place_rows(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    worlds, num = args[0].meta.shape
    made = f"{out[0].rows(worlds, num)}, {out[1].rows(worlds, num)}, {out[2].rows(worlds)}"
    return [f"_place({', '.join(one.rows() for one in args)}, {made}, 0, {worlds})"]


def _counter(key: Argument, step: Argument) -> str:
    return f"{key.rows()}, np.uint64({step.one})"


def _pair_rows(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    first, second, first_ids, second_ids, groups, key, step, *streams = args
    worlds, named = first.meta.shape[0], ", ".join(map(_ids_or_none, (first_ids, second_ids)))
    draws = f"{_counter(key, step)}, np.uint64({streams[0]}), np.uint64({streams[1]})"
    made = ", ".join([*(out[k].rows(worlds, args[k].meta.shape[1]) for k in (0, 1)), out[2].rows(worlds, 2)])
    return [f"_pair({first.rows()}, {second.rows()}, {named}, {groups}, {draws}, {made}, 0, {worlds})"]


def _ids_or_none(ids: Argument) -> str:
    return _ids(ids) if ids.meta.numel() else "_NO_ROWS"


def _mask(mask: Argument | None) -> str:
    """A mask as bytes; of none, no rows."""
    if mask is not None and mask.meta.dtype != torch.int8:
        raise CallError("a mask of another dtype")
    return "_NO_MASK_ROWS" if mask is None else mask.rows()


def _step_rows(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    place, who, shape, radius, torus, ids, key, step, stream = args
    worlds, num = place.meta.shape
    named = _ids(ids) if ids.meta.numel() else "_NOBODY"
    draws = f"{named}, {_counter(key, step)}, np.uint64({stream}), {out[0].rows(worlds, num)}"
    given = f"{place.rows()}, {_mask(who)}, {constant(np.array(shape))}, {radius}, {torus}"
    return [f"_step_aside({given}, {draws}, 0, {worlds})"]


def _fill_rows(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    cell, who, alive, begins, cells, capacity, ids, key, step, *streams = args
    if ids.meta.numel():
        raise CallError("identities that would have to be put in order")
    worlds, num = cell.meta.shape
    given = f"{cell.rows()}, {_mask(who)}, {_mask(alive)}, {begins}, {cells}, {capacity}, _NO_ROWS, _NO_ROWS"
    turns = f"np.uint64({step.one}), np.uint64({streams[0]}), np.uint64({streams[1]}), {key.rows()}"
    return [f"_fill({given}, {turns}, {out[0].rows(worlds, num)}, {out[1].rows(worlds, 2)}, 0, {worlds})"]


def _settle_rows(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    cell, target, alive, capacity, cells, rounds, ids, key, step, stream = args
    if ids.meta.numel():
        raise CallError("identities that would have to be put in order")
    worlds, num = cell.meta.shape
    given = f"{cell.rows()}, {target.rows()}, {_mask(alive)}, {capacity.rows()}, {cells}, {rounds}, _NO_ROWS, _NO_ROWS"
    draws = f"np.uint64({step.one}), np.uint64({stream}), {key.rows()}"
    return [f"_settle({given}, {draws}, {out[0].rows(worlds, num)}, {out[1].rows(worlds, 3)}, 0, {worlds})"]


def _bin_agents(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    position, key, present, size, counts = args
    if key.meta.numel() or position.meta.dtype != torch.float32:
        raise CallError("identities that would have to be put in order")
    worlds, num, dims = position.meta.shape
    there = "_NO_BYTE" if present is None else _mask(present)
    spec = f"{constant(np.array(size, np.float64))}, {constant(np.array(counts, np.int64))}"
    shapes = ((worlds, num), (worlds, math.prod(counts) + 3), (worlds, num), (worlds, dims, num))
    made = ", ".join(one.rows(*shape) for one, shape in zip(out, shapes, strict=True))
    return [f"_bin({position.rows()}, _NO_ROWS, {there}, {present is not None}, {spec}, {made}, 0, {worlds})"]


def _sum_pairs(node: Node, args: list[Any], out: list[Result]) -> list[str]:
    _, theirs, own_, shared, order, start, cell, place, size, counts, torus, radius, program = args
    if any(one.meta.dtype != torch.float32 for one in (theirs, own_, shared)):
        raise CallError("wide values")
    worlds, num = order.meta.shape
    outputs = node.meta["val"].shape[-1]
    total = out[0].rows(worlds, num, outputs)
    given = ", ".join(one.rows() for one in (theirs, own_, shared, order, start, cell, place))
    spec = f"{constant(np.array(size, np.float64))}, {constant(np.array(counts, np.int64))}, {torus}"
    reach = f"np.float32({radius!r}), {reach_of(size[-1], counts[-1], radius)}"
    function = ", ".join(map(constant, _cpu_pairs._arrays(program)))
    return [
        f"_clear({out[0].rows(worlds * num * outputs)})",
        f"_sum({given}, {spec}, {reach}, {function}, {total}, _NOBODY, False, 0, {num})",
        f"_spoil({start.rows()}, {num}, {total})",
    ]


ARRAYS: dict[str, np.ndarray] = {
    "_NOBODY": np.empty((0, 0), np.int64),
    "_NO_ROWS": np.empty((1, 0), np.int64),
    "_NO_BYTE": np.zeros((1, 1), np.int8),
    "_NO_MASK_ROWS": np.empty((0, 0), np.int8),
    "_NO_MASK": _cpu_neighbours._NO_MASK,
}


def constant(array: np.ndarray) -> str:
    """Names an array that never changes; those of equal entries have one name."""
    form = "x".join(map(str, (array.dtype, *array.shape)))
    name = f"k_{form}_{hashlib.blake2b(array.tobytes(), digest_size=8).hexdigest()}"
    ARRAYS[name] = array
    return name


CALLS: dict[Any, Callable[[Node, list[Any], list[Result]], list[str]]] = {
    own.draw_mask.default: _draw_mask,
    own.draw_among.default: _draw_among,
    own.draw_words.default: _draw_words,
    own.draw_exponential.default: _draw_exponential,
    own.sum_counts.default: _sum_counts,
    own.taken_slots.default: _taken,
    own.seated_slots.default: _seated,
    own.sum_in_slots.default: _sum_in_slots,
    own.form_ties.default: _form_ties,
    own.place_rows.default: _place_rows,
    own.pair_rows.default: _pair_rows,
    own.step_rows.default: _step_rows,
    own.fill_rows.default: _fill_rows,
    own.settle_rows.default: _settle_rows,
    own.bin_agents.default: _bin_agents,
    own.sum_pairs.default: _sum_pairs,
}


OWN = {name: value for module in _MODULES for name, value in vars(module).items() if name in _LOOPS}


@functools.lru_cache(maxsize=1024)
def compiled(name: str, text: str) -> Callable[..., None]:
    """A loop, which further runs of a model find compiled."""
    found: dict[str, Any] = {"np": np}
    exec(text, found)  # noqa: S102 - written above, from operations and numbers of the graph
    return numba.njit(nogil=True, error_model="numpy")(found[name])
