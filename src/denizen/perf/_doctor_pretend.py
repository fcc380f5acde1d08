"""Code that asks for CUDA by name, on a machine without: it gets the simulated device."""

import contextlib
from collections.abc import Generator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from denizen._watch._backend import simulated_device

_NONE = {"allocated_bytes.all.peak": 0}
_ANSWERS: dict[str, Any] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": lambda device: None,
    "get_device_name": lambda device=None: "simulated device",
    "get_device_capability": lambda device=None: (9, 0),
    "is_bf16_supported": lambda including_emulation=True: True,
    "manual_seed": lambda seed: None,
    "manual_seed_all": lambda seed: None,
    "memory_allocated": lambda device=None: 0,
    "max_memory_allocated": lambda device=None: 0,
    "memory_reserved": lambda device=None: 0,
    "max_memory_reserved": lambda device=None: 0,
    "reset_peak_memory_stats": lambda device=None: None,
    "memory_stats": lambda device=None: dict(_NONE),
}


@contextlib.contextmanager
def as_if_cuda() -> Generator[None]:
    """Have this thread find one CUDA device, which is the simulated one."""
    with ExitStack() as stack:
        for name, answer in _ANSWERS.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(mock.patch.object(torch, "Generator", _generators(torch.Generator)))
        stack.enter_context(_OnSimulated())
        yield


class _OnSimulated(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.cuda:
            late = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
            return args[0].to(simulated_device(), non_blocking=late)
        if any(_is_cuda(value) for value in args) or _is_cuda(kwargs.get("device")):
            args = tuple(simulated_device() if _is_cuda(value) else value for value in args)
            if _is_cuda(kwargs.get("device")):
                kwargs = kwargs | {"device": simulated_device()}
        return func(*args, **kwargs)


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _generators(original: Any) -> Any:
    def generator(device: Any = "cpu") -> Any:
        return original(simulated_device() if _is_cuda(device) else device)

    return generator
