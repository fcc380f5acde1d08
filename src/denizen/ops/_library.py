"""The ops registered with torch, so that they run under vmap, autograd and torch.compile as single calls.

Every op takes and returns a leading axis of worlds. Callers that write for one world pass an axis of length 1; the vmap
rules fold the batch into it, so a batch of worlds is one call. Each op picks a variant by device: numba on the CPU
where it is installed, else the torch reference.
"""

import functools
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.ops import _neighbours, _philox, _threshold

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
    return importlib.util.find_spec("numba") is not None


def variant(device: torch.device) -> str:
    """Name of the variant that runs on a device: ``"numba"``, ``"triton"`` or ``"reference"``."""
    if _reference_only:
        return "reference"
    if device.type == "cuda":
        return "triton" if _takes_triton() else "reference"
    return "numba" if device.type == "cpu" and _takes_numba() else "reference"


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


def _front(tensor: Any, dim: int | None, batch: int) -> Any:
    """Fold a vmapped axis into the leading axis of worlds; unbatched single rows are broadcast, None stays None."""
    if tensor is None:
        return None
    if dim is None:
        return tensor.expand(batch, *tensor.shape[1:]) if tensor.shape[0] == 1 else tensor.repeat(batch, 1)
    return tensor.movedim(dim, 0).flatten(0, 1)


def _ids(ids: Tensor, dim: int | None, batch: int, worlds: int) -> Tensor:
    """Fold a vmapped axis into the rows of `ids`: none, one row for all worlds, or a row for each of `worlds`."""
    if ids.numel() == 0 or (dim is None and ids.shape[0] == 1):
        return ids
    rows = ids.expand(batch, *ids.shape) if dim is None else ids.movedim(dim, 0)
    return rows.expand(batch, worlds // batch, -1).flatten(0, 1)


def _unfold(tensor: Tensor, batch: int) -> Tensor:
    return tensor.unflatten(0, (batch, -1))


def _same_weight(dim: int | None) -> None:
    if dim is not None:
        raise ModelError(
            "edge weights differ between replicates; keep one weight per edge and scale whole layers instead: "
            "layers.sum(values, scale={'school': factor})"
        )


# --- random words and masks ------------------------------------------------------------------------------------------


def _draws(device: torch.device) -> Any:
    """The module with the fast draws for a device, or None."""
    name = variant(device)
    if name == "numba":
        from denizen.ops import _cpu_draws

        return _cpu_draws
    if name == "triton":
        from denizen.ops import _cuda_draws

        return _cuda_draws
    return None


@register
def draw_words(ids: Tensor, num: int, key: Tensor, step: Tensor, stream: int) -> Tensor:
    """32-bit words as int64 `[W, num]`; `ids` int64 `[1 or W, num]`, or empty for 0 … num - 1; see `_philox.words`."""
    fast = _draws(key.device)
    if fast is not None:
        return fast.words(ids, num, key, step, stream)
    return _philox.words(ids if ids.numel() else torch.arange(num, device=key.device), key, step, stream)


@torch.library.register_fake("denizen::draw_words")
def _(ids: Tensor, num: int, key: Tensor, step: Tensor, stream: int) -> Tensor:
    return key.new_empty(key.shape[0], num)


@vmap_rule("draw_words")
def _(info, in_dims, ids, num, key, step, stream):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    key = _front(key, in_dims[2], batch)
    out = draw_words(_ids(ids, in_dims[0], batch, key.shape[0]), num, key, step, stream)
    return _unfold(out, batch), 0


@register
def draw_mask(
    values: Tensor, hazard: bool, ids: Tensor, key: Tensor, step: Tensor, stream: int
) -> tuple[Tensor, Tensor]:
    """0/1 draws int8 `[W, n]` from float32 hazards (`hazard`) or probabilities; int8 `[W]` is 1 where one was bad."""
    fast = _draws(values.device)
    if fast is not None:
        return fast.draw_mask(values, hazard, ids, key, step, stream)
    threshold, bad = (_threshold.hazard_threshold if hazard else _threshold.prob_threshold)(values)
    all_ids = ids if ids.numel() else torch.arange(values.shape[1], device=values.device)
    drawn = _philox.words(all_ids, key, step, stream) < threshold
    return drawn.to(torch.int8), bad.any(dim=1).to(torch.int8)


@torch.library.register_fake("denizen::draw_mask")
def _(values, hazard, ids, key, step, stream):  # type: ignore[no-untyped-def]
    return values.new_empty(values.shape, dtype=torch.int8), values.new_empty(values.shape[:1], dtype=torch.int8)


@vmap_rule("draw_mask")
def _(info, in_dims, values, hazard, ids, key, step, stream):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    values, key = _front(values, in_dims[0], batch), _front(key, in_dims[3], batch)
    out, bad = draw_mask(values, hazard, _ids(ids, in_dims[2], batch, key.shape[0]), key, step, stream)
    return (_unfold(out, batch), _unfold(bad, batch)), (0, 0)


# --- sums over neighbours --------------------------------------------------------------------------------------------


@register
def sum_counts(
    values: Tensor, where: Tensor | None, in_ptr: Tensor, in_idx: Tensor, out_ptr: Tensor, out_idx: Tensor
) -> Tensor:
    """Integer sums over in-neighbours; see `_neighbours.sum_counts`."""
    if variant(values.device) == "numba":
        from denizen.ops import _cpu_neighbours

        return _cpu_neighbours.sum_counts(values, where, (in_ptr, in_idx, out_ptr, out_idx))
    if variant(values.device) == "triton":
        from denizen.ops import _cuda_neighbours

        return _cuda_neighbours.sum_counts(values, where, in_ptr, in_idx, out_ptr, out_idx)
    return _neighbours.sum_counts(values, where, in_ptr, in_idx)


@torch.library.register_fake("denizen::sum_counts")
def _(values, where, in_ptr, in_idx, out_ptr, out_idx):  # type: ignore[no-untyped-def]
    return values.new_empty(values.shape, dtype=torch.int32 if values.dtype == torch.int8 else torch.int64)


@vmap_rule("sum_counts")
def _(info, in_dims, values, where, *graph):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    values, where = _front(values, in_dims[0], batch), _front(where, in_dims[1], batch)
    return _unfold(sum_counts(values, where, *graph), batch), 0


@register
def sum_fixed(
    values: Tensor,
    where: Tensor | None,
    weight: Tensor | None,
    in_ptr: Tensor,
    in_idx: Tensor,
    out_ptr: Tensor,
    out_idx: Tensor,
    out_edge: Tensor,
    bits: int,
    bound: float,
) -> Tensor:
    """Fixed-point sums over in-neighbours; see `_neighbours.sum_fixed`."""
    if variant(values.device) == "numba":
        from denizen.ops import _cpu_neighbours

        return _cpu_neighbours.sum_fixed(values, where, weight, (out_ptr, out_idx, out_edge), bits, bound)
    if variant(values.device) == "triton":
        from denizen.ops import _cuda_neighbours

        return _cuda_neighbours.sum_fixed(
            values, where, weight, in_ptr, in_idx, out_ptr, out_idx, out_edge, bits, bound
        )
    return _neighbours.sum_fixed(values, where, weight, in_ptr, in_idx, bits, bound)


@torch.library.register_fake("denizen::sum_fixed")
def _(values, where, weight, in_ptr, in_idx, out_ptr, out_idx, out_edge, bits, bound):  # type: ignore[no-untyped-def]
    return values.new_empty(values.shape, dtype=torch.float32)


@vmap_rule("sum_fixed")
def _(info, in_dims, values, where, weight, *graph):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    _same_weight(in_dims[2])
    values, where = _front(values, in_dims[0], batch), _front(where, in_dims[1], batch)
    return _unfold(sum_fixed(values, where, weight, *graph), batch), 0


@register
def pull(values: Tensor, weight: Tensor | None, pointer: Tensor, index: Tensor, edge: Tensor) -> Tensor:
    """Float32 sums in canonical order, without gradient; see `_cpu_neighbours.pull`."""
    if variant(values.device) == "numba":
        from denizen.ops import _cpu_neighbours

        return _cpu_neighbours.pull(values, weight, pointer, index, edge)
    if variant(values.device) == "triton":
        from denizen.ops import _cuda_neighbours

        return _cuda_neighbours.pull(values, weight, pointer, index, edge)
    if weight is not None and edge.numel():
        weight = weight[edge.long()]
    return _neighbours.pull(values, weight, pointer, index)


@torch.library.register_fake("denizen::pull")
def _(values, weight, pointer, index, edge):  # type: ignore[no-untyped-def]
    return values.new_empty(values.shape, dtype=torch.float32)


@vmap_rule("pull")
def _(info, in_dims, values, weight, *graph):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    _same_weight(in_dims[1])
    return _unfold(pull(_front(values, in_dims[0], batch), weight, *graph), batch), 0


def _weight_grad(values: Tensor, grad: Tensor, in_ptr: Tensor, in_idx: Tensor) -> Tensor:
    targets = _neighbours.edge_targets(in_ptr, in_idx.numel())
    return (values.to(torch.float32)[:, in_idx.long()] * grad[:, targets]).sum(dim=0)


@register
def sum_real(
    values: Tensor,
    where: Tensor | None,
    weight: Tensor | None,
    in_ptr: Tensor,
    in_idx: Tensor,
    out_ptr: Tensor,
    out_idx: Tensor,
    out_edge: Tensor,
) -> Tensor:
    """Float32 sums over in-neighbours of values without a bound, in canonical edge order."""
    out = pull(values, weight, in_ptr, in_idx, in_ptr.new_empty(0, dtype=torch.int32))
    return out if where is None else torch.where(where != 0, out, 0.0)  # a product would keep NaN and inf


@torch.library.register_fake("denizen::sum_real")
def _(values, where, weight, *graph):  # type: ignore[no-untyped-def]
    return values.new_empty(values.shape, dtype=torch.float32)


@vmap_rule("sum_real")
def _(info, in_dims, values, where, weight, *graph):  # type: ignore[no-untyped-def]
    _same_weight(in_dims[2])
    batch = info.batch_size
    values, where = _front(values, in_dims[0], batch), _front(where, in_dims[1], batch)
    return _unfold(sum_real(values, where, weight, *graph), batch), 0


def _context(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.num_inputs = len(inputs)
    ctx.save_for_backward(*inputs[:8])


def _backward(ctx, grad):  # type: ignore[no-untyped-def]
    # Inactive senders are never skipped here: their share of the slope is most of it.
    values, where, weight, in_ptr, in_idx, out_ptr, out_idx, out_edge = ctx.saved_tensors
    grad = grad if where is None else grad * (where != 0)
    to_values = pull(grad, weight, out_ptr, out_idx, out_edge) if ctx.needs_input_grad[0] else None
    to_weight = _weight_grad(values, grad, in_ptr, in_idx) if ctx.needs_input_grad[2] else None
    return to_values, None, to_weight, *[None] * (ctx.num_inputs - 3)


torch.library.register_autograd("denizen::sum_fixed", _backward, setup_context=_context)
torch.library.register_autograd("denizen::sum_real", _backward, setup_context=_context)
