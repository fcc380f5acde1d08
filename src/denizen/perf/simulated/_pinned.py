"""Page-locked host memory on a machine that has none: a mark on the storage, which says what a GPU could copy late."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.jit import _builtins
from torch.utils._device import _device_constructors

# Functions that take `pin_memory=`.
_MAKERS = ("empty", "empty_like", "empty_strided", "full", "ones", "rand", "randn", "zeros", "zeros_like")


def mark(tensor: Tensor) -> Tensor:
    """Say that a host tensor's memory stands for page-locked memory."""
    tensor.untyped_storage()._denizen_pinned = True  # type: ignore[attr-defined]
    return tensor


def _marked(tensor: Tensor, device: Any = None) -> bool:
    return getattr(tensor.untyped_storage(), "_denizen_pinned", False)


def _pinned(tensor: Tensor, device: Any = None) -> Tensor:
    return mark(tensor.clone())


def install(aten: torch.library.Library) -> None:
    """Let host memory be asked for as pinned where no accelerator could pin it. Once per process, without CUDA.

    Args:
        aten: takes what `Tensor.pin_memory` and `Tensor.is_pinned` come to; the class of tensors stays as it is.
    """
    _device_constructors()  # torch compares by identity: let it see its own functions first
    aten.impl("is_pinned", _marked, "CPU")
    aten.impl("_pin_memory", _pinned, "CPU")
    for name in _MAKERS:  # ask for pinned memory in C++, from an allocator that is not there
        setattr(torch, name, _maker(getattr(torch, name)))


def _maker(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(original)
    def make(*args: Any, **kwargs: Any) -> Tensor:
        pinned = kwargs.pop("pin_memory", False)
        made = original(*args, **kwargs)
        return mark(made) if pinned and made.device.type == "cpu" else made

    torch._dynamo.allow_in_graph(make)
    scripted = _builtins._find_builtin(original)
    if scripted is not None:
        _builtins._register_builtin(make, scripted)  # torch.jit.script knows its functions by identity
    return make
