"""Counting from the host's side: what passes torch's dispatcher in a region, on any device."""

import collections
import dataclasses
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.perf.watch._operations import (
    PYTHON_READS,
    crossings,
    distinct_bytes,
    is_higher_order,
    reads_host,
    schema_name,
    tensors_in,
)

# (operation, positional arguments) -> bytes that it reads of its i-th argument, for those it does not read in full.
Weigh = Callable[[Any, tuple[Any, ...]], dict[int, int]]

# Operations that neither launch anything nor touch memory.
_NOTHING = ("aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided")
# Operations that touch as many elements of their first argument as they give.
_GATHERS = ("aten::index", "aten::index_select", "aten::gather", "aten::take", "aten::embedding")


@dataclasses.dataclass
class Traffic:
    """Copies in one direction.

    Attributes:
        count: how many.
        bytes: of all together.
    """

    count: int = 0
    bytes: int = 0


@dataclasses.dataclass
class Counts:
    """What a region did, as the dispatcher saw it.

    Attributes:
        ops: names of the operations that compute something, in order; views and bare allocations are left out.
        host_reads: operations that made the host wait for the device, by name. On the CPU every tensor counts as on
            the device: what is counted there would wait on a GPU.
        to_device: copies from the host.
        to_host: copies to the host.
        allocations: new storages.
        allocated_bytes: their size.
        moved: bytes read and written, by operation; each argument and result of each call once.
        inputs: bytes read of each storage that is older than the region (its largest part that an operation took).
    """

    ops: list[str] = dataclasses.field(default_factory=list)
    host_reads: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    to_device: Traffic = dataclasses.field(default_factory=Traffic)
    to_host: Traffic = dataclasses.field(default_factory=Traffic)
    allocations: int = 0
    allocated_bytes: int = 0
    moved: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    inputs: dict[int, int] = dataclasses.field(default_factory=dict)


@contextmanager
def counting(device: torch.device, weigh: Weigh | None = None) -> Generator[Counts]:
    """Count what this thread does within the block; costs 10 to 30 µs an operation, and nothing afterwards.

    Code compiled by torch cannot be called within (torch refuses): count it with `torch.compiler.set_stance
    ("force_eager")`. A replayed CUDA graph passes unseen; see `profiled` and `sync_warnings`.

    Args:
        device: what the host waits for. On ``cpu``, where nothing waits, tensors stand for those of a GPU; then copies
            between host and device cannot be told, nor reads that only CPU kernels make go unnoticed (`one_hot`).
        weigh: corrects bytes read, for operations that read parts of their arguments.
    """
    counts = Counts()
    with ExitStack() as modes:
        if device.type == "cpu":
            modes.enter_context(_Python(counts))
        modes.enter_context(_Dispatch(counts, device, weigh))
        yield counts


class _Python(TorchFunctionMode):
    """Sees what leaves torch without an operation, on the CPU."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self._counts = counts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        method = getattr(func, "__name__", "")
        if method in PYTHON_READS:
            self._counts.host_reads[f"Tensor.{method}"] += 1
        return func(*args, **(kwargs or {}))


class _Dispatch(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, counts: Counts, device: torch.device, weigh: Weigh | None) -> None:
        super().__init__()
        self._counts, self._weigh = counts, weigh
        self._device = device.type
        self._made: set[int] = set()  # storages of this region

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        counts = self._counts
        if is_higher_order(func):  # torch.cond and its like: one operation, whose inside stays unseen
            counts.ops.append(schema_name(func))
            return func(*args, **kwargs)
        if reads_host(func, args, kwargs, self._on_device):
            counts.host_reads[schema_name(func)] += 1
        before = {_storage(tensor) for tensor in _dense((args, kwargs))}
        out = func(*args, **kwargs)
        crossed = crossings(func, args, kwargs, out, self._device) if self._device != "cpu" else []
        if crossed:
            traffic = counts.to_host if crossed[0].to_host else counts.to_device
            traffic.count += 1
            traffic.bytes += sum(one.bytes for one in crossed)
            if crossed[0].waits and func._schema.name != "aten::_local_scalar_dense":
                counts.host_reads[schema_name(func)] += 1
        self._memory(func, args, kwargs, out, before)
        return out

    def _on_device(self, tensor: Tensor) -> bool:
        return tensor.device.type == self._device

    def _memory(self, func: Any, args: Any, kwargs: Any, out: Any, before: set[int]) -> None:
        counts, results = self._counts, list(_dense(out))
        new = [tensor for tensor in results if _storage(tensor) not in before]
        for tensor in new:
            self._made.add(_storage(tensor))
            counts.allocations += 1
            counts.allocated_bytes += tensor.untyped_storage().nbytes()
        written = [*new, *_mutated(func, args, kwargs)]
        if (results and not written) or func._schema.name in _NOTHING:
            return  # a view, or memory without content
        name = schema_name(func)
        counts.ops.append(name)
        counts.moved[name] += sum(distinct_bytes(tensor) for tensor in written)
        known = self._weigh(func, args) if self._weigh is not None else {}
        given = [*enumerate(args), *((-1, value) for value in kwargs.values())]
        for place, argument in given:
            for tensor in _dense(argument):
                read = known.get(place, distinct_bytes(tensor))
                if place == 0 and func._schema.name in _GATHERS and results:
                    read = min(read, sum(distinct_bytes(result) for result in results))
                counts.moved[name] += read
                storage = _storage(tensor)
                if storage not in self._made:
                    counts.inputs[storage] = max(counts.inputs.get(storage, 0), read)


def _mutated(func: Any, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """Arguments that an operation writes to."""
    if func._schema.is_mutable:
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from _dense(args[place] if place < len(args) else kwargs.get(argument.name))


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _dense(tree: Any) -> Iterator[Tensor]:
    """Tensors in nested arguments without the sparse ones, which have no storage of their own."""
    return (tensor for tensor in tensors_in(tree) if tensor.layout is torch.strided)
