"""Torch's global switches, held as they were when something was first compiled.

A function that torch compiled is guarded by more than its arguments: where one of these switches is another than while
it was compiled, the next call compiles it anew. That costs seconds to minutes, and within a CUDA graph's capture it is
an error. A captured graph, on the other hand, follows none of them. So what is compiled keeps to one state of them:
while it is compiled, warmed up, captured and called.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _device as default_device

_HOOKS: tuple[dict[int, Any], ...] = (
    modules._global_backward_pre_hooks, modules._global_backward_hooks, modules._global_forward_pre_hooks,
    modules._global_forward_hooks, modules._global_forward_hooks_always_called,
    modules._global_forward_hooks_with_kwargs,
)  # fmt: skip
_AUTOCAST = ("cpu", "cuda")


class Settled:
    """Torch's switches as they were when this was made, to be held around everything that runs what was compiled.

    Another thread has its own of some; the others are those of the process, and are put back afterwards.
    """

    def __init__(self, *, grad: bool, threads: int | None = None) -> None:
        """Args:
        grad: whether autograd records.
        threads: of torch on the CPU, at most; None: as many as there are.
        """
        self._grad = grad
        self._values = [read() for read, _ in _SWITCHES]
        self._autocast = [_autocast(kind) for kind in _AUTOCAST]
        if threads is not None:
            self._values[0] = min(threads, self._values[0])

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold them within the block; takes some microseconds where nothing differs."""
        found = [read() for read, _ in _SWITCHES]
        autocast = [_autocast(kind) for kind in _AUTOCAST]
        if found == self._values and autocast == self._autocast and not torch.is_inference_mode_enabled():
            with torch.set_grad_enabled(self._grad):
                yield
            return
        with contextlib.ExitStack() as held:
            held.enter_context(torch.inference_mode(False))
            held.enter_context(torch.set_grad_enabled(self._grad))
            for (_, write), wanted, present in zip(_SWITCHES, self._values, found, strict=True):
                if present != wanted:
                    held.callback(write, present)
                    write(wanted)
            for kind, wanted, present in zip(_AUTOCAST, self._autocast, autocast, strict=True):
                if present != wanted:
                    enabled, dtype, cached = wanted
                    held.enter_context(torch.autocast(kind, dtype, enabled, cached))
            yield


def _autocast(kind: str) -> tuple[bool, torch.dtype, bool]:
    return torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind), torch.is_autocast_cache_enabled()


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _matmul() -> tuple[str | None, Any]:
    try:
        plain = torch._C._get_float32_matmul_precision()
    except RuntimeError:  # torch tells none where the newer switch was set to something else
        plain = None
    return plain, torch._C._get_fp32_precision_getter("cuda", "matmul")


def _set_matmul(value: tuple[str | None, Any]) -> None:
    plain, newer = value
    if plain is not None and _matmul()[0] is not None:
        torch.set_float32_matmul_precision(plain)  # sets the newer one as well
    else:
        torch.backends.cuda.matmul.fp32_precision = newer


def _reductions() -> tuple[Any, Any]:
    return (
        torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
        torch._C._get_cublas_allow_bf16_reduced_precision_reduction(),
    )


def _set_reductions(value: tuple[Any, Any]) -> None:
    halves, brains = ((one if isinstance(one, tuple) else (one,)) for one in value)
    torch._C._set_cublas_allow_fp16_reduced_precision_reduction(*halves)
    torch._C._set_cublas_allow_bf16_reduced_precision_reduction(*brains)


def _cudnn() -> tuple[bool, bool, bool, bool | None]:
    try:
        coarse = torch._C._get_cudnn_allow_tf32()
    except RuntimeError:  # as for products of matrices
        coarse = None
    cudnn = torch.backends.cudnn
    return cudnn.enabled, cudnn.benchmark, cudnn.deterministic, coarse


def _set_cudnn(value: tuple[bool, bool, bool, bool | None]) -> None:
    enabled, benchmark, deterministic, coarse = value
    torch._C._set_cudnn_enabled(enabled)
    torch._C._set_cudnn_benchmark(benchmark)  # trying algorithms out waits for the device, which no capture allows
    torch._C._set_cudnn_deterministic(deterministic)
    if coarse is not None and _cudnn()[3] is not None:
        torch._C._set_cudnn_allow_tf32(coarse)


def _modes() -> tuple[list[Any], torch.device | None]:
    """Modes over torch's functions, the default device among them."""
    return _get_current_function_mode_stack(), default_device.CURRENT_DEVICE


def _set_modes(value: tuple[list[Any], torch.device | None]) -> None:
    while _get_current_function_mode_stack():
        _pop_mode()
    for mode in value[0]:
        _push_mode(mode)
    default_device.CURRENT_DEVICE = value[1]


def _hooks() -> list[dict[int, Any]]:
    """Hooks on all modules."""
    return [hooks.copy() for hooks in _HOOKS]


def _set_hooks(value: list[dict[int, Any]]) -> None:
    for hooks, kept in zip(_HOOKS, value, strict=True):
        hooks.clear()
        hooks.update(kept)


# Each with how it is read and how it is set.
_SWITCHES: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_default_dtype, torch.set_default_dtype),
    (_deterministic, _set_deterministic),
    (_matmul, _set_matmul),
    (_reductions, _set_reductions),
    (_cudnn, _set_cudnn),
    (_modes, _set_modes),
    (torch._C._get_torch_function_state, torch._C._set_torch_function_state),  # type: ignore[attr-defined]
    (_hooks, _set_hooks),
)
