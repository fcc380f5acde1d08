"""Code that asks for CUDA by name, on a machine without: it gets the simulated device."""

import contextlib
from collections.abc import Generator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from denizen.perf.simulated._device import SimulatedGenerator, simulated_device
from denizen.perf.watch._calls import replaced


def _available() -> bool:
    return True


# What is a class in torch stays one: annotations (`torch.Generator | None`) and `isinstance` ask for it.
class _Context(contextlib.nullcontext[None]):
    """torch.cuda.device and torch.cuda.device_of, where there is one device."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


class _Generator(SimulatedGenerator):
    """torch.Generator, with CUDA for the simulated device."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, simulated_device() if _is_cuda(device) else device)


_available.simulated = True  # type: ignore[attr-defined]  # for `denizen.perf.simulated._streams`
_MEMORY = 80 << 30
_NONE = {"allocated_bytes.all.peak": 0}
_ANSWERS: dict[str, Any] = {
    "is_available": _available,
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
    "memory_summary": lambda device=None, abbreviated=False: "simulated device",
    "mem_get_info": lambda device=None: (_MEMORY, _MEMORY),
    "get_device_properties": lambda device=None: SimpleNamespace(
        name="simulated device", total_memory=_MEMORY, major=9, minor=0, multi_processor_count=132
    ),
    "get_rng_state": lambda device="cuda": torch.get_rng_state(),
    "set_rng_state": lambda new_state, device="cuda": None,
    "get_rng_state_all": lambda: [torch.get_rng_state()],
    "set_rng_state_all": lambda new_states: None,
    "ipc_collect": lambda: None,
    "is_current_stream_capturing": lambda: False,
    "device": _Context,
    "device_of": _Context,
}


@contextlib.contextmanager
def cuda_alias() -> Generator[None]:
    """Have this thread find one CUDA device, which is the simulated one."""
    with ExitStack() as stack:
        for name, answer in _ANSWERS.items():
            stack.enter_context(replaced(torch.cuda, name, lambda _, answer=answer: answer))
        for name in ("range_push", "range_pop", "mark"):
            stack.enter_context(replaced(torch.cuda.nvtx, name, lambda _: lambda *_, **__: 0))
        stack.enter_context(replaced(torch, "Generator", lambda _: _Generator))
        stack.enter_context(_OnSimulated())
        yield


class _OnSimulated(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.device and (
            any(map(_is_cuda, args)) or _is_cuda(kwargs.get("type"))
        ):  # with an index, perhaps
            return simulated_device()
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
