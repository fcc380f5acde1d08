"""Memory of a device: how much is free, what a region takes and holds at once, getting over running out of it."""

import contextlib
import dataclasses
import gc
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.perf.watch._host import free_on_host


def wait(device: torch.device) -> None:
    """Until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def clean(device: torch.device) -> None:
    """Give back what nobody holds any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def free(device: torch.device) -> int | None:
    """Bytes that a step could take."""
    if device.type != "cuda":
        return free_on_host() if device.type == "cpu" else None
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


_OUT_OF_MEMORY = ("out of memory", "not enough memory", "allocate memory", "cublas_status_alloc_failed")  # lower case


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, says that memory ran out; libraries say it in several ways."""
    while error is not None:
        words = str(error).lower() if isinstance(error, RuntimeError) else ""
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or any(sign in words for sign in _OUT_OF_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


def without_frames(error: BaseException) -> BaseException:
    """The error without tracebacks: they hold the frames of the step, and these its tensors."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def size(nbytes: int) -> str:
    """Bytes for reading: ``"1.5 GiB"``."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


@dataclasses.dataclass
class Peak:
    """Filled in at the end of the block.

    Attributes:
        nbytes: the most that was in use at once, beyond what was in use at the start.
        reserved: the same for what torch's allocator held, in use or not; None on the CPU.
    """

    nbytes: int = 0
    reserved: int | None = None


@contextlib.contextmanager
def peak_bytes(device: torch.device) -> Generator[Peak]:
    """Measure a block: with CUDA by the allocator's own counter, which is reset; otherwise by following every tensor.

    Following tensors slows a block down (microseconds for each operation), so it is not to be timed at once.
    """
    found = Peak()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        yield found
        found.nbytes = torch.cuda.max_memory_allocated(device) - allocated
        found.reserved = torch.cuda.max_memory_reserved(device) - reserved
        return
    live = _Live()
    with live:
        yield found
    found.nbytes = live.peak


class _Live(TorchDispatchMode):
    """Counts the bytes of blocks that operations make, until nobody holds them."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._blocks: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        old = {_block(tensor) for tensor in _pytree.tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)}
        out = func(*args, **kwargs)
        for tensor in _pytree.tree_leaves(out):
            if isinstance(tensor, Tensor) and _block(tensor) not in old:
                self._note(tensor)
        return out

    def _note(self, tensor: Tensor) -> None:
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key, nbytes = storage._cdata, storage.nbytes()
        if key in self._blocks:
            return

        def freed(_: weakref.ref) -> None:
            self._blocks.pop(key, None)
            self.now -= nbytes

        self._blocks[key] = weakref.ref(storage, freed)
        self.now += nbytes
        self.peak = max(self.peak, self.now)


def _block(tensor: Tensor) -> int | None:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else None


@dataclasses.dataclass
class Allocations:
    """What a region asked of the allocator.

    Attributes:
        count: blocks handed out.
        device_mallocs: times that it had to ask the driver (cudaMalloc), which waits for the device.
    """

    count: int = 0
    device_mallocs: int = 0

    @property
    def reuse(self) -> float | None:
        """Share of the blocks that came from memory held already; None without blocks."""
        return 1 - min(self.device_mallocs, self.count) / self.count if self.count else None


@contextmanager
def allocations(device: torch.device) -> Generator[Allocations]:
    """Filled in at the end of the block; every thread's allocations count."""
    before, found = _read(device), Allocations()
    yield found
    after = _read(device)
    found.count, found.device_mallocs = after[0] - before[0], after[1] - before[1]


def _read(device: torch.device) -> tuple[int, int]:
    stats = torch.cuda.memory_stats(device)
    return stats.get("allocation.all.allocated", 0), stats.get("segment.all.allocated", 0)
