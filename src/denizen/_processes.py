"""Several processes that learn as one (torchrun): sums over all of them, and who writes.

Everything here is the identity where torch.distributed is not in use.
"""

from collections.abc import Iterable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor


def size() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Number of this process; 0 writes."""
    return dist.get_rank() if size() > 1 else 0


def total(tensor: Tensor) -> Tensor:
    """Sum over the processes, without gradient."""
    return _reduced(tensor, dist.ReduceOp.SUM) if size() > 1 else tensor


def least(tensor: Tensor) -> Tensor:
    """Smallest over the processes."""
    return _reduced(tensor, dist.ReduceOp.MIN) if size() > 1 else tensor


def most(tensor: Tensor) -> Tensor:
    """Largest over the processes."""
    return _reduced(tensor, dist.ReduceOp.MAX) if size() > 1 else tensor


def _reduced(tensor: Tensor, operation: "dist.ReduceOp.RedOpType") -> Tensor:
    result = tensor.detach().clone()
    dist.all_reduce(result, operation)
    return result


def total_(tensor: Tensor) -> None:
    """Replace a tensor by its sum over the processes."""
    if size() > 1:
        dist.all_reduce(tensor)


def named(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of this process by names that begin with it, where there are several."""
    return {f"rank{rank()}.{name}": tensor for name, tensor in tensors.items()} if size() > 1 else dict(tensors)


def of_how_many(names: Iterable[str], name: str) -> int:
    """Of how many processes `named` gave names, one tensor's among them."""
    return sum(one == name or (one.startswith("rank") and one.endswith(f".{name}")) for one in names)


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On process 0 the tensors of all, as `named` has them; on others nothing."""
    held: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        # Bytes: NCCL knows no whole numbers of 16 bits. Of a copy: a view of one element may have any stride.
        own = tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
        parts = [torch.empty_like(own) for _ in range(size())] if rank() == 0 else None
        dist.gather(own, parts)
        for number, part in enumerate(parts or []):
            held[f"rank{number}.{name}"] = part.view(tensor.dtype).view(tensor.shape)
    return held
