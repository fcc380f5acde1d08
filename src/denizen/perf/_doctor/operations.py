"""Every operation of a step with its line: what it reads, makes and computes, and where its values go.

Slow: 20 to 60 µs an operation.
"""

import contextlib
import dataclasses
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.perf._doctor.source import loops_around
from denizen.perf.watch._calls import unheard
from denizen.perf.watch._event_log import unlogged
from denizen.perf.watch._faults import METHODS
from denizen.perf.watch._operations import distinct_bytes, is_higher_order, tensors_in, traits
from denizen.perf.watch._places import USER, Place, instruction, is_user, locate, role
from denizen.perf.watch._tf32 import takes_tf32

SAMPLES = 3  # times that a line asks a model the same in one step, from which it wants the spread of the answers
WHOLE = (torch.int64, torch.int32)
# Parts of names of operations that take whole numbers as places.
_PLACING = ("index", "gather", "scatter", "take", "embedding", "nll_loss", "put")
# Operations that give int64, whatever they are given.
_WIDE = ("argmax", "argmin", "argsort", "sort", "topk", "multinomial", "bucketize", "searchsorted", "nonzero", "cumsum")
BY_TORCH = "int64 by torch's choice"


def memory(tensor: Tensor) -> int:
    """Of the block that a tensor's values lie in."""
    block = getattr(tensor, "_block", None)
    if block is not None:
        return id(block)
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse
        return id(tensor)


def owner(tensor: Tensor) -> Any:
    """What lives as long as a tensor's memory."""
    return getattr(tensor, "_block", None) or tensor


class Flow:
    """Marks of tensors; views share those of their tensor.

    Attributes:
        into_graph: marks of what went into a graph, as a generator's samples do on the discriminator's turn.
        as_places: marks of whole numbers that said where to read or write.
        repeated: lines that asked a model the same several times in a step, as for samples of its dropout.
    """

    def __init__(self) -> None:
        self.into_graph: set[Hashable] = set()
        self.as_places: set[Hashable] = set()
        self._marks: dict[int, frozenset[Hashable]] = {}
        self._places: set[int] = set()
        self.repeated: set[tuple[str, int]] = set()
        self._asked: dict[tuple[tuple[str, int], int, int], tuple[Any, int]] = {}

    def clear(self) -> None:
        """A step begins: forget which tensor was marked with what."""
        self._marks.clear()
        self._places.clear()
        self._asked.clear()

    def asked(self, line: tuple[str, int], weight: int, given: list[Tensor]) -> None:
        """A line had a parameter meet tensors: whether the same ones as before."""
        for tensor in given:
            key = line, weight, memory(tensor)
            thing, times = self._asked.get(key, (None, 0))
            times = times + 1 if thing is not None and thing() is owner(tensor) else 1
            self._asked[key] = weakref.ref(owner(tensor)), times
            if times >= SAMPLES:
                self.repeated.add(line)

    def passes(self, schema: str, given: list[Tensor], results: list[Tensor], tracked: bool) -> None:
        """Hand marks on from arguments to results of their sort.

        Args:
            schema: name of the operation.
            given: its arguments.
            results: of it.
            tracked: whether it becomes part of a graph.
        """
        where = _where(schema, given)
        self.as_places |= self.of(where)
        self._places |= {memory(tensor) for tensor in where}
        real = [tensor for tensor in given if tensor.is_floating_point()]
        if tracked:
            self.into_graph |= self.of(real)
        kinds, before = {tensor.is_floating_point() for tensor in results}, {memory(tensor) for tensor in given}
        marks = self.of(tensor for tensor in given if tensor.is_floating_point() in kinds)
        marks |= {BY_TORCH} if any(word in schema for word in _WIDE) else set()
        self.made((tensor for tensor in results if memory(tensor) not in before), marks)
        self.add((tensor for tensor in results if memory(tensor) in before), marks)

    def whole(self, tensors: Iterable[Tensor], mark: Hashable) -> None:
        """Mark whole numbers; some may have been places already."""
        there = [tensor for tensor in tensors if tensor.dtype in WHOLE]
        self.add(there, [mark])
        if any(memory(tensor) in self._places for tensor in there):
            self.as_places.add(mark)

    def of(self, tensors: Iterable[Tensor]) -> set[Hashable]:
        """Marks of any of them."""
        return {mark for tensor in tensors for mark in self._marks.get(memory(tensor), ())}

    def made(self, tensors: Iterable[Tensor], marks: Iterable[Hashable] = ()) -> None:
        """New memory, which may have been another tensor's before."""
        for tensor in tensors:
            self._marks[memory(tensor)] = frozenset(marks)
            self._places.discard(memory(tensor))

    def add(self, tensors: Iterable[Tensor], marks: Iterable[Hashable]) -> None:
        """Mark tensors beside what they are marked with."""
        for tensor in tensors:
            self._marks[memory(tensor)] = self._marks.get(memory(tensor), frozenset()).union(marks)


def _where(schema: str, given: list[Tensor]) -> list[Tensor]:
    """The tensors of an operation that say where, as whole numbers, of which it takes no narrow ones."""
    if not any(part in schema for part in _PLACING):
        return []
    return [tensor for tensor in given[1:] if tensor.dtype in WHOLE]


@dataclasses.dataclass(slots=True)
class Op:
    """One operation.

    Attributes:
        step: its number.
        name: with overload; `schema` is without.
        place: the user's line.
        site: the innermost line of the user's stack that lies in a loop of its function, if any.
        part: ``"backward"``, ``"optimizer"`` or ``""``.
        numel: elements of its largest result.
        shape: of its first result.
        bytes: read and written; each distinct element once.
        double: of these, in float64.
        new: bytes of the memory that it took.
        flops: of matrix products and convolutions.
        dtype: of its first result, if that lies on the device.
        sources: dtypes of the tensors of the device that it took.
        autocast: whether it ran under autocast.
        fast: whether products of float32 might use tensor cores then.
        grads: gradients that it filled with zeros.
        off: whether gradients were off, outside of backward passes and optimizers.
        weights: whether it copied a parameter.
        weight: the memory of the parameter that it took, 0 without one.
        loaded: whether it took a batch of a loader from the host.
        pointwise: whether each element of the result comes from one of each argument.
        tracked: whether it became part of a graph.
        again: whether it joined something that its line had joined, or made, when it last ran.
        order: number of its step's operations before it.
        at: place of the user's instruction in its code, which tells several on a line apart.
    """

    step: int
    name: str
    schema: str
    place: Place
    part: str
    numel: int = 0
    shape: tuple[int, ...] = ()
    bytes: int = 0
    double: int = 0
    new: int = 0
    flops: int = 0
    dtype: torch.dtype | None = None
    sources: tuple[torch.dtype, ...] = ()
    autocast: bool = False
    fast: bool = False
    grads: int = 0
    off: bool = False
    weights: bool = False
    weight: int = 0
    loaded: bool = False
    pointwise: bool = False
    tracked: bool = False
    again: bool = False
    order: int = 0
    at: int = 0
    site: Place | None = None

    @property
    def line(self) -> tuple[str, int]:
        """File and line."""
        return self.place.file, self.place.line


@dataclasses.dataclass(slots=True)
class Copied:
    """A clone, until it can be told whether it was needed."""

    op: Op
    source: Tensor | None  # it shares its version with what it is a view of; let go at the end of the step
    made: Any  # weak reference
    versions: tuple[int, int]
    needed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix that a line worked on.

    Attributes:
        place: the line.
        rows: of it.
        columns: of it.
        share: of its values other than 0.
        weight: whether it is a parameter.
        relates: whether it met its rows or columns, in a product or one by one, as a grid does not.
        derived: whether it says which of all pairs' distances count.
    """

    place: Place
    rows: int
    columns: int
    share: float
    weight: bool
    relates: bool
    derived: bool


def is_dense(tensor: Tensor) -> bool:
    """Whether its elements lie one by one; a wrapper cannot be asked where rows are compressed."""
    return getattr(tensor, "_real", tensor).layout is torch.strided


def values(tensor: Tensor) -> Tensor:
    """A tensor of torch's own with the values."""
    return getattr(tensor, "_real", tensor).detach()


def caller(thread: int | None = None) -> Place:
    """The user's line that called a model: the innermost one outside of `forward` methods."""
    frames = user_frames(thread)
    return next((place for place in frames if place.function not in ("forward", "__call__")), frames[-1])


def user_frames(thread: int | None = None) -> list[Place]:
    """The user's lines of the stack, innermost first, up to the doctor."""
    frame: Any = sys._getframe(1)
    frames = []
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_take_step":
            break
        if role(code.co_filename) == USER and is_user(code):
            frames.append(Place(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return frames or [locate(METHODS, thread)]


_FILLS = frozenset({"aten::zero_", "aten::_foreach_zero_", "aten::fill_"})
_GATHERS = frozenset({"aten::index", "aten::index_select", "aten::gather", "aten::take", "aten::embedding"})
JOINS = frozenset({"aten::cat", "aten::stack"})
PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution"})
DISTANCES = "of all pairs"  # what their memory is marked with
SQUARE = 128  # rows and columns of a matrix that is examined for pairs
WIDE = 1 << 20  # bytes of whole numbers whose range is examined
MIDDLE = 1 << 15  # whole numbers from here on take more than int16


class Operations(TorchDispatchMode):
    """Records this thread's operations on one kind of device, and those of backward passes that it asks for.

    Attributes:
        ops: in order.
        steps: numbers of the steps that were recorded.
        copied: clones that changed nothing of their source's layout.
        pairs: rows of what is computed for all pairs of one tensor's rows, and whether they are real, by line.
        matrices: large square ones and those of yes and no, by line.
        narrow: places that read whole numbers which need fewer bytes: (place, dtype, least, greatest, bytes).
        inputs: bytes of distinct memory of the last step that it did not make itself.
        loaded: batches of loaders of late, by their memory.
        freed: pointwise operations whose argument nobody needed afterwards.
        untrained: places where dropout or batch norm (True) trains while gradients are off.
        flow: where values go: `untrained` ones into a graph, `narrow` ones as places to read or write at.
        older: places that take a result with a graph of an earlier step, by line: the steps.
        parameters: of the model, as far as is known.
        optimizing: whether an optimizer's step runs.
        autocast: how many autocast contexts are open.
        differentiable: lines that had parameters worked on while gradients were on.
        host_ops: operations that did not touch the device.
        unseen: kinds of tensors whose operations are not among `ops`.
        each: called at each operation.
    """

    supports_higher_order_operators = True

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.ops: list[Op] = []
        self.steps: list[int] = []
        self.copied: list[Copied] = []
        self.pairs: dict[tuple[str, int], tuple[Place, int, bool]] = {}
        self.matrices: dict[tuple[str, int], list[Matrix]] = {}
        self.narrow: dict[tuple[str, int], tuple[Place, torch.dtype, int, int, int]] = {}
        self.inputs: dict[int, int] = {}
        self._joined: dict[tuple[str, int], dict[int, Any]] = {}  # by line: memory, and what lives as long
        self.loaded: dict[int, Tensor] = {}  # batches of loaders, by their memory
        self.dying: list[tuple[Op, Any]] = []  # pointwise operations whose argument may be free afterwards
        self.freed: list[Op] = []
        self.parameters: list[Tensor] = []
        self.untrained: list[tuple[int, Place, bool]] = []
        self.flow = Flow()
        self.older: dict[tuple[str, int], tuple[Place, list[int]]] = {}
        self.results: list[tuple[int, Place, Any]] = []  # (step, place, weak reference)
        self.optimizing = False
        self.differentiable: set[tuple[str, int]] = set()
        self.autocast = self.host_ops = 0
        self.unseen: set[str] = set()
        self.each: Callable[[], None] | None = None
        self._weights: set[int] = set()
        self._made: set[int] = set()
        self._thread = threading.get_ident()
        self._examined: set[tuple[Any, ...]] = set()
        self._order = 0
        self._step = -1

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code may be called within."""
        return True

    def begin(self, step: int) -> None:
        """A step begins."""
        self._settle()
        self.steps.append(step)
        self._step, self._order = step, 0
        self._made, self.inputs = set(), {}
        self.flow.clear()
        self._weights = {memory(parameter) for parameter in self.parameters}

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        super().__exit__(exc_type, exc_val, exc_tb)
        self._settle()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_higher_order(func):
            return func(*args, **kwargs)
        if torch.is_inference_mode_enabled() and traits(func).composite:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        clone = func._schema.name == "aten::clone"
        version = args[0]._version if clone and not args[0].is_inference() else 0
        out = func(*args, **kwargs)
        if any(tensor.is_nested for tensor in tensors_in((args, kwargs, out))):
            self.unseen.add("nested tensors")  # have no shape, and no bytes that could be told
        elif self._step >= 0:
            self._record(func, args, kwargs, out)
            if clone and self.ops and self.ops[-1].name.startswith("aten::clone"):
                self._cloned(args[0], out, version)
        return out

    @unheard
    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        seen = traits(func)
        given, results = list(tensors_in((args, kwargs))), list(tensors_in(out))
        if not any(tensor.device.type == self.device for tensor in (*given, *results)):
            self.host_ops += seen.computes and bool(results)
            return
        if seen.mutates and self.copied:
            self._written({memory(tensor) for tensor in given})
        if seen.view or not seen.computes:
            if not seen.view:
                self.flow.made(results)
            return
        place = locate(METHODS, self._thread)
        part = "optimizer" if self.optimizing else _part(place)
        op = Op(self._step, seen.name, seen.schema, place, part, order=self._order, autocast=self.autocast > 0)
        op.fast = takes_tf32(torch.backends.cuda.matmul)
        op.at = instruction()[1]
        self._order += 1
        if self.each is not None and not part:
            self.each()
        op.site = next((frame for frame in user_frames(self._thread) if loops_around(frame.file, frame.line)), None)
        op.off = not part and not torch.is_grad_enabled()
        op.pointwise = torch.Tag.pointwise in func.tags
        op.tracked = not part and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
        there = [tensor for tensor in given if tensor.device.type == self.device]
        op.sources = tuple(tensor.dtype for tensor in there)
        if results:
            first = results[0]
            op.shape, op.numel = tuple(first.shape), max(tensor.numel() for tensor in results)
            op.dtype = first.dtype if first.device.type == self.device else None
        if seen.schema in _FILLS:
            op.grads = self._gradients(func, args)
        op.weight = next((memory(tensor) for tensor in there if self.of_parameter(tensor)), 0)
        copied = seen.schema in ("aten::clone", "aten::_to_copy") and bool(there) and bool(results)
        op.weights = copied and there[0].stride() == results[0].stride() and self.of_parameter(there[0])
        op.loaded = any(tensor.device.type == "cpu" and memory(tensor) in self.loaded for tensor in given)
        op.flops = _flops(func, args, kwargs, out)
        self._memory(op, func, args, there, results)
        self._examine(op, given, results)
        self._graph(op, given, results)
        self.flow.passes(op.schema, given, results, op.tracked)
        distances = _pairs(op, given, results) >= SQUARE and given[0].is_floating_point()
        if not part and (distances or (op.dtype == torch.bool and DISTANCES in self.flow.of(given))):
            self.flow.add(results, [DISTANCES])
        if op.line in self.narrow:
            self.flow.whole((*given, *results), op.line)
        if op.weight and not part and torch.is_grad_enabled():
            called = caller(self._thread)
            self.differentiable.add((called.file, called.line))
        if not part and not torch.is_grad_enabled():
            self._without_gradients(op, func, args, given, results)
        self.ops.append(op)

    def _without_gradients(self, op: Op, func: Any, args: Any, given: list[Tensor], results: list[Tensor]) -> None:
        """What a model does there: whether it trains, and whether it is asked the same again and again."""
        trains, normal = _trains(func, args, op.place), "batch_norm" in op.schema
        if not trains and not op.weight:
            return
        called = caller(self._thread)
        line = called.file, called.line
        if op.weight:
            self.flow.asked(line, op.weight, [tensor for tensor in given if not self.of_parameter(tensor)])
        if trains:
            self.untrained.append((self._step, called, normal))
            self.flow.add(results, [line])

    def _memory(self, op: Op, func: Any, args: Any, there: list[Tensor], results: list[Tensor]) -> None:
        before = {memory(tensor) for tensor in there}
        new = [tensor for tensor in results if memory(tensor) not in before and tensor.device.type == self.device]
        for tensor in new:
            self._made.add(memory(tensor))
            op.new += tensor.numel() * tensor.element_size()
        read = {id(tensor): distinct_bytes(tensor) for tensor in there if is_dense(tensor)}
        if op.schema in _GATHERS and results and there:
            read[id(there[0])] = min(read.get(id(there[0]), 0), sum(distinct_bytes(result) for result in results))
        written = new or (there[:1] if func._schema.is_mutable else [])
        wrote = [t for t in written if is_dense(t)]
        op.bytes = sum(read.values()) + sum(distinct_bytes(t) for t in wrote)
        op.double = sum(distinct_bytes(t) for t in wrote if t.dtype == torch.float64)
        op.double += sum(read.get(id(t), 0) for t in there if t.dtype == torch.float64)
        for tensor in there:
            block = memory(tensor)
            if block not in self._made:
                self.inputs[block] = max(self.inputs.get(block, 0), read.get(id(tensor), 0))
        if op.schema in JOINS and not op.part:
            joined = self._joined.get(op.line, {})
            op.again = any(memory(t) in joined and joined[memory(t)]() is not None for t in there)
            self._joined[op.line] = {memory(t): weakref.ref(owner(t)) for t in (*there, *results)}

    def _examine(self, op: Op, given: list[Tensor], results: list[Tensor]) -> None:
        """At values, once for each line."""
        self._free()
        if op.pointwise and op.new and not op.place.libraries and not torch.is_grad_enabled() and given:
            source = given[0]
            if source.numel() == op.numel and source.dtype == op.dtype and memory(source) in self._made:
                self.dying.append((op, weakref.ref(owner(source))))
        if op.part:
            return
        rows = _pairs(op, given, results)
        if rows >= SQUARE:
            self.pairs[op.line] = op.place, rows, given[0].is_floating_point()
        chosen = BY_TORCH in self.flow.of(given)
        few = op.dtype == torch.bool and len(op.shape) == 2 and op.shape[1] >= SQUARE  # contacts, perhaps
        for tensor in (*given, *results):
            if tensor.device.type != self.device or not is_dense(tensor):
                continue
            key = (op.line, tuple(tensor.shape), tensor.dtype, op.schema)
            if key in self._examined:
                continue
            self._examined.add(key)
            square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] >= SQUARE
            if square or (few and tensor is results[0]):
                rows, columns = tensor.shape[-2:]
                share, relates = _share(tensor), _relates(op, tensor, given)
                parents = given if any(tensor is result for result in results) else [tensor]
                derived = tensor.dtype == torch.bool and DISTANCES in self.flow.of(parents)
                matrix = Matrix(op.place, rows, columns, share, self.of_parameter(tensor), relates, derived)
                self.matrices.setdefault(op.line, []).append(matrix)
            size = tensor.numel() * tensor.element_size()
            if op.pointwise and tensor.dtype in WHOLE and size >= WIDE and not chosen:
                low, high = _range(tensor)
                self.narrow[op.line] = op.place, tensor.dtype, low, high, size
                if not -MIDDLE <= low <= high < MIDDLE:  # what is computed of it cannot come narrow
                    self.flow.add([tensor], [BY_TORCH])

    def _graph(self, op: Op, given: list[Tensor], results: list[Tensor]) -> None:
        """Results with a graph that live on into later steps."""
        if op.part or not torch.is_grad_enabled():
            return
        for tensor in given:
            made = tensor.__dict__.get("_denizen_step", self._step)
            if made < self._step and tensor.grad_fn is not None:
                self.older.setdefault(op.line, (op.place, []))[1].append(self._step)
        for tensor in results:
            if tensor.is_floating_point() and "_denizen_step" not in tensor.__dict__:
                tensor._denizen_step = self._step  # type: ignore[attr-defined]
                self.results.append((self._step, op.place, weakref.ref(tensor)))

    def _free(self) -> None:
        """Arguments that nobody holds by the next operation."""
        still = []
        for op, source in self.dying:
            if source() is None:
                self.freed.append(op)
            elif self._order - op.order < 2 and op.step == self._step:
                still.append((op, source))
        self.dying = still

    def _cloned(self, source: Tensor, made: Tensor, version: int) -> None:
        op = self.ops[-1]
        if op.part or op.place.libraries or op.weights or source.stride() != made.stride() or source.is_inference():
            return
        if "requires_grad" in op.place.code:  # a leaf of its own is what it is for
            return
        self.copied.append(Copied(op, source, weakref.ref(made), (version, made._version)))

    def _written(self, blocks: set[int]) -> None:
        """A clone that is written to while it lives is needed, though it may be gone by the end of the step."""
        for copy in self.copied:
            made = copy.made() if copy.source is not None else None
            copy.needed |= made is not None and memory(made) in blocks

    def _settle(self) -> None:
        """A clone is needed where it or its source is written to while both are there."""
        for copy in self.copied:
            if copy.source is None:
                continue
            made = copy.made()
            copy.needed |= copy.source._version != copy.versions[0]
            copy.needed |= made is not None  # kept: a later step may change its source, or itself
            copy.source = None

    def _gradients(self, func: Any, args: Any) -> int:
        if func._schema.name == "aten::fill_" and args[1] != 0:
            return 0
        grads = {memory(p.grad) for p in self.parameters if p.grad is not None}
        return sum(memory(tensor) in grads for tensor in tensors_in(args[0]))

    def of_parameter(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in the memory of a parameter."""
        known = isinstance(tensor, nn.Parameter) or getattr(tensor, "_of_parameter", False)
        return known or memory(tensor) in self._weights


def _pairs(op: Op, given: list[Tensor], results: list[Tensor]) -> int:
    """Rows of a tensor of which all pairs are computed: `cdist` with itself, or a difference with itself, broadcast."""
    if len(given) < 2 or not results or results[0].dim() < 2 or memory(given[0]) != memory(given[1]):
        return 0
    rows, columns = results[0].shape[:2]
    distances = op.schema in ("aten::_cdist_forward", "aten::_euclidean_dist", "aten::_pdist_forward")
    broadcast = op.pointwise and given[0].numel() < results[0].numel() and given[1].numel() < results[0].numel()
    return rows if rows == columns and (distances or broadcast) else 0


def _relates(op: Op, matrix: Tensor, given: list[Tensor]) -> bool:
    """Whether an operation has a matrix meet its rows or columns, and not only its neighbours."""
    product = op.schema in PRODUCTS - {"aten::convolution"} or op.schema in ("aten::mv", "aten::addmv")
    taken = product and any(tensor is matrix for tensor in given)
    return taken or (op.pointwise and any(1 < tensor.numel() < matrix.numel() for tensor in given))


def _share(tensor: Tensor) -> float:
    with contextlib.suppress(RuntimeError), unlogged():
        return values(tensor).count_nonzero().item() / tensor.numel()
    return 1.0


def _range(tensor: Tensor) -> tuple[int, int]:
    with unlogged():
        low, high = values(tensor).aminmax()
        return int(low), int(high)


def _trains(func: Any, args: Any, place: Place) -> bool:
    """Whether this is dropout that drops, or batch norm that learns from the batch."""
    schema = func._schema.name
    if place.passes("torch/utils/checkpoint.py"):
        return False
    if "batch_norm" in schema and "instance_norm" not in schema:
        names = [argument.name for argument in func._schema.arguments]
        training = next((args[names.index(n)] for n in ("training", "train") if n in names[: len(args)]), False)
        instance = any(file.endswith("modules/instancenorm.py") for file, _, _ in place.libraries)
        return bool(training) and not instance and args[3] is not None
    dropping = schema in ("aten::native_dropout", "aten::bernoulli_", "aten::bernoulli")
    return dropping and any("dropout" in function for file, _, function in place.libraries if "/torch/nn/" in file)


def _part(place: Place) -> str:
    for file, _, function in place.libraries:
        if function in ("_engine_run_backward", "backward") and "/torch/" in file:
            return "backward"
        if "/torch/optim/" in file and "lr_scheduler" not in file:
            return "optimizer"
    return ""


def _flops(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    from torch.utils.flop_counter import flop_registry

    formula = flop_registry.get(func._overloadpacket)
    if formula is None:
        return 0
    try:
        return int(formula(*args, **kwargs, out_val=out))
    except Exception:  # of a form that torch's formula does not know
        return 0
