"""Torch's global switches, held as they were when something was first compiled.

A function that torch compiled is guarded by more than its arguments: where one of these switches is another than while
it was compiled, the next call compiles it anew. That costs seconds to minutes, and within a CUDA graph's capture it is
an error. A captured graph, on the other hand, follows none of them. So what is compiled keeps to one state of them:
while it is compiled, warmed up, captured and called.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch.nn.modules import module as modules
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _device as default_device

_HOOKS: tuple[dict[int, Any], ...] = (
    modules._global_backward_pre_hooks,
    modules._global_backward_hooks,
    modules._global_forward_pre_hooks,
    modules._global_forward_hooks,
    modules._global_forward_hooks_always_called,
    modules._global_forward_hooks_with_kwargs,
)
_AUTOCAST = ("cpu", "cuda")


class TorchSwitches:
    """Torch's switches as they were when this was made, to be held around everything that runs what was compiled.

    Threads have some of their own and share the others. What is shared is put back when nobody holds it any more; of
    two threads that hold it otherwise at once the first may compile anew.
    """

    _lock = threading.Lock()
    _holding: ClassVar[dict[object, list[Any]]] = {}  # what is shared, as those hold it who do, the latest last
    _before: ClassVar[list[Any]] = []  # as it was before the first of them

    def __init__(self, *, grad: bool, threads: int | None = None) -> None:
        """Args:
        grad: whether autograd records.
        threads: of torch on the CPU, at most; None: as many as there are.
        """
        self._grad = grad
        self._own, self._shared = _read(_OWN), _read(_SHARED)
        self._autocast = [_autocast(kind) for kind in _AUTOCAST]
        if threads is not None:
            self._own[0] = min(threads, self._own[0])

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold them within the block; takes some microseconds where nothing differs."""
        found, autocast = _read(_OWN), [_autocast(kind) for kind in _AUTOCAST]
        alike = found == self._own and autocast == self._autocast and not torch.is_inference_mode_enabled()
        if alike and not self._holding and _read(_SHARED) == self._shared:
            with torch.set_grad_enabled(self._grad):
                yield
            return
        with contextlib.ExitStack() as held:
            held.enter_context(torch.inference_mode(False))
            held.enter_context(torch.set_grad_enabled(self._grad))
            for (_, write), wanted, present in zip(_OWN, self._own, found, strict=True):
                if present != wanted:
                    held.callback(write, present)
                    write(wanted)
            for kind, wanted, present in zip(_AUTOCAST, self._autocast, autocast, strict=True):
                if present != wanted:
                    enabled, dtype, cached = wanted
                    held.enter_context(torch.autocast(kind, dtype, enabled, cached))
            held.enter_context(self._sharing())
            yield

    @contextlib.contextmanager
    def _sharing(self) -> Iterator[None]:
        """Hold what threads share. What somebody else set meanwhile is theirs, and stays."""
        mine = object()
        with self._lock:
            present = _read(_SHARED)
            if not self._holding:
                self._before[:] = present
            self._holding[mine] = self._shared
            _write(present, self._shared)
            written = _read(_SHARED)  # torch may tell one by another name
        try:
            yield
        finally:
            with self._lock:
                del self._holding[mine]
                left = next(reversed(self._holding.values()), self._before)
                present = _read(_SHARED)
                theirs = zip(present, written, left, strict=True)
                _write(present, [then if now == held else now for now, held, then in theirs])


def _read(switches: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...]) -> list[Any]:
    return [read() for read, _ in switches]


def _write(present: list[Any], wanted: list[Any]) -> None:
    """Set those shared switches that differ."""
    for (_, write), now, then in zip(_SHARED, present, wanted, strict=True):
        if now != then:
            write(then)


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


def _set_modes(value: list[Any]) -> None:
    """Modes over torch's functions, the default device among them."""
    while _get_current_function_mode_stack():
        _pop_mode()
    for mode in value:
        _push_mode(mode)


def _set_default_device(value: torch.device | None) -> None:
    default_device.CURRENT_DEVICE = value


def _hooks() -> list[dict[int, Any]]:
    """Hooks on all modules."""
    return [hooks.copy() for hooks in _HOOKS]


def _set_hooks(value: list[dict[int, Any]]) -> None:
    for hooks, kept in zip(_HOOKS, value, strict=True):
        hooks.clear()
        hooks.update(kept)


# Each with how it is read and how it is set.
_OWN: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_num_threads, torch.set_num_threads),
    (_get_current_function_mode_stack, _set_modes),
    (torch._C._get_torch_function_state, torch._C._set_torch_function_state),  # type: ignore[attr-defined]
)
_SHARED: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (_deterministic, _set_deterministic),
    (_matmul, _set_matmul),
    (_reductions, _set_reductions),
    (_cudnn, _set_cudnn),
    (lambda: default_device.CURRENT_DEVICE, _set_default_device),
    (_hooks, _set_hooks),
)
