"""Differentiable ops behind a guard: torch drops tangents of custom ops without a word, so forward mode is refused."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd import forward_ad

from denizen.errors import ModelError
from denizen.ops import _library, _library_tables


def reverse_only(op: Callable[..., Any]) -> Callable[..., Any]:
    """An op that refuses tangents."""

    def call(*args: Tensor | float | None) -> Any:
        if forward_ad._current_level >= 0:  # -1 outside forward mode
            for arg in args:
                if isinstance(arg, Tensor) and forward_ad.unpack_dual(arg).tangent is not None:
                    raise ModelError(
                        "forward-mode differentiation (torch.func.jvp, jacfwd) does not pass through sums over "
                        "neighbours, look-ups and kernels of networks; use backward(), or torch.autograd.grad"
                    )
        return op(*args)

    return call


lookup: Callable[..., Tensor] = reverse_only(_library_tables.lookup)
sum_fixed: Callable[..., Tensor] = reverse_only(_library.sum_fixed)
sum_real: Callable[..., Tensor] = reverse_only(_library.sum_real)
