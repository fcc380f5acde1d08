"""What a step reads and writes: of its graphs, by the arguments of its sums; and in its compiled part."""

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from denizen.perf.watch import distinct_bytes
from denizen.run._engine import Carry

if TYPE_CHECKING:
    from denizen.run._chunks import Chunks

# What a captured step runs beside its compiled part.
APART = ("denizen::sum_counts", "denizen::sum_fixed", "denizen::sum_real", "denizen::histogram")


class Neighbours:
    """Weighs what sums over neighbours read, for `denizen.perf.watch.counting`.

    An edge must be read where its sender has something to say, or where its receiver listens; of both the smaller
    number counts, over all worlds together. A sum of unbounded values is always pulled.

    Attributes:
        sending: share of senders that are not 0, for each sum seen.
        at_risk: share of receivers that listen, for each sum seen.
    """

    def __init__(self) -> None:
        self.sending: list[Tensor] = []
        self.at_risk: list[Tensor] = []

    def __call__(self, func: Any, args: tuple[Any, ...]) -> dict[int, int]:
        """Bytes read of the arguments that are not read in full, by position."""
        if func.namespace != "denizen":
            return {}
        places = _places(func)
        if not {"values", "where", "in_ptr", "in_idx", "out_ptr", "out_idx"} <= places.keys():
            return {}
        given: dict[str, Any] = {name: args[place] if place < len(args) else None for name, place in places.items()}
        values, where = given["values"], given["where"]
        listening = torch.ones_like(values[:1], dtype=torch.bool) if where is None else where != 0
        self.sending.append((values != 0).to(torch.float32).mean())
        self.at_risk.append(listening.to(torch.float32).mean())
        rows = {"out": (values != 0).any(dim=0), "in": listening.any(dim=0)}
        edges = {side: _edges(given[f"{side}_ptr"], rows[side]) for side in rows}
        best = "in" if "sum_real" in func._schema.name or edges["in"] < edges["out"] else "out"
        other = "in" if best == "out" else "out"
        pointer, weighted = given[f"{best}_ptr"], given.get("weight") is not None
        read = {
            f"{best}_ptr": min(pointer.nbytes, 2 * int(rows[best].sum()) * pointer.element_size()),
            f"{best}_idx": edges[best] * given[f"{best}_idx"].element_size(),
            f"{other}_ptr": 0,
            f"{other}_idx": 0,
        }
        if "out_edge" in places:  # where the weight of an edge stands, when it is found from its sender
            read["out_edge"] = edges["out"] * given["out_edge"].element_size() if weighted and best == "out" else 0
        if weighted:
            read["weight"] = edges[best] * given["weight"].element_size()
        return {places[name]: count for name, count in read.items()}


@functools.cache
def _places(func: Any) -> dict[str, int]:
    return {argument.name: place for place, argument in enumerate(func._schema.arguments)}


def _edges(pointer: Tensor, rows: Tensor) -> int:
    """Number of edges in rows of a graph."""
    return int(((pointer[1:] - pointer[:-1]) * rows).sum())


def body_bytes(chunks: "Chunks", carry: Carry) -> int:
    """Bytes that the compiled part of a captured step reads and writes, each tensor once; the carry is left alone."""
    body, moved = chunks._body, 0

    def noted(*given: Tensor) -> list[Tensor]:
        nonlocal moved
        out = body(*given)
        moved = sum({_place(tensor): distinct_bytes(tensor) for tensor in (*given, *out)}.values())
        return out

    chunks.load(carry)
    try:
        chunks._body = noted
        with torch.no_grad():
            chunks.steps(1)
    finally:
        chunks._body = body
        chunks.forget()
    return moved


def _place(tensor: Tensor) -> tuple[int, int]:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset())
