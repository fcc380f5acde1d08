"""How ops are registered with torch, so that they run under vmap, autograd and torch.compile as single calls.

Every op takes and returns a leading axis of worlds. Callers that write for one world pass an axis of length 1; the vmap
rules fold the batch into it, so a batch of worlds is one call. Each op picks a variant by device: numba on the CPU
where it is installed, else the torch reference.
"""

import functools
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from denizen.errors import ModelError

_reference_only = False


@contextmanager
def reference_only() -> Iterator[None]:
    """Within this context every op runs its plain torch reference; for tests and for finding a faulty variant."""
    global _reference_only
    before, _reference_only = _reference_only, True
    try:
        yield
    finally:
        _reference_only = before


@functools.cache
def _has_numba() -> bool:
    """Whether numba is installed; says so once where not."""
    if importlib.util.find_spec("numba") is not None:
        return True
    warnings.warn(
        "numba is not installed, so steps on the CPU take several times as long, with equal results; "
        "pip install 'denizen[fast]'",
        stacklevel=2,
    )
    return False


def variant(device: torch.device) -> str:
    """Name of the variant that runs on a device: ``"numba"``, ``"triton"`` or ``"reference"``."""
    if _reference_only:
        return "reference"
    if device.type == "cuda":
        return "triton" if _takes_triton() else "reference"
    return "numba" if device.type == "cpu" and _takes_numba() else "reference"


_gates_kept = False


@contextmanager
def gates_kept() -> Iterator[None]:
    """Within this context draws take masks apart even where a graph is recorded: for one that is not compiled anew."""
    global _gates_kept
    before, _gates_kept = _gates_kept, True
    try:
        yield
    finally:
        _gates_kept = before


class Tracer(TorchDispatchMode):
    """A mode that makes a graph of torch.fx of what runs within it."""


def keep_compiler_out(mode: type[TorchDispatchMode]) -> None:
    """Have torch keep its compiler out of a mode's code where it is loaded; else torch would load it (2 s) for that."""
    code = getattr(mode.__torch_dispatch__, "__wrapped__", None)
    if code is None:
        return
    if "torch._dynamo" not in sys.modules:
        code.__dict__["__dynamo_disable"] = code
    elif code.__dict__.get("__dynamo_disable") is code:
        del code.__dict__["__dynamo_disable"]


def traced() -> bool:
    """Whether what runs becomes a graph of torch.fx, whose kernels are made of it."""
    if _gates_kept:
        return False
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None:
        return True
    places = range(torch._C._len_torch_dispatch_stack())
    return any(isinstance(torch._C._get_dispatch_stack_at(place), Tracer) for place in places)


def once_for_all(function: Callable[[], bool]) -> Callable[[], bool]:
    """A function without arguments whose answer a compiled function takes for a constant: it cannot look itself.

    As `torch.compiler.assume_constant_result`, which imports torch._dynamo.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@once_for_all
def _takes_triton() -> bool:
    return _has_triton()


@once_for_all
def _takes_numba() -> bool:
    return _has_numba()


@functools.cache
def _has_triton() -> bool:
    """Whether Triton is there, the GPU is new enough for it and it can build; says so once where not."""
    if importlib.util.find_spec("triton") is None:
        reason = "triton is not installed"
    elif torch.cuda.get_device_capability() < (7, 0):
        reason = f"the GPU has capability {torch.cuda.get_device_capability()}, Triton needs 7.0"
    else:
        fault = _fault_of_triton()
        if fault is None:
            return True
        reason = f"Triton does not work: {fault}"
    warnings.warn(f"denizen's ops run as plain torch, with equal results: {reason}", stacklevel=2)
    return False


def _fault_of_triton() -> str | None:
    """What goes wrong when Triton gets ready to launch, for which it needs a C compiler and Python's headers; or None.

    Nothing is launched, and what is built is needed by the first kernel anyway.
    """
    try:
        from triton.runtime import driver

        driver.active.get_current_target()
    except Exception as error:  # many types: no compiler, one that fails, no library of the driver
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None


def register(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function as the op ``denizen::NAME`` and return the op.

    `torch.library.custom_op` would do the same and import torch._dynamo at the first call, which takes a second.
    """
    return _registered(function, ())


def register_mutating(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that writes into some of its arguments as the op ``denizen::NAME``, and return the op.

    Its fake, which says what comes out without computing it, is registered by `torch.library.register_fake`.

    Args:
        *names: the arguments that it writes into.
    """
    return lambda function: _registered(function, names)


def _registered(function: Callable[..., Any], mutates: tuple[str, ...]) -> Callable[..., Any]:
    name = f"denizen::{function.__name__}"
    schema = torch.library.infer_schema(function, mutates_args=mutates)
    torch.library.define(name, schema, tags=torch.Tag.pt2_compliant_tag)
    torch.library.impl(name, "cpu", function)
    torch.library.impl(name, "cuda", _on_its_device(function))
    return getattr(torch.ops.denizen, function.__name__).default


def _on_its_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function during which CUDA's current device, on which Triton launches, is that of its tensors."""

    @functools.wraps(function)
    def there(*args: Any, **more: Any) -> Any:
        with torch.cuda.device_of(next(arg for arg in args if isinstance(arg, Tensor) and arg.is_cuda)):
            return function(*args, **more)

    return there


def vmap_rule(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as what the op does under vmap: (info, in_dims, *args) -> (result, out_dims)."""

    def decorate(rule: Callable[..., Any]) -> Callable[..., Any]:
        torch.library.register_vmap(f"denizen::{name}", rule)
        return rule

    return decorate


def fold_worlds(tensor: Any, dim: int | None, batch: int) -> Any:
    """Fold a vmapped axis into the leading axis of worlds; unbatched single rows are broadcast, None stays None."""
    if tensor is None:
        return None
    if dim is None:
        return tensor.expand(batch, *tensor.shape[1:]) if tensor.shape[0] == 1 else tensor.repeat(batch, 1)
    return tensor.movedim(dim, 0).flatten(0, 1)


def unfold_worlds(tensor: Tensor, batch: int) -> Tensor:
    """Take the vmapped axis of a result out of its leading axis of worlds again."""
    return tensor.unflatten(0, (batch, -1))


def reverse_only(op: Callable[..., Any]) -> Callable[..., Any]:
    """An op that refuses forward mode: torch drops tangents of custom ops without a word."""

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
