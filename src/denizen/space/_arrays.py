"""How a graph's arrays are made of its edges: on the host by NumPy, on a device by torch where the edges are there."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen.space._edges import EdgeList, csr, index_dtype

SMALL = 1 << 20  # edges from which a second thread pays


def on_host(edges: EdgeList) -> dict[str, Any]:
    """The fields of a `Graph` of checked edges."""
    n, source, target, weight = edges.num_agents, edges.source, edges.target, edges.weight
    if not edges.directed:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
        weight = None if weight is None else np.concatenate([weight, weight])
    if weight is None and 2 * _bits(n) <= 63:
        (in_ptr, in_idx), (out_ptr, out_idx) = _both(source, target, n)
        order, weight = np.empty(0, index_dtype(source.size)), None
    else:
        # Grouping by source first and by target second leaves sources ascending within each target.
        columns = [source, target] if weight is None else [source, target, weight]
        _, _, columns = csr(source, n, *columns)
        in_ptr, _, columns = csr(columns[1], n, *columns)
        in_idx, weight = columns[0], None if weight is None else columns[2]
        out_ptr, order, (out_idx,) = csr(in_idx, n, columns[1])
        order = order if weight is not None else order[:0]
    return {
        "num_agents": n,
        "in_ptr": torch.from_numpy(in_ptr),
        "in_idx": torch.from_numpy(in_idx),
        "out_ptr": torch.from_numpy(out_ptr),
        "out_idx": torch.from_numpy(out_idx),
        "out_edge": torch.from_numpy(order),
        "weight": None if weight is None else torch.from_numpy(weight),
        "max_weight": 1.0 if weight is None else float(np.abs(weight).max(initial=0.0)),
        "max_in_degree": int(np.diff(in_ptr).max(initial=0)),
        "max_out_degree": int(np.diff(out_ptr).max(initial=0)),
    }


def on_device(
    source: Any, target: Any, num_agents: Any, weight: Any, directed: bool, self_loops: str, duplicates: str
) -> dict[str, Any] | None:
    """The same for tensors on one device, checked there; None where something is to be refused, or for the host to do.

    Bit for bit what the host makes of them, in a tenth of the time.
    """
    given = [source, target] if weight is None else [source, target, weight]
    if not all(isinstance(t, Tensor) and t.dim() == 1 and t.device == given[0].device for t in given):
        return None
    if any(t.numel() != source.numel() for t in given) or not source.numel() or duplicates != "keep":
        return None
    whole = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
    n = num_agents
    fits = isinstance(n, int) and not isinstance(n, bool) and n > 0 and 2 * _bits(n) <= 63
    if source.dtype not in whole or target.dtype not in whole or not fits or not isinstance(directed, bool):
        return None
    source, target = source.detach().long(), target.detach().long()
    bad = ((source < 0) | (source >= n) | (target < 0) | (target >= n)).any()
    loops = (source == target).any()
    if weight is not None:
        if not weight.is_floating_point():
            return None
        weight = weight.detach().float()
        bad = bad | ~(torch.isfinite(weight) & (weight >= 0)).all()
    refused, looped = torch.stack([bad, loops]).tolist()
    if refused or self_loops not in ("drop", "keep"):
        return None
    if looped and self_loops == "drop":
        keep = source != target
        source, target = source[keep], target[keep]
        weight = None if weight is None else weight[keep]
    if not directed:
        source, target = torch.cat([source, target]), torch.cat([target, source])
        weight = None if weight is None else torch.cat([weight, weight])
    return _sorted(source, target, weight, n)


def _sorted(source: Tensor, target: Tensor, weight: Tensor | None, n: int) -> dict[str, Any]:
    bits, narrow = _bits(n), torch.from_numpy(np.empty(0, index_dtype(n))).dtype
    edges = torch.from_numpy(np.empty(0, index_dtype(source.numel()))).dtype
    mask, bounds = (1 << bits) - 1, torch.arange(n + 1, device=source.device) << bits
    code, order = torch.sort(target << bits | source, stable=True)
    in_ptr, source, target = torch.searchsorted(code, bounds), code & mask, code >> bits
    weight = None if weight is None else weight[order]
    code, order = torch.sort(source << bits | target, stable=True)
    out_ptr = torch.searchsorted(code, bounds)
    most = torch.stack([in_ptr.diff().max(), out_ptr.diff().max()]).tolist()
    return {
        "num_agents": n,
        "in_ptr": in_ptr,
        "in_idx": source.to(narrow),
        "out_ptr": out_ptr,
        "out_idx": (code & mask).to(narrow),
        "out_edge": order.to(edges) if weight is not None else order[:0].to(edges),
        "weight": weight,
        "max_weight": 1.0 if weight is None else float(weight.max()) if weight.numel() else 0.0,
        "max_in_degree": most[0],
        "max_out_degree": most[1],
    }


def _both(source: np.ndarray, target: np.ndarray, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(pointers, other ends) by target and by source, other ends ascending within each group."""
    ends = [(target, source), (source, target)]
    if source.size < SMALL or torch.get_num_threads() == 1:
        return [_grouped(key, other, n) for key, other in ends]
    with ThreadPoolExecutor(2) as threads:  # NumPy lets go of the interpreter's lock while it sorts
        return list(threads.map(lambda pair: _grouped(pair[0], pair[1], n), ends))


def _grouped(key: np.ndarray, other: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Both ends in one number, sorted by value: nothing has to be fetched in the new order afterwards."""
    bits = _bits(n)
    code = key.astype(np.int64)
    code <<= bits
    code |= other
    code.sort()
    rest = (code & ((1 << bits) - 1)).astype(other.dtype)
    code >>= bits
    ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(code, minlength=n), out=ptr[1:])
    return ptr, rest


def _bits(n: int) -> int:
    return max(n - 1, 1).bit_length()
