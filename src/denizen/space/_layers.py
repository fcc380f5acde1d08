"""Several contact graphs over the same agents, each with a name and a strength that may change with time."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen import _tree
from denizen.errors import InputError, ModelError, nearest
from denizen.rng import Rng
from denizen.space._edges import EdgeList
from denizen.space._graph import Graph
from denizen.space._mixing import Mixing
from denizen.space._origin import Origin, lots, origin, positive, traced


class Layers:
    """Named layers (household, work, school, community …), summed with one strength per layer.

    Args:
        graphs: graphs, edge lists or `Mixing` by name, all over the same number of agents.
        strength: factor of each layer: a number, a 0-d tensor, or a schedule `[steps]` that gives one factor for each
            step, whatever its length, and whose last value holds from then on. Default 1.

    Examples:
        >>> layers = Layers({"home": Graph.from_edges([0], [1], 3), "work": Graph.from_edges([2], [1], 3)})
        >>> layers.sum(torch.tensor([1, 0, 1], dtype=torch.int8), scale={"work": 0.5})
        tensor([0.0000, 1.5000, 0.0000])
    """

    def __init__(
        self, graphs: Mapping[str, Graph | EdgeList | Mixing], strength: Mapping[str, Any] | None = None
    ) -> None:
        if not graphs:
            raise InputError("Layers: no graph was given; pass a mapping such as {'household': graph}")
        for name, graph in graphs.items():
            if not isinstance(graph, Graph | EdgeList | Mixing):
                raise InputError(f"Layers: {name!r} is {type(graph).__name__}, expected a Graph, EdgeList or Mixing")
        built = {name: Graph.from_edges(g) if isinstance(g, EdgeList) else g for name, g in graphs.items()}
        sizes = {name: graph.num_agents for name, graph in built.items()}
        if len(set(sizes.values())) > 1:
            raise InputError(f"Layers: the graphs have different numbers of agents: {sizes}")
        self.graphs: dict[str, Graph | Mixing] = built
        device = next(iter(built.values())).device
        self.strength: dict[str, Tensor] = dict.fromkeys(built, torch.ones((), device=device))
        for name, value in (strength or {}).items():
            self._known(name)
            try:
                factor = torch.as_tensor(value, dtype=torch.float32, device=device)
            except (TypeError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"Layers: strength of {name!r} is {value!r}, expected a number or a schedule"
                ) from error
            if factor.dim() > 1 or factor.numel() == 0:
                raise InputError(
                    f"Layers: strength of {name!r} has shape {tuple(factor.shape)}, expected () or (steps,)"
                )
            if not bool(torch.isfinite(factor.detach()).all()):
                raise InputError(f"Layers: strength of {name!r} is {value!r}, expected finite numbers")
            self.strength[name] = factor

    @property
    def num_agents(self) -> int:
        """Number of agents."""
        return next(iter(self.graphs.values())).num_agents

    @property
    def num_edges(self) -> int:
        """Number of directed edges over all layers; random mixing has none."""
        return sum(graph.num_edges for graph in self.graphs.values() if isinstance(graph, Graph))

    def __getitem__(self, name: str) -> Graph | Mixing:
        self._known(name)
        return self.graphs[name]

    def to(self, device: torch.device | str) -> "Layers":
        """The layers on another device."""
        return self._with(
            {n: g.to(device) for n, g in self.graphs.items()}, {n: s.to(device) for n, s in self.strength.items()}
        )

    def renumber(self, order: Tensor) -> "Layers":
        """The same layers with agents laid out anew; see `Graph.renumber`."""
        return self._with({name: graph.renumber(order) for name, graph in self.graphs.items()}, self.strength)

    def sum(
        self,
        values: Tensor | Mapping[str, Tensor],
        *,
        where: Tensor | None = None,
        needed: Tensor | None = None,
        max: float | None = None,
        step: Tensor | None = None,
        scale: Mapping[str, Any] | None = None,
        alive: Tensor | None = None,
    ) -> Tensor:
        """Sum over in-neighbours of every layer, each times its strength: float32 `[agents]`.

        Hazards add up over layers, so escaping infection is the product over layers, in any order, and one draw an
        agent serves them all.

        Args:
            values: `[agents]`, as for `Graph.sum`; or by layer, where layers sum different values, for example of those
                who are isolated at work and not at home.
            where: mask of receivers, as for `Graph.sum`.
            needed: mask of those whose sum is used, as for `Graph.sum`.
            max: bound of values, as for `Graph.sum`.
            step: 0-d step number (`now.time.step`) that picks from the schedules; needed where one was given.
            scale: further factors by layer for this call: a number, for example of a closure decided in the step, or
                one for each receiver, `[agents]`.
            alive: mask `[agents]` of those who are there, where that changes: the others send nothing, and in a
                `Mixing` they are no members of their group. Without it a `Mixing` meets the dead as often as ever.
        """
        each = self._of_the_living("sum", values, alive)
        for name in (*(scale or {}), *each):
            self._known(name)
        total: Any = 0.0
        for name, graph in self.graphs.items():
            if name not in each:
                raise ModelError(f"Layers.sum: values has {', '.join(each)}, and none for {name!r}")
            factor = self._at(name, step)
            if scale and name in scale:
                factor = factor * scale[name]
            there = {"alive": alive} if isinstance(graph, Mixing) else {}
            total = total + factor * graph.sum(each[name], where=where, needed=needed, max=max, **there)
        return total

    def attribute(
        self,
        rng: Rng,
        name: str,
        happened: Tensor,
        values: Tensor | Mapping[str, Tensor],
        *,
        reached: Mapping[str, Tensor] | None = None,
        step: Tensor | None = None,
        scale: Mapping[str, Any] | None = None,
        alive: Tensor | None = None,
    ) -> Origin:
        """Who caused what happened, and in which layer: in proportion to value times weight times the layer's strength.

        Args:
            rng: of the step.
            name: stream.
            happened: mask `[agents]` of those to whom it happened.
            values: `[agents]`, what was summed to make the hazard, see `Graph.attribute`; or by layer, where layers sum
                different values: those who stay at home infect there alone.
            reached: mask `[agents]` by layer of those whom it can reach; all where a layer is left out.
            step: as `sum` was given it.
            scale: as `sum` was given it.
            alive: as `sum` was given it.

        Raises:
            ModelError: in a relaxed run.
        """
        each = self._of_the_living("attribute", values, alive)
        for layer in (*(scale or {}), *(reached or {}), *each):
            self._known(layer)
        factors, sent, to = [], [], []
        for layer in self.graphs:
            if layer not in each:
                raise ModelError(f"Layers.attribute: values has {', '.join(each)}, and none for {layer!r}")
            sent.append(each[layer])
            to.append(happened * reached[layer] if reached and layer in reached else happened)
            factor = self._at(layer, step)
            factors.append(factor * scale[layer] if scale and layer in scale else factor)
        graphs = [graph for graph in self.graphs.values() if isinstance(graph, Graph)]
        if len(graphs) == len(self.graphs) and all(factor.dim() == 0 for factor in factors):
            return origin("Layers", rng, name, graphs, factors, to, sent)
        return self._by_layer(rng[name], factors, to, sent, alive)

    def _by_layer(
        self, rng: Rng, factors: Sequence[Tensor], happened: Sequence[Tensor], values: Sequence[Tensor], alive: Any
    ) -> Origin:
        """First the layer, in proportion to its part of the hazard, then who within it; lists have a place for each."""
        _, lot = lots("Layers.attribute", rng, "layer")
        there = [{"alive": alive} if isinstance(graph, Mixing) else {} for graph in self.graphs.values()]
        end, ends = torch.zeros_like(lot), []
        for graph, factor, to, sent, options in zip(
            self.graphs.values(), factors, happened, values, there, strict=True
        ):
            part = factor.detach() * graph.sum(positive(sent), needed=to, **options).detach()
            end = end + torch.where(to != 0, part, 0.0).clamp(min=0).to(torch.float64)
            ends.append(end)
        at, begin = torch.minimum(lot * end, end * (1 - 2.0**-52)), torch.zeros_like(lot)
        source, layer = torch.full_like(lot, -1, dtype=torch.int32), torch.full_like(lot, -1, dtype=torch.int8)
        for number, (graph, to, sent) in enumerate(zip(self.graphs.values(), happened, values, strict=True)):
            picked = (to != 0) & (at >= begin) & (at < ends[number])
            by = graph.attribute(rng, str(number), picked.to(torch.int8), sent, **there[number]).source
            source, layer = torch.where(by >= 0, by, source), torch.where(by >= 0, number, layer)
            begin = ends[number]
        return Origin(source, layer.to(torch.int8))

    def _of_the_living(
        self, method: str, values: Tensor | Mapping[str, Tensor], alive: Tensor | None
    ) -> Mapping[str, Tensor]:
        """Values by layer, 0 of the dead."""
        each = values if isinstance(values, Mapping) else dict.fromkeys(self.graphs, values)
        if alive is None:
            return each
        if not isinstance(alive, Tensor) or alive.shape != (self.num_agents,):
            got = tuple(alive.shape) if isinstance(alive, Tensor) else f"{type(alive).__name__} {alive!r}"
            raise ModelError(f"Layers.{method}: alive is {got}, expected a mask ({self.num_agents},)")
        return {name: torch.where(alive != 0, one, torch.zeros_like(one)) for name, one in each.items()}

    def traced(self, rng: Rng, name: str, index: Tensor, prob: Tensor | float | Mapping[str, Any]) -> Tensor:
        """Whom contact tracing finds; see `Graph.traced`. Strengths do not count.

        Args:
            rng: of the step.
            name: stream.
            index: mask `[agents]` of index cases, or how often each met all its contacts.
            prob: that a contact is found, or by layer; layers that are left out are not traced.

        Raises:
            ModelError: a layer to be traced is `Mixing`, which has no edges, or the run is relaxed.
        """
        each = prob if isinstance(prob, Mapping) else dict.fromkeys(self.graphs, prob)
        graphs = {}
        for layer in each:
            self._known(layer)
            graph = self.graphs[layer]
            if not isinstance(graph, Graph):
                raise ModelError(f"Layers.traced: {layer!r} is {type(graph).__name__}, which has no edges to go by")
            graphs[layer] = graph
        return traced("Layers", rng, name, graphs, index, each)

    def _at(self, name: str, step: Tensor | None) -> Tensor:
        strength = self.strength[name]
        if strength.dim() == 0:
            return strength
        if step is None:
            raise ModelError(f"Layers: {name!r} has a schedule; pass step=now.time.step")
        # index_select: a 0-d tensor in brackets is read on the host when compiled
        return strength.index_select(0, step.clamp(max=strength.numel() - 1)[None])[0]

    def _known(self, name: str) -> None:
        if name not in self.graphs:
            raise InputError(f"Layers: unknown layer {name!r}; {nearest(name, self.graphs)}")

    @classmethod
    def _with(cls, graphs: dict[str, Graph | Mixing], strength: dict[str, Tensor]) -> "Layers":
        layers = object.__new__(cls)
        layers.graphs, layers.strength = graphs, strength
        return layers

    def __repr__(self) -> str:
        return f"Layers({', '.join(f'{name}: {_brief(graph)}' for name, graph in self.graphs.items())})"


def _brief(graph: Graph | Mixing) -> str:
    return f"{graph.num_edges:,} edges" if isinstance(graph, Graph) else f"mixing of {graph.num_groups}"


def _flatten(layers: Layers) -> tuple[list[Any], Any]:
    return [*layers.graphs.values(), *layers.strength.values()], tuple(layers.graphs)


def _unflatten(children: list[Any], names: Any) -> Layers:
    half = len(names)
    return Layers._with(dict(zip(names, children[:half], strict=True)), dict(zip(names, children[half:], strict=True)))


_tree.register(Layers, _flatten, _unflatten)
