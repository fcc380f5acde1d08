"""From an operation on a device, real or simulated, to what it does: waits, copies, work, memory.

Which operations make the host wait, or carry data across, are rules as data, for torch 2.11 to 2.13. What is not listed
is no finding. A tensor's device decides, never a method's name.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen.perf.watch._event_log import ALLOCATIONS, HOST_READS, TRANSFERS, Event, here, log_event, open_logs
from denizen.perf.watch._faults import kind_of_copy, kind_of_read
from denizen.perf.watch._places import Place, written

OnDevice = Callable[[Tensor], bool]


@dataclasses.dataclass(frozen=True)
class Rule:
    """An operation that makes the host wait where its first argument is on the device.

    Attributes:
        op: schema name, such as ``"aten::nonzero"``; with ``".overload"`` where only that one waits.
        when: decides by the arguments; None: always.
    """

    op: str
    when: Callable[[Sequence[Any], Mapping[str, Any]], bool] | None = None


def _no_output_size(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return kwargs.get("output_size") is None


def _mask_index(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """A mask as index needs its count on the host, unless it is the only index and filled with one value of the host.

    A single value of the device is written as any other tensor (`canDispatchToMaskedFill` in torch's
    TensorAdvancedIndexing). Numbers reach a simulated device as tensors made from them.
    """
    return bool(_masks(args)) and not fills(args, kwargs)


def _masks(args: Sequence[Any]) -> list[Tensor]:
    return [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]


def fills(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether writing to places fills one mask with one value of the host, which its kernel is given."""
    indices = [index for index in args[1] if index is not None]
    value = args[2] if len(args) > 2 else kwargs.get("values")
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    if not isinstance(value, Tensor) or value.numel() != 1 or accumulate:
        return False
    return _of_host(value) and len(indices) == len(_masks(args)) == 1


def _no_bounds(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """A histogram without bounds looks for them in the values."""
    low = args[2] if len(args) > 2 else kwargs.get("min", 0)
    high = args[3] if len(args) > 3 else kwargs.get("max", 0)
    return low == high


READS = (
    Rule("aten::_local_scalar_dense"),
    Rule("aten::nonzero"),
    Rule("aten::masked_select"),
    Rule("aten::_unique2"),
    Rule("aten::unique_dim"),
    Rule("aten::unique_consecutive"),
    Rule("aten::bincount"),
    Rule("aten::equal"),
    Rule("aten::allclose"),
    Rule("aten::normal.Tensor_Tensor"),  # looks for a negative spread (DistributionTemplates.h)
    Rule("aten::normal.float_Tensor"),
    Rule("aten::nanmedian"),
    Rule("aten::histc", _no_bounds),
    Rule("aten::_linalg_check_errors"),
    Rule("aten::_linalg_eigh"),
    Rule("aten::_linalg_svd"),
    Rule("aten::repeat_interleave.Tensor", _no_output_size),
    Rule("aten::index.Tensor", _mask_index),
    Rule("aten::index_put", _mask_index),
    Rule("aten::index_put_", _mask_index),
)
# Methods that leave torch for Python or NumPy without an operation where the tensor is on the CPU.
PYTHON_READS = ("tolist", "numpy", "__array__", "__dlpack__")
COPIES = ("aten::_to_copy", "aten::copy_")
_BY_OP = {rule.op: rule for rule in READS}
WAITING = frozenset("::".join((rule.op.split("::")[0], rule.op.split("::")[1].split(".")[0])) for rule in READS)


def is_higher_order(func: Any) -> bool:
    """Whether an operation takes functions, such as `torch.cond`; it has no schema."""
    return isinstance(func, torch._ops.HigherOrderOperator)


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """The tensors in what an operation takes or gives, by plain recursion: it runs at every operation."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from tensors_in(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from tensors_in(value)


def distinct_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's distinct elements: expanded axes count once."""
    if tensor.is_nested:
        return tensor.numel() * tensor.element_size()
    if 0 in tensor.shape:
        return 0
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0)
    return math.prod(sizes) * tensor.element_size()


def schema_name(func: Any) -> str:
    """Schema schema_name of an operation, with its overload: ``"aten::add.Tensor"``, ``"aten::nonzero"``."""
    if is_higher_order(func):
        return f"higher_order::{func}"
    schema = func._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def reads_host(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], on_device: OnDevice) -> bool:
    """Whether an operation makes the host wait for the device, copies aside."""
    rule = _BY_OP.get(schema_name(func)) or _BY_OP.get(func._schema.name)
    if rule is None or not any(isinstance(value, Tensor) and on_device(value) for value in args[:2]):
        return False
    return rule.when is None or rule.when(args, kwargs)


@dataclasses.dataclass(frozen=True)
class Crossing:
    """Data of one tensor that crosses between host and device.

    Attributes:
        to_host: else to the device.
        numel: elements.
        bytes: how many.
        what: ``"copy"`` (of a tensor), ``"made"`` (of numbers of the host), ``"read"`` (of one value), ``"index"``,
            ``"value"`` (a single one of the host, beside tensors of the device).
        asked: whether the host asked not to wait.
        late: whether it then need not: the memory of the host is pinned.
    """

    to_host: bool
    numel: int
    bytes: int
    what: str
    asked: bool = False
    late: bool = False

    @property
    def waits(self) -> bool:
        """Whether the host waits for the device."""
        return self.to_host and not self.late


def crossings(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, device: str) -> list[Crossing]:
    """What an operation carries between the host and a device; nothing where it stays on one side.

    A copy to the host waits, unless it is told not to and goes to pinned memory. Arithmetic is given a single value of
    the host with its launch; what copies it, makes it or writes it to places carries it (seen on an H200, torch 2.11).
    Of no elements nothing is carried.

    Args:
        func: the operation.
        args: its positional arguments.
        kwargs: its other arguments.
        out: its result.
        device: type of the device, such as ``"cuda"``.
    """
    op = func._schema.name
    if op in COPIES:
        return _copied(op, args, kwargs, out, device)
    if op == _CHOOSING:
        tensors = [value for value in args if isinstance(value, Tensor)]
        there = any(tensor.device.type == device and tensor.numel() for tensor in tensors)
        return [_to_device(value, "value") for value in tensors if there and value.device.type == "cpu"]
    if op == "aten::lift_fresh":
        return [_to_device(out, "made")] if out.device.type == device and out.numel() else []
    if op not in ("aten::_local_scalar_dense", *_INDEXING) or args[0].device.type != device:
        return []
    if op == "aten::_local_scalar_dense":
        return [Crossing(True, 1, args[0].element_size(), "read")]
    found = [_to_device(index, "index") for index in args[1] if index is not None and _lies_on_host(index)]
    value = args[2] if len(args) > 2 else kwargs.get("values")
    if isinstance(value, Tensor) and value.numel() == 1 and _of_host(value) and not fills(args, kwargs):
        found.append(_to_device(value, "value"))  # where a mask chooses the places, a kernel is given it
    return found


def _copied(op: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, device: str) -> list[Crossing]:
    into, source = (args[0], args[1]) if op == "aten::copy_" else (out, args[0])
    if not isinstance(source, Tensor) or not isinstance(into, Tensor):
        return []
    ends = "cpu" if _of_host(source) else source.device.type, into.device.type
    if ends not in ((device, "cpu"), ("cpu", device)) or not into.numel():
        return []
    if ends[0] == "cpu" and into.dim() and source.device.type == device:
        return []  # a number written to a row fills it
    asked = bool(args[2] if len(args) > 2 and op == "aten::copy_" else kwargs.get("non_blocking", False))
    carried, to_host = min(source.numel(), into.numel()), ends[1] == "cpu"
    late = asked and is_pinned(into if to_host else source)
    return [Crossing(to_host, carried, carried * into.element_size(), "copy", asked, late)]


def _to_device(tensor: Tensor, what: str) -> Crossing:
    return Crossing(False, tensor.numel(), tensor.numel() * tensor.element_size(), what)


def _lies_on_host(index: Tensor) -> bool:
    return index.device.type == "cpu" and index.dim() > 0


SIMULATED = "simulated"
_NOTHING = frozenset(
    {"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided"}
)
_VIEWS = frozenset({"aten::_unsafe_view", "aten::_reshape_alias", "aten::lift_fresh", "aten::is_pinned", "aten::set_"})
_INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_"})
_CHOOSING = "aten::where"  # brings a single value of the host over; what adds or multiplies gives it to its kernel
_DDP = ("_pre_forward", "_post_forward", "_sync_buffers", "_rebuild_buckets")  # around the module's own forward
SINGLE = (
    "one number is copied, and waited for, like any tensor: torch.full((), ..., device=...) makes it there, "
    "x[i].fill_(...) writes it there"
)
_SELECTING = frozenset({"aten::index_select", "aten::gather", "aten::take", "aten::embedding"})
# Take tensors of one device only, single values from the host aside.
_MATRICES = ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "convolution", "cat", "stack")


class Traits:
    """What an operation's schema tells, looked up once.

    Attributes:
        name: with its overload; `schema` is without.
        view: whether it only looks at its argument's memory.
        computes: whether it launches anything on a device.
        mutates: whether it writes to arguments.
        strict: whether it refuses tensors of the host with dimensions beside tensors of the device.
        may_wait: whether a rule may apply to it, or a copy.
        composite: whether it is made of others, which inference mode does not take apart.
    """

    __slots__ = ("composite", "computes", "may_wait", "mutates", "name", "schema", "strict", "view")

    def __init__(self, func: Any) -> None:
        self.name, self.schema = schema_name(func), func._schema.name
        aliases = [result.alias_info for result in func._schema.returns]
        self.mutates = func._schema.is_mutable
        self.view = self.schema in _VIEWS or any(a is not None and not a.is_write for a in aliases)
        self.computes = not self.view and self.schema not in _NOTHING
        base = self.schema.removeprefix("aten::")
        self.strict = torch.Tag.pointwise in func.tags or base in _MATRICES or self.schema in _SELECTING
        self.strict = self.strict and self.schema != "aten::copy_"
        known = func.namespace != "prim"  # those are torch.jit's, which the dispatcher does not know
        self.composite = known and func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
        self.may_wait = self.schema in {*WAITING, *COPIES, *_INDEXING, _CHOOSING}


@functools.cache
def traits(func: Any) -> Traits:
    """Of an operation with a schema."""
    return Traits(func)


def work(seen: Traits, blocks: int, size: int, live: int = 0, weights: bool = False) -> None:
    """Count an operation's work and the memory that it took.

    Args:
        seen: the operation.
        blocks: new blocks of device memory among its results.
        size: bytes of those.
        live: bytes in use on the device now, where known.
        weights: whether it copied a parameter.
    """
    for event_log in open_logs():
        with event_log.lock:
            now, event_log.saw_device = event_log.now, True
            event_log.ops += seen.computes
            now.ops += seen.computes
            now.allocations += blocks
            now.peak = max(now.peak, live)
    if blocks and any(event_log.sites for event_log in open_logs()):
        log_event("state-copy" if weights else "alloc-churn", seen.name, (ALLOCATIONS,), bytes=size)


def waits(func: Any, seen: Traits, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, device: str) -> None:
    """Record what an operation carried across and whether the host waited for it.

    Args:
        func: the operation.
        seen: its traits.
        args: its positional arguments, as the caller gave them.
        kwargs: its other arguments.
        out: its result.
        device: type of the device, such as ``"cuda"``.
    """
    if not seen.may_wait:
        return
    for crossed in crossings(func, args, kwargs, out, device):
        if crossed.what == "copy":
            into, source = (args[0], args[1]) if seen.schema == "aten::copy_" else (out, args[0])
            _copy(seen, crossed, source, into, device)
        elif crossed.what != "read":  # of reads the rules tell, which know others besides
            _carried(seen, crossed)
    if seen.schema in _INDEXING and args[0].device.type == device:
        _made_on_the_line(seen, args[1])
    if reads_host(func, args, kwargs, lambda tensor: tensor.device.type == device):
        place, source = _place(device), args[0]
        scalar = seen.schema == "aten::_local_scalar_dense"
        kind = kind_of_read(seen.schema, place, scalar and source.dtype == torch.bool)
        size = source.element_size() if scalar else 0
        log_event(kind, seen.name, (HOST_READS,), place=place, bytes=size, numel=scalar, to="host" if scalar else "")


def _copy(seen: Traits, crossed: Crossing, source: Tensor, into: Tensor, device: str) -> None:
    more: dict[str, Any] = {"bytes": crossed.bytes, "numel": crossed.numel}
    more["weights"] = of_parameter(source) or of_parameter(into)
    if crossed.late:
        log_event("async-copy", seen.name, (), to="host" if crossed.to_host else "device", **more)
    elif crossed.to_host:
        # What `tolist` and `print` read comes so from torch's own tensors.
        place = _place(device)
        kind = kind_of_copy(place)
        limits = (HOST_READS, TRANSFERS) if kind == "host-sync-copy" else (HOST_READS,)
        log_event(kind, seen.name, () if _of_torch(place) else limits, place=place, to="host", **more)
    else:
        place, kind = here(), "h2d-pageable" if crossed.asked else "h2d-fresh"
        limits = () if _of_torch(place) else (TRANSFERS,)
        note = SINGLE if crossed.numel == 1 else ""
        _remember(into, log_event(kind, seen.name, limits, place=place, to="device", note=note, **more))


def fresh(seen: Traits, out: Tensor) -> None:
    """Record a tensor made of numbers of the host, of which a real device shows only the result."""
    if out.numel():
        _remember(out, _carried(seen, _to_device(out, "made")))


def _carried(seen: Traits, crossed: Crossing) -> list[Event]:
    kind = "h2d-index" if crossed.what == "index" else "h2d-fresh"
    note = SINGLE if crossed.numel == 1 and kind == "h2d-fresh" else ""
    return log_event(kind, seen.name, (TRANSFERS,), to="device", bytes=crossed.bytes, numel=crossed.numel, note=note)


def _remember(tensor: Tensor, events: list[Event]) -> None:
    """Of a tensor that came from the host by which events: an index made on the spot is known as one."""
    if events:
        tensor._denizen_origin = events  # type: ignore[attr-defined]


def _made_on_the_line(seen: Traits, indices: Sequence[Tensor | None]) -> None:
    """Indices that came from the host just before, on the same line: what brought them brought an index."""
    for index in indices:
        brought = None if index is None or _lies_on_host(index) else getattr(index, "_denizen_origin", None)
        if brought and (place := here()).line == brought[0].place.line and place.file == brought[0].place.file:
            for event in brought:
                event.kind, event.op = "h2d-index", seen.name


def _place(device: str) -> Place:
    """The line to blame, with the method that was called; on real devices from the line's text."""
    place = here()
    return place if place.method or device == SIMULATED else dataclasses.replace(place, method=written())


def _of_torch(place: Place) -> bool:
    """Whether DistributedDataParallel copies on its own account: told, not counted.

    It does when it rebuilds its buckets, in a loop's second step. Inputs that it brings to the device are the user's.
    """
    own = any(place.passes("torch/nn/parallel/distributed.py", function) for function in _DDP)
    return own and not place.passes("torch/distributed/utils.py")


def _of_host(tensor: Tensor) -> bool:
    """Whether a tensor is of the host, or stands for a number of it."""
    return tensor.device.type == "cpu" or getattr(tensor, "_of_number", False)


def of_parameter(tensor: Tensor) -> bool:
    """Whether its memory is a parameter's, as far as is known."""
    return isinstance(tensor, torch.nn.Parameter) or getattr(tensor, "_of_parameter", False)


def is_pinned(tensor: Tensor) -> bool:
    """Whether a host tensor lies in page-locked memory, or in memory that stands for it on the simulated device."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    stands_for_it = getattr(tensor.untyped_storage(), "_denizen_pinned", False)
    return stands_for_it or (torch.cuda.is_initialized() and tensor.is_pinned())
