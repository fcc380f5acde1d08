"""From an operation on a device, real or simulated, to what it does: waits, copies, work, memory.

Which operations make the host wait, or carry data across, are rules as data, for torch 2.11 to 2.13. What is not listed
is no finding. A tensor's device decides, never a method's name.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen.perf.watch._faults import kind_of_copy, kind_of_read
from denizen.perf.watch._places import Place, written
from denizen.perf.watch._recorder import ALLOCATIONS, HOST_READS, TRANSFERS, Event, here, recorders, tell

OnDevice = Callable[[Tensor], bool]


@dataclasses.dataclass(frozen=True)
class Rule:
    """An operation that makes the host wait where its first argument is on the device.

    Attributes:
        op: schema schema_name, such as ``"aten::nonzero"``; with ``".overload"`` where only that one waits.
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
    of_host = value.device.type == "cpu" or getattr(value, "_of_number", False)
    return of_host and len(indices) == len(_masks(args)) == 1


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
    """Data that crosses between host and device.

    Attributes:
        to_host: else to the device.
        bytes: how many.
        waits: whether the host waits for it.
    """

    to_host: bool
    bytes: int
    waits: bool


def crossing(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Crossing | None:
    """What an operation carries across; None where it stays on one side.

    A copy to the host waits, unless it is told not to and goes to pinned memory. Arithmetic is given a single value of
    the host with its launch; what copies it, makes it or writes it to places carries it (seen on an H200, torch 2.11).
    """
    op = func._schema.name
    if op == "aten::lift_fresh" and out.device.type != "cpu":  # made of numbers of the host
        return Crossing(False, out.numel() * out.element_size(), False) if out.numel() else None
    if op == "aten::where":
        return _single_values([value for value in args if isinstance(value, Tensor)])
    if op == "aten::_local_scalar_dense" and args[0].device.type != "cpu":
        return Crossing(True, args[0].element_size(), True)
    if op in COPIES and isinstance(out, Tensor):
        source = args[1] if op == "aten::copy_" else args[0]
        if not isinstance(source, Tensor) or source.device == out.device or "cpu" not in _types(source, out):
            return None
        to_host = out.device.type == "cpu"
        if not out.numel():
            return None
        late = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False)) and to_host and out.is_pinned()
        carried = min(source.numel(), out.numel())
        return Crossing(to_host, carried * out.element_size(), to_host and not late)
    if op in ("aten::index", "aten::index_put", "aten::index_put_") and args[0].device.type != "cpu":
        hosts = [index for index in args[1] if index is not None and index.device.type == "cpu" and index.dim() > 0]
        if len(args) > 2 and isinstance(args[2], Tensor) and args[2].device.type == "cpu" and not fills(args, kwargs):
            hosts.append(args[2])
        return Crossing(False, sum(i.numel() * i.element_size() for i in hosts), False) if hosts else None
    return None


def _single_values(tensors: Sequence[Tensor]) -> Crossing | None:
    """Values of the host among tensors of a device."""
    hosts = [tensor for tensor in tensors if tensor.device.type == "cpu"]
    if not hosts or len(hosts) == len(tensors):
        return None
    return Crossing(False, sum(value.numel() * value.element_size() for value in hosts), False)


def _types(*tensors: Tensor) -> set[str]:
    return {tensor.device.type for tensor in tensors}


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
    if seen.schema in COPIES:
        return _copy(seen, args, kwargs, out, device)
    if seen.schema == _CHOOSING:
        return _chosen(seen, args, device)
    if seen.schema in _INDEXING and args[0].device.type == device:
        _index(seen, args)
        _written(seen, args, kwargs)
    if reads_host(func, args, kwargs, lambda tensor: tensor.device.type == device):
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
    if isinstance(value, Tensor) and value.numel() == 1 and _of_host(value) and not fills(args, kwargs):
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
