"""Sums over neighbours. The reference in plain torch is what the fast variants must equal bit for bit.

Legend: N agents, E edges, W worlds. A graph is held by target: `pointer` int64 `[N+1]` and `index` int32 `[E]`, where
`index[pointer[i]:pointer[i+1]]` are the senders of agent i in ascending order. That order is the canonical edge order.
Ops take the graph by sender (`out_*`) as well, as `Graph` holds it.
"""

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.ops._direction import Traffic
from denizen.ops._library import fold_worlds, register, reverse_only, unfold_worlds, variant, vmap_rule

FRACTION_BITS = 40  # of the largest declared value; leaves room for 2**22 neighbours at that value in int64


def edge_targets(pointer: Tensor, num_edges: int) -> Tensor:
    """Target of every edge in canonical order: int64 `[E]`."""
    degree = pointer[1:] - pointer[:-1]
    return torch.repeat_interleave(torch.arange(degree.numel(), device=pointer.device), degree, output_size=num_edges)


def _sum_counts(values: Tensor, where: Tensor | None, pointer: Tensor, index: Tensor) -> Tensor:
    """Integer sums: int32 `[W, N]` for int8 values `[W, N]`, int64 for wider ones; zero where `where` is 0."""
    dtype = torch.int32 if values.dtype == torch.int8 else torch.int64
    out = torch.zeros(values.shape, dtype=dtype, device=values.device)
    out.index_add_(1, edge_targets(pointer, index.numel()), values[:, index.long()].to(dtype))
    return out if where is None else out * (where != 0)


def _sum_fixed(
    values: Tensor, where: Tensor | None, weight: Tensor | None, pointer: Tensor, index: Tensor, bits: int, bound: float
) -> Tensor:
    """Sums of bounded real values in fixed point, hence exact and free of order.

    Args:
        values: `[W, N]`, taken as float32.
        where: int8 `[W, N]` or `[1, N]`; receivers with 0 get 0.
        weight: float32 `[E]`.
        pointer: int64 `[N+1]`.
        index: int32 `[E]`.
        bits: binary digits after the point.
        bound: largest |value * weight| allowed.

    Returns:
        float32 `[W, N]`; a world in which a message was NaN or beyond the bound is NaN throughout, so that the fault
        cannot pass for a number.
    """
    total, bad = fixed_totals(values, where, weight, pointer, index, bits, bound)
    return from_fixed(total, bad, bits)


def fixed_totals(
    values: Tensor, where: Tensor | None, weight: Tensor | None, pointer: Tensor, index: Tensor, bits: int, bound: float
) -> tuple[Tensor, Tensor]:
    """Sums in fixed point int64 `[W, N]`, and int32 `[W]`: 1 where a message was NaN or beyond the bound."""
    message = values.to(torch.float32)[:, index.long()]
    if weight is not None:  # a sender at 0 says nothing, so that not even a NaN weight tells push from pull
        message = torch.where(message == 0, message, message * weight)
    bad = ~(message.abs() <= bound)
    fixed = torch.round(torch.where(bad, torch.zeros_like(message), message) * 2.0**bits).to(torch.int64)
    total = torch.zeros(values.shape, dtype=torch.int64, device=values.device)
    total.index_add_(1, edge_targets(pointer, index.numel()), fixed)
    total = total if where is None else total * (where != 0)
    return total, bad.any(dim=1).to(torch.int32)


def from_fixed(total: Tensor, bad: Tensor, bits: int) -> Tensor:
    """float32 `[W, N]` from fixed point; NaN throughout a world with a bad message."""
    return torch.where(bad.unsqueeze(1) != 0, torch.nan, (total.to(torch.float64) * 2.0**-bits).to(torch.float32))


def _pull(values: Tensor, weight: Tensor | None, pointer: Tensor, index: Tensor) -> Tensor:
    """Float32 sums `[W, N]` of any real values, added up in canonical edge order."""
    message = values.to(torch.float32)[:, index.long()]
    if weight is not None:
        message = message * weight
    # One after the other within a segment on every device; `index_add_` on CUDA would add in any order.
    return torch.segment_reduce(message.T.contiguous(), "sum", offsets=pointer, axis=0, unsafe=True).T.contiguous()


# --- registered with torch -------------------------------------------------------------------------------------------


def _same_weight(dim: int | None) -> None:
    if dim is not None:
        raise ModelError(
            "edge weights differ between replicates; keep one weight per edge and scale whole layers instead: "
            "layers.sum(values, scale={'school': factor})"
        )


@register
def sum_counts(
    values: Tensor, where: Tensor | None, in_ptr: Tensor, in_idx: Tensor, out_ptr: Tensor, out_idx: Tensor
) -> Tensor:
    """Integer sums over in-neighbours; see `_sum_counts`."""
    if variant(values.device) == "numba":
        from denizen.ops import _cpu_neighbours

        return _cpu_neighbours.sum_counts(values, where, (in_ptr, in_idx, out_ptr, out_idx))
    if variant(values.device) == "triton":
        from denizen.ops import _cuda_neighbours

        return _cuda_neighbours.sum_counts(values, where, in_ptr, in_idx, out_ptr, out_idx)
    return _sum_counts(values, where, in_ptr, in_idx)


@torch.library.register_fake("denizen::sum_counts")
def _(values, where, in_ptr, in_idx, out_ptr, out_idx):  # type: ignore[no-untyped-def]
    return values.new_empty(values.shape, dtype=torch.int32 if values.dtype == torch.int8 else torch.int64)


@vmap_rule("sum_counts")
def _(info, in_dims, values, where, *graph):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    values, where = fold_worlds(values, in_dims[0], batch), fold_worlds(where, in_dims[1], batch)
    return unfold_worlds(sum_counts(values, where, *graph), batch), 0


@reverse_only
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
    """Fixed-point sums over in-neighbours; see `_sum_fixed`."""
    if variant(values.device) == "numba":
        from denizen.ops import _cpu_neighbours

        return _cpu_neighbours.sum_fixed(values, where, weight, (out_ptr, out_idx, out_edge), bits, bound)
    if variant(values.device) == "triton":
        from denizen.ops import _cuda_neighbours

        return _cuda_neighbours.sum_fixed(
            values, where, weight, in_ptr, in_idx, out_ptr, out_idx, out_edge, bits, bound
        )
    return _sum_fixed(values, where, weight, in_ptr, in_idx, bits, bound)


@torch.library.register_fake("denizen::sum_fixed")
def _(values, where, weight, in_ptr, in_idx, out_ptr, out_idx, out_edge, bits, bound):  # type: ignore[no-untyped-def]
    return values.new_empty(values.shape, dtype=torch.float32)


@vmap_rule("sum_fixed")
def _(info, in_dims, values, where, weight, *graph):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    _same_weight(in_dims[2])
    values, where = fold_worlds(values, in_dims[0], batch), fold_worlds(where, in_dims[1], batch)
    return unfold_worlds(sum_fixed(values, where, weight, *graph), batch), 0


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
    return _pull(values, weight, pointer, index)


@torch.library.register_fake("denizen::pull")
def _(values, weight, pointer, index, edge):  # type: ignore[no-untyped-def]
    return values.new_empty(values.shape, dtype=torch.float32)


@vmap_rule("pull")
def _(info, in_dims, values, weight, *graph):  # type: ignore[no-untyped-def]
    batch = info.batch_size
    _same_weight(in_dims[1])
    return unfold_worlds(pull(fold_worlds(values, in_dims[0], batch), weight, *graph), batch), 0


def _weight_grad(values: Tensor, grad: Tensor, in_ptr: Tensor, in_idx: Tensor) -> Tensor:
    targets = edge_targets(in_ptr, in_idx.numel())
    return (values.to(torch.float32)[:, in_idx.long()] * grad[:, targets]).sum(dim=0)


@reverse_only
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
    values, where = fold_worlds(values, in_dims[0], batch), fold_worlds(where, in_dims[1], batch)
    return unfold_worlds(sum_real(values, where, weight, *graph), batch), 0


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


# --- into an accumulator that is zero already: what captured runs call between compiled pieces -----------------------
#
# The values are those of `sum_counts` and `sum_fixed` for all receivers; the caller clears the accumulator, reads it,
# and drops what is not wanted.


def add_counts(
    total: Tensor,
    clear: Tensor | None,
    values: Tensor,
    where: Tensor | None,
    traffic: Traffic | None,
    in_ptr: Tensor,
    in_idx: Tensor,
    out_ptr: Tensor,
    out_idx: Tensor,
) -> None:
    """Add integer sums over in-neighbours.

    Args:
        total: zeros `[W, N]`: uint8 (sums up to 255 of values 0 and 1), int32 or int64.
        clear: another accumulator to fill with zeros by the way, for the next sum.
        values: `[W, N]`.
        where: int8 `[W or 1, N]`: receivers with 0 may be left out.
        traffic: decides which way to go; None pushes.
        in_ptr: int64 `[N+1]`.
        in_idx: int32 `[E]`.
        out_ptr: int64 `[N+1]`.
        out_idx: int32 `[E]`.
    """
    if variant(total.device) == "triton":
        from denizen.ops import _cuda_neighbours

        _cuda_neighbours.add_counts(total, clear, values, where, traffic, in_ptr, in_idx, out_ptr, out_idx)
    else:
        total.add_(_sum_counts(values, None, in_ptr, in_idx))
        _zero(clear)


def add_fixed(
    total: Tensor,
    clear: Tensor | None,
    bad: Tensor,
    values: Tensor,
    weight: Tensor | None,
    traffic: Traffic | None,
    in_ptr: Tensor,
    in_idx: Tensor,
    out_ptr: Tensor,
    out_idx: Tensor,
    out_edge: Tensor,
    bits: int,
    bound: float,
) -> None:
    """Add sums in fixed point.

    Args:
        total: zeros int64 `[W, N]`.
        bad: int32 `[W]`; becomes 1 where a message is NaN or beyond the bound.
        clear: another accumulator to fill with zeros by the way, for the next sum.
        values: `[W, N]`.
        weight: float32 `[E]` in canonical order.
        traffic: decides which way to go, where all are eligible; None pushes.
        in_ptr: int64 `[N+1]`.
        in_idx: int32 `[E]`.
        out_ptr: int64 `[N+1]`.
        out_idx: int32 `[E]`.
        out_edge: int32 `[E]`.
        bits: binary digits after the point.
        bound: largest |value * weight|.
    """
    if variant(total.device) == "triton":
        from denizen.ops import _cuda_neighbours

        _cuda_neighbours.add_fixed(
            total, clear, bad, values, weight, traffic, in_ptr, in_idx, out_ptr, out_idx, out_edge, bits, bound
        )
    else:
        sums, flags = fixed_totals(values, None, weight, in_ptr, in_idx, bits, bound)
        total.add_(sums)
        bad.bitwise_or_(flags)
        _zero(clear)


def _zero(clear: Tensor | None) -> None:
    if clear is not None:
        clear.zero_()
