"""The most memory that a region of code holds at once."""

import contextlib
import dataclasses
import weakref
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode


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
