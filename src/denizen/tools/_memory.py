"""What memory a device has given out, and which tensors hold it."""

import dataclasses
import gc
import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from denizen.perf.watch import free_on_host, size

DEPTH = 6  # of containers that are searched for names


@dataclasses.dataclass(frozen=True)
class Held:
    """A block of memory that tensors known to Python hold.

    Attributes:
        nbytes: of the whole block, though the tensor may be a view of part of it.
        shape: of one tensor in it.
        dtype: of that tensor.
        where: names it goes by, such as ``model.layers.0.weight``, ``its gradient`` or ``train.py:31 batch``; "" if
            none was found.
        tensors: number of tensors that share the block.
    """

    nbytes: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    where: str
    tensors: int


@dataclasses.dataclass(frozen=True)
class MemoryReport:
    """Bytes by who knows of them.

    Attributes:
        device: whose memory.
        allocated: in blocks that are in use; on the CPU what tensors known to Python hold.
        reserved: held by torch's allocator, in use or not; None on the CPU.
        peak: the most that was in use since `torch.cuda.reset_peak_memory_stats`; None on the CPU.
        free: of the whole device or machine; None if unknown.
        seen: held by tensors known to Python. The rest of `allocated` is mostly what backward passes have saved.
        largest: the largest blocks, the largest first.
    """

    device: torch.device
    allocated: int
    reserved: int | None
    peak: int | None
    free: int | None
    seen: int
    largest: list[Held]

    def __str__(self) -> str:
        parts = [("allocated", self.allocated), ("reserved", self.reserved), ("peak", self.peak), ("free", self.free)]
        lines = [f"{self.device}: " + ", ".join(f"{name} {size(n)}" for name, n in parts if n is not None)]
        if self.allocated > self.seen:
            lines.append(f"held by no tensor in Python (saved for backward, ...): {size(self.allocated - self.seen)}")
        for held in self.largest:
            kind = str(held.dtype).removeprefix("torch.")
            lines.append(f"{size(held.nbytes):>10}  {kind} {list(held.shape)}  {held.where}".rstrip())
        return "\n".join(lines)


def memory_report(device: torch.device | str = "cpu", top: int = 10, **named: Any) -> MemoryReport:
    """Who holds the memory of a device.

    Args:
        device: whose memory.
        top: number of blocks to list.
        named: modules, optimizers, mappings, lists or tensors to take names from, as in ``model=model``. Local
            variables of the calling functions are looked through besides.

    Returns:
        The report; print it. It reads no value from the device, and does not wait for it.
    """
    device = _indexed(torch.device(device))
    blocks: dict[int, list[Tensor]] = {}
    for tensor in _tensors():
        if _indexed(tensor.device) == device:
            blocks.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    blocks.pop(0, None)  # nothing in it
    sizes = {pointer: tensors[0].untyped_storage().nbytes() for pointer, tensors in blocks.items()}
    largest = sorted(sizes, key=lambda pointer: -sizes[pointer])[:top]
    names = _names(named, set(largest))
    held = [
        Held(sizes[p], tuple(blocks[p][0].shape), blocks[p][0].dtype, names.get(p, ""), len(blocks[p])) for p in largest
    ]
    seen = sum(sizes.values())
    if device.type != "cuda":
        return MemoryReport(device, seen, None, None, free_on_host() if device.type == "cpu" else None, seen, held)
    stats = torch.cuda.memory_stats(device)
    return MemoryReport(
        device,
        stats.get("allocated_bytes.all.current", 0),
        stats.get("reserved_bytes.all.current", 0),
        stats.get("allocated_bytes.all.peak", 0),
        torch.cuda.mem_get_info(device)[0],
        seen,
        held,
    )


def _indexed(device: torch.device) -> torch.device:
    """``cuda`` as ``cuda:0``, or what is the current one."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu") if device.type == "cpu" else device


def _tensors() -> Iterator[Tensor]:
    """Every tensor with memory of its own that Python knows, gradients too, though they may be known to torch alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated objects that are merely looked at
        for thing in gc.get_objects():
            if not issubclass(type(thing), Tensor):
                continue
            try:
                if _dense(thing):
                    yield thing
                if thing.is_leaf and thing.grad is not None and _dense(thing.grad):
                    yield thing.grad
            except (RuntimeError, ReferenceError):
                continue  # subclasses without memory of their own


def _dense(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() != 0


def _names(named: Mapping[str, Any], wanted: set[int]) -> dict[int, str]:
    """Names of the wanted blocks, by address: those that were given first, then local variables of the callers."""
    names: dict[int, str] = {}
    for root, thing in named.items():
        for name, tensor in _within(root, thing, 0):
            _note(names, wanted, name, tensor)
    frame = inspect.currentframe()
    frame = frame.f_back.f_back if frame and frame.f_back else None  # who called memory_report
    while frame is not None:
        place = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        for variable, thing in list(frame.f_locals.items()):
            if isinstance(thing, (Tensor, torch.nn.Module, torch.optim.Optimizer, list, tuple, dict)):
                for name, tensor in _within(f"{place} {variable}", thing, DEPTH - 2):
                    _note(names, wanted, name, tensor)
        frame = frame.f_back
    return names


def _note(names: dict[int, str], wanted: set[int], name: str, tensor: Tensor) -> None:
    for label, value in ((name, tensor), (f"{name}.grad", tensor.grad if tensor.is_leaf else None)):
        if value is not None and _dense(value):
            pointer = value.untyped_storage().data_ptr()
            if pointer in wanted:
                names.setdefault(pointer, label)


def _within(name: str, thing: Any, depth: int) -> Iterator[tuple[str, Tensor]]:
    """Tensors in modules, optimizers and containers, each with its name."""
    if isinstance(thing, Tensor):
        yield name, thing
    elif depth > DEPTH:
        return
    elif isinstance(thing, torch.nn.Module):
        for part in (thing.named_parameters(), thing.named_buffers()):
            yield from ((f"{name}.{key}", tensor) for key, tensor in part)
    elif isinstance(thing, torch.optim.Optimizer):
        for number, values in enumerate(thing.state.values()):
            yield from _within(f"{name}.state[{number}]", values, depth + 1)
    elif isinstance(thing, Mapping):
        for key, value in list(thing.items()):
            yield from _within(f"{name}[{key!r}]", value, depth + 1)
    elif isinstance(thing, (list, tuple)):
        for number, value in enumerate(thing):
            yield from _within(f"{name}[{number}]", value, depth + 1)
