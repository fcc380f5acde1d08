"""Who of several caused it: one in-neighbour of an agent, with probability in proportion to value times weight.

Every edge from somebody with a positive value runs a race: it arrives after an exponential time with the rate
value * weight * factor, and the first one is the cause. That is the law of competing hazards: an edge wins with
probability rate / sum of rates. The draw of an edge depends on the ids at its ends, so neither the order of edges nor
that of agents leaves a trace. Several graphs run one race: the smaller time counts.

    block of a target   key = (seed, world),         counter = (target id low, target id high, step, stream)
    block of an edge    key = its first two words,   counter = (source id low, source id high, place, its third word)

`place` tells edges between the same two agents apart: 0 for the first, in canonical order. The first 52 bits of an
edge's block are its uniform number. The logarithm is made of float64 additions, multiplications and divisions in a
fixed order, so that every device and variant has the same bits.

Legend: W worlds, N agents, E edges, D edges that end at somebody who is looked at.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.ops._draws import MASK32, _ids, philox4x32
from denizen.ops._library import fold_worlds, register, unfold_worlds, variant, vmap_rule

BITS = 52  # of a uniform number
TERMS = 11  # of the series of the logarithm; the next one is below 1e-18
LN2_HIGH = 0.693145751953125  # this and the next two are float32 numbers, which any compiler takes as they are
LN2_LOW = 1.428606765330187e-06
HALF_SQRT2 = 0.7071067690849304
NOBODY = -1


def arrival(first: Tensor, second: Tensor, rate: Tensor) -> Tensor:
    """Exponential times float64 of two 32-bit words each, int64, and a positive rate, float64."""
    odd = ((first << (BITS - 32)) | (second >> (64 - BITS))) * 2 + 1  # over 2**53: the middle of its interval
    m, exponent = torch.frexp(odd.to(torch.float64))
    low = m < HALF_SQRT2
    m = torch.where(low, m * 2, m)
    halvings = (BITS + 1 - exponent + low.to(exponent.dtype)).to(torch.float64)
    t = (m - 1) / (m + 1)
    s = t * t
    q = torch.full_like(s, 1 / (2 * TERMS - 1))
    for k in range(2 * TERMS - 3, 0, -2):
        q = q * s + 1 / k
    return (halvings * LN2_HIGH + (halvings * LN2_LOW - 2 * t * q)) / rate


def _race(
    values: Tensor,
    where: Tensor,
    factor: Tensor,
    weight: Tensor | None,
    pointer: Tensor,
    index: Tensor,
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    stream: int,
) -> tuple[Tensor, Tensor]:
    """Winners int32 `[W, N]` of a graph's races and their times float64; arguments as `attribute`, factor `[W]`."""
    source = torch.full(where.shape, NOBODY, dtype=torch.int32, device=where.device)
    time = torch.full(where.shape, torch.inf, dtype=torch.float64, device=where.device)
    world, target = where.nonzero(as_tuple=True)
    degree = pointer[target + 1] - pointer[target]
    row = torch.repeat_interleave(degree)  # [D]: whose edge it is, by place among those looked at
    place = torch.arange(row.numel(), device=row.device)
    edge = place + (pointer[target] - (degree.cumsum(0) - degree))[row]
    sender = index[edge].long()
    message = values[world[row], sender].to(torch.float32)
    if weight is not None:  # a sender at 0 says nothing, as in sums
        message = torch.where(message == 0, message, message * weight[edge])
    rate = message.to(torch.float64) * factor.to(torch.float64)[world[row]]
    begins = torch.ones_like(row, dtype=torch.bool)
    begins[1:] = (row[1:] != row[:-1]) | (sender[1:] != sender[:-1])
    repeat = place - torch.where(begins, place, 0).cummax(0).values if row.numel() else place

    def who(world: Tensor, place: Tensor) -> Tensor:
        return place if ids.numel() == 0 else ids.expand(len(where), -1)[world, place]

    goal, sender_id = who(world, target), who(world[row], sender)
    keys = key[world, 0], key[world, 1]
    k0, k1, own, _ = philox4x32((goal & MASK32, goal >> 32, step.expand_as(goal), torch.full_like(goal, stream)), keys)
    first, second, _, _ = philox4x32((sender_id & MASK32, sender_id >> 32, repeat, own[row]), (k0[row], k1[row]))
    runs = rate > 0
    times = torch.where(runs, arrival(first, second, torch.where(runs, rate, 1.0)), torch.inf)
    best = torch.full((len(target),), torch.inf, dtype=torch.float64, device=row.device)
    best = best.scatter_reduce(0, row, times, "amin")
    wins = runs & (times == best[row])
    last = torch.iinfo(torch.int64).max  # ties go to the lowest id, then to the first edge
    lowest = torch.full_like(target, last).scatter_reduce(0, row, torch.where(wins, sender_id, last), "amin")
    wins = wins & (sender_id == lowest[row])
    winner = torch.full_like(target, last).scatter_reduce(0, row, torch.where(wins, place, last), "amin")
    found = winner < last
    source[world[found], target[found]] = sender[winner[found]].to(torch.int32)
    time[world, target] = best
    return source, time


def _attribute(
    values: Sequence[Tensor],
    where: Sequence[Tensor],
    factor: Tensor,
    weights: Sequence[Tensor],
    pointers: Sequence[Tensor],
    indices: Sequence[Tensor],
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    streams: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """The winners over all graphs; arguments as `attribute`."""
    shape, device = where[0].shape, where[0].device
    best = torch.full(shape, torch.inf, dtype=torch.float64, device=device)
    source = torch.full(shape, NOBODY, dtype=torch.int32, device=device)
    layer = torch.full(shape, NOBODY, dtype=torch.int8, device=device)
    for number, (weight, pointer, index) in enumerate(zip(weights, pointers, indices, strict=True)):
        by, own = factor[:, number].expand(shape[0]), weight if weight.numel() else None
        sent, to = values[number], where[number]
        winner, time = _race(sent, to, by, own, pointer, index, ids, key, step, streams[number])
        first = time < best  # of equal times that of the first graph
        best = torch.where(first, time, best)
        source, layer = torch.where(first, winner, source), torch.where(first, number, layer).to(torch.int8)
    return source, layer


@register
def attribute(
    values: Sequence[Tensor],
    where: Sequence[Tensor],
    factor: Tensor,
    weights: Sequence[Tensor],
    in_ptr: Sequence[Tensor],
    in_idx: Sequence[Tensor],
    ids: Tensor,
    key: Tensor,
    step: Tensor,
    streams: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Who caused what happened to agents, along the edges of one graph or of several, L.

    Args:
        values: `[W, N]` of each graph, what each agent sends; those at 0, below it and NaN cause nothing.
        where: int8 `[W, N]` of each graph: those to whom it happened and who could be reached by it; the others cost
            nothing.
        factor: float32 `[W or 1, L]` of whole graphs.
        weights: float32 `[E]` each; empty for weight one.
        in_ptr: int64 `[N+1]` each.
        in_idx: int32 `[E]` each.
        ids: int64 `[W or 1, N]`, or empty for 0 … N - 1.
        key: int64 `[W, 2]`.
        step: int64 `[]`.
        streams: number of the stream of each graph.

    Returns:
        int32 `[W, N]` places of the causes and int8 `[W, N]` numbers of the graphs, -1 for nobody.
    """
    arguments = (values, where, factor, weights, in_ptr, in_idx, ids, key, step, streams)
    which = variant(key.device)
    if which == "numba":
        from denizen.ops import _cpu_attribution

        return _cpu_attribution.attribute(*arguments)
    if which == "triton":
        from denizen.ops import _cuda_attribution

        return _cuda_attribution.attribute(*arguments)
    return _attribute(*arguments)


@torch.library.register_fake("denizen::attribute")
def _(values, where, factor, weights, in_ptr, in_idx, ids, key, step, streams):  # type: ignore[no-untyped-def]
    shape = where[0].shape
    return where[0].new_empty(shape, dtype=torch.int32), where[0].new_empty(shape, dtype=torch.int8)


@vmap_rule("attribute")
def _(info, in_dims, values, where, factor, weights, in_ptr, in_idx, ids, key, step, streams):  # type: ignore[no-untyped-def]
    if any(dim is not None for dims in in_dims[3:6] for dim in dims):
        raise ModelError("edge weights differ between replicates; keep one weight per edge")
    batch = info.batch_size
    factor, key = fold_worlds(factor, in_dims[2], batch), fold_worlds(key, in_dims[7], batch)
    values, where = (
        [fold_worlds(tensor, dim, batch) for tensor, dim in zip(tensors, dims, strict=True)]
        for tensors, dims in ((values, in_dims[0]), (where, in_dims[1]))
    )
    ids = _ids(ids, in_dims[6], batch, key.shape[0])
    out = attribute(values, where, factor, weights, in_ptr, in_idx, ids, key, step, streams)
    return tuple(unfold_worlds(one, batch) for one in out), (0, 0)
