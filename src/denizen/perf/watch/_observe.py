"""From an operation on a device, real or simulated, to what budgets hear of it: waits, copies, work, memory."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen.perf.watch import _rules
from denizen.perf.watch._faults import kind_of_copy, kind_of_read
from denizen.perf.watch._places import Place, written
from denizen.perf.watch._recorder import ALLOCATIONS, HOST_READS, TRANSFERS, Event, here, recorders, tell

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
        self.name, self.schema = _rules.name(func), func._schema.name
        aliases = [result.alias_info for result in func._schema.returns]
        self.mutates = func._schema.is_mutable
        self.view = self.schema in _VIEWS or any(a is not None and not a.is_write for a in aliases)
        self.computes = not self.view and self.schema not in _NOTHING
        base = self.schema.removeprefix("aten::")
        self.strict = torch.Tag.pointwise in func.tags or base in _MATRICES or self.schema in _SELECTING
        self.strict = self.strict and self.schema != "aten::copy_"
        known = func.namespace != "prim"  # those are torch.jit's, which the dispatcher does not know
        self.composite = known and func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
        self.may_wait = self.schema in {*_rules.WAITING, *_rules.COPIES, *_INDEXING, _CHOOSING}


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
    for recorder in recorders():
        with recorder.lock:
            now, recorder.heard = recorder.now, True
            recorder.ops += seen.computes
            now.ops += seen.computes
            now.allocations += blocks
            now.peak = max(now.peak, live)
    if blocks and any(recorder.sites for recorder in recorders()):
        tell("state-copy" if weights else "alloc-churn", seen.name, (ALLOCATIONS,), bytes=size)


def waits(
    func: Any, seen: Traits, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, device: str
) -> list[Event]:
    """Record what an operation carried across and whether the host waited for it.

    Args:
        func: the operation.
        seen: its traits.
        args: its positional arguments, as the caller gave them.
        kwargs: its other arguments.
        out: its result.
        device: type of the device, such as ``"cuda"``.

    Returns:
        What was recorded.
    """
    if not seen.may_wait:
        return []
    if seen.schema in _rules.COPIES:
        return _copy(seen, args, kwargs, out, device)
    if seen.schema == _CHOOSING:
        return _chosen(seen, args, device)
    if seen.schema in _INDEXING and args[0].device.type == device:
        _index(seen, args)
        _written(seen, args, kwargs)
    if _rules.reads_host(func, args, kwargs, lambda tensor: tensor.device.type == device):
        place, source = _place(device), args[0]
        scalar = seen.schema == "aten::_local_scalar_dense"
        kind = kind_of_read(seen.schema, place, scalar and source.dtype == torch.bool)
        size = source.element_size() if scalar else 0
        return tell(kind, seen.name, (HOST_READS,), place=place, bytes=size, numel=scalar, to="host" if scalar else "")
    return []


def _copy(seen: Traits, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, device: str) -> list[Event]:
    into, source = (args[0], args[1]) if seen.schema == "aten::copy_" else (out, args[0])
    if not isinstance(source, Tensor) or not isinstance(into, Tensor):
        return []
    ends = "cpu" if _of_host(source) else source.device.type, into.device.type
    if ends not in ((device, "cpu"), ("cpu", device)) or not into.numel():
        return []  # of no elements nothing is carried, and nobody waits
    if ends[0] == "cpu" and into.dim() and source.device.type == device:
        return []  # a number written to a row fills it
    late = bool(args[2] if len(args) > 2 and seen.schema == "aten::copy_" else kwargs.get("non_blocking", False))
    carried = min(source.numel(), into.numel())
    more: dict[str, Any] = {"bytes": carried * into.element_size(), "numel": carried}
    more["weights"] = of_parameter(source) or of_parameter(into)
    if ends[0] == device:
        if late and is_pinned(into):
            return tell("async-copy", seen.name, (), to="host", **more)
        return _to_host(seen, device, more)
    if late and is_pinned(source):
        return tell("async-copy", seen.name, (), to="device", **more)
    more["note"] = SINGLE if carried == 1 else ""
    place = here()
    limits = () if _of_torch(place) else (TRANSFERS,)
    told = tell("h2d-pageable" if late else "h2d-fresh", seen.name, limits, place=place, to="device", **more)
    if told:
        into._denizen_origin = told  # type: ignore[attr-defined]  # so that an index made on the spot is known as one
    return told


def fresh(seen: Traits, out: Tensor) -> None:
    """Record a tensor made of numbers of the host, of which a real device shows only the result."""
    if out.numel():
        size, note = out.numel() * out.element_size(), SINGLE if out.numel() == 1 else ""
        told = tell("h2d-fresh", seen.name, (TRANSFERS,), to="device", bytes=size, numel=out.numel(), note=note)
        if told:
            out._denizen_origin = told  # type: ignore[attr-defined]


def _to_host(seen: Traits, device: str, more: dict[str, Any]) -> list[Event]:
    """A copy that the host waits for. What `tolist` and `print` read comes so from torch's own tensors."""
    place = _place(device)
    kind = kind_of_copy(place)
    limits = (HOST_READS, TRANSFERS) if kind == "host-sync-copy" else (HOST_READS,)
    limits = () if _of_torch(place) else limits
    return tell(kind, seen.name, limits, place=place, to="host", **more)


def _place(device: str) -> Place:
    """The line to blame, with the method that was called; on real devices from the line's text."""
    place = here()
    return place if place.method or device == SIMULATED else dataclasses.replace(place, method=written())


def _index(seen: Traits, args: Sequence[Any]) -> None:
    """Indices that came from the host: with the operation, or just before it on the same line."""
    for index in args[1]:
        if index is None:
            continue
        if index.device.type == "cpu" and index.dim() > 0:
            size = index.numel() * index.element_size()
            tell("h2d-index", seen.name, (TRANSFERS,), bytes=size, numel=index.numel(), to="device")
            continue
        told = getattr(index, "_denizen_origin", None)
        if told and (place := here()).line == told[0].place.line and place.file == told[0].place.file:
            for event in told:
                event.kind, event.op = "h2d-index", seen.name


def _of_torch(place: Place) -> bool:
    """Whether DistributedDataParallel copies on its own account: told, not counted.

    It does when it rebuilds its buckets, in a loop's second step. Inputs that it brings to the device are the user's.
    """
    own = any(place.passes("torch/nn/parallel/distributed.py", function) for function in _DDP)
    return own and not place.passes("torch/distributed/utils.py")


def _of_host(tensor: Tensor) -> bool:
    """Whether a tensor is of the host, or stands for a number of it."""
    return tensor.device.type == "cpu" or getattr(tensor, "_of_number", False)


def _single(seen: Traits, value: Tensor) -> list[Event]:
    size = value.element_size()
    return tell("h2d-fresh", seen.name, (TRANSFERS,), to="device", bytes=size, numel=1, note=SINGLE)


def _written(seen: Traits, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """A number written to chosen places; where a mask chooses them, a kernel is given it."""
    value = args[2] if len(args) > 2 else kwargs.get("values")
    if isinstance(value, Tensor) and value.numel() == 1 and _of_host(value) and not _rules.fills(args, kwargs):
        _single(seen, value)


def _chosen(seen: Traits, args: Sequence[Any], device: str) -> list[Event]:
    """`torch.where` with single tensors of the host; with plain numbers it makes them on the device."""
    tensors = [value for value in args if isinstance(value, Tensor)]
    if not any(tensor.device.type == device and tensor.numel() for tensor in tensors):
        return []
    return [event for value in tensors if value.device.type == "cpu" for event in _single(seen, value)]


def of_parameter(tensor: Tensor) -> bool:
    """Whether its memory is a parameter's, as far as is known."""
    return isinstance(tensor, torch.nn.Parameter) or getattr(tensor, "_of_parameter", False)


def is_pinned(tensor: Tensor) -> bool:
    """Whether a host tensor lies in page-locked memory, or in memory that stands for it."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    return stands_for_pinned(tensor) or (torch.cuda.is_initialized() and tensor.is_pinned())


def stands_for_pinned(tensor: Tensor, device: Any = None) -> bool:
    """Whether a host tensor has the mark of memory that stands for page-locked memory."""
    return getattr(tensor.untyped_storage(), "_denizen_pinned", False)
