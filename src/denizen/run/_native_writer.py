"""What `_native` runs, written down from a traced step: loops over buffers, and calls of torch between them.

A node of the graph lies in a buffer: a flat array that comes in, goes out, is kept for the next step to write into, or
is constant. Views are layouts of buffers, found once on the meta device.

    level       how many draws, sums or foreign calls there are at most before a node; loops and calls go by level
    domain      (rows, entries of each) that the loop of a node goes over: worlds, and whatever each of them has
"""

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from denizen.run import _native_loops as loops
from denizen.run import _native_nests as nests
from denizen.run._native_loop import Loop
from denizen.run._native_loops import CallError
from denizen.run._native_parts import Line, most_parts
from denizen.run._trace import Traced

aten = torch.ops.aten

_VIEWS = (
    *(aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims),
    *(aten.select.int, aten.slice.Tensor, aten.permute.default, aten.expand.default, aten.transpose.int),
    *(aten.alias.default, aten.detach.default, aten.t.default, aten.unbind.int, aten.split.Tensor),
)
_MADE = (
    *(aten.full.default, aten.scalar_tensor.default, aten.new_empty.default, aten.zeros.default, aten.ones.default),
    *(aten.arange.default, aten.arange.start, aten.arange.start_step, aten.full_like.default, aten.zeros_like.default),
    *(aten.ones_like.default, aten.new_zeros.default, aten.new_ones.default, aten.new_full.default),
    *(aten.empty.memory_format, aten.empty_like.default),
)

_OF_WORLDS = 3.0  # nanoseconds that calls which go over whole worlds take for an entry, about


@dataclasses.dataclass(frozen=True, eq=False)
class Buffer:
    """A flat array.

    Attributes:
        name: in the code.
        kind: ``"input"``, ``"kept"`` or ``"constant"``.
        dtype: of its entries.
        size: number of entries.
        tensor: of a constant.
    """

    name: str
    kind: str
    dtype: torch.dtype
    size: int
    tensor: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Layout:
    """A tensor within a buffer.

    Attributes:
        buffer: its name.
        shape: of the tensor.
        stride: in entries.
        offset: of the first entry.
        eager: strides of the same tensor in an eager step, where they differ and the order of additions may.
    """

    buffer: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    eager: tuple[int, ...] | None = None

    def of(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The tensor, of flat ones by name."""
        flat = tensors[self.buffer]
        here = flat.as_strided(self.shape, self.stride, flat.storage_offset() + self.offset)
        return here if self.eager is None else here.new_empty_strided(self.shape, self.eager).copy_(here)


@dataclasses.dataclass(frozen=True)
class Foreign:
    """A call of torch."""

    target: Callable[..., Any]
    args: Any
    kwargs: dict[str, Any]
    results: list[Layout]

    def run(self, tensors: Mapping[str, Tensor]) -> None:
        """Call it, and put what it returns into its buffers."""
        given = torch.fx.node.map_aggregate(self.args, lambda one: one.of(tensors) if isinstance(one, Layout) else one)
        out = self.target(*given, **self.kwargs)
        for result, value in zip(self.results, out if isinstance(out, tuple | list) else (out,), strict=True):
            if value.shape != result.shape:  # `copy_` would repeat one entry
                raise RuntimeError(f"{self.target} returned {tuple(value.shape)} and had returned {result.shape}")
            result.of(tensors).copy_(value)

    @property
    def buffers(self) -> set[str]:
        """Of arguments and results."""
        found = {result.buffer for result in self.results}
        torch.fx.node.map_aggregate(self.args, lambda one: found.add(one.buffer) if isinstance(one, Layout) else None)
        return found


class NotNativeError(Exception):
    """A step that is not written as loops; says why."""


class Writer:
    """Writes a traced step down.

    Attributes:
        parts: lines that call loops, and calls of torch between them, in order.
        arrays: code of each array that lines name.
        loops: code of each loop by name.
        buffers: all, in the order of their addresses.
        inputs: (place among what is given, name) of the buffers that come in and are read.
        outputs: the buffer of each thing that the step returns; None for what stays as it came in.
        copies: (what the model holds, what is read in its place), where the model's entries do not lie in order.
    """

    def __init__(self, traced: Traced, worlds: int) -> None:
        self._worlds, self._graph = worlds, traced.module.graph
        self._module = traced.module
        self._nodes = list(self._graph.nodes)
        self._meta: dict[Node, Any] = {}  # layouts, as tensors without memory
        self._source: dict[Node, Node] = {}  # whose entries a node has, in the same order
        self._buffer: dict[Node, Buffer | list[Buffer]] = {}
        self._more: list[Buffer] = []  # that are no node's
        self._kind: dict[Node, str] = {}
        self._level: dict[Node, int] = {}
        self.copies: list[tuple[Tensor, Tensor]] = []
        order = {node: place for place, node in enumerate(n for n in self._nodes if n.op == "placeholder")}
        self._place = order
        for node in self._nodes:
            if node.op != "output":
                self._classify(node)
        self._results: list[Any] = _given(self._graph.output_node(), 0)
        self._stored = self._to_store()
        self._allot()
        self.loops: dict[str, str] = {}
        self._views: dict[str, Layout] = {}
        self.parts: list[list[str] | Foreign] = [[]]
        self._write()
        self._given_out: list[str] = []
        self.outputs = [self._output(node, len(traced.leaves) + 1) for node in self._results]
        self.buffers = self._all()
        self.arrays = self._arrays()
        named = {layout.buffer for layout in self._views.values()}
        named |= {name for part in self.parts if isinstance(part, Foreign) for name in part.buffers}
        self.inputs = [(k, f"given{k}") for k in order.values() if f"given{k}" in named]

    # --- what each node is --------------------------------------------------------------------------------------------

    def _classify(self, node: Node) -> None:
        self._source[node] = node
        needed = [self._level[other] for other in node.all_input_nodes]
        self._level[node] = max(needed, default=0)
        if node.op == "placeholder":
            self._is(node, "given", _like(node.meta["val"]))
            self._buffer[node] = self._new(f"given{self._place[node]}", "input", node.meta["val"])
        elif node.op == "get_attr":
            self._constant(node, getattr(self._module, str(node.target)))
        elif node.target in _MADE or (
            not node.all_input_nodes and torch.Tag.nondeterministic_seeded not in _tags(node)
        ):
            args = torch.fx.node.map_arg(node.args, lambda other: torch.zeros_like(self._meta[other], device="cpu"))
            self._constant(node, node.target(*args, **node.kwargs))  # type: ignore[operator]
            self._level[node] = 0
        elif node.target is operator.getitem:
            whole, place = _given(node, 0), _given(node, 1)
            self._is(node, "view" if self._kind[whole] == "view" else "part", self._meta[whole][place])
        elif node.target in _VIEWS and self._viewed(node):
            pass
        elif isinstance(node.meta["val"], Tensor) and node.meta["val"].numel() == 0:
            self._constant(node, torch.empty(node.meta["val"].shape, dtype=node.meta["val"].dtype))
            self._level[node] = 0
        elif loops.is_pointwise(node) and self._collapses(node):
            self._is(node, "pointwise", _like(node.meta["val"]))
            self._level[node] = self._level_of_loop(node)
        elif loops.is_reduction(node) and self._reduces(node):
            self._is(node, "reduction", _like(node.meta["val"]))
            self._level[node] = self._level_of_loop(node) + 1
        else:
            kind = "call" if self._written(node, loops.CALLS, self._call) else "foreign"
            if kind == "foreign" and self._written(node, {node.target: nests.writer(node)}, self._nest):
                kind = "nest"
            if _sized_by_values(node) or node.target is aten.as_strided.default:  # which goes by memory, not entries
                raise NotNativeError(f"what {node.target} returns depends on values or on memory for its shape")
            self._is(node, kind, _like(node.meta["val"]))
            self._level[node] += 1

    def _written(self, node: Node, ways: Mapping[Any, Any], write: Callable[[Node], Any]) -> bool:
        try:
            return ways.get(node.target) is not None and write(node) is not None
        except CallError:
            return False

    def _level_of_loop(self, node: Node) -> int:
        """Of the loop of a node: after those loops whose stored entries it reads.

        Loops of a level go by size, so one may read what a smaller one of the same level has stored.
        """
        level, into = self._level[node], self._domain_of_loop(node)
        for other in node.all_input_nodes:
            origin = self._origin(other)
            if self._kind[origin] == "pointwise" and self._level[origin] == level:
                inlined = self._source[other] is origin and self.domain(origin) == into
                if not inlined and math.prod(self.domain(origin)) >= math.prod(into):
                    return level + 1
        return level

    def _is(self, node: Node, kind: str, meta: Any) -> None:
        self._kind[node], self._meta[node] = kind, meta

    def _constant(self, node: Node, tensor: Tensor) -> None:
        held, tensor = tensor.detach(), tensor.detach().contiguous()
        if not held.is_contiguous():
            self.copies.append((held, tensor))
        name = f"c_{node.name}" if node.op != "get_attr" else f"c_{node.target}".replace(".", "_")
        self._buffer[node] = self._new(name, "constant", tensor, tensor)
        self._is(node, "made", _like(tensor))

    def _new(self, name: str, kind: str, like: Tensor, tensor: Tensor | None = None) -> Buffer:
        return Buffer(name, kind, like.dtype, like.numel(), tensor)

    def _viewed(self, node: Node) -> bool:
        """Whether a view of its source's buffer is one; sets what is known of it."""
        source = _given(node, 0)
        args = torch.fx.node.map_arg(node.args, lambda other: self._meta[other])
        try:
            meta = node.target(*args, **node.kwargs)  # type: ignore[operator]
        except RuntimeError:
            return False
        self._is(node, "view", meta)
        old = self._meta[source]
        if isinstance(meta, Tensor) and _whole(meta) and _whole(old) and meta.numel() == old.numel():
            self._source[node] = self._source[source]
        return True

    def domain(self, node: Node) -> tuple[int, int]:
        """(rows, entries of each)."""
        meta = self._meta[node]
        if meta.numel() > 1 and meta.dim() and meta.shape[0] == self._worlds:
            return self._worlds, meta.numel() // self._worlds
        return 1, meta.numel()

    def _collapses(self, node: Node) -> bool:
        self._meta[node] = _like(node.meta["val"])
        return all(self._strides(other, node) is not None for other in node.all_input_nodes)

    def _strides(self, operand: Node, node: Node) -> tuple[int, int, int] | None:
        """(offset, stride of rows, stride of entries) of an operand within the loop of a node; None where none fit."""
        try:
            view = self._meta[operand].expand(self._meta[node].shape).view(self.domain(node))
        except RuntimeError:
            return None
        return view.storage_offset(), *view.stride()

    def _reduces(self, node: Node) -> bool:
        """Whether a reduction is one over all entries of each row."""
        (operand,) = node.all_input_nodes
        meta, rows = self._meta[operand], self.domain(operand)[0]
        dims = loops.reduced(node, meta.dim())
        kept = {dim for dim, size in enumerate(meta.shape) if dim not in dims and size > 1}
        self._meta[node] = meta
        return kept == ({0} if rows > 1 else set()) and meta.numel() > 0 and self._strides(operand, node) is not None

    # --- what is stored where -----------------------------------------------------------------------------------------

    def _to_store(self) -> set[Node]:
        """Nodes of loops that are read outside their loop."""
        stored = set()
        for node in self._nodes:
            if node.op == "output":
                stored |= {self._source[other] for other in self._results}
                continue
            for other in node.all_input_nodes:
                source = self._source[other]
                if self._kind[node] == "view" and self._source[node] is source:
                    continue
                if not self._inlines(source, node):
                    stored.add(source)
        return stored

    def _inlines(self, source: Node, node: Node) -> bool:
        """Whether a node is worked out in the same loop as the source that it reads."""
        if self._kind[source] != "pointwise" or self._kind[node] not in ("pointwise", "reduction"):
            return False
        into = self._domain_of_loop(node)
        return self.domain(source) == into and self._loop_level(node) == self._level[source]

    def _domain_of_loop(self, node: Node) -> tuple[int, int]:
        return self.domain(node.all_input_nodes[0] if self._kind[node] == "reduction" else node)

    def _loop_level(self, node: Node) -> int:
        return self._level[node] - (self._kind[node] != "pointwise")

    def _allot(self) -> None:
        for node in self._nodes:
            if self._kind.get(node) in ("reduction", "call", "nest", "foreign") or (
                self._kind.get(node) == "pointwise" and node in self._stored
            ):
                val = node.meta["val"]
                if isinstance(val, tuple | list):
                    self._buffer[node] = [self._new(f"{node.name}_{k}", "kept", one) for k, one in enumerate(val)]
                else:
                    self._buffer[node] = self._new(f"b_{node.name}", "kept", val)

    def _origin(self, node: Node) -> Node:
        """Whose buffer a node lies in."""
        while self._kind[node] in ("view", "part"):
            node = _given(node, 0)
        return node

    def _buffer_of(self, node: Node) -> Buffer:
        while self._kind[node] == "view":
            node = _given(node, 0)
        if self._kind[node] == "part":
            return self._buffer[_given(node, 0)][_given(node, 1)]  # type: ignore[index]
        return self._buffer[node]  # type: ignore[return-value]

    def _all(self) -> list[Buffer]:
        found: dict[str, Buffer] = {buffer.name: buffer for buffer in self._more}
        for one in self._buffer.values():
            found.update({buffer.name: buffer for buffer in (one if isinstance(one, list) else [one])})
        return list(found.values())

    def _layout(self, node: Node) -> Layout:
        meta = self._meta[node]
        return Layout(self._buffer_of(node).name, tuple(meta.shape), tuple(meta.stride()), meta.storage_offset())

    def _as_eager(self, node: Node) -> Layout:
        """As torch has it in an eager step, for calls that add up in the order of memory."""
        layout, val = self._layout(node), node.meta["val"]
        memory = torch.empty_strided(val.shape, val.stride(), device="meta", dtype=torch.int8).untyped_storage()
        sides = zip(layout.stride, val.stride(), val.shape, strict=True)
        moved = memory.nbytes() == val.numel() and any(here != there for here, there, size in sides if size > 1)
        return dataclasses.replace(layout, eager=tuple(val.stride())) if moved else layout

    def _output(self, node: Node, stay: int) -> str | None:
        """The buffer of a result; the first ones of them stay where they are what came in at their place."""
        buffer, meta = self._buffer_of(node), self._meta[node]
        place = len(self._given_out)
        self._given_out.append(buffer.name)
        alone = _whole(meta) and meta.numel() == buffer.size
        if alone and place < stay and buffer.name == f"given{place}":
            return None
        if alone and buffer.kind == "kept" and self._given_out.count(buffer.name) == 1:
            return buffer.name
        made = self._made(meta)
        if made.size:
            nest = nests.Nest(self._view_of)
            nests.copied(nest, node, meta, made)
            self._add_nest(nest)
        self._given_out[-1] = made.name
        return made.name

    def _made(self, like: Tensor) -> Buffer:
        """A buffer for a copy."""
        self._more.append(self._new(f"copy{len(self._more)}", "kept", like))
        return self._more[-1]

    # --- the code -----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        kinds = ("pointwise", "reduction", "call", "nest", "foreign")
        work = [node for node in self._nodes if self._kind.get(node) in kinds]
        for level in range(max((self._level[node] for node in work), default=0) + 1):
            of_it = [node for node in work if self._loop_level(node) == level]
            looped = [node for node in of_it if self._kind[node] in ("pointwise", "reduction")]
            domains = dict.fromkeys(self._domain_of_loop(node) for node in looped)
            for domain in sorted(domains, key=lambda one: one[0] * one[1]):
                self._loop(domain, [node for node in looped if self._domain_of_loop(node) == domain])
            for node in of_it:
                if self._kind[node] == "call":
                    self._add_call(node)
                elif self._kind[node] == "nest":
                    self._add_nest(self._nest(node, self._view_of))
                elif self._kind[node] == "foreign":
                    self.parts += [self._foreign(node), []]

    def _add_call(self, node: Node) -> None:
        before, own = len(self._more), self._buffer[node]
        lines = self._call(node, self._array) or []
        own = [*(own if isinstance(own, list) else [own]), *self._more[before:]]
        for call in lines:
            line, named = call, self.named(call)
            range_of = re.search(r", 0, (\d+)\)$", call)
            if range_of and not isinstance(call, Line):  # worlds, or agents that read those of others
                each = _OF_WORLDS * max(named.values(), default=1) / int(range_of[1])
                line = Line.of(call[: range_of.start()], 0, int(range_of[1]), each, None)
            if isinstance(line, Line):
                line.writes = frozenset(one.name for one in own) & named.keys()
                line.across = line.across and frozenset(self._views[one].buffer for one in line.across)
            self._add(line)

    def named(self, line: str) -> dict[str, int]:
        """Sizes of the buffers that a line names and that a step writes into."""
        views = [self._views[word] for word in re.findall(r"\w+", line) if word in self._views]
        kept = {one.name: one.size for one in self._all() if one.kind == "kept"}
        return {one.buffer: kept[one.buffer] for one in views if one.buffer in kept}

    def _add(self, line: str) -> None:
        assert isinstance(self.parts[-1], list)
        self.parts[-1].append(line)

    def _arrays(self) -> dict[str, str]:
        """Code of all arrays that lines may name: of buffers, and of what the loops of denizen take besides."""
        found, slot = {}, {buffer.name: place for place, buffer in enumerate(self.buffers)}
        for name, one in self._views.items():
            buffer = self.buffers[slot[one.buffer]]
            size, dtype = buffer.dtype.itemsize, loops.NAMES[buffer.dtype]
            address = f"addresses[{slot[one.buffer]}] + {one.offset * size}"
            strides = tuple(size * step for step in one.stride)
            in_order = one.stride == torch.empty(one.shape, device="meta").stride()
            found[name] = (
                f"whole({address}, {one.shape}, {dtype})"
                if in_order
                else f"strided({address}, {one.shape}, {strides}, {dtype})"
            )
        for name in self._taken():
            array = loops.ARRAYS[name]
            tensor = torch.from_numpy(array.copy()).reshape(-1)
            self.buffers.append(Buffer(name, "constant", tensor.dtype, tensor.numel(), tensor))
            found[name] = f"whole(addresses[{len(self.buffers) - 1}], {array.shape}, {loops.NAMES[tensor.dtype]})"
        return found

    def _taken(self) -> list[str]:
        lines = [line for part in self.parts if isinstance(part, list) for line in part]
        words = dict.fromkeys(word for line in lines for word in re.findall(r"\w+", line))
        return [word for word in words if word in loops.ARRAYS]

    def _array(self, node: Node, shape: Sequence[int]) -> str:
        """A node's entries as an array of some shape, copied where they do not lie in order."""
        meta, like = self._meta[node], torch.empty(tuple(shape), device="meta")
        if _whole(meta):
            offset = meta.storage_offset()
            return self._view(Layout(self._buffer_of(node).name, tuple(shape), like.stride(), offset))
        made = self._made(meta)
        nest = nests.Nest(self._view_of)
        nests.copied(nest, node, meta, made)
        self._add_nest(nest)
        return self._view(Layout(made.name, tuple(shape), like.stride(), 0))

    def _result(self, buffer: Buffer, shape: Sequence[int]) -> str:
        return self._view(Layout(buffer.name, tuple(shape), torch.empty(tuple(shape), device="meta").stride(), 0))

    def _formed(self, buffer: str, shape: Sequence[int], stride: Sequence[int], offset: int) -> str:
        return self._view(Layout(buffer, tuple(shape), tuple(stride), offset))

    def _scratch(self, shape: Sequence[int], dtype: torch.dtype) -> str:
        """An array that nothing but the next calls reads."""
        return self._result(self._made(torch.empty(tuple(shape), dtype=dtype, device="meta")), shape)

    def _view(self, layout: Layout) -> str:
        form = ("x".join(map(str, one)) for one in (layout.shape, layout.stride, (layout.offset,)))
        name = "__".join([layout.buffer, *form])
        self._views[name] = layout
        return name

    def _foreign(self, node: Node) -> "Foreign":
        args: Any = torch.fx.node.map_arg(node.args, self._as_eager)  # type: ignore[arg-type]
        buffers, val = self._buffer[node], node.meta["val"]
        many = isinstance(buffers, list)
        results = [
            Layout(buffer.name, tuple(one.shape), _like(one).stride(), 0)
            for buffer, one in zip(buffers if many else [buffers], val if many else [val], strict=True)  # type: ignore[list-item]
        ]
        return Foreign(node.target, args, node.kwargs, results)  # type: ignore[arg-type]

    def _call(self, node: Node, array: Callable[[Node, Sequence[int]], str] | None = None) -> list[str] | None:
        """Lines that call a loop of denizen's own; raises `CallError` where it cannot be called so."""

        def given(one: Any) -> Any:
            return loops.Argument(one, self._meta[one], array or _nothing) if isinstance(one, Node) else one

        arguments: Any = torch.fx.node.map_aggregate(list(node.args), given)
        buffers = self._buffer.get(node, [None] * 4)
        results = [
            loops.Result(buffer, *((self._result, self._scratch) if array else (_nothing, _nothing)))
            for buffer in (buffers if isinstance(buffers, list) else [buffers])
        ]
        return loops.CALLS[node.target](node, arguments, results)

    def _nest(self, node: Node, view: Callable[[Any, Tensor], str] | None = None) -> nests.Nest:
        """Loops of one operation; raises `CallError` where they cannot be written."""

        def given(one: Any) -> Any:
            return loops.Argument(one, self._meta[one], _nothing) if isinstance(one, Node) else one

        nest = nests.Nest(view or _nothing)
        write = nests.writer(node)
        assert write is not None
        arguments: Any = torch.fx.node.map_aggregate(list(node.args), given)
        write(nest, node, arguments, loops.Result(self._buffer.get(node), _nothing))
        return nest

    def _view_of(self, one: Node | Buffer, meta: Tensor) -> str:
        buffer = one if isinstance(one, Buffer) else self._buffer_of(one)
        return self._view(Layout(buffer.name, tuple(meta.shape), tuple(meta.stride()), int(meta.storage_offset())))

    def _add_nest(self, nest: nests.Nest) -> None:
        name = f"loop{len(self.loops)}"
        self.loops[name] = nest.code(name)
        call = f"{name}({', '.join(nest.takes.values())})"
        self._add(f"refuse({call})" if nest.checked else call)

    def _loop(self, domain: tuple[int, int], nodes: list[Node]) -> None:
        loop = Loop(domain, self._formed)
        local = {node: f"v{place}" for place, node in enumerate(nodes)}

        def operand(one: Any, node: Node) -> str:
            if not isinstance(one, Node):
                return loops.literal(one)
            if self._source[one] in local and self._inlines(self._source[one], node):
                return local[self._source[one]]
            strides = self._strides(one, node if self._kind[node] == "pointwise" else one)
            assert strides is not None
            return loop.read(self._buffer_of(one).name, *strides)

        for node in nodes:
            args, name = [operand(one, node) for one in node.args], local[node]
            if self._kind[node] == "reduction":
                rows, dtype = domain[0], node.meta["val"].dtype
                buffer: Any = self._buffer[node]
                result, ways = self._result(buffer, (rows,)), loops.reduction(node, args[0], name)
                loop.sums(ways, name, buffer.name, result, partial(self._scratch, (most_parts(), rows), dtype))
                continue
            loop.let(name, loops.pointwise(node, args))
            if node in self._stored:
                loop.store(self._buffer[node].name, name)  # type: ignore[union-attr]
        if loop.takes:
            name = f"loop{len(self.loops)}"
            self.loops[name] = loop.code(name)
            self._add(loop.call(name))


def _sized_by_values(node: Node) -> bool:
    """Whether the shape of what an operation returns depends on values, as of entries where a mask is true."""
    picks = node.target in (aten.index.Tensor, aten._unsafe_index.Tensor)
    masks = picks and any(other.meta["val"].dtype in (torch.bool, torch.uint8) for other in _given(node, 1) if other)
    return masks or (torch.Tag.dynamic_output_shape in _tags(node) and not picks)


def _tags(node: Node) -> Sequence[torch.Tag]:
    return getattr(node.target, "tags", ())


def _given(node: Node, place: int) -> Any:
    """An argument of a node."""
    return node.args[place]


def _nothing(*_: Any) -> str:
    return ""


def _like(value: Any) -> Any:
    """Without memory, in order."""
    if isinstance(value, tuple | list):
        return [_like(one) for one in value]
    return torch.empty(value.shape, dtype=value.dtype, device="meta")


def _whole(meta: Tensor) -> bool:
    """Whether entries lie in order, one after the other."""
    return meta.is_contiguous()
