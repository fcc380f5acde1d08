"""What `_native` writes as a nest of loops of its own: entries of any layout, at given places, behind an edge."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from denizen.run import _native_loops as loops
from denizen.run._native_loops import NAMES, CallError, cast, literal

aten = torch.ops.aten
_WHOLE = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


class Nest:
    """Writes one function of loops.

    Attributes:
        takes: the array of each parameter, by name.
        checked: whether it returns True where a place is out of range.
    """

    def __init__(self, view: Callable[[Any, Tensor], str]) -> None:
        """Args:
        view: names the array of a node's, or of a buffer's, entries in some layout.
        """
        self.takes: dict[str, str] = {}
        self.checked = False
        self._view = view
        self._lines: list[str] = []
        self._depth = 0

    def entry(self, of: Any, meta: Tensor, at: Sequence[str]) -> str:
        """An entry of a node or buffer in the layout of `meta`; what is repeated along an axis is read once."""
        kept = [axis for axis in range(meta.dim()) if meta.shape[axis] > 1 and meta.stride(axis) > 0]
        one = meta.as_strided([meta.shape[a] for a in kept], [meta.stride(a) for a in kept], meta.storage_offset())
        array = self._view(of, one if kept else one.reshape(1))
        name = next((name for name, other in self.takes.items() if other == array), f"x{len(self.takes)}")
        self.takes[name] = array
        return f"{name}[{', '.join(at[axis] for axis in kept) or '0'}]"

    def line(self, text: str) -> None:
        """Write a line within the loops that are open."""
        self._lines.append("    " * self._depth + text)

    def loop(self, shape: Sequence[int]) -> list[str]:
        """Open a loop for each axis; names of the counters."""
        names = []
        for size in shape:
            names.append(f"i{self._depth}")
            self.line(f"for {names[-1]} in range({size}):")
            self._depth += 1
        return names

    def close(self, keep: int = 0) -> None:
        """Close the loops that are open but for the first ones."""
        self._depth = keep

    def place(self, name: str, index: str, size: int, wraps: bool) -> None:
        """Name a place along an axis; the function ends where there is none."""
        self.checked = True
        self.line(f"{name} = np.int64({index})")
        if wraps:
            self.line(f"{name} = {name} + {size} if {name} < 0 else {name}")
        self.line(f"if ({name} < 0) | ({name} >= {size}):")
        self.line("    return True")

    def code(self, name: str) -> str:
        """The function."""
        lines = [*self._lines, "return False"] if self.checked else self._lines
        return "\n    ".join([f"def {name}({', '.join(self.takes)}):", *lines]) + "\n"


def _out(nest: Nest, result: loops.Result, shape: Sequence[int], at: Sequence[str]) -> str:
    return nest.entry(result.buffer, torch.empty(tuple(shape), device="meta"), at)


def _number(value: Any, dtype: torch.dtype) -> str:
    """A number as torch casts it."""
    if dtype.is_floating_point:
        if math.isfinite(value) and abs(value) > torch.finfo(dtype).max:
            raise CallError("a large number")
        return cast(dtype, literal(float(value)))
    if not math.isfinite(value) or int(value) != value or not loops.fits(int(value), dtype):
        raise CallError("a number")
    return cast(dtype, literal(int(value)))


def pointwise(nest: Nest, node: Node, args: Sequence[Any], out: loops.Result) -> None:
    """Entries of operands whose layouts have no common form of rows."""
    shape = node.meta["val"].shape
    at = nest.loop(shape)
    given = [
        nest.entry(one.node, one.meta.expand(shape), at) if isinstance(one, loops.Argument) else literal(one)
        for one in args
    ]
    nest.line(f"{_out(nest, out, shape, at)} = {loops.pointwise(node, given)}")


def _index(nest: Nest, node: Node, args: list[Any], out: loops.Result) -> None:
    """`source[…]` by whole numbers, which may be negative."""
    source, indices = args
    given = [*indices, *[None] * (source.meta.dim() - len(indices))]
    axes = [axis for axis, one in enumerate(given) if one is not None]
    if any(given[axis].meta.dtype not in (torch.int32, torch.int64) for axis in axes):
        raise CallError("indices")
    shape = torch.broadcast_shapes(*(given[axis].meta.shape for axis in axes))
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0  # apart from each other they come first
    at = nest.loop(node.meta["val"].shape)
    of_indices, rest = at[first : first + len(shape)], iter([*at[:first], *at[first + len(shape) :]])
    places = []
    for axis, one in enumerate(given):
        if one is None:
            places.append(next(rest))
            continue
        places.append(f"k{axis}")
        where = nest.entry(one.node, one.meta.expand(shape), of_indices)
        nest.place(f"k{axis}", where, source.meta.shape[axis], True)
    nest.line(f"{_out(nest, out, node.meta['val'].shape, at)} = {nest.entry(source.node, source.meta, places)}")


def _gather(nest: Nest, node: Node, args: list[Any], out: loops.Result) -> None:
    source, dim, index = args[:3]
    if len(args) > 3 or node.kwargs or index.meta.dtype != torch.int64 or not source.meta.dim() or not index.meta.dim():
        raise CallError("form")
    dim %= source.meta.dim()
    at = nest.loop(index.meta.shape)
    nest.place("k", nest.entry(index.node, index.meta, at), source.meta.shape[dim], False)
    from_ = nest.entry(source.node, source.meta, [*at[:dim], "k", *at[dim + 1 :]])
    nest.line(f"{_out(nest, out, index.meta.shape, at)} = {from_}")


def _copied(nest: Nest, one: loops.Argument, out: loops.Result) -> None:
    at = nest.loop(one.meta.shape)
    nest.line(f"{_out(nest, out, one.meta.shape, at)} = {nest.entry(one.node, one.meta, at)}")
    nest.close()


def _scattered(adds: bool) -> Callable[[Nest, Node, list[Any], loops.Result], None]:
    """Entries put at places, the last of several at one; or whole numbers added up there."""

    def write(nest: Nest, node: Node, args: list[Any], out: loops.Result) -> None:
        into, dim, index, given = args[:4]
        if len(args) > 4 or node.kwargs or index.meta.dtype != torch.int64 or not into.meta.dim():
            raise CallError("form")
        dtype = into.meta.dtype
        if (adds and dtype not in _WHOLE) or not index.meta.dim():
            raise CallError("real numbers are added in an order of torch's")
        dim %= into.meta.dim()
        _copied(nest, into, out)
        at = nest.loop(index.meta.shape)
        nest.place("k", nest.entry(index.node, index.meta, at), into.meta.shape[dim], False)
        to = _out(nest, out, into.meta.shape, [*at[:dim], "k", *at[dim + 1 :]])
        if isinstance(given, loops.Argument):
            if given.meta.dim() != index.meta.dim() or given.meta.dtype != dtype:
                raise CallError("form")
            value = nest.entry(given.node, given.meta, at)
        else:
            value = _number(given, dtype)
        nest.line(f"{to} = {cast(dtype, f'{to} + {value}')}" if adds else f"{to} = {value}")

    return write


def _pad(nest: Nest, node: Node, args: list[Any], out: loops.Result) -> None:
    source, pads, *value = args
    meta, shape, dtype = source.meta, node.meta["val"].shape, source.meta.dtype
    number = _number(value[0] if value else 0, dtype)
    if min(pads) < 0:
        raise CallError("a negative pad")
    at = nest.loop(shape)
    nest.line(f"{_out(nest, out, shape, at)} = {number}")
    nest.close()
    before = [0] * meta.dim()
    for place in range(len(pads) // 2):
        before[meta.dim() - 1 - place] = pads[2 * place]
    inner = torch.empty(shape, device="meta")
    for axis, (low, size) in enumerate(zip(before, meta.shape, strict=True)):
        inner = inner.narrow(axis, low, size)
    at = nest.loop(meta.shape)
    nest.line(f"{nest.entry(out.buffer, inner, at)} = {nest.entry(source.node, meta, at)}")


def _stack(nest: Nest, node: Node, args: list[Any], out: loops.Result) -> None:
    parts, shape = args[0], node.meta["val"].shape
    dim = (args[1] if len(args) > 1 else 0) % len(shape)
    for place, part in enumerate(parts):
        at = nest.loop(part.meta.shape)
        to = _out(nest, out, shape, [*at[:dim], str(place), *at[dim:]])
        nest.line(f"{to} = {nest.entry(part.node, part.meta, at)}")
        nest.close()


def _cat(nest: Nest, node: Node, args: list[Any], out: loops.Result) -> None:
    parts, shape = args[0], node.meta["val"].shape
    dim, begin = (args[1] if len(args) > 1 else 0) % len(shape), 0
    for part in parts:
        if part.meta.numel() == 0:
            continue
        size = part.meta.shape[dim]
        at = nest.loop(part.meta.shape)
        to = nest.entry(out.buffer, torch.empty(shape, device="meta").narrow(dim, begin, size), at)
        nest.line(f"{to} = {nest.entry(part.node, part.meta, at)}")
        nest.close()
        begin += size


def copied(nest: Nest, source: Any, meta: Tensor, out: Any) -> None:
    """Entries of any layout in order."""
    at = nest.loop(meta.shape)
    nest.line(f"{nest.entry(out, torch.empty(meta.shape, device='meta'), at)} = {nest.entry(source, meta, at)}")


def _cumsum(nest: Nest, node: Node, args: list[Any], out: loops.Result) -> None:
    source, dim = args
    meta = source.meta
    if (
        node.kwargs
        or meta.dtype not in (*_WHOLE, torch.bool)
        or not meta.dim()
        or node.meta["val"].dtype != torch.int64
    ):
        raise CallError("form")
    dim %= meta.dim()
    order = [axis for axis in range(meta.dim()) if axis != dim]
    at = nest.loop([meta.shape[axis] for axis in order])
    nest.line("total = np.int64(0)")
    inner = nest.loop([meta.shape[dim]])
    where = [*at[:dim], inner[0], *at[dim:]]
    nest.line(f"total += np.int64({nest.entry(source.node, meta, where)})")
    nest.line(f"{_out(nest, out, meta.shape, where)} = total")


def reduction(nest: Nest, node: Node, args: Sequence[Any], out: loops.Result) -> None:
    """Of any axes, in an order that does not matter."""
    meta = args[0].meta
    gone = sorted(loops.reduced(node, meta.dim()))
    kept = [axis for axis in range(meta.dim()) if axis not in gone]
    at = nest.loop([meta.shape[axis] for axis in kept])
    begin, _, _ = loops.reduction(node, "", "total")
    nest.line(begin)
    inner = nest.loop([meta.shape[axis] for axis in gone])
    where = dict(zip((*kept, *gone), (*at, *inner), strict=True))
    _, more, _ = loops.reduction(node, nest.entry(args[0].node, meta, [where[a] for a in range(meta.dim())]), "total")
    nest.line(more)
    nest.close(len(at))
    nest.line(f"{_out(nest, out, [meta.shape[axis] for axis in kept], at)} = total")


NESTS: dict[Any, Callable[[Nest, Node, list[Any], loops.Result], None]] = {
    aten.stack.default: _stack,
    aten.cat.default: _cat,
    aten.index.Tensor: _index,
    aten.gather.default: _gather,
    aten.scatter_add.default: _scattered(adds=True),
    aten.scatter.src: _scattered(adds=False),
    aten.scatter.value: _scattered(adds=False),
    aten.constant_pad_nd.default: _pad,
    aten.cumsum.default: _cumsum,
}


def writer(node: Node) -> Callable[[Nest, Node, list[Any], loops.Result], None] | None:
    """What writes the nest of an operation; None where nothing does."""
    values = [node.meta["val"], *(other.meta["val"] for other in node.all_input_nodes)]
    if not all(isinstance(value, Tensor) and value.dtype in NAMES for value in values):
        return None
    if not all(value.numel() for value in values) and node.target is not aten.cat.default:
        return None
    if loops.is_pointwise(node):
        return pointwise
    if loops.is_reduction(node):
        return reduction
    return NESTS.get(node.target)
