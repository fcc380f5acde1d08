"""Contact graphs on the device: who acts on whom, held in both directions, and sums over neighbours.

Does not read files or generate graphs: `_readers` and `generators` do and hand over edge lists.
"""

import builtins
import dataclasses
import math
import reprlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import _tree, ops
from denizen._notebook import InNotebook
from denizen.errors import InputError, ModelError
from denizen.ops import FRACTION_BITS, edge_targets
from denizen.rng import Rng
from denizen.space._edges import EdgeList, csr, index_dtype
from denizen.space._origin import Origin, origin, traced
from denizen.space._readers import Repeats, checked, from_networkx, from_scipy, read_edges
from denizen.space.files import Columns

_MAX_SCALE = 126  # binary digits after the point that a float32 factor can express
_INT8_BITS = 7
_MIN_BOUND = 2.0 ** (FRACTION_BITS - _MAX_SCALE)
_MAX_BOUND = torch.finfo(torch.float32).max

_TENSORS = ("in_ptr", "in_idx", "out_ptr", "out_idx", "out_edge", "weight")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Graph(InNotebook):
    """A directed graph over agents; build one with `from_edges`, `from_file`, `from_scipy` or `from_networkx`.

    Edges run from the agent that acts (source) to the one acted upon (target); sums are over the in-neighbours of each
    agent. The canonical edge order is by target, then source.

    Attributes:
        num_agents: number of agents N.
        in_ptr, in_idx: int64 `[N+1]`, int32 `[edges]`: sources of each agent's incoming edges.
        out_ptr, out_idx: the same for outgoing edges: targets of each agent.
        out_edge: int32 `[edges]`: canonical number of each outgoing edge; empty without weights.
        weight: float32 `[edges]` in canonical order, or None for weight one.
        max_weight: largest absolute weight, known on the host so that no step has to ask the device for it.
        max_in_degree, max_out_degree: largest degrees.
    """

    num_agents: int
    in_ptr: Tensor
    in_idx: Tensor
    out_ptr: Tensor
    out_idx: Tensor
    out_edge: Tensor
    weight: Tensor | None
    max_weight: float
    max_in_degree: int
    max_out_degree: int

    @classmethod
    def from_edges(
        cls,
        source: Any,
        target: Any = None,
        num_agents: int | None = None,
        *,
        weight: Any = None,
        directed: bool = True,
        self_loops: Repeats = "drop",
        duplicates: Repeats = "keep",
    ) -> "Graph":
        """Build a graph from edge arrays or an `EdgeList`; of tensors on a device, there.

        Args:
            source: `[edges]` ids of the acting agents (array, list or tensor), or an `EdgeList` with all the rest.
            target: `[edges]` ids of the agents acted upon.
            num_agents: number of agents; default: highest id + 1.
            weight: `[edges]` weights, finite and not negative; default one.
            directed: False adds the opposite direction of every edge.
            self_loops: ``"drop"``, ``"keep"`` or ``"error"``.
            duplicates: ``"keep"``, ``"drop"`` or ``"error"``.

        Raises:
            InputError: for ids out of range or not whole numbers, unequal lengths, bad weights, or anything beside an
                `EdgeList`.
        """
        if isinstance(source, EdgeList):
            given = any(value is not None for value in (target, num_agents, weight))
            if given or (directed, self_loops, duplicates) != (True, "drop", "keep"):
                raise InputError("Graph.from_edges: an EdgeList says everything itself; leave the other arguments out")
            edges = source
        else:
            if target is None:
                raise InputError("Graph.from_edges: target is missing; pass source and target, or one EdgeList")
            if isinstance(source, Tensor) and source.device.type != "cpu":
                made = on_device(source, target, num_agents, weight, directed, self_loops, duplicates)
                if made is not None:
                    return cls(**made)
            columns = Columns(_host(source), _host(target), None if weight is None else _host(weight), num_agents)
            edges = checked(columns, directed, self_loops, duplicates, told=False)
            if isinstance(source, Tensor):
                return cls._build(edges).to(source.device)
        return cls._build(edges)

    @classmethod
    def _build(cls, edges: EdgeList) -> "Graph":
        return cls(**on_host(edges))

    @classmethod
    def from_file(
        cls, path: str | Path, *, num_agents: int | None = None, directed: bool = True, **options: Any
    ) -> "Graph":
        """Read a CSV, Parquet or npz file of edges; options as `denizen.space.read_edges`.

        A column `weight` gives the weights. `read_edges` gives the same edges with a report of what was left out.
        """
        return cls._build(read_edges(path, num_agents=num_agents, directed=directed, **options))

    @classmethod
    def from_scipy(cls, matrix: Any, *, directed: bool = True) -> "Graph":
        """From a scipy sparse matrix whose entry [i, j] is the weight of the edge i -> j."""
        return cls._build(from_scipy(matrix, directed=directed))

    @classmethod
    def from_networkx(cls, graph: Any, *, weight: str | bool | None = True) -> "Graph":
        """From a networkx graph; undirected graphs give both directions.

        Nodes that are all integers become agents in ascending order, others in the graph's own order;
        `denizen.space.from_networkx` gives the same edges with the label of each agent.

        Args:
            graph: a networkx graph of any of the four kinds.
            weight: edge attribute to take as weight; True takes `weight` where edges have one, None takes none.

        Raises:
            DataError: an edge without the attribute where others have it, or weights that are not valid.
        """
        return cls._build(from_networkx(graph, weight=weight)[0])

    @property
    def num_edges(self) -> int:
        """Number of directed edges."""
        return self.in_idx.numel()

    @property
    def device(self) -> torch.device:
        """Where the graph lives."""
        return self.in_ptr.device

    @property
    def in_degree(self) -> Tensor:
        """int64 `[agents]`: number of incoming edges."""
        return self.in_ptr[1:] - self.in_ptr[:-1]

    @property
    def out_degree(self) -> Tensor:
        """int64 `[agents]`: number of outgoing edges."""
        return self.out_ptr[1:] - self.out_ptr[:-1]

    def to(self, device: torch.device | str) -> "Graph":
        """The graph on another device."""
        moved = {name: None if (t := getattr(self, name)) is None else t.to(device) for name in _TENSORS}
        return dataclasses.replace(self, **moved)

    def with_weight(self, weight: Tensor, *, max: float | None = None) -> "Graph":
        """The graph with other weights.

        Args:
            weight: float32 `[edges]` in canonical order.
            max: largest weight that can occur; default: the largest there is (read once, now).
        """
        if weight.shape != (self.num_edges,) or weight.dtype != torch.float32:
            raise InputError(
                f"Graph.with_weight: weight is {weight.dtype} {tuple(weight.shape)}, "
                f"expected torch.float32 ({self.num_edges},) in canonical edge order (see Graph.edges)"
            )
        bound = float(weight.detach().abs().max()) if max is None and self.num_edges else float(max or 1.0)
        _, order, _ = csr(self.in_idx.cpu().numpy(), self.num_agents)
        return dataclasses.replace(
            self, weight=weight, max_weight=bound, out_edge=torch.from_numpy(order).to(self.device)
        )

    def edges(self) -> tuple[Tensor, Tensor]:
        """(source, target) of every edge in canonical order: int64 `[edges]` each."""
        return self.in_idx.long(), edge_targets(self.in_ptr, self.num_edges)

    def renumber(self, order: Tensor) -> "Graph":
        """The same graph with agents laid out anew: agent `order[k]` moves to place k.

        Args:
            order: int64 `[agents]`, a permutation.
        """
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel(), device=order.device)
        source, target = (place[e.to(order.device)].cpu().numpy() for e in self.edges())
        weight = None if self.weight is None else self.weight.cpu().numpy()
        dtype = index_dtype(self.num_agents)
        edges = EdgeList(self.num_agents, source.astype(dtype), target.astype(dtype), weight)
        return self._build(edges).to(self.device)

    def sum(
        self,
        values: Tensor,
        *,
        where: Tensor | None = None,
        needed: Tensor | None = None,
        max: float | None = None,
        step: Tensor | None = None,
    ) -> Tensor:
        """Sum of `values` over each agent's in-neighbours, times the edge weights.

        Integer values (masks, counts) without weights are summed as integers, exactly. Real values with a declared
        bound, and weighted int8 (masks, small counts), are summed in fixed point: exact to 2^-40 of the bound, or of
        the largest weight, for each edge and the same bits in any order; a little less where agents have more than
        30,000 neighbours. Other values are added in canonical edge order.

        Args:
            values: `[agents]`. Senders with value 0 cost nothing.
            where: mask `[agents]`; agents with 0 receive 0 and need not be computed. In a relaxed run this cuts what
                reaches those who only might have been among the others out of the gradient.
            needed: mask `[agents]` of those whose sum the step uses; nothing may depend on the sums of the others. Like
                `where` in a hard run, where they are not computed and are 0. Where it holds shares, as masks do in
                a relaxed run, everybody's sum is computed: who might have been among them counts for the gradient.
            max: largest |value * weight| that can occur, from 2^-86 to the largest float32. A larger value, or a NaN,
                makes the whole result NaN.
            step: taken and not used, so that a model serves a graph and `Layers` with schedules alike.

        Returns:
            `[agents]`: int32 for a mask, int64 for wider integers, else float32.
        """
        self._check("sum", values, where, needed)
        if needed is not None and not needed.dtype.is_floating_point:
            where = needed
        receivers = None
        if where is not None:
            receivers = (where if where.dtype == torch.int8 else (where != 0).to(torch.int8))[None]
        if values.dtype == torch.bool:
            values = values.to(torch.int8)
        elif values.dtype.is_floating_point:
            values = values.to(torch.float32)
        row = values[None]
        if not values.dtype.is_floating_point and self.weight is None:
            return ops.sum_counts(row, receivers, self.in_ptr, self.in_idx, self.out_ptr, self.out_idx)[0]
        arrays = (row, receivers, self.weight, self.in_ptr, self.in_idx, self.out_ptr, self.out_idx, self.out_edge)
        if max is not None:
            return ops.sum_fixed(*arrays, self._fraction_bits(max), float(max))[0]
        if values.dtype == torch.int8:  # resolved as finely as a mask, with room for the largest int8
            unit = builtins.max(self.max_weight, _MIN_BOUND)
            bound = builtins.min(unit * 2**_INT8_BITS, _MAX_BOUND)
            return ops.sum_fixed(*arrays, self._fraction_bits(unit, _INT8_BITS), bound)[0]
        return ops.sum_real(*arrays)[0]

    def mean(
        self,
        values: Tensor,
        *,
        where: Tensor | None = None,
        needed: Tensor | None = None,
        max: float | None = None,
    ) -> Tensor:
        """Mean of `values` over in-neighbours, weighted where the graph is; 0 for agents without any: float32.

        Arguments as for `sum`.
        """
        self._check("mean", values, where, needed)
        total = self.sum(values, where=where, needed=needed, max=max).to(torch.float32)
        if self.weight is None:
            share = self.in_degree.to(torch.float32)
        else:
            ones = torch.ones(self.num_agents, dtype=torch.float32, device=self.device)
            share = ops.sum_real(
                ones[None], None, self.weight, self.in_ptr, self.in_idx, self.out_ptr, self.out_idx, self.out_edge
            )[0]
        return torch.where(share > 0, total / torch.where(share > 0, share, 1.0), 0.0)

    def max(self, values: Tensor, *, where: Tensor | None = None, empty: float = 0) -> Tensor:
        """Largest value among in-neighbours (weights do not count), `empty` without any: dtype of `values`."""
        self._check("max", values, where)
        source, target = self.edges()
        out = torch.full_like(values, empty).scatter_reduce(0, target, values[source], "amax", include_self=False)
        return out if where is None else torch.where(where != 0, out, torch.full_like(out, empty))

    def any(self, values: Tensor, *, where: Tensor | None = None) -> Tensor:
        """Mask int8 `[agents]`: 1 where some in-neighbour's value is not 0."""
        self._check("any", values, where)
        active = (values != 0).to(torch.int8)
        counts = ops.sum_counts(
            active[None],
            None if where is None else (where != 0).to(torch.int8)[None],
            self.in_ptr,
            self.in_idx,
            self.out_ptr,
            self.out_idx,
        )
        return (counts[0] != 0).to(torch.int8)

    def attribute(self, rng: Rng, name: str, happened: Tensor, values: Tensor, *, step: Tensor | None = None) -> Origin:
        """Who caused what happened: one in-neighbour each, with probability in proportion to value times weight.

        That is the law of who infected whom, given the hazards: hazards compete, and the first one acts. The choice has
        a stream of its own and depends on the ids at the ends of the edges alone; what happened stays as it is.

        Args:
            rng: of the step.
            name: stream.
            happened: mask `[agents]` of those to whom it happened; the others cost nothing.
            values: `[agents]`, what was summed to make the hazard: a mask of the infectious, or how infectious each is.
                Agents at 0, below it or at NaN cause nothing.
            step: taken and not used, as by `sum`.

        Returns:
            See `denizen.space.Origin`.

        Raises:
            ModelError: in a relaxed run, in which nothing happens to anybody but in shares.
        """
        return origin("Graph", rng, name, [self], [], [happened], [values])

    def traced(self, rng: Rng, name: str, index: Tensor, prob: Tensor | float) -> Tensor:
        """Whom contact tracing finds: each contact with an index case is named with a probability, independently.

        Weights do not count. Where each case names all contacts or none, thin the cases and not the contacts:
        ``contacts.any(index * rng.bernoulli("names", share))``.

        Args:
            rng: of the step.
            name: stream.
            index: mask `[agents]` of index cases, such as ``tested.within(1, 2)`` of a history; or whole numbers: how
                often each met all its contacts in the days that are looked back upon.
            prob: that a meeting is remembered and the contact found: a number, 0-d, or `[agents]` of those looked for.

        Returns:
            mask int8 `[agents]`: 1 with probability 1 - (1 - prob)^k for k meetings with index cases.

        Raises:
            ModelError: in a relaxed run.
            InputError: a number outside 0 to 1.
        """
        return traced("Graph", rng, name, {"": self}, index, {"": prob})

    def _check(self, method: str, values: Tensor, where: Tensor | None, needed: Tensor | None = None) -> None:
        if where is not None and needed is not None:
            raise ModelError(
                f"Graph.{method}: got where= and needed=, expected one: needed= for sums of others that nothing uses, "
                f"where= for sums of others that are 0"
            )
        for name, tensor in (("values", values), ("where", where), ("needed", needed)):
            if tensor is not None and not isinstance(tensor, Tensor):
                raise ModelError(
                    f"Graph.{method}: {name} is {type(tensor).__name__} {reprlib.repr(tensor)}, expected a tensor "
                    f"({self.num_agents},), one for each agent"
                )
            if tensor is not None and tensor.is_complex():
                raise ModelError(f"Graph.{method}: {name} is {tensor.dtype}, expected masks, whole or real numbers")
            if tensor is not None and tensor.shape != (self.num_agents,):
                raise ModelError(
                    f"Graph.{method}: {name} has shape {tuple(tensor.shape)}, expected ({self.num_agents},), one for "
                    f"each agent"
                )

    def _fraction_bits(self, bound: float, spare: int = 0) -> int:
        return fraction_bits("Graph.sum", bound, self.max_in_degree, spare)

    def __repr__(self) -> str:
        weights = "" if self.weight is None else ", weighted"
        return f"Graph({self.num_agents:,} agents, {self.num_edges:,} edges{weights}, {self.device})"


def fraction_bits(caller: str, bound: float, neighbours: int, spare: int = 0) -> int:
    """Binary digits after the point of fixed-point sums.

    Args:
        caller: for the message.
        bound: largest value of one neighbour.
        neighbours: how many there are at most.
        spare: values may be 2**spare times as large without overflow.
    """
    if not _MIN_BOUND <= bound <= _MAX_BOUND:
        raise ModelError(f"{caller}: max={bound}, expected a number from {_MIN_BOUND:.3g} to {_MAX_BOUND:.3g}")
    headroom = 62 - math.ceil(math.log2(neighbours + 1)) - spare
    return min(FRACTION_BITS, headroom) - math.ceil(math.log2(bound))


def _host(values: Any) -> np.ndarray:
    if not isinstance(values, Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # NumPy has no bfloat16


def _flatten(graph: Graph) -> tuple[list[Any], Any]:
    static = (graph.num_agents, graph.max_weight, graph.max_in_degree, graph.max_out_degree)
    return [getattr(graph, name) for name in _TENSORS], static


def _unflatten(children: list[Any], static: Any) -> Graph:
    num_agents, *rest = static
    return Graph(num_agents, *children, *rest)


_tree.register(Graph, _flatten, _unflatten)


# --- its arrays, made of its edges: on the host by NumPy, on a device by torch where the edges are there --------------


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
