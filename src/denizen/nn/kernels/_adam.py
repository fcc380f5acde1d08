"""Adam over one flat buffer, clipped by its norm: a reference in plain torch, and two launches of Triton on CUDA."""

from collections.abc import Sequence

import torch
from torch import Tensor

from denizen.ops import variant


@torch.no_grad()
def adam(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    square: Tensor,
    step: Tensor,
    rate: Tensor,
    skip: Tensor,
    *,
    max_norm: float | None,
    betas: tuple[float, float],
    eps: float,
) -> Tensor:
    """One step of Adam (Kingma and Ba, 2015), in place, after the gradient is scaled to a norm of at most `max_norm`.

    Args:
        weight: float32 `[n]`.
        grad: float32 `[n]`; left as it is.
        mean: float32 `[n]`: first moment.
        square: float32 `[n]`: second moment.
        step: float32 `[]`: steps done.
        rate: float32 `[]`.
        skip: bool `[]`: leave everything as it is.
        max_norm: None: no clipping.
        betas: of the moments.
        eps: added to the root of the second moment.

    Returns:
        float32 `[]`: the norm before clipping.
    """
    if variant(weight.device) == "triton":
        from denizen.nn.kernels import _cuda_adam

        return _cuda_adam.adam(weight, grad, mean, square, step, rate, skip, max_norm, betas, eps)
    norm = torch.linalg.vector_norm(grad)
    clipped = grad if max_norm is None else grad * (max_norm / (norm + 1e-6)).clamp(max=1.0)
    done = step + 1
    moved = mean + (clipped - mean) * (1 - betas[0])
    spread = square * betas[1] + clipped * clipped * (1 - betas[1])
    first, second = (1 - torch.pow(beta, done.double()) for beta in betas)
    change = (rate / first).float() * moved / (spread.sqrt() / second.sqrt().float() + eps)
    for old, new in ((weight, weight - change), (mean, moved), (square, spread), (step, done)):
        old.copy_(torch.where(skip, old, new))
    return norm


def precompile_adam(sizes: Sequence[int], max_norm: float | None, betas: tuple[float, float], eps: float) -> None:
    """Compile the kernels of `adam` for buffers of these sizes; its arguments as there."""
    from denizen.nn.kernels import _cuda_adam

    for size in sizes:
        weight, grad, mean, square = (torch.empty(size, device="meta") for _ in range(4))
        step, rate = (torch.empty((), device="meta") for _ in range(2))
        skip = torch.empty((), dtype=torch.bool, device="meta")
        _cuda_adam.adam(weight, grad, mean, square, step, rate, skip, max_norm, betas, eps)
