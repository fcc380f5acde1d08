"""Differentiable ops behind a guard: torch drops tangents of custom ops without a word, so forward mode is refused."""

from collections.abc import Callable

from torch import Tensor
from torch.autograd import forward_ad

from denizen.errors import ModelError
from denizen.ops import _library, _library_tables


def _reverse_only(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(*args: Tensor | float | None) -> Tensor:
        if forward_ad._current_level >= 0:  # -1 outside forward mode
            for arg in args:
                if isinstance(arg, Tensor) and forward_ad.unpack_dual(arg).tangent is not None:
                    raise ModelError(
                        "forward-mode differentiation (torch.func.jvp, jacfwd) does not pass through sums over "
                        "neighbours and look-ups; use backward(), or torch.autograd.grad"
                    )
        return op(*args)

    return call


lookup = _reverse_only(_library_tables.lookup)
sum_fixed = _reverse_only(_library.sum_fixed)
sum_real = _reverse_only(_library.sum_real)
