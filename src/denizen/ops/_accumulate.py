"""Sums over neighbours into an accumulator that is zero already: what captured runs call between compiled pieces.

The values are those of `sum_counts` and `sum_fixed` for all receivers; the caller clears the accumulator, reads it, and
drops what is not wanted. Graphs come as `Graph` holds them.
"""

from torch import Tensor

from denizen.ops import _neighbours, _tables
from denizen.ops._direction import Traffic
from denizen.ops._library import variant


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
        total.add_(_neighbours.sum_counts(values, None, in_ptr, in_idx))
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
        sums, flags = _neighbours.fixed_totals(values, None, weight, in_ptr, in_idx, bits, bound)
        total.add_(sums)
        bad.bitwise_or_(flags)
        _zero(clear)


def add_histogram(counts: Tensor, codes: Tensor, group: Tensor | None) -> None:
    """Add the number of agents with each code in each group.

    Args:
        counts: int32 `[W, G, K]`.
        codes: int8, uint8 or int16 `[W, N]`, each below K.
        group: int8 or uint8 `[1, N]`, or None where G is 1.
    """
    if variant(counts.device) == "triton":
        from denizen.ops import _cuda_tables

        _cuda_tables.add_histogram(counts, codes, group)
    else:
        counts.add_(_tables.histogram(codes, group, counts.shape[1], counts.shape[2]))


def _zero(clear: Tensor | None) -> None:
    if clear is not None:
        clear.zero_()
