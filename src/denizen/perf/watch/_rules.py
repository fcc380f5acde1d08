"""Which torch operations make the host wait for a device, or carry data across; rules as data.

Rules of the performance kit, section 3.4, for torch 2.11 to 2.13. Anything not listed is no finding. A tensor's device
decides, never a method's name.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

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


def name(func: Any) -> str:
    """Schema name of an operation, with its overload: ``"aten::add.Tensor"``, ``"aten::nonzero"``."""
    if is_higher_order(func):
        return f"higher_order::{func}"
    schema = func._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def reads_host(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], on_device: OnDevice) -> bool:
    """Whether an operation makes the host wait for the device, copies aside."""
    rule = _BY_OP.get(name(func)) or _BY_OP.get(func._schema.name)
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
        return _single([value for value in args if isinstance(value, Tensor)])
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


def _single(tensors: Sequence[Tensor]) -> Crossing | None:
    """Values of the host among tensors of a device."""
    hosts = [tensor for tensor in tensors if tensor.device.type == "cpu"]
    if not hosts or len(hosts) == len(tensors):
        return None
    return Crossing(False, sum(value.numel() * value.element_size() for value in hosts), False)


def _types(*tensors: Tensor) -> set[str]:
    return {tensor.device.type for tensor in tensors}
